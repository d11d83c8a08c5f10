"""Which of several editors is better, by how much, and what these cases cannot tell."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from kedit.bootstrap import Estimate
from kedit.errors import StoreError, unknown_name
from kedit.metrics import OVERALL
from kedit.pairing import Result, Sample, Samples, scorer_name
from kedit.replicates import Arm, arms
from kedit.report.comparison import comparison_table
from kedit.report.escape import csv_cell
from kedit.report.html import shown_html
from kedit.report.tables import Table
from kedit.report.text import markdown, table_text
from kedit.run import Run
from kedit.scoring import Scorer
from kedit.statistics import FLIPS, Paired, holm, least_p, paired

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Row:
    """One dimension (or ``overall``) of one task, a against b, over ``cases`` that both answered and scored.

    ``difference`` is a - b in points with its interval, None without a case; ``p`` is that of the test, ``p_holm`` the same
    corrected for all that was tested, None where fewer than two ``units`` (groups of cases that belong together) are left.
    ``sd`` is the standard deviation of the units' differences; ``smallest`` the difference that a test would have found in 80 %
    of such samples at the level that Holm's correction asks of the clearest difference, None without spread. ``seed_sd`` are
    the standard deviations of the means by seed of a and of b, None for one seed. ``left_out`` counts cases by reason.
    """

    task: str
    dimension: str
    label: str
    a: str
    b: str
    mean_a: float | None = None
    mean_b: float | None = None
    difference: Estimate | None = None
    p: float | None = None
    p_holm: float | None = None
    distinguishable: bool = False
    cases: int = 0
    units: int = 0
    sd: float | None = None
    smallest: float | None = None
    seed_sd: tuple[float | None, float | None] = (None, None)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Which is higher, or that these cases do not tell."""
        if self.p is None or self.difference is None:
            return "not tested"
        if not self.distinguishable:
            return "not told apart"
        return f"{self.a if self.difference.mean > 0 else self.b} higher"


@dataclass(frozen=True)
class Comparison:
    """Differences of pairs of editors; shows itself as one table."""

    rows: tuple[Row, ...]
    arms: tuple[Arm, ...]
    runs: tuple[Run, ...]
    alpha: float
    unit: str
    scorer: str
    flips: int

    @property
    def tests(self) -> int:
        """How many differences were tested, which Holm's correction is over."""
        return sum(row.p is not None for row in self.rows)

    @cached_property
    def least(self) -> float | None:
        """The smallest corrected p-value that the largest of the samples could give; None where nothing was tested."""
        units = [row.units for row in self.rows if row.p is not None]
        return min(1.0, least_p(max(units), self.flips) * self.tests) if units else None

    def table(self) -> Table:
        """A row per pair, task and dimension, with what it needs to be read in the notes."""
        return comparison_table(self)

    def flat(self) -> list[dict[str, Any]]:
        """The rows as plain values, one dictionary each, all with the same keys."""
        return [_flat(row) for row in self.rows]

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a DataFrame; needs pandas."""
        import pandas

        return pandas.DataFrame(self.flat(), columns=list(_flat(_NOTHING)))

    def csv(self) -> str:
        """The rows as CSV, numbers in full."""
        file = io.StringIO()
        writer = csv.DictWriter(file, list(_flat(_NOTHING)), lineterminator="\n")
        writer.writeheader()
        for row in self.flat():
            writer.writerow({key: csv_cell(value) if isinstance(value, str) else value for key, value in row.items()})
        return file.getvalue()

    def markdown(self) -> str:
        """The table in Markdown, notes under it."""
        text: str = markdown(self.table())
        return text

    def __repr__(self) -> str:
        text: str = table_text(self.table())
        return text

    def _repr_html_(self) -> str:
        return shown_html(self.table())


_NOTHING = Row("", "", "", "", "")


def compare(
    *runs: Run,
    editors: Collection[str] | None = None,
    tasks: Collection[str] | None = None,
    dimensions: Collection[str] | None = None,
    scorer: Scorer | str | None = None,
    against: str | None = None,
    all_pairs: bool = False,
    pool: bool = True,
    unit: str = "raw",
    alpha: float = 0.05,
) -> Comparison:
    """Compare editors pairwise on the cases that both answered and scored, within a run or between runs.

    Editors that differ only in a seed (their own, or that of their runs) are pooled unless ``pool`` is off: see
    ``kedit.replicates.arms`` for which those are and ``kedit.statistics.paired`` for interval and test. Compared are, of
    several runs, the editors of the same name with each other, or all with all where there are none or with ``all_pairs``; of
    one run all with all; with ``against`` each with that one.

    ``dimensions`` may hold "overall", the mean over all dimensions of a task. ``scorer`` is that of each dimension by default,
    "rouge", "judge:ID" (what that judge said in each run), or a function. Cases with the same tag ``unit`` (by default those
    made of one raw case, such as its languages) are resampled and flipped together; "case" takes each alone. Holm's
    correction is over all pairs, tasks and dimensions at once. Chains are those in the original order.

    Raises UnknownNameError for an editor, task, dimension or scorer that is not there, StoreError where there are no two editors
    to compare, ValueError for an ``alpha`` that is no probability.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; expected a probability between 0 and 1, such as 0.05")
    runs = tuple({run.path.resolve(): run for run in runs}.values())  # a run that is named twice is no second measurement
    pairs = _pairs(arms(runs, editors, pool=pool), against, all_pairs)
    samples = Samples(scorer, unit)
    wanted = [sample for a, b in pairs for sample in samples.of(a, b, tasks, dimensions)]
    _known(wanted, runs, tasks, dimensions)
    most = sum(len(sample.results) for sample in wanted)
    flips = max(FLIPS, round(10 * most / alpha))  # so that random flips can give p-values small enough for the correction
    compared = {id(arm): arm for pair in pairs for arm in pair}
    return Comparison(
        rows=tuple(_rows(wanted, alpha, flips)),
        arms=tuple(compared.values()),
        runs=runs,
        alpha=alpha,
        unit=unit,
        scorer=scorer_name(runs, scorer),
        flips=flips,
    )


