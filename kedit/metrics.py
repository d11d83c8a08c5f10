"""Scores of records: pure functions, so that any run can be scored again by other rules without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kedit.benchmark import Dimension
from kedit.bootstrap import Array, Estimate, arithmetic, column_means, combined, harmonic, of_sums
from kedit.flags import FLAGS
from kedit.protocols import RELIABILITY
from kedit.scoring import Scorer, by_dimension, rouge_scorer, scoring
from kedit.types import Record

OVERALL = "overall"


@dataclass(frozen=True)
class Thresholds:
    """From which score on a case counts as reliable, general and local."""

    reliable: float = 50.0
    general: float = 50.0
    local: float = 80.0


@dataclass(frozen=True)
class Joint:
    """Outcomes of whole cases, as counts among the ``n`` that have a score in every dimension.

    ``joint``: reliable, general and local at once. Of the ``reliable`` ones, ``under`` do not generalise but stay local,
    ``over`` generalise but do not stay local, ``both`` do neither. A case is local when its lowest locality is.
    """

    n: int
    reliable: int
    joint: int
    under: int
    over: int
    both: int


@dataclass(frozen=True)
class Scores:
    """One row of a table: an editor on a task, in one order of the chains, or on a group of its cases.

    ``overall`` and ``harmonic`` are None when a dimension has no value at all; ``missing`` names it. ``gain`` holds
    the paired differences from the editor that does nothing, by dimension and for ``overall``; None without that editor.
    ``flags`` counts records, ``unscored`` counts records by reason, ``failures`` counts cases.
    """

    editor: str
    task: str
    order: str | None
    group: str
    cases: int
    records: int
    dimensions: Mapping[str, Estimate | None]
    overall: Estimate | None
    harmonic: Estimate | None
    missing: tuple[str, ...]
    joint: Joint | None
    gain: Mapping[str, Estimate | None] | None
    flags: Mapping[str, int]
    unscored: Mapping[str, int]
    failures: int


def summarise(
    records: Sequence[Record],
    dimensions: Sequence[Dimension],
    *,
    editor: str = "",
    task: str = "",
    group: str = "",
    order: str | None = None,
    base: Sequence[Record] | None = None,
    failures: int = 0,
    scorer: Scorer | None = None,
    thresholds: Thresholds | None = None,
) -> Scores:
    """Scores of one editor's records of one task (paper, equations 4 to 12).

    Uses the questions asked after the whole chain. A case's value in a dimension is the mean over its steps, a dimension's
    value the mean over cases, Overall the mean over dimensions with equal weights. Intervals resample cases, which keeps a
    chain's steps together. ``order`` picks the chains of one order (by default that of the first record): two orders
    are never mixed. ``base`` are the records of the editor that does nothing, on the same cases.
    """
    score = scorer or by_dimension(dimensions)
    names = [dimension.name for dimension in dimensions]
    wanted = order or first_order(records)
    kept = final_records(in_order(records, wanted))
    values = _case_values(kept, names, score)
    table = _array(values, names)
    means = dict(zip(names, column_means(table), strict=True))
    reasons = Counter(s.reason or "no reason given" for r in kept if (s := score(r)).value is None)
    return Scores(
        editor=editor,
        task=task,
        order=wanted,
        group=group,
        cases=len(values),
        records=len(kept),
        dimensions=means,
        overall=combined(table, arithmetic),
        harmonic=combined(table, harmonic),
        missing=tuple(name for name, mean in means.items() if mean is None),
        joint=_joint(values, dimensions, thresholds or Thresholds()),
        gain=None if base is None else _gain(values, _case_values(final_records(in_order(base, wanted)), names, score), names),
        flags={flag: sum(flag in r.flags for r in kept) for flag in FLAGS},
        unscored=dict(sorted(reasons.items())),
        failures=failures,
    )


def measures(
    records: Sequence[Record], dimensions: Sequence[Dimension], *, order: str | None = None
) -> dict[str, Estimate | None]:
    """By name: every measure of the ways in which the dimensions are scored, with an interval over cases.

    Each is computed over the records of all dimensions that are scored in its way, asked after the whole chain. The name of a
    measure that two ways share is that of the first. None where it has no value.
    """
    kept = final_records(in_order(records, order or first_order(records)))
    found: dict[str, Estimate | None] = {}
    for name in dict.fromkeys(dimension.scoring for dimension in dimensions):
        scored = {dimension.name for dimension in dimensions if dimension.scoring == name}
        cases: dict[str, list[Record]] = {}
        for record in kept:
            if record.dimension in scored:
                cases.setdefault(record.case, []).append(record)
        for measure in scoring(name).measures:
            rows = [measure.counts(members) for _, members in sorted(cases.items())]
            found.setdefault(measure.name, of_sums(rows, measure.value))
    return found


def compare(
    a: Sequence[Record], b: Sequence[Record], dimension: str | Sequence[str], *, scorer: Scorer | None = None
) -> Estimate | None:
    """Paired bootstrap of a minus b on the cases that both have, for one dimension or the mean of several.

    None when they share no scored case. Records of one task and one order are expected, of which those asked after the
    whole chain count.
    """
    names = [dimension] if isinstance(dimension, str) else list(dimension)
    score = scorer or rouge_scorer()
    left, right = (_case_values(final_records(records), names, score) for records in (a, b))
    return combined(_differences(left, right, names), arithmetic)


def first_order(records: Iterable[Record]) -> str | None:
    """The order of the first record that has one."""
    return next((record.tags["order"] for record in records if "order" in record.tags), None)


def in_order(records: Iterable[Record], order: str | None) -> list[Record]:
    """Records of chains in that order; those without an order are kept."""
    return [record for record in records if order is None or record.tags.get("order", order) == order]


def grouped(records: Iterable[Record], tag: str) -> dict[str, list[Record]]:
    """Records by the value of a tag, such as ``topic_group`` or ``partition``; those without it are left out."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if tag in record.tags:
            groups.setdefault(record.tags[tag], []).append(record)
    return dict(sorted(groups.items()))


