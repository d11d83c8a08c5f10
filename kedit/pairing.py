"""What two editors have in common: the values of the cases that both answered, seed by seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kedit.benchmark import Dimension
from kedit.bootstrap import Array
from kedit.casebook import read_cases
from kedit.errors import unknown_name
from kedit.metrics import OVERALL, case_values, final_records, in_order
from kedit.replicates import Arm, Member
from kedit.run import Run
from kedit.scoring import Scorer, by_dimension, rouge_scorer, scoring
from kedit.types import Record

JUDGE = "judge:"
CASE = "case"


@dataclass(frozen=True)
class Answered:
    """A case as one editor answered it: its value by dimension, the group it belongs to, and what it was asked."""

    values: Mapping[str, float]
    unit: str
    asked: frozenset[tuple[int, str, str | None]]


@dataclass(frozen=True)
class Result:
    """A dimension of a sample, or the mean over all of them; ``cases`` that count in it, and others by why they do not."""

    name: str
    label: str
    cases: int
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class Sample:
    """Two editors on one task.

    ``totals`` of a and of b are (seeds, units, columns), ``counts`` (units, columns), ``mix`` (columns, results): what
    ``statistics.paired`` takes; ``crossed`` where both have the same seeds. ``results`` are those with a case, in the order of
    ``mix``; ``empty`` are those without.
    """

    task: str
    a: Arm
    b: Arm
    totals: tuple[Array, Array]
    counts: Array
    mix: Array
    crossed: bool
    results: tuple[Result, ...]
    empty: tuple[Result, ...]


class Samples:
    """Makes samples; what one editor answered is read and scored once for all its pairs."""

    def __init__(self, scorer: Scorer | str | None, unit: str) -> None:
        self.scorer = scorer
        self.unit = unit
        self._answered: dict[tuple[int, str, str, str | None], dict[str, Answered]] = {}
        self._books: dict[int, dict[tuple[str, str], str]] = {}

    def of(self, a: Arm, b: Arm, tasks: Collection[str] | None, dimensions: Collection[str] | None) -> Iterator[Sample]:
        """A sample for each task that all runs of both have, of those asked for."""
        runs = [member.run for member in (*a.members, *b.members)]
        for task in runs[0].tasks:
            if all(task in run.tasks for run in runs) and (tasks is None or task in tasks):
                yield self._sample(a, b, task, dimensions)

    def _sample(self, a: Arm, b: Arm, task: str, dimensions: Collection[str] | None) -> Sample:
        names = {d.name for m in b.members for d in m.run.dimensions(task)}
        columns = [d for d in a.members[0].run.dimensions(task) if d.name in names]
        order = a.members[0].run.order(task)
        seeds = [arm.by_seed() for arm in (a, b)]
        sides = [[self._of_member(m, task, order) for m in found.values()] for found in seeds]
        shared, left_out = self._shared(a, b, task, sides)
        values = [_table(side, shared, columns) for side in sides]
        known = ~np.isnan(np.concatenate(values)).any(axis=0)
        units = np.unique([sides[0][0][case].unit for case in shared], return_inverse=True)[1]
        kept = known.any(axis=0)
        found = list(_results(a, b, columns, values, known, left_out, dimensions))
        full = [r for r in found if r.cases and (r.name != OVERALL or kept.all())]
        return Sample(
            task=task,
            a=a,
            b=b,
            totals=(
                _summed(np.where(known, values[0], 0), units)[..., kept],
                _summed(np.where(known, values[1], 0), units)[..., kept],
            ),
            counts=_summed(known[None].astype(np.float64), units)[0][:, kept],
            mix=_mix([d.name for d, has in zip(columns, kept, strict=True) if has], [r.name for r in full]),
            crossed=len(seeds[0]) > 1 and seeds[0].keys() == seeds[1].keys(),
            results=tuple(full),
            empty=tuple(r for r in found if r not in full),
        )

    def _of_member(self, member: Member, task: str, order: str | None) -> dict[str, Answered]:
        key = (id(member.run), member.editor, task, order)
        if key not in self._answered:
            records = final_records(in_order(member.run.records(member.editor, task), order))
            names = [d.name for d in member.run.dimensions(task)]
            values = case_values(records, names, scorer_of(member.run, task, self.scorer))
            groups: dict[str, list[Record]] = {}
            for record in records:
                groups.setdefault(record.case, []).append(record)
            self._answered[key] = {case: self._one(case, values[case], found) for case, found in groups.items()}
        return self._answered[key]

    def _one(self, case: str, values: Mapping[str, float], records: Sequence[Record]) -> Answered:
        unit = case if self.unit == CASE else records[0].tags.get(self.unit, case)
        return Answered(values, unit, frozenset((r.probe, r.dimension, None if r.from_base else r.reference) for r in records))

    def _shared(
        self, a: Arm, b: Arm, task: str, sides: Sequence[Sequence[Mapping[str, Answered]]]
    ) -> tuple[list[str], dict[str, int]]:
        """Cases that every seed of both answered and that were the same in all runs; of the others how many and why not."""
        reasons: Counter[str] = Counter()
        shared = []
        members = (*a.members, *b.members)
        found = [*sides[0], *sides[1]]
        for case in sorted({case for one in found for case in one}):
            lacking = next((arm for arm, side in zip((a, b), sides, strict=True) if any(case not in one for one in side)), None)
            if lacking is not None:
                reasons[f"not answered by {lacking.label}{' with every seed' if len(lacking.members) > 1 else ''}"] += 1
            elif len({one[case].asked for one in found}) > 1 or len(self._contents(members, task, case)) > 1:
                reasons["another case under the same name"] += 1
            else:
                shared.append(case)
        return shared, dict(reasons.most_common())

    def _contents(self, members: Sequence[Member], task: str, case: str) -> set[str]:
        """What was inserted and asked, as each run that tells it has it."""
        runs = {id(m.run): m.run for m in members}
        books = [self._book(run) for run in runs.values()] if len(runs) > 1 else []
        return {book[task, case] for book in books if (task, case) in book}

    def _book(self, run: Run) -> dict[tuple[str, str], str]:
        if id(run) not in self._books:
            rows = read_cases(run.path)
            self._books[id(run)] = {(r["task"], r["id"]): json.dumps([r["chain"], r["probes"]], sort_keys=True) for r in rows}
        return self._books[id(run)]


def scorer_of(run: Run, task: str, scorer: Scorer | str | None) -> Scorer:
    """A scorer of a run's records: by dimension, ``"rouge"``, ``"judge:ID"``, or the one given; raises UnknownNameError."""
    if scorer is None:
        return by_dimension(run.dimensions(task))
    if not isinstance(scorer, str):
        return scorer
    if scorer == "rouge":
        return rouge_scorer()
    if not scorer.startswith(JUDGE):
        raise unknown_name("scorer", scorer, ("rouge", f"{JUDGE}ID"))
    from kedit.judging import judge_scorer

    found: Scorer = judge_scorer(run, scorer.removeprefix(JUDGE))
    return found


