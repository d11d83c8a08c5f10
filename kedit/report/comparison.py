"""A comparison as a table: what is and is not distinguishable, and what one needs to know to believe it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kedit.config import difference
from kedit.report.notes import FEW_CASES, Note
from kedit.report.tables import Cell, Column, Table
from kedit.run import Run

if TYPE_CHECKING:
    from kedit.comparison import Comparison, Row
    from kedit.replicates import Arm

_TOLD = ("backbone", "benchmark", "decoding", "packages", "seed")
_WARNED = "decoding"
_HASH = re.compile(r"(?<=[0-9a-f]{12})[0-9a-f]{20,}")
FULL = 100.0
"""Points between the worst and the best answer: a sample that cannot show that much shows nothing."""


def comparison_table(found: Comparison) -> Table:
    """A row per pair, task and dimension; the notes hold counts, correction, and what differs between the runs."""
    several = len({row.task for row in found.rows}) > 1
    pooled = any(len(arm.members) > 1 for arm in found.arms)
    columns = [
        *([Column("task", "Task", "name")] if several else []),
        Column("a", "A", "name"),
        Column("b", "B", "name"),
        Column("dimension", "Dimension", "name"),
        Column("mean_a", "A mean", "count"),
        Column("mean_b", "B mean", "count"),
        Column("difference", "A - B", "gain"),
        Column("p_holm", "p (Holm)", "count"),
        Column("verdict", "Verdict", "name"),
        Column("cases", "Cases", "count"),
        Column("smallest", "Smallest", "count"),
        *([Column("seed_sd", "Seed sd", "count")] if pooled else []),
    ]
    tasks = "" if several else f", {found.rows[0].task}" if found.rows else ""
    return Table(
        key="comparison",
        title=f"Comparison{tasks}",
        kind="groups",
        columns=tuple(columns),
        rows=tuple(tuple(_cells(row, several, pooled)) for row in _shown(found.rows)),
        notes=tuple(_notes(found)),
    )


def _shown(rows: Sequence[Row]) -> list[Row]:
    """Without pairs that have no case of a task in common, which the notes tell."""
    common = {(row.task, row.a, row.b) for row in rows if row.cases}
    return [row for row in rows if (row.task, row.a, row.b) in common]


def _cells(row: Row, several: bool, pooled: bool) -> Iterator[Cell]:
    if several:
        yield row.task
    yield from (row.a, row.b, row.label, _points(row.mean_a), _points(row.mean_b), row.difference)
    smallest = ">100" if row.smallest is not None and row.smallest > FULL else _points(row.smallest)
    yield from (_chance(row.p_holm), row.verdict, row.cases, smallest)
    if pooled:
        yield " / ".join(_points(sd) or "–" for sd in row.seed_sd)


def _points(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _chance(p: float | None) -> str | None:
    if p is None:
        return None
    return "<0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.1 else f"{p:.2f}"


def _notes(found: Comparison) -> Iterator[Note]:
    alpha = f"{found.alpha:g}"
    pooled = any(len(arm.members) > 1 for arm in found.arms)
    with_seeds = ", with pooled seeds the larger of it and a t test" if pooled else ""
    told = sum(row.distinguishable for row in found.rows)
    yield Note(
        f"Points of {found.scorer}, 0 to 100; A - B over the cases that both answered and scored "
        f"[{100 * (1 - found.alpha):g} % interval of this one difference: bootstrap over cases]."
    )
    yield Note(
        f"p: sign-flip test{with_seeds}. A verdict needs p (Holm) at most {alpha}, corrected over {found.tests} tests: "
        f"{told} distinguishable, {found.tests - told} not. An interval without 0 alone is no verdict."
    )
    yield Note(
        f"Smallest: the difference that had an 80 % chance to be seen here at {alpha} / {max(found.tests, 1)}; "
        "'not told apart' says nothing of differences below it."
    )
    yield Note(_cases(found))
    yield from _left_out(found.rows)
    yield from _seeds(found)
    yield from _runs(found.runs)
    yield from _cautions(found)


def _cases(found: Comparison) -> str:
    sizes = sorted({(row.cases, row.units) for row in found.rows if row.cases})
    grouped = any(cases != units for cases, units in sizes)
    spans = [" to ".join(map(str, dict.fromkeys((min(n), max(n))))) for n in zip(*sizes, strict=True)] or ["0", "0"]
    together = f", in {spans[1]} groups of one {found.unit!r} that are resampled and flipped whole" if grouped else ""
    return f"n = {spans[0]} cases{together}."


def _left_out(rows: Sequence[Row]) -> Iterator[Note]:
    """One sentence for all that left out the same."""
    said: dict[str, list[Row]] = {}
    for row in rows:
        if row.left_out:
            said.setdefault(", ".join(f"{n} {reason}" for reason, n in row.left_out.items()), []).append(row)
    for why, found in said.items():
        pairs = list(dict.fromkeys(f"{row.a} - {row.b}" for row in found))
        labels = list(dict.fromkeys(row.label for row in found))
        every = {row.label for row in rows if row.task in {r.task for r in found}} == set(labels)
        tasks = ", ".join(dict.fromkeys(row.task for row in found))
        which = pairs[0] if len(pairs) == 1 else f"{len(pairs)} pairs"
        yield Note(f"Cases left out of {tasks} ({which}{'' if every else ': ' + ', '.join(labels)}): {why}.")


def _seeds(found: Comparison) -> Iterator[Note]:
    pooled = [arm for arm in found.arms if len(arm.members) > 1]
    if pooled:
        listed = "; ".join(f"{arm.label}: {arm.seeds} ({_members(arm)})" for arm in pooled)
        yield Note(
            f"Seeds pooled: {listed}. Cases and seeds are both taken as chance: interval and p hold for other seeds as well. "
            "Equal seeds are paired. "
            "Seed sd: of the means by seed, of A / of B."
        )
    alone = [arm.label for arm in found.arms if len(arm.members) == 1 and arm.by_chance]
    if alone:
        yield Note(f"One seed each: {', '.join(alone)}. How far another seed would move them is in no interval here.")
    if few := [arm.label for arm in pooled if len(arm.members) == 2]:
        yield Note(f"Two seeds say little of how much seeds differ ({', '.join(few)}): intervals are wide, and a third helps.")


def _members(arm: Arm) -> str:
    runs = {m.run.path for m in arm.members}
    return ", ".join(m.editor if len(runs) == 1 else f"{m.run.path.name}/{m.editor}" for m in arm.members)


def _runs(runs: Sequence[Run]) -> Iterator[Note]:
    """In what the runs differ besides their editors."""
    first = runs[0].config["identity"]
    for run in runs[1:]:
        for part in _TOLD:
            lines = difference(_told(first, part), _told(run.config["identity"], part), part)
            if lines:
                text = f"{runs[0].path} and {run.path} differ in {_HASH.sub('...', '; '.join(lines))}"
                yield Note(
                    f"{text}. Answers cut or drawn otherwise do not compare." if part == _WARNED else text, part == _WARNED
                )


def _told(identity: Mapping[str, object], part: str) -> object:
    return identity.get(part)


def _cautions(found: Comparison) -> Iterator[Note]:
    units = [row.units for row in found.rows if row.cases]
    if units and min(units) < FEW_CASES:
        yield Note(f"Fewer than {FEW_CASES} independent cases: intervals are rough.", warning=True)
    if found.least is not None and found.least > found.alpha:
        yield Note(
            f"With {max(units)} independent cases and {found.tests} tests the smallest p (Holm) that there can be is "
            f"{found.least:.2g}: nothing could be distinguishable. Add cases, or compare fewer pairs or dimensions.",
            warning=True,
        )
    if not units:
        yield Note("There is no case that both sides answered and scored: nothing is compared.", warning=True)
    elif any(row.p is None for row in _shown(found.rows)):
        yield Note("Rows that were not tested have fewer than two independent cases with a score on both sides.", warning=True)
