"""Which tables a run has, with which rows and columns: decided here, once, for every rendering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kedit.benchmark import Dimension
from kedit.bootstrap import Estimate
from kedit.flags import FLAGS
from kedit.forgetting import By, Point, Retention
from kedit.metrics import OVERALL, Scores
from kedit.report.notes import Note, curve_notes, group_notes, measure_notes, retention_notes, score_notes, transfer_notes
from kedit.report.results import Results
from kedit.run import Run

MOST_STEPS = 12
CURVES: Mapping[By, str] = {"size": "memory size", "gap": "further inserts"}
"""What long chains are drawn by, and what a heading calls it."""


@dataclass(frozen=True)
class Share:
    """So many of so many."""

    count: int
    of: int


Cell: TypeAlias = str | int | Estimate | Share | None


@dataclass(frozen=True)
class Column:
    """A column of a table; ``label`` is its heading, ``key`` its name in a file.

    ``gain`` and ``loss`` are estimates of a difference, shown with their sign; of a loss, positive is bad.
    """

    key: str
    label: str
    kind: Literal["name", "estimate", "gain", "loss", "share", "count"]


@dataclass(frozen=True)
class Table:
    """A table as data; every row has one cell per column, None where there is no value."""

    key: str
    title: str
    kind: Literal["scores", "measures", "groups", "retention"]
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[Note, ...] = ()


def tables(run: Run | Results) -> list[Table]:
    """All tables of a run, task by task: scores and measures in each order of the chains, by group, and retention.

    A score cell is an ``Estimate`` on the scale 0 to 100 with its 95 % interval. The editor that does nothing comes first;
    without one there is no column of gains.
    """
    results = run if isinstance(run, Results) else Results(run)
    return [table for task in results.run.tasks for table in _of_task(results, task)]


def _of_task(results: Results, task: str) -> Iterator[Table]:
    orders = results.orders(task)
    for order in orders:
        yield _scores(results, task, order)
        yield from _measures(results, task, order)
    for tag in results.run.groups(task):
        if results.has_tag(task, tag):
            yield _by_group(results, task, tag)
    if results.has_retention(task):
        for order in orders:
            yield from retention_tables(results, task, order)


def _scores(results: Results, task: str, order: str | None) -> Table:
    dimensions = results.run.dimensions(task)
    rows = [results.scores(editor, task, order) for editor in results.editors]
    counts = [Column(name, name.replace("_", " "), "count") for name in (*FLAGS, "unscored", "failures")]
    columns = [
        Column("editor", "Editor", "name"),
        *_score_columns(dimensions),
        *([Column("harmonic", "Harm. mean", "estimate")] if _several(dimensions) else []),
        *_gain_column(results),
        *([Column("joint", "Joint", "share")] if _several(dimensions) else []),
        *counts,
    ]
    return Table(
        key=_key(results, task, order),
        title=_title(results, task, order),
        kind="scores",
        columns=tuple(columns),
        rows=tuple(_score_row(scores, dimensions, results) for scores in rows),
        notes=tuple(score_notes(results, task, order, rows)),
    )


def _several(dimensions: Sequence[Dimension]) -> bool:
    """Whether means over dimensions, and joint outcomes, say more than the one dimension."""
    return len(dimensions) > 1


def _score_columns(dimensions: Sequence[Dimension]) -> list[Column]:
    overall = [Column(OVERALL, "Overall", "estimate")] if _several(dimensions) else []
    return [*(Column(d.name, d.label, "estimate") for d in dimensions), *overall]


def _gain_column(results: Results) -> list[Column]:
    return [] if results.base is None else [Column("gain", "Gain over base", "gain")]


def _score_row(scores: Scores, dimensions: Sequence[Dimension], results: Results) -> tuple[Cell, ...]:
    harmonic: list[Cell] = [scores.harmonic] if _several(dimensions) else []
    joint: list[Cell] = [Share(scores.joint.joint, scores.joint.n) if scores.joint else None] if _several(dimensions) else []
    counts = [*(scores.flags[flag] for flag in FLAGS), sum(scores.unscored.values()), scores.failures]
    return (scores.editor, *_values(scores, dimensions), *harmonic, *_gain(scores, results), *joint, *counts)


def _values(scores: Scores, dimensions: Sequence[Dimension]) -> list[Cell]:
    overall = [scores.overall] if _several(dimensions) else []
    return [*(scores.dimensions[d.name] for d in dimensions), *overall]


def _gain(scores: Scores, results: Results) -> list[Cell]:
    if results.base is None:
        return []
    return [scores.gain[OVERALL] if scores.gain else None]


def _measures(results: Results, task: str, order: str | None) -> Iterator[Table]:
    """What is no mean over records, such as a macro-averaged F1; without the measures that no editor has a value of."""
    found = {editor: results.measures(editor, task, order) for editor in results.editors}
    offers = {
        name: offer for name, offer in results.offered(task).items() if any(row.get(name) is not None for row in found.values())
    }
    if not offers:
        return
    headline = results.run.headline(task)
    gains = results.base is not None and headline in offers
    columns = [Column("editor", "Editor", "name")]
    columns += [Column(name, offer.measure.label, "estimate") for name, offer in offers.items()]
    if gains:
        columns.append(Column("gain", f"{offers[headline].measure.label}: gain over base", "gain"))
    rows = []
    for editor, row in found.items():
        gain: list[Cell] = [results.headline_gain(editor, task, order)] if gains else []
        rows.append((editor, *(row.get(name) for name in offers), *gain))
    yield Table(
        key=f"{_key(results, task, order)}_measures",
        title=f"{_title(results, task, order)}: measures",
        kind="measures",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(measure_notes(results, task, order, found)),
    )


def _by_group(results: Results, task: str, tag: str) -> Table:
    """Base against edited by a tag such as topic group or partition, all dimensions (paper, Fig. 5 shows Reliability)."""
    dimensions = results.run.dimensions(task)
    found = [scores for editor in results.editors for scores in results.groups(editor, task, tag).values()]
    found.sort(key=lambda scores: scores.group)  # stable: editors stay in order within a group
    heading = results.run.groups(task)[tag]
    measured = results.run.headline(task) != OVERALL
    headline = {editor: results.group_headlines(editor, task, tag) for editor in results.editors} if measured else {}
    columns = [
        Column(tag, heading[:1].upper() + heading[1:], "name"),
        Column("editor", "Editor", "name"),
        Column("cases", "Cases", "count"),
        *([Column("headline", results.headline_label(task), "estimate")] if measured else []),
        *_score_columns(dimensions),
        *_gain_column(results),
    ]
    rows = []
    for s in found:
        shown: list[Cell] = [headline[s.editor][s.group]] if measured else []
        rows.append((s.group, s.editor, s.cases, *shown, *_values(s, dimensions), *_gain(s, results)))
    return Table(
        key=f"{task}_by_{tag}",
        title=f"{_title(results, task, results.run.order(task))}, by {heading}",
        kind="groups",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(group_notes(results, task, found)),
    )


def retention_tables(results: Results, task: str, order: str | None) -> Iterator[Table]:
    """The matrix where chains are short or all of it was asked; of long chains, curves by memory size and by gap."""
    matrices = {editor: results.retention(editor, task, order) for editor in results.edited}
    longest = max(matrices.values(), key=lambda m: m.length)
    if longest.length <= MOST_STEPS or longest.complete:
        yield _retention(results, task, order, matrices, longest)
    if longest.length > MOST_STEPS:
        yield from (_curve(results, task, order, by) for by in CURVES)
        yield _transfer(results, task, order, matrices)


def _retention(results: Results, task: str, order: str | None, matrices: Mapping[str, Retention], longest: Retention) -> Table:
    """R[t][i] of every editor, the row before any insert first, and what was forgotten (paper, Fig. 6)."""
    steps = [longest.steps[i] for i in evenly_spaced(len(longest.steps))]
    asked = [longest.asked[t] for t in evenly_spaced(len(longest.asked))]
    columns = [
        Column("editor", "Editor", "name"),
        Column("asked", "Asked", "name"),
        *(Column(f"step_{step}", _step_label(longest, step), "estimate") for step in steps),
        Column("mean_forgetting", "Mean forgetting", "loss"),
    ]
    rows: list[tuple[Cell, ...]] = []
    if results.base is not None and longest.base is not None:
        rows.append((results.base, "before any insert", *_picked(longest, longest.base, steps), None))
    for editor, found in matrices.items():
        matrix = dict(zip(found.asked, found.matrix, strict=True))
        for after in asked:
            rows.append((editor, f"after {_step_label(longest, after)}", *_picked(found, matrix.get(after, ()), steps), None))
        rows.append((editor, "forgetting", *_picked(found, found.forgetting, steps), found.mean_forgetting))
    return Table(
        key=f"{_key(results, task, order)}_retention",
        title=f"{_title(results, task, order)}: retention",
        kind="retention",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(retention_notes(results, task, matrices, len(steps))),
    )


def _curve(results: Results, task: str, order: str | None, by: By) -> Table:
    """Every dimension of what was inserted, by memory size or by gap."""
    found: dict[tuple[str, str], tuple[Point, ...]] = {}
    for editor in results.editors:
        for dimension in results.run.dimensions(task):
            found[editor, dimension.label] = results.curve(editor, task, order, by, dimension.name)
    places = sorted({(point.at, point.end): point.label for points in found.values() for point in points}.items())
    columns = [Column("editor", "Editor", "name"), Column("dimension", "Dimension", "name")]
    columns += [Column(f"{by}_{label.replace(' ', '_')}", label, "estimate") for _, label in places]
    rows: list[tuple[Cell, ...]] = []
    for (editor, label), points in found.items():
        values = {(point.at, point.end): point.value for point in points}
        rows.append((editor, label, *(values.get(place) for place, _ in places)))
    return Table(
        key=f"{_key(results, task, order)}_by_{by}",
        title=f"{_title(results, task, order)}: by {CURVES[by]}",
        kind="retention",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(curve_notes(results, task, order, by, list(found.values()))),
    )


def _transfer(results: Results, task: str, order: str | None, matrices: Mapping[str, Retention]) -> Table:
    """What later inserts do to earlier ones and earlier inserts to later ones, one row per editor."""
    columns = (
        Column("editor", "Editor", "name"),
        Column("mean_forgetting", "Mean forgetting", "loss"),
        Column("backward_transfer", "Backward transfer", "gain"),
        Column("forward_effect", "Forward effect", "gain"),
    )
    rows = tuple((name, m.mean_forgetting, m.backward_transfer, m.forward_effect) for name, m in matrices.items())
    return Table(
        key=f"{_key(results, task, order)}_transfer",
        title=f"{_title(results, task, order)}: forgetting and transfer",
        kind="retention",
        columns=columns,
        rows=rows,
        notes=tuple(transfer_notes()),
    )


def evenly_spaced(length: int, most: int = MOST_STEPS) -> list[int]:
    """Indexes to show of ``length`` things: all of them, or ``most``, evenly spaced, the first and the last included."""
    if length <= most:
        return list(range(length))
    return sorted({round(k * (length - 1) / max(most - 1, 1)) for k in range(most)})


def _step_label(found: Retention, step: int) -> str:
    language = dict(zip(found.steps, found.languages, strict=True)).get(step, "")
    return f"step {step} ({language})" if language else f"step {step}"


def _picked(found: Retention, row: Sequence[Estimate | None], steps: Sequence[int]) -> list[Estimate | None]:
    """The cells of a row that belong to steps."""
    cells = dict(zip(found.steps, row, strict=False))
    return [cells.get(step) for step in steps]


def _key(results: Results, task: str, order: str | None) -> str:
    return task if order == results.run.order(task) else f"{task}_{order}"


def _title(results: Results, task: str, order: str | None) -> str:
    if order is None:
        return task
    return f"{task}, order {order}" + (" (original)" if order == results.run.order(task) else "")
