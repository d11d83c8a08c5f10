"""Every editor on every benchmark: one run per benchmark, what an editor learns learned once, one table of headlines."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.answers import fatal
from kedit.artefacts import read_json, write_bytes, write_json
from kedit.backbone import Backbone
from kedit.benchmark import Benchmark
from kedit.bootstrap import Estimate
from kedit.config import difference, run_config
from kedit.editor import Editor
from kedit.errors import ContractError, DataError, NotFittedError, StoreError, UnknownNameError, unknown_name
from kedit.evaluate import evaluate
from kedit.generators import seed_by
from kedit.methods import nothing
from kedit.metrics import OVERALL
from kedit.plots import bars_plot, save_plot
from kedit.report.export import safe_name
from kedit.report.html import shown_html
from kedit.report.notes import FEW_CASES, Note
from kedit.report.results import Results
from kedit.report.tables import Column, Table
from kedit.report.text import csv_text, markdown, table_text
from kedit.run import Run
from kedit.seal import Seal
from kedit.shipped import shipped
from kedit.work import by_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FITTED = "fitted-editors"
NO_VALUE = "no value: not defined for these cases, such as an F1 where all references are the same; ask for more"
"""Folder, beside the runs, of what editors learned for a matrix."""
Progress = Callable[[str, str, str, int, int], None]
"""Called after every case: benchmark, editor, task, cases done, cases in all."""


@dataclass(frozen=True)
class Part:
    """A column: one task of one benchmark, by its headline."""

    benchmark: str
    task: str
    headline: str
    scored: str
    """How its answers are scored, with the version of that."""

    @property
    def label(self) -> str:
        """The heading."""
        return f"{self.benchmark} {self.task}: {self.headline}"


@dataclass(frozen=True)
class Matrix:
    """The runs of several benchmarks with the same editors; shows itself as one table.

    ``skipped`` says by the name of an editor or a benchmark why it has no results.
    """

    runs: Mapping[str, Run]
    editors: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _results(self) -> dict[str, Results]:
        return {name: Results(run) for name, run in self.runs.items()}

    @cached_property
    def parts(self) -> list[Part]:
        """The columns, benchmark by benchmark."""
        return [_part(name, results, task) for name, results in self._results.items() for task in results.run.tasks]

    def value(self, editor: str, part: Part) -> Estimate | None:
        """The headline of one editor in one column, 0 to 100 with its interval; None where there is none."""
        results = self._results[part.benchmark]
        return results.headline(editor, part.task) if editor in results.editors else None

    @cached_property
    def values(self) -> dict[str, list[Estimate | None]]:
        """By editor: a value for each column."""
        return {editor: [self.value(editor, part) for part in self.parts] for editor in self.editors}

    def table(self) -> Table:
        """Rows are editors, columns the headlines of the benchmarks' tasks."""
        keys = [f"{part.benchmark}/{part.task}" for part in self.parts]
        columns = [Column(key, part.label, "estimate") for key, part in zip(keys, self.parts, strict=True)]
        return Table(
            key="matrix",
            title=f"Headlines on {self._backbone}",
            kind="measures",
            columns=(Column("editor", "Editor", "name"), *columns),
            rows=tuple((editor, *row) for editor, row in self.values.items()),
            notes=tuple(self._notes()),
        )

    @property
    def _backbone(self) -> str:
        return next((str(run.config["identity"]["backbone"]["id"]) for run in self.runs.values()), "no backbone")

    def _notes(self) -> Iterator[Note]:
        yield Note("0 to 100, higher is better [95 % bootstrap interval over cases]; numbers of two columns do not compare.")
        few = []
        for k, part in enumerate(self.parts):
            counts = sorted({e.n for row in self.values.values() if (e := row[k]) is not None})
            n = f"n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}" if counts else NO_VALUE
            limit = self.runs[part.benchmark].config["identity"]["benchmark"]["limit"]
            yield Note(f"{part.label}: {part.scored}; {n}{f', of the first {limit} raw cases' if limit else ''}.")
            few += [f"{part.benchmark} {part.task}"] if counts and counts[0] < FEW_CASES else []
        if few:
            yield Note(f"Fewer than {FEW_CASES} cases in {', '.join(few)}: do not read small differences.", warning=True)
        for benchmark, results in self._results.items():
            for editor in results.editors:
                if failed := sum(results.failed(editor, task) for task in results.run.tasks):
                    yield Note(f"{editor} failed in {failed} cases of {benchmark}: see its run.", warning=True)
        for name, why in self.skipped.items():
            yield Note(f"{name} was left out: {why}", warning=True)

    def figure(self) -> Figure:
        """Bars of every column, an editor in each colour."""
        groups = [f"{part.benchmark}\n{part.task}\n{part.headline}" for part in self.parts]
        return bars_plot(f"Headlines on {self._backbone}", "headline (0 to 100)", groups, self.values)

    def write(self, folder: str | Path) -> list[Path]:
        """Write ``matrix.md``, ``.csv``, ``.json``, ``.png`` and ``.svg`` to a folder."""
        stem, table = Path(folder) / "matrix", self.table()
        write_bytes(stem.with_suffix(".md"), markdown(table).encode())
        write_bytes(stem.with_suffix(".csv"), csv_text(table).encode())
        write_json(stem.with_suffix(".json"), self._json())
        drawn = save_plot(self.figure(), stem) if self.parts else ()
        return [*(stem.with_suffix(f".{ending}") for ending in ("md", "csv", "json")), *drawn]

    def _json(self) -> dict[str, Any]:
        rows = {name: [None if e is None else asdict(e) for e in row] for name, row in self.values.items()}
        folders = {name: str(run.path) for name, run in self.runs.items()}
        shown = {"backbone": self._backbone, "columns": [asdict(part) for part in self.parts], "rows": rows}
        found: dict[str, Any] = json.loads(json.dumps({**shown, "runs": folders, "skipped": dict(self.skipped)}))
        return found

    def __repr__(self) -> str:
        return table_text(self.table())

    def _repr_html_(self) -> str:
        return shown_html(self.table())