def chain_lengths(records: Iterable[Record]) -> dict[str, int]:
    """Length of each case's chain: the last step that any of its records belongs to or was asked after."""
    lengths: dict[str, int] = {}
    for record in records:
        lengths[record.case] = max(lengths.get(record.case, 0), record.step, record.asked_at)
    return lengths


def final_records(records: Sequence[Record]) -> list[Record]:
    """Records asked after the whole chain."""
    lengths = chain_lengths(records)
    return [record for record in records if record.asked_at == lengths[record.case]]


@dataclass(frozen=True)
class Retention:
    """The matrix R[t][i]: Reliability of the item inserted at step i+1, asked after step t+1, mean over ``cases`` chains.

    ``languages`` are those of the steps. ``forgetting[i]`` is R[i][i] minus the last row's R[-1][i], paired by case
    (positive: lost); the last step's is 0. ``mean_forgetting`` averages all steps but the last. ``base`` is the row of the
    unedited model, None without it. An entry without a value is None.
    """

    order: str | None
    cases: int
    languages: tuple[str, ...]
    matrix: tuple[tuple[Estimate | None, ...], ...]
    forgetting: tuple[Estimate | None, ...]
    mean_forgetting: Estimate | None
    base: tuple[Estimate | None, ...] | None = field(default=None)

    @property
    def last(self) -> tuple[Estimate | None, ...]:
        """What is left of each step after the whole chain."""
        return self.matrix[-1] if self.matrix else ()


def retention(
    records: Sequence[Record], *, order: str | None = None, base: Sequence[Record] | None = None, scorer: Scorer | None = None
) -> Retention:
    """The retention matrix of one editor's records of a task asked by ``protocols.retention`` (paper, Fig. 6).

    ``order`` picks the chains of one order, by default that of the first record; ``base`` are the records of the editor
    that does nothing, for the row before any insert. Steps asked never are None.
    """
    score = scorer or rouge_scorer()
    wanted = order or first_order(records)
    kept = [record for record in in_order(records, wanted) if record.dimension == RELIABILITY]
    length = max(chain_lengths(kept).values(), default=0)
    cells = _cells(kept, score)
    cube = np.full((len(cells), length, length), np.nan)
    for c, case in enumerate(sorted(cells)):
        for (t, i), value in cells[case].items():
            if t >= 1:
                cube[c, t - 1, i - 1] = value
    flat = column_means(cube.reshape(len(cells), length * length))
    lost = np.stack([cube[:, i, i] - cube[:, -1, i] for i in range(length)], axis=1) if length else np.zeros((0, 0))
    row = None if base is None else _last_row(in_order(base, wanted), length, score)
    return Retention(
        order=wanted,
        cases=len(cells),
        languages=_languages(kept, length),
        matrix=tuple(tuple(flat[t * length : (t + 1) * length]) for t in range(length)),
        forgetting=tuple(column_means(lost)),
        mean_forgetting=combined(lost[:, :-1], arithmetic) if length > 1 else None,
        base=row,
    )