def scorer_name(runs: Sequence[Run], scorer: Scorer | str | None) -> str:
    """What the scores are: the ids of the ways of scoring, or the name that was given."""
    if scorer is None or scorer == "rouge":
        ways = [d.scoring for run in runs for task in run.tasks for d in run.dimensions(task)] if scorer is None else [scorer]
        return ", ".join(dict.fromkeys(scoring(str(way)).id for way in ways))
    return scorer if isinstance(scorer, str) else str(getattr(scorer, "__name__", type(scorer).__name__))


def _table(side: Sequence[Mapping[str, Answered]], cases: Sequence[str], columns: Sequence[Dimension]) -> Array:
    """(seeds, cases, columns), NaN for a dimension of a case without a value."""
    rows = [[[one[case].values.get(d.name, np.nan) for d in columns] for case in cases] for one in side]
    return np.array(rows, dtype=np.float64).reshape(len(side), len(cases), len(columns))


def _summed(values: Array, units: Any) -> Array:
    """Sums over the cases of each unit: (seeds, units, columns) of (seeds, cases, columns)."""
    found = np.zeros((values.shape[0], int(units.max()) + 1 if len(units) else 0, values.shape[2]))
    np.add.at(found, (slice(None), units), values)
    return found


def _mix(columns: Sequence[str], results: Sequence[str]) -> Array:
    """(columns, results): which columns a result is the mean of."""
    rows = [[1 / len(columns) if r == OVERALL else float(r == c) for r in results] for c in columns]
    return np.array(rows, dtype=np.float64).reshape(len(columns), len(results))


def _results(
    a: Arm,
    b: Arm,
    columns: Sequence[Dimension],
    values: Sequence[Array],
    known: Any,
    left_out: Mapping[str, int],
    wanted: Collection[str] | None,
) -> Iterator[Result]:
    """The dimensions asked for with their counts, then the mean over all."""
    lacking = [np.isnan(side).any(axis=0) for side in values]
    for k, dimension in enumerate(columns):
        if wanted is None or dimension.name in wanted:
            unscored = {a.label: int(lacking[0][:, k].sum()), b.label: int((lacking[1] & ~lacking[0])[:, k].sum())}
            more = {f"not scored for {label}": n for label, n in unscored.items() if n}
            yield Result(dimension.name, dimension.label, int(known[:, k].sum()), {**left_out, **more})
    if len(columns) > 1 and (wanted is None or OVERALL in wanted):
        yield Result(OVERALL, "Overall", int(known.any(axis=1).sum()), left_out)
