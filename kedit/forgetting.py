"""What a chain of inserts leaves of each item: the retention matrix, forgetting, transfer, and curves by gap and memory size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from kedit.bootstrap import Array, Estimate, arithmetic, column_means, combined
from kedit.metrics import chain_lengths, final_records, first_order, in_order
from kedit.protocols import RELIABILITY
from kedit.scoring import Scorer, rouge_scorer
from kedit.types import Record

By = Literal["gap", "size"]
_COLUMNS = 1024
"""Columns of a matrix that are resampled together."""
_ITEMS = 5
"""Items of a chain that make a point of a curve of their own, where there can be so many."""
_EDGES = (0, 1, 2, 11, 101, 1001, 10001, 100001, 1000001)
"""Where one range of gaps ends and the next begins."""


@dataclass(frozen=True)
class Retention:
    """The matrix R[t][i]: Reliability of the item inserted at ``steps[i]``, asked after ``asked[t]`` inserts, mean over chains.

    ``cases`` counts the chains, ``languages`` are those of the steps. An entry that was never asked, or has no value, is None;
    ``base`` is the row of the unedited model, None without it.

    ``forgetting[i]`` is R of the first time that an item was asked once it was inserted, minus R after the whole chain, paired
    by chain: positive is lost; 0 for the last step. ``mean_forgetting`` is over the items that were asked again later.
    ``backward_transfer`` is its negative, the mean of R[T][i] - R[i][i]: negative is lost, positive gained by what came later.
    ``forward_effect`` is the mean of R[i - 1][i] minus the unedited model's (the last time an item was asked before its own
    insert): what a chain does to items that are yet to come. Of several chains the intervals resample chains, of a single
    one, for the three means, items.
    """

    order: str | None
    cases: int
    languages: tuple[str, ...]
    matrix: tuple[tuple[Estimate | None, ...], ...]
    forgetting: tuple[Estimate | None, ...]
    mean_forgetting: Estimate | None
    base: tuple[Estimate | None, ...] | None = None
    asked: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    length: int = 0
    """Inserts in the longest chain."""
    forward_effect: Estimate | None = None

    @property
    def last(self) -> tuple[Estimate | None, ...]:
        """What is left of each step after the whole chain."""
        return self.matrix[-1] if self.matrix else ()

    @property
    def backward_transfer(self) -> Estimate | None:
        """The negative of ``mean_forgetting``."""
        lost = self.mean_forgetting
        return None if lost is None else Estimate(-lost.mean, -lost.high, -lost.low, lost.n)

    @property
    def complete(self) -> bool:
        """Whether every item of the chain was asked whenever any was, from its own insert on."""
        cells = ((after, step, value) for after, row in self._rows() for step, value in zip(self.steps, row, strict=True))
        return self.steps == tuple(range(1, self.length + 1)) and not any(v is None and i <= t for t, i, v in cells)

    def _rows(self) -> Iterator[tuple[int, tuple[Estimate | None, ...]]]:
        return zip(self.asked, self.matrix, strict=True)

    def means(self) -> Array:
        """R as numbers, (asked, steps); NaN where it has none."""
        rows = [[np.nan if value is None else value.mean for value in row] for row in self.matrix]
        return np.array(rows, dtype=np.float64).reshape(len(self.asked), len(self.steps))


def retention(
    records: Sequence[Record], *, order: str | None = None, base: Sequence[Record] | None = None, scorer: Scorer | None = None
) -> Retention:
    """The retention matrix of one editor's records of a task asked along its chains (paper, Fig. 6).

    It has the rows and columns that were asked. ``order`` picks the chains of one order, by default that of the first record;
    ``base`` are the records of the editor that does nothing, for the row before any insert.
    """
    score = scorer or rouge_scorer()
    wanted = order or first_order(records)
    kept = [record for record in in_order(records, wanted) if record.dimension == RELIABILITY and record.asked_at >= 1]
    cells = _cells(kept, score)
    asked, steps = (tuple(sorted({at[k] for found in cells.values() for at in found})) for k in (0, 1))
    length = max(chain_lengths(kept).values(), default=0)
    if asked and asked[-1] != length:  # stopped on the way: nothing was asked after the whole chain
        asked = (*asked, length)
    cube = np.full((len(cells), len(asked), len(steps)), np.nan)
    row, column = ({number: at for at, number in enumerate(numbers)} for numbers in (asked, steps))
    for c, case in enumerate(sorted(cells)):
        for (t, i), value in cells[case].items():
            cube[c, row[t], column[i]] = value
    lost = _lost(cube, asked, steps)
    floor = None if base is None else _base(in_order(base, wanted), sorted(cells), steps, score)
    flat = _column_means(cube.reshape(len(cells), len(asked) * len(steps)))
    again = [i for i, step in enumerate(steps) if step < length]
    return Retention(
        order=wanted,
        cases=len(cells),
        languages=_languages(kept, steps),
        matrix=tuple(tuple(flat[t * len(steps) : (t + 1) * len(steps)]) for t in range(len(asked))),
        forgetting=tuple(column_means(lost)),
        mean_forgetting=_mean(lost[:, again]),
        base=None if floor is None else tuple(column_means(floor[1])),
        asked=asked,
        steps=steps,
        length=length,
        forward_effect=None if floor is None else _mean(_before(cube, asked, steps) - floor[0]),
    )


def _lost(cube: Array, asked: Sequence[int], steps: Sequence[int]) -> Array:
    """First value once inserted minus the last row's, (chains, steps); NaN where an item that is not the last has only one."""
    lost = np.full((len(cube), len(steps)), np.nan)
    for i, step in enumerate(steps):
        later = [t for t, after in enumerate(asked) if after >= step]
        for c in range(len(cube)):
            known = [t for t in later if not np.isnan(cube[c, t, i])]
            if known and (known[0] < known[-1] or asked[known[0]] == step) and known[-1] == len(asked) - 1:
                lost[c, i] = cube[c, known[0], i] - cube[c, -1, i]
    return lost


