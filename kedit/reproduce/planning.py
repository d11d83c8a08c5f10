"""What a table or figure needs: which benchmark, which editors with which settings, and how much there is to ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, TypeAlias

from kedit.benchmark import Benchmark
from kedit.benchmarks import BENCHMARKS, benchmark
from kedit.editor import Editor
from kedit.errors import unknown_name
from kedit.methods import editor
from kedit.parameters import plain
from kedit.reproduce.narrowed import Narrowed
from kedit.reproduce.published import EFFICIENCY, MAIN, Artefact, Paper, RunSpec
from kedit.shipped import shipped
from kedit.types import Case
from kedit.work import keys_of
from kedit.zoo.catalogue import editor_params

Given: TypeAlias = str | Benchmark
_REQUEST_MS, _INSERT_MS = "request_ms", "insert_ms"


@dataclass(frozen=True)
class Data:
    """The benchmarks of a table's runs, narrowed to what each asks; what editors learn from; and why runs are left out."""

    by_run: Mapping[str, Narrowed]
    train: Benchmark
    left_out: Mapping[str, str]


def data(paper: Paper, artefact: Artefact, given: Sequence[Given] = ()) -> Data:
    """The benchmarks of a table or figure; ``given`` are names as on the command line, or benchmarks.

    The first that bears the name of none of the paper's other benchmarks is the main one. Raises UnknownNameError for a
    benchmark that none of the runs is of.
    """
    specs = {run: paper.runs[run] for run in artefact.runs}
    wanted = _assigned(paper, {spec.benchmark for spec in specs.values()}, given)
    found: dict[str, Narrowed] = {}
    left_out: dict[str, str] = {}
    for run, spec in specs.items():
        source = wanted.get(spec.benchmark)
        if source is None:
            left_out[run] = spec.hint
            continue
        options = spec.options if isinstance(source, str) and source.partition(":")[0] in BENCHMARKS else {}
        made = benchmark(source, **options) if isinstance(source, str) else source
        prompts = tuple(resolve_name(spec.prompts)) if spec.prompts else ()
        found[run] = Narrowed(made, spec.task, spec.where, prompts, spec.hint)
    main = wanted[MAIN] or ""
    return Data(found, benchmark(main) if isinstance(main, str) else main, left_out)


def _assigned(paper: Paper, roles: set[str], given: Sequence[Given]) -> dict[str, Given | None]:
    """By a benchmark's role in the paper what stands for it."""
    found: dict[str, Given | None] = {}
    for one in given:
        short = one.partition(":")[0] if isinstance(one, str) else one.name
        role = next((role for role, source in paper.benchmarks.items() if short in source.names), None)
        own = not isinstance(one, str) or short not in BENCHMARKS
        role = role or (MAIN if own else None)
        if role is None or role in found or role not in roles | {MAIN}:
            names = [name for key in sorted(roles) for name in paper.benchmarks[key].names]
            hint = "Each is named once; your own is 'module:Class' or 'file.py:Class'."
            raise unknown_name(f"benchmark for {paper.name}", short, names, hint)
        found[role] = one
    return {role: found.get(role, source.default) for role, source in paper.benchmarks.items()}


def presets(paper: Paper, backbone: str) -> Mapping[str, Mapping[str, Any]]:
    """The paper's parameters for a backbone, by editor's short name; none for a backbone that the paper does not have."""
    model = paper.model_of(backbone)
    if model is None:
        return {}
    return {name: {key: _tuple(value) for key, value in params.items()} for name, params in model.params.items()}


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


def documents(found: Data, spec: RunSpec) -> dict[str, dict[str, Any]]:
    """Parameters of the editor that searches a benchmark's documents: all of them, so that a search can fail."""
    source = found.by_run[spec.name].source if spec.name in found.by_run else None
    library = getattr(source, "library", None)
    return {spec.library: {"documents": list(library())}} if spec.library and library is not None else {}


def names_of(paper: Paper, artefact: Artefact, chosen: Sequence[str] | None = None) -> tuple[str, ...]:
    """Short names of the editors of a table or figure, or those chosen of them; raises UnknownNameError for another one."""
    every = tuple(dict.fromkeys(name for run in artefact.runs for name in paper.runs[run].editors))
    for name in chosen or ():
        if name not in every:
            raise unknown_name(f"editor of {artefact.number}", name, every)
    return tuple(name for name in every if chosen is None or name in chosen)


def editors_for(
    paper: Paper, artefact: Artefact, backbone: str, found: Data, names: Sequence[str] | None = None
) -> dict[str, Editor]:
    """The editors of a table or figure: with the paper's parameters for its backbones, else those an embedded one asks for."""
    given = {**presets(paper, backbone)}
    for run in artefact.runs:
        given |= {name: {**given.get(name, {}), **more} for name, more in documents(found, paper.runs[run]).items()}
    wanted = names_of(paper, artefact, names)
    return {name: editor(name, {**editor_params(backbone, name), **given.get(name, {})}) for name in wanted}


