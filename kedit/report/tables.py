"""Which tables a run has, with which rows and columns: decided here, once, for every rendering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kedit.benchmark import Dimension
from kedit.bootstrap import Estimate
from kedit.flags import FLAGS
from kedit.metrics import OVERALL, Retention, Scores
from kedit.report.notes import Note, group_notes, retention_notes, score_notes
from kedit.report.results import Results
from kedit.run import Run

GROUPS = {"topic_group": "topic group", "partition": "partition"}
MOST_STEPS = 12


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
    kind: Literal["scores", "groups", "retention"]
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[Note, ...] = ()


def tables(run: Run | Results) -> list[Table]:
    """All tables of a run, task by task: scores in each order of the chains, by group, and retention.

    A score cell is an ``Estimate`` on the scale 0 to 100 with its 95 % interval. The editor that does nothing comes first;
    without one there is no column of gains.
    """
    results = run if isinstance(run, Results) else Results(run)
    return [table for task in results.run.tasks for table in _of_task(results, task)]


def _of_task(results: Results, task: str) -> Iterator[Table]:
    orders = results.orders(task)
    for order in orders:
        yield _scores(results, task, order)
    for tag in GROUPS:
        if results.has_tag(task, tag):
            yield _by_group(results, task, tag)
    if results.has_retention(task):
        for order in orders:
            yield _retention(results, task, order)


def _scores(results: Results, task: str, order: str | None) -> Table:
    dimensions = results.run.dimensions(task)
    rows = [results.scores(editor, task, order) for editor in results.editors]
    counts = [Column(name, name.replace("_", " "), "count") for name in (*FLAGS, "unscored", "failures")]
    columns = [
        Column("editor", "Editor", "name"),
        *_score_columns(dimensions),
        Column("harmonic", "Harm. mean", "estimate"),
        *_gain_column(results),
        Column("joint", "Joint", "share"),
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


def _score_columns(dimensions: Sequence[Dimension]) -> list[Column]:
    return [*(Column(d.name, d.label, "estimate") for d in dimensions), Column(OVERALL, "Overall", "estimate")]


def _gain_column(results: Results) -> list[Column]:
    return [] if results.base is None else [Column("gain", "Gain over base", "gain")]


def _score_row(scores: Scores, dimensions: Sequence[Dimension], results: Results) -> tuple[Cell, ...]:
    joint = Share(scores.joint.joint, scores.joint.n) if scores.joint else None
    counts = [*(scores.flags[flag] for flag in FLAGS), sum(scores.unscored.values()), scores.failures]
    return (scores.editor, *_values(scores, dimensions), scores.harmonic, *_gain(scores, results), joint, *counts)


def _values(scores: Scores, dimensions: Sequence[Dimension]) -> list[Cell]:
    return [*(scores.dimensions[d.name] for d in dimensions), scores.overall]


def _gain(scores: Scores, results: Results) -> list[Cell]:
    if results.base is None:
        return []
    return [scores.gain[OVERALL] if scores.gain else None]


def _by_group(results: Results, task: str, tag: str) -> Table:
    """Base against edited by topic group or partition, all dimensions (paper, Fig. 5 shows Reliability)."""
    dimensions = results.run.dimensions(task)
    found = [scores for editor in results.editors for scores in results.groups(editor, task, tag).values()]
    found.sort(key=lambda scores: scores.group)  # stable: editors stay in order within a group
    columns = [
        Column(tag, GROUPS[tag].capitalize(), "name"),
        Column("editor", "Editor", "name"),
        Column("cases", "Cases", "count"),
        *_score_columns(dimensions),
        *_gain_column(results),
    ]
    rows = [(s.group, s.editor, s.cases, *_values(s, dimensions), *_gain(s, results)) for s in found]
    return Table(
        key=f"{task}_by_{tag}",
        title=f"{_title(results, task, results.run.order(task))}, by {GROUPS[tag]}",
        kind="groups",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(group_notes(found)),
    )


def _retention(results: Results, task: str, order: str | None) -> Table:
    """R[t][i] of every editor, the row before any insert first, and what was forgotten (paper, Fig. 6)."""
    matrices = {editor: results.retention(editor, task, order) for editor in results.edited}
    longest = max(matrices.values(), key=lambda m: len(m.matrix))
    steps = evenly_spaced(len(longest.matrix))
    labels = [_step_label(longest, i) for i in steps]
    columns = [
        Column("editor", "Editor", "name"),
        Column("asked", "Asked", "name"),
        *(Column(f"step_{i + 1}", label, "estimate") for i, label in zip(steps, labels, strict=True)),
        Column("mean_forgetting", "Mean forgetting", "loss"),
    ]
    rows: list[tuple[Cell, ...]] = []
    if results.base is not None and longest.base is not None:
        rows.append((results.base, "before any insert", *_picked(longest.base, steps), None))
    for editor, found in matrices.items():
        for t, label in zip(steps, labels, strict=True):
            rows.append((editor, f"after {label}", *_picked(found.matrix[t] if t < len(found.matrix) else (), steps), None))
        rows.append((editor, "forgetting", *_picked(found.forgetting, steps), found.mean_forgetting))
    return Table(
        key=f"{_key(results, task, order)}_retention",
        title=f"{_title(results, task, order)}: retention",
        kind="retention",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(retention_notes(matrices, len(steps))),
    )


def evenly_spaced(length: int, most: int = MOST_STEPS) -> list[int]:
    """Indexes to show of ``length`` things: all of them, or ``most``, evenly spaced, the first and the last included."""
    if length <= most:
        return list(range(length))
    return sorted({round(k * (length - 1) / max(most - 1, 1)) for k in range(most)})


def _step_label(found: Retention, step: int) -> str:
    language = found.languages[step] if step < len(found.languages) else ""
    return f"step {step + 1} ({language})" if language else f"step {step + 1}"


def _picked(row: Sequence[Estimate | None], steps: Sequence[int]) -> list[Estimate | None]:
    return [row[i] if i < len(row) else None for i in steps]


def _key(results: Results, task: str, order: str | None) -> str:
    return task if order == results.run.order(task) else f"{task}_{order}"


def _title(results: Results, task: str, order: str | None) -> str:
    if order is None:
        return task
    return f"{task}, order {order}" + (" (original)" if order == results.run.order(task) else "")