def _last_row(records: Sequence[Record], length: int, score: Scorer) -> tuple[Estimate | None, ...]:
    cells = _cells([r for r in final_records(records) if r.dimension == RELIABILITY], score)
    row = np.full((len(cells), length), np.nan)
    for c, case in enumerate(sorted(cells)):
        for (_, i), value in cells[case].items():
            if i <= length:
                row[c, i - 1] = value
    return tuple(column_means(row))


def _cells(records: Iterable[Record], score: Scorer) -> dict[str, dict[tuple[int, int], float]]:
    """Per case the mean score of each (asked_at, step)."""
    found: dict[str, dict[tuple[int, int], list[float]]] = {}
    for record in records:
        cell = found.setdefault(record.case, {}).setdefault((record.asked_at, record.step), [])
        value = score(record).value
        if value is not None:
            cell.append(value)
    return {case: {at: float(np.mean(sorted(v))) for at, v in cells.items() if v} for case, cells in found.items()}


def _languages(records: Iterable[Record], length: int) -> tuple[str, ...]:
    by_step = {record.step: record.language for record in sorted(records, key=lambda r: r.key, reverse=True)}
    return tuple(by_step.get(step, "") for step in range(1, length + 1))


def _case_values(records: Iterable[Record], names: Sequence[str], score: Scorer) -> dict[str, dict[str, float]]:
    """Per case the value of each dimension: the mean over its steps of the mean over a step's probes."""
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for record in records:
        steps = found.setdefault(record.case, {}).setdefault(record.dimension, {})
        value = score(record).value
        if value is not None:
            steps.setdefault(record.step, []).append(value)
    return {
        case: {d: float(np.mean(sorted(np.mean(sorted(v)) for v in s.values()))) for d, s in dims.items() if s and d in names}
        for case, dims in sorted(found.items())
    }


def _array(values: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> Array:
    """(cases, dimensions), NaN where a case has no value."""
    rows = [[row.get(name, np.nan) for name in names] for row in values.values()]
    return np.array(rows, dtype=np.float64).reshape(-1, len(names))


def _differences(a: Mapping[str, Mapping[str, float]], b: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> Array:
    common = {case: row for case, row in a.items() if case in b}
    return _array(common, names) - _array({case: b[case] for case in common}, names)


def _gain(
    values: Mapping[str, Mapping[str, float]], base: Mapping[str, Mapping[str, float]], names: Sequence[str]
) -> dict[str, Estimate | None]:
    differences = _differences(values, base, names)
    return {**dict(zip(names, column_means(differences), strict=True)), OVERALL: combined(differences, arithmetic)}


def _joint(values: Mapping[str, Mapping[str, float]], dimensions: Sequence[Dimension], at: Thresholds) -> Joint | None:
    local = [d.name for d in dimensions if d.locality]
    general = [d.name for d in dimensions if not d.locality and d.name != RELIABILITY]
    if not local or not general or RELIABILITY not in {d.name for d in dimensions}:
        return None
    needed = {RELIABILITY, *general, *local}
    rows = [row for row in values.values() if needed <= row.keys()]
    reliable = [row for row in rows if row[RELIABILITY] >= at.reliable]
    outcome = Counter((min(row[d] for d in general) >= at.general, min(row[d] for d in local) >= at.local) for row in reliable)
    return Joint(
        n=len(rows),
        reliable=len(reliable),
        joint=outcome[True, True],
        under=outcome[False, True],
        over=outcome[True, False],
        both=outcome[False, False],
    )