@dataclass(frozen=True)
class Plan:
    """What would be run; shows itself as text. ``lines`` are those of the runs, in order."""

    title: str
    lines: tuple[str, ...]
    generations: int

    def __repr__(self) -> str:
        return "\n".join([self.title, *self.lines])


def plan(
    paper: Paper,
    artefact: Artefact,
    backbone: str,
    found: Data,
    editors: Mapping[str, Editor],
    *,
    limit: int | None = None,
    train_limit: int | None = None,
) -> Plan:
    """What ``reproduce`` would do, without a model: runs, editors with their settings, and the most that is asked.

    Answers that an editor leaves to the unedited model, and those known from earlier runs, are not generated again, so that
    the numbers are upper bounds.
    """
    title = f"{paper.name}, {artefact.number}: {artefact.title}, on {backbone}"
    costs = artefact.kind == EFFICIENCY
    if costs:
        limit = limit or artefact.raw_cases
        editors = {name: one for name, one in editors.items() if name in {row.editor for row in artefact.rows}}
    lines, total, hours = [], 0, 0.0
    for run, part in found.by_run.items():
        spec = paper.runs[run]
        names = [name for name in spec.editors if name in editors]
        task = part.tasks[spec.task]
        cases = part.cases(task.name, limit=limit)
        asked, inserts = sum(1 for _ in keys_of(task.name, task, cases)), sum(len(case.chain) for case in cases)
        before = _references(cases, len(names) if costs else None)
        unasked = not costs and not any(editors[name].does_nothing for name in names)  # a run asks the unedited model anyway
        captions = _captions(cases) if spec.library in names else 0
        total += asked * (len(names) + unasked) + before + captions
        lines += [
            f"Run {run}: {part.name} {task.name}, {len(cases):,} cases, each editor {inserts:,} inserts and {asked:,} questions; "
            f"{before:,} questions to the unedited model first"
            + (f"; {captions:,} captions of images" if captions else "")
            + ("; the unedited model is asked too" if unasked else "")
        ]
        hours += _hours(paper, backbone, dict.fromkeys(names, (inserts, asked)))
    lines += [f"  {name}: {_settings(one)}" for name, one in editors.items()]
    learning = [name for name, one in editors.items() if one.needs_fit]
    ready = [name for name in learning if shipped(editors[name], backbone) is not None and artefact.kind != EFFICIENCY]
    if ready:
        lines.append(f"Learned already: {', '.join(ready)}, which ship with {backbone}")
    if learning := [name for name in learning if name not in ready]:
        cases = found.train.train(train_limit if artefact.kind != EFFICIENCY else limit)
        lines.append(f"Learning: {', '.join(learning)}, from {len(cases):,} train cases unless --fitted brings what they learned")
    lines += [f"Left out: {why}" for why in found.left_out.values()]
    lines.append(f"At most {total:,} generations{', without those of learning' if learning else ''}")
    if hours:
        lines.append(f"At the paper's speeds on its hardware about {hours:,.1f} hours without training")
    return Plan(title, tuple(lines), total)


def _references(cases: Sequence[Case], times: int | None) -> int:
    """Questions whose reference is the unedited model's answer; equal ones are counted once, or every one so many ``times``."""
    found = [probe.request for case in cases for probe in case.probes if probe.reference is None]
    return len(set(found)) if times is None else len(found) * times


def _captions(cases: Sequence[Case]) -> int:
    """Images that are described, once each, to be looked up."""
    return len({probe.request.images for case in cases for probe in case.probes})


def _settings(one: Editor) -> str:
    """An editor's parameters in short: of a list of documents only how many."""
    params = {k: f"<{len(v)} documents>" if k == "documents" and isinstance(v, list) else v for k, v in one.get_params().items()}
    return ", ".join(f"{key}={plain(value)}" for key, value in params.items()) or "no settings"


def _hours(paper: Paper, backbone: str, work: Mapping[str, tuple[int, int]]) -> float:
    """Hours by the paper's own table of speeds, where it has this backbone and these editors."""
    model = paper.model_of(backbone)
    speeds = next((one for one in paper.artefacts.values() if one.kind == EFFICIENCY), None)
    if model is None or speeds is None:
        return 0.0
    columns = {place.value: place.label for place in speeds.columns}
    milliseconds = 0.0
    for row in speeds.rows:
        inserts, asked = work.get(str(row.editor), (0, 0))
        for value, count in ((_INSERT_MS, inserts), (_REQUEST_MS, asked)):
            milliseconds += count * (speeds.printed(model.name, row.label, columns[value]) or 0.0)
    return milliseconds / 3_600_000


def listing(keys: Sequence[Paper]) -> Iterator[str]:
    """Lines that name tables and figures of papers."""
    for paper in keys:
        yield f"{paper.key}: {paper.title}"
        yield from (f"  {one.key:8} {one.number}: {one.title}" for one in paper.artefacts.values())