def _part(benchmark: str, results: Results, task: str) -> Part:
    ways = [way for way, _ in results.scorings(task).values()]
    label = results.headline_label(task)
    if results.run.headline(task) == OVERALL:
        label = f"{label}, {' and '.join(dict.fromkeys(way.label for way in ways))}"
    return Part(benchmark, task, label, ", ".join(way.id for way in ways))


def matrix(
    editors: Editor | Sequence[Editor] | Mapping[str, Editor],
    backbone: Backbone,
    benchmarks: Benchmark | Sequence[Benchmark] | Mapping[str, Benchmark],
    *,
    out: str | Path | None = None,
    train: Benchmark | None = None,
    train_limit: int | None = None,
    tasks: str | Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    max_new_tokens: int = 64,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Matrix:
    """Run every editor on every benchmark; the one that does nothing is always among them.

    ``tasks`` are those to run of each benchmark that has them; all that ``evaluate`` runs by default if left out. Raises
    UnknownNameError for one that no benchmark has.
    A benchmark's run is in ``out``/<its name> and resumes as any run does. An editor that learns takes what ships for the
    backbone, else it is fitted once on ``train`` (the first of the benchmarks with a train split where none is given;
    ``train_limit`` counts its raw cases) and kept in ``out``/fitted-editors. One that cannot be fitted, or a benchmark whose
    files cannot be read, is left out and named in ``Matrix.skipped``. Raises StoreError where ``out`` holds another
    configuration.
    """
    wanted = by_name(editors)
    if not any(editor.does_nothing for editor in wanted.values()):
        wanted = {nothing().name: nothing(), **wanted}
    named = names_of(benchmarks)
    wanted_tasks = (tasks,) if isinstance(tasks, str) else tasks
    chosen = _chosen(wanted_tasks, named)
    source = train or next((one for one in named.values() if _learnable(one)), None)
    folder = Path(out) if out is not None else None
    fitting = _Fitting(backbone, source, train_limit, seed, folder / FITTED if folder else None)
    skipped = {name: why for name, editor in wanted.items() if (why := fitting.prepared(name, editor)) is not None}
    ready = {name: editor for name, editor in wanted.items() if name not in skipped}
    runs = {}
    for name, benchmark in named.items():
        if chosen[name] == ():
            skipped[name] = f"it has none of the tasks {', '.join(wanted_tasks or ())}"
            continue
        try:
            runs[name] = evaluate(
                ready,
                backbone,
                benchmark,
                tasks=chosen[name],
                limit=limit,
                out=None if folder is None else folder / safe_name(name),
                seed=seed,
                max_new_tokens=max_new_tokens,
                cache_dir=cache_dir,
                progress=_of(name, progress),
            )
        except (DataError, UnknownNameError) as error:
            skipped[name] = str(error)
    return Matrix(runs, tuple(wanted), skipped)


def names_of(benchmarks: Benchmark | Sequence[Benchmark] | Mapping[str, Benchmark]) -> dict[str, Benchmark]:
    """Benchmarks by name; those of one name are told apart by the last part of their path, else by a number."""
    if isinstance(benchmarks, Mapping):
        return dict(benchmarks)
    several = list(benchmarks) if isinstance(benchmarks, Sequence) else [benchmarks]
    twice = {name for name, count in Counter(one.name for one in several).items() if count > 1}
    found: dict[str, Benchmark] = {}
    for one in several:
        path = getattr(one, "path", None)
        name = f"{one.name}-{Path(str(path)).name}" if one.name in twice and path is not None else one.name
        number = next(n for n in range(1, len(several) + 2) if (name if n == 1 else f"{name}-{n}") not in found)
        found[name if number == 1 else f"{name}-{number}"] = one
    return found


def _chosen(tasks: Sequence[str] | None, named: Mapping[str, Benchmark]) -> dict[str, tuple[str, ...] | None]:
    """By benchmark: those of the tasks that it has; None for what it runs by default, also where it cannot be read."""
    if tasks is None:
        return dict.fromkeys(named)
    has: dict[str, tuple[str, ...] | None] = {}
    for name, benchmark in named.items():
        try:
            has[name] = tuple(task for task in tasks if task in benchmark.tasks)
        except (DataError, UnknownNameError):  # told when it is run
            has[name] = None
    for task in tasks:
        if not any(found is None or task in found for found in has.values()):
            raise unknown_name("task", task, {task for one in named.values() for task in one.tasks})
    return has


def _learnable(benchmark: Benchmark) -> bool:
    try:
        return bool(benchmark.train(1))
    except (DataError, UnknownNameError):  # told when it is run
        return False


def _of(benchmark: str, progress: Progress | None) -> Any:
    if progress is None:
        return None
    return lambda editor, task, done, total: progress(benchmark, editor, task, done, total)


@dataclass
class _Fitting:
    """Where what editors learn comes from: what ships, what an earlier call kept, or the train split."""

    backbone: Backbone
    source: Benchmark | None
    limit: int | None
    seed: int
    folder: Path | None

    def prepared(self, name: str, editor: Editor) -> str | None:
        """Make an editor ready to insert; why that is not possible, or None."""
        if not editor.needs_fit or (editor.fitted and getattr(editor, "backbone_", None) is self.backbone):
            return None
        before = Seal(self.backbone.model)
        try:
            self._prepare(name, editor)
        except Exception as error:
            if changed := before.changed():
                raise ContractError(f"{name}: fit() failed and left weights changed: {', '.join(changed[:3])}") from error
            if isinstance(error, StoreError) or (fatal(error) and not isinstance(error, NotFittedError)):
                raise
            return f"{type(error).__name__}: {error}"
        return None

    def _prepare(self, name: str, editor: Editor) -> None:
        place = None if self.folder is None else self.folder / safe_name(name)
        if (found := shipped(editor, self.backbone.id)) is not None:
            editor.attach(self.backbone).load(found)
        elif place is not None and self._kept(place, name, editor):
            editor.attach(self.backbone).load(place)
        else:
            self._fit(name, editor)
            if place is not None:
                self._keep(place, name, editor)
                editor.load(place)  # so that this run and one that is resumed name the same source

    def _fit(self, name: str, editor: Editor) -> None:
        cases = self.source.train(self.limit) if self.source is not None else ()
        if not cases and editor.needs_cases:
            raise NotFittedError(
                "it learns before it inserts, nothing that it learned ships for this backbone, and no benchmark here has a "
                "train split; give one to learn from (train=..., --train-on), or what it learned (kedit.fitted, --fitted)"
            )
        editor.attach(self.backbone)
        seed_by(self.seed, name, "fit")
        editor.fit(cases)

    def _kept(self, place: Path, name: str, editor: Editor) -> bool:
        about = _about(place)
        if not about.exists():
            return False
        if changes := difference(read_json(about), self._identity(name, editor)):
            listed = "\n  ".join(changes)
            raise StoreError(f"{place} was learned otherwise (there -> here):\n  {listed}\nname another folder for this matrix")
        return True

    def _keep(self, place: Path, name: str, editor: Editor) -> None:
        shutil.rmtree(place, ignore_errors=True)  # what a killed call left
        editor.save(place)
        write_json(_about(place), self._identity(name, editor))  # last: it says that the rest is whole

    def _identity(self, name: str, editor: Editor) -> dict[str, Any]:
        source: Any = self.source or _Nothing()
        found = run_config(
            {name: editor}, self.backbone, source, {}, limit=self.limit, seed=self.seed, max_new_tokens=0, plain=False
        )
        identity: dict[str, Any] = found["identity"]
        identity["editors"][name].pop("learned", None)
        return identity


def _about(place: Path) -> Path:
    return place.with_name(f"{place.name}.json")


class _Nothing:
    """In place of a benchmark to learn from."""

    name, revision = "nothing", ""