def _before(cube: Array, asked: Sequence[int], steps: Sequence[int]) -> Array:
    """The last value before an item's own insert, (chains, steps); NaN where there is none."""
    found = np.full((len(cube), len(steps)), np.nan)
    for i, step in enumerate(steps):
        for t in (t for t, after in enumerate(asked) if after < step):
            found[:, i] = np.where(np.isnan(cube[:, t, i]), found[:, i], cube[:, t, i])
    return found


def _mean(values: Array) -> Estimate | None:
    """The mean over columns that have values: chains are resampled, or the columns of a single chain."""
    known = values[:, ~np.isnan(values).all(axis=0)] if values.size else values
    if not known.size:
        return None
    return column_means(known.T)[0] if len(known) == 1 else combined(known, arithmetic)


def _column_means(values: Array) -> list[Estimate | None]:
    starts = range(0, values.shape[1], _COLUMNS)
    return [one for start in starts for one in column_means(values[:, start : start + _COLUMNS])]


def _base(records: Sequence[Record], cases: Sequence[str], steps: Sequence[int], score: Scorer) -> tuple[Array, Array]:
    """The unedited model's scores, (chains, steps): of the chains named, and of all that it was asked about."""
    cells = _cells([r for r in final_records(records) if r.dimension == RELIABILITY], score)
    column = {step: at for at, step in enumerate(steps)}

    def table(names: Sequence[str]) -> Array:
        found = np.full((len(names), len(steps)), np.nan)
        for c, case in enumerate(names):
            for (_, i), value in cells.get(case, {}).items():
                if i in column:
                    found[c, column[i]] = value
        return found

    return table(cases), table(sorted(cells))


def _cells(records: Iterable[Record], score: Scorer) -> dict[str, dict[tuple[int, int], float]]:
    """Per case the mean score of each (asked_at, step)."""
    found: dict[str, dict[tuple[int, int], list[float]]] = {}
    for record in records:
        cell = found.setdefault(record.case, {}).setdefault((record.asked_at, record.step), [])
        value = score(record).value
        if value is not None:
            cell.append(value)
    return {case: {at: float(np.mean(sorted(v))) for at, v in cells.items() if v} for case, cells in found.items()}


def _languages(records: Iterable[Record], steps: Sequence[int]) -> tuple[str, ...]:
    by_step = {record.step: record.language for record in sorted(records, key=lambda r: r.key, reverse=True)}
    return tuple(by_step.get(step, "") for step in steps)


# -- curves ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One point of a curve: a gap or memory size, or a range of gaps from ``at`` to ``end``; ``items`` were asked there."""

    at: int
    end: int
    value: Estimate
    items: int

    @property
    def label(self) -> str:
        """As an axis or a heading shows it."""
        return str(self.at) if self.at == self.end else f"{self.at} to {self.end}"


def curve(
    records: Sequence[Record],
    by: By,
    *,
    dimension: str = RELIABILITY,
    order: str | None = None,
    scorer: Scorer | None = None,
) -> tuple[Point, ...]:
    """How inserted items fare, by how many inserts came after them ("gap") or how many were in memory in all ("size").

    Gaps that few items have in common are put together in ranges (1, 2 to 10, 11 to 100, ...); a memory size counts where
    five items of a chain, or all of them, were asked. Intervals (95 %) resample chains, or the items of a single chain.
    """
    score = scorer or rouge_scorer()
    kept = in_order(records, order or first_order(records))
    kept = [r for r in kept if r.dimension == dimension and 1 <= r.step <= r.asked_at]
    cells = _cells(kept, score)
    found = [(case, t, i, value) for case, of in sorted(cells.items()) for (t, i), value in sorted(of.items())]
    places = {(t, i): t - i if by == "gap" else t for _, t, i, _ in found}
    ranges = _gaps(found) if by == "gap" else _sizes(found, len(cells))
    points = []
    for start, end in ranges:
        inside = [(case, i, value) for case, t, i, value in found if start <= places[t, i] <= end]
        if inside:
            items = {(case, i) for case, i, _ in inside}
            points.append(Point(start, end, _estimate(inside, len(cells) > 1), len(items)))
    return tuple(points)


def _gaps(found: Sequence[tuple[str, int, int, float]]) -> list[tuple[int, int]]:
    """Each gap that several items have; where none but 0 is, ranges."""
    items: dict[int, int] = {}
    for _, t, i, _ in found:
        items[t - i] = items.get(t - i, 0) + 1
    own = [g for g, count in sorted(items.items()) if count >= _ITEMS]
    if any(own):
        return [(g, g) for g in own]
    longest = max(items, default=-1)
    return [(start, end - 1) for start, end in pairwise(_EDGES) if start <= longest]


def _sizes(found: Sequence[tuple[str, int, int, float]], chains: int) -> list[tuple[int, int]]:
    items: dict[int, int] = {}
    for _, t, _, _ in found:
        items[t] = items.get(t, 0) + 1
    return [(t, t) for t, count in sorted(items.items()) if count >= min(t, _ITEMS) * chains]


def _estimate(inside: Sequence[tuple[str, int, float]], several: bool) -> Estimate:
    """The mean over chains of the mean over items, or over the items of one chain."""
    units: dict[object, list[float]] = {}
    for case, i, score in inside:
        units.setdefault(case if several else i, []).append(score)
    means = np.array([[np.mean(values)] for _, values in sorted(units.items(), key=lambda pair: str(pair[0]))])
    found = column_means(means)[0]
    assert found is not None  # every unit has a value
    return found
