"""What a backbone says by itself: a benchmark's reference answers against an unedited model (CrossCult-KIBench, Fig. 1b)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.artefacts import write_bytes
from kedit.backbone import Backbone
from kedit.benchmark import Benchmark, Task
from kedit.bootstrap import Estimate
from kedit.errors import DataError, unknown_name
from kedit.evaluate import Progress, evaluate
from kedit.methods import nothing
from kedit.metrics import OVERALL, Scores, measure, summarise
from kedit.plots import bars_plot, save_plot
from kedit.protocols import unedited
from kedit.report.export import safe_name
from kedit.report.notes import group_notes
from kedit.report.results import Results
from kedit.report.tables import Cell, Column, Table
from kedit.report.text import csv_text, markdown
from kedit.run import Run
from kedit.types import Case, Record
from kedit.work import tasks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "all"
PARTITION = "partition"
_MOST_PAIRS = 60
"""More pairs of groups than these are not listed: what is left of each is too few cases."""


@dataclass(frozen=True)
class Unedited:
    """A benchmark with nothing inserted and nothing asked but what it has reference answers to.

    Of chains in several orders the first order is kept, for all ask the same. A question of a chain belongs to the partition
    of its language where the results are broken down by partition and the case, with steps in several, names none.
    ``wanted`` are the tasks to look at.
    """

    benchmark: Benchmark
    wanted: tuple[str, ...]
    limit: int | None = None

    @property
    def name(self) -> str:
        """That of the benchmark."""
        return self.benchmark.name

    @property
    def revision(self) -> str:
        """That of the benchmark."""
        return self.benchmark.revision

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """Those of the benchmark that have references, with the dimensions that do."""
        found = {}
        for name in self.wanted:
            task = self.benchmark.tasks[name]
            asked = {probe.dimension for case in self._cases[name] for probe in case.probes}
            if dimensions := tuple(d for d in task.dimensions if d.name in asked):
                found[name] = replace(task, protocol=unedited, dimensions=dimensions)
        return found

    @cached_property
    def _cases(self) -> dict[str, list[Case]]:
        return {name: self._known(self.benchmark.tasks[name]) for name in self.wanted}

    def _known(self, task: Task) -> list[Case]:
        cases = self.benchmark.cases(task.name, limit=self.limit)
        first = next((case.tags["order"] for case in cases if "order" in case.tags), None)
        kept = (_asked(case, task) for case in cases if case.tags.get("order", first) == first)
        return [case for case in kept if case.probes]

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """Cases without a chain; ``limit`` is that of the constructor."""
        if task not in self.tasks:
            raise unknown_name("task", task, self.tasks)
        return self._cases[task]

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """Nothing."""
        return ()


def _asked(case: Case, task: Task) -> Case:
    tags = {name: value for name, value in case.tags.items() if name != "order"}
    by_language = PARTITION in task.groups and PARTITION not in tags
    probes = []
    for probe in case.probes:
        if probe.reference is not None:
            own = {PARTITION: probe.request.language} if by_language and PARTITION not in probe.tags else {}
            probes.append(replace(probe, tags={**own, **probe.tags}))
    return Case(case.id, (), tuple(probes), tags)


def diagnose(
    backbone: Backbone,
    benchmark: Benchmark,
    *,
    tasks: str | Sequence[str] | None = None,
    limit: int | None = None,
    out: str | Path | None = None,
    max_new_tokens: int = 64,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Run:
    """Ask a backbone, unedited, everything that a benchmark has reference answers to, in batches; returns the run.

    The run's folder resumes as any does; ``tables`` breaks it down. ``limit`` counts raw cases of each task. Raises DataError
    for a benchmark without any reference answer, and what ``evaluate`` raises.
    """
    found = Unedited(benchmark, tuple(tasks_of(benchmark, tasks)), limit)
    if not found.tasks:
        raise DataError(f"{benchmark.name} has no question with a reference answer among its cases; nothing can be diagnosed")
    return evaluate(
        nothing(),
        backbone,
        found,
        tasks=list(found.tasks),
        limit=limit,
        out=out,
        max_new_tokens=max_new_tokens,
        cache_dir=cache_dir,
        progress=progress,
    )


# -- shown -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """The records of a task with the same values of some tags (``"all"`` where a tag does not matter), and their scores."""

    values: tuple[str, ...]
    scores: Scores
    headline: Estimate | None


def groups(results: Results, task: str) -> tuple[dict[str, str], list[Group]]:
    """The tags that a task is broken down by (at most the first two that its records have), and its groups.

    First all, then by each tag, then by both.
    """
    editor = results.editors[0]
    records = results.records(editor, task)
    tags = {tag: label for tag, label in results.run.groups(task).items() if any(tag in r.tags for r in records)}
    tags = dict(list(tags.items())[:2])
    parts: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        for key in _keys([record.tags.get(tag) for tag in tags]):
            parts.setdefault(key, []).append(record)
    if sum(ALL not in key for key in parts) > _MOST_PAIRS and len(tags) > 1:
        parts = {key: members for key, members in parts.items() if ALL in key}
    order = sorted(parts, key=lambda key: (sum(value != ALL for value in key), [value == ALL for value in key], key))
    return tags, [_group(results, task, key, parts[key]) for key in order]


def _keys(values: Sequence[str | None]) -> list[tuple[str, ...]]:
    """The groups that a record is in: each of its values and all."""
    keys: list[tuple[str, ...]] = [()]
    for value in values:
        keys = [(*key, one) for key in keys for one in ((ALL,) if value is None else (ALL, value))]
    return keys


def _group(results: Results, task: str, values: tuple[str, ...], records: Sequence[Record]) -> Group:
    dimensions = results.run.dimensions(task)
    label = " / ".join(value for value in values if value != ALL) or ALL
    scores = summarise(records, dimensions, editor=results.editors[0], task=task, group=label)
    name = results.run.headline(task)
    return Group(values, scores, scores.overall if name == OVERALL else measure(records, dimensions, name))


def tables(run: Run) -> list[Table]:
    """A table per task of a diagnosis: scores by topic group and partition, or whatever the task is broken down by."""
    results = Results(run)
    return [_table(results, task) for task in run.tasks if results.records(results.editors[0], task)]


def _table(results: Results, task: str) -> Table:
    tags, found = groups(results, task)
    dimensions = results.run.dimensions(task)
    # a mean over one dimension is that dimension
    summed = len(dimensions) > 1 or results.run.headline(task) != OVERALL
    columns = [Column(tag, label[:1].upper() + label[1:], "name") for tag, label in tags.items()] or [Column("of", "Of", "name")]
    columns += [Column("cases", "Cases", "count"), *(Column(d.name, d.label, "estimate") for d in dimensions)]
    columns += [Column("headline", results.headline_label(task), "estimate")] if summed else []
    rows: list[tuple[Cell, ...]] = []
    for group in found:
        scored: list[Cell] = [group.scores.dimensions[d.name] for d in dimensions]
        rows.append((*(group.values or (ALL,)), group.scores.cases, *scored, *([group.headline] if summed else [])))
    return Table(
        key=f"{task}_diagnosis",
        title=f"{task}: {results.run.config['identity']['backbone']['id']} without any insertion",
        kind="groups",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(group_notes(results, task, [group.scores for group in found])),
    )


def figures(run: Run) -> Iterator[tuple[str, Figure]]:
    """Per task, with a key for its file: bars of the headline, the first tag's values side by side, the second's in colours."""
    results = Results(run)
    for task in run.tasks:
        if results.records(results.editors[0], task):
            yield f"{task}_diagnosis", _figure(results, task)


def _figure(results: Results, task: str) -> Figure:
    tags, found = groups(results, task)
    by_key: Mapping[tuple[str, ...], Group] = {group.values: group for group in found}
    across = list(dict.fromkeys(group.values[0] for group in found if group.values)) or [ALL]
    colours = list(dict.fromkeys(group.values[1] for group in found)) if len(tags) > 1 else [ALL]
    colours = [value for value in colours if value != ALL] or [ALL]
    drawn = {colour: [_value(by_key, (group, colour)[: len(tags)]) for group in across] for colour in colours}
    ids = ", ".join(way.id for way, _ in results.scorings(task).values())
    axis = f"{results.headline_label(task)} (0 to 100)\n{ids}"
    title = f"{results.run.config['identity']['backbone']['id']}, unedited, {task}"
    return bars_plot(title, axis, [f"{group}\nn = {_cases(by_key, group, len(tags))}" for group in across], drawn)


def _value(by_key: Mapping[tuple[str, ...], Group], key: tuple[str, ...]) -> Estimate | None:
    return by_key[key].headline if key in by_key else None


def _cases(by_key: Mapping[tuple[str, ...], Group], group: str, tags: int) -> int:
    key = (group, ALL)[:tags]
    return by_key[key].scores.cases if key in by_key else 0


def write(run: Run, folder: str | Path | None = None) -> list[Path]:
    """Write ``diagnosis.md``, a CSV file and a figure (PNG, SVG) per task to a folder, by default the run's ``diagnosis``."""
    place = Path(folder) if folder is not None else run.path / "diagnosis"
    found = tables(run)
    written = [place / "diagnosis.md"]
    heading: dict[str, Any] = run.config["identity"]
    title = f"# {heading['benchmark']['name']} on {heading['backbone']['id']}, unedited"
    write_bytes(written[0], "\n".join([title, "", *map(markdown, found)]).encode())
    for table in found:
        written.append(place / f"{safe_name(table.key)}.csv")
        write_bytes(written[-1], csv_text(table).encode())
    for key, figure in figures(run):
        written += save_plot(figure, place / safe_name(key))
    return written