def _pairs(found: Sequence[Arm], against: str | None, all_pairs: bool) -> list[tuple[Arm, Arm]]:
    if len(found) < 2:
        names = ", ".join(arm.label for arm in found) or "none"
        raise StoreError(f"nothing to compare: two editors are needed, and there is {names}; name more editors or another run")
    if against is not None:
        return _against(found, against)
    every = list(combinations(found, 2))
    same = [(a, b) for a, b in every if a.members[0].editor == b.members[0].editor]
    alone = [arm for arm in found if not any(arm in pair for pair in same)]
    return every if all_pairs else [*same, *combinations(alone, 2)]


def _against(found: Sequence[Arm], name: str) -> list[tuple[Arm, Arm]]:
    """Each with the one of that name; of several, such as in each of several runs, with that of its own run."""
    picked = [arm for arm in found if name in (arm.label, *(m.editor for m in arm.members))]
    if not picked:
        raise unknown_name("editor of this comparison", name, [arm.label for arm in found])
    places = {id(arm): {m.run.path for m in arm.members} for arm in found}
    others = [arm for arm in found if arm not in picked]
    return [(arm, one) for arm in others for one in picked if len(picked) == 1 or places[id(arm)] & places[id(one)]]


def _known(
    wanted: Sequence[Sample], runs: Sequence[Run], tasks: Collection[str] | None, dimensions: Collection[str] | None
) -> None:
    """Refuse a name that no sample has, and a comparison without any."""
    every = {task for run in runs for task in run.tasks}
    for task in tasks or ():
        if task not in every:
            raise unknown_name("task of these runs", task, every)
    if not wanted:
        raise StoreError("nothing to compare: the runs have no task in common; give runs of one benchmark")
    names = {d.name for run in runs for task in run.tasks for d in run.dimensions(task)} | {OVERALL}
    for dimension in dimensions or ():
        if dimension not in names:
            raise unknown_name("dimension of these runs", dimension, names)


def _rows(wanted: Sequence[Sample], alpha: float, flips: int) -> Iterator[Row]:
    """All rows; the correction needs every p-value first."""
    made = [
        paired(*s.totals, s.counts, s.mix, crossed=s.crossed, alpha=alpha, flips=flips) if s.results else None for s in wanted
    ]
    tested = [float(p) for one in made if one is not None for p in one.p if not np.isnan(p)]
    corrected = iter(holm(tested))
    for sample, found in zip(wanted, made, strict=True):
        if found is not None:
            smallest = found.smallest(alpha / max(len(tested), 1))
            for j, result in enumerate(sample.results):
                adjusted = None if np.isnan(found.p[j]) else next(corrected)
                yield _row(sample, result, found, j, adjusted, float(smallest[j]), alpha)
        for result in sample.empty:
            yield _empty(sample, result)


def _row(sample: Sample, result: Result, found: Paired, j: int, adjusted: float | None, smallest: float, alpha: float) -> Row:
    point = float(found.difference[j])
    low, high = (point if adjusted is None else float(x[j]) for x in (found.low, found.high))
    return Row(
        task=sample.task,
        dimension=result.name,
        label=result.label,
        a=sample.a.label,
        b=sample.b.label,
        mean_a=float(found.means[0][j]),
        mean_b=float(found.means[1][j]),
        difference=Estimate(point, low, high, result.cases),
        p=_number(found.p[j]),
        p_holm=adjusted,
        distinguishable=adjusted is not None and adjusted <= alpha,
        cases=result.cases,
        units=int(found.units[j]),
        sd=_number(found.sd[j]),
        smallest=_number(smallest),
        seed_sd=(_number(found.seed_sd[0][j]), _number(found.seed_sd[1][j])),
        left_out=result.left_out,
    )


def _empty(sample: Sample, result: Result) -> Row:
    return Row(sample.task, result.name, result.label, sample.a.label, sample.b.label, left_out=result.left_out)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _flat(row: Row) -> dict[str, Any]:
    at = row.difference
    return {
        "task": row.task,
        "dimension": row.dimension,
        "a": row.a,
        "b": row.b,
        "mean_a": row.mean_a,
        "mean_b": row.mean_b,
        "difference": None if at is None else at.mean,
        "low": None if at is None else at.low,
        "high": None if at is None else at.high,
        "p": row.p,
        "p_holm": row.p_holm,
        "distinguishable": row.distinguishable,
        "verdict": row.verdict,
        "cases": row.cases,
        "units": row.units,
        "left_out": sum(row.left_out.values()),
        "sd": row.sd,
        "smallest": row.smallest,
        "seed_sd_a": row.seed_sd[0],
        "seed_sd_b": row.seed_sd[1],
    }
