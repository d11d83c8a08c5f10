"""Scores of records: pure functions, so that any run can be scored again by other rules without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kedit.benchmark import Dimension
from kedit.bootstrap import Array, Estimate, Sums, arithmetic, column_means, combined, harmonic, of_sums, sums
from kedit.errors import unknown_name
from kedit.flags import FLAGS
from kedit.protocols import RELIABILITY
from kedit.scoring import Measure, Scorer, by_dimension, legacy, scoring
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
    values = case_values(kept, names, score)
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
        gain=None if base is None else _gain(values, case_values(final_records(in_order(base, wanted)), names, score), names),
        flags={flag: sum(flag in r.flags for r in kept) for flag in FLAGS},
        unscored=dict(sorted(reasons.items())),
        failures=failures,
    )


def measures(
    records: Sequence[Record], dimensions: Sequence[Dimension], *, order: str | None = None
) -> dict[str, Estimate | None]:
    """By name: every measure of the ways in which the dimensions are scored, with an interval over cases.

    Each is computed over the records of all dimensions that are scored in its way, asked after the whole chain. The name of a
    measure that two ways share is that of the first. None where it has no value. Teacher-forced metrics come last where the
    records hold them.
    """
    kept = final_records(in_order(records, order or first_order(records)))
    drawn: dict[object, Sums] = {}  # measures of the same counts share their resamples
    found = {}
    for name, offer in offered(kept, dimensions).items():
        source = (offer.measure.counts, offer.measure.unit, offer.dimensions)
        if source not in drawn:
            drawn[source] = sums(list(offer.rows(kept).values()))
        found[name] = drawn[source].estimate(offer.measure.value)
    return found


def measure(
    records: Sequence[Record], dimensions: Sequence[Dimension], name: str, *, order: str | None = None
) -> Estimate | None:
    """One of the measures; raises UnknownNameError for one that the dimensions' scorings do not have."""
    kept = final_records(in_order(records, order or first_order(records)))
    offer = chosen(offered(kept, dimensions), name)
    return of_sums(list(offer.rows(kept).values()), offer.measure.value)


def measure_gain(
    records: Sequence[Record], base: Sequence[Record], dimensions: Sequence[Dimension], name: str, *, order: str | None = None
) -> Estimate | None:
    """A measure of the records minus that of the editor that does nothing, on the cases that both have, resampled together.

    Raises UnknownNameError for a measure that the dimensions' scorings do not have.
    """
    wanted = order or first_order(records)
    kept, floor = (final_records(in_order(found, wanted)) for found in (records, base))
    offer = chosen(offered([*kept, *floor], dimensions), name)
    own, other = offer.rows(kept), offer.rows(floor)
    rows = [
        {**{f"a {key}": n for key, n in own[unit].items()}, **{f"b {key}": n for key, n in other[unit].items()}}
        for unit in own
        if unit in other
    ]

    def difference(columns: Mapping[str, Array]) -> Array:
        sides = [{key[2:]: values for key, values in columns.items() if key.startswith(side)} for side in ("a ", "b ")]
        return offer.measure.value(sides[0]) - offer.measure.value(sides[1])

    return of_sums(rows, difference)


@dataclass(frozen=True)
class Offer:
    """A measure, and the dimensions whose records it is computed over."""

    measure: Measure
    dimensions: frozenset[str]

    def rows(self, records: Iterable[Record]) -> dict[str, Mapping[str, float]]:
        """The counts of each case, or of each unit of the measure, that has some, in a fixed order."""
        units: dict[str, list[Record]] = {}
        for record in records:
            unit = record.case if self.measure.unit is None else record.tags.get(self.measure.unit)
            if record.dimension in self.dimensions and unit is not None:
                units.setdefault(unit, []).append(record)
        counted = {unit: self.measure.counts(members) for unit, members in sorted(units.items())}
        return {unit: counts for unit, counts in counted.items() if counts}


def offered(records: Sequence[Record], dimensions: Sequence[Dimension]) -> dict[str, Offer]:
    """The measures of the ways in which the dimensions are scored, by name, and of what the records have measured."""
    found: dict[str, Offer] = {}
    for name in dict.fromkeys(dimension.scoring for dimension in dimensions):
        scored = frozenset(dimension.name for dimension in dimensions if dimension.scoring == name)
        for measure in scoring(name).measures:
            found.setdefault(measure.name, Offer(measure, scored))
    every = frozenset(dimension.name for dimension in dimensions)
    return found | {measure.name: Offer(measure, every) for measure in legacy.measures(records, dimensions)}


def chosen(offers: Mapping[str, Offer], name: str) -> Offer:
    """The measure of that name; raises UnknownNameError, which lists what there is."""
    if name not in offers:
        raise unknown_name("measure", name, offers, f"{OVERALL!r} is the mean over dimensions.")
    return offers[name]


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
    """Length of each case's chain: the last step that any of its records belongs to or was asked after.

    It is 0 for a case of which nothing was asked after an insert: one with nothing to insert.
    """
    lengths: dict[str, int] = {}
    inserted = set()
    for record in records:
        lengths[record.case] = max(lengths.get(record.case, 0), record.step, record.asked_at)
        if record.asked_at:
            inserted.add(record.case)
    return {case: length if case in inserted else 0 for case, length in lengths.items()}


def final_records(records: Sequence[Record]) -> list[Record]:
    """Records asked after the whole chain."""
    lengths = chain_lengths(records)
    return [record for record in records if record.asked_at == lengths[record.case]]


def case_values(records: Iterable[Record], names: Sequence[str], score: Scorer) -> dict[str, dict[str, float]]:
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
