"""What stands under a table: how its numbers were made, and which of them not to trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kedit.benchmark import Dimension
from kedit.bootstrap import Estimate
from kedit.flags import FLAGS
from kedit.forgetting import By, Point, Retention
from kedit.metrics import OVERALL, Offer, Scores, Thresholds, measure
from kedit.protocols import RELIABILITY
from kedit.report.results import Results
from kedit.scoring import FREE_TEXT, legacy

FEW_CASES = 20
_MOST_ANSWERS = 8
MANY_FLAGS = 0.05


@dataclass(frozen=True)
class Note:
    """A sentence under a table; a warning says what not to trust."""

    text: str
    warning: bool = False


def score_notes(results: Results, task: str, order: str | None, rows: Sequence[Scores]) -> Iterator[Note]:
    """Notes of a table of scores, warnings last."""
    yield Note(_scale(results, task, rows))
    yield Note(_reference(results, task, order))
    if order is not None:
        original = results.run.order(task)
        yield Note(
            f"Chains are inserted in the order {order}"
            + (", the original." if order == original else f"; the original is {original}.")
        )
    if len(results.run.dimensions(task)) > 1:
        yield Note(_joint_rule(rows))
    yield Note(_precision(results.run.config["identity"]))
    yield from _editors(results)
    if results.base is None:
        yield Note("Gain over base is left out: no editor of this run does nothing; add one to see what editing changes.", True)
    yield from _warnings(results, task, order, rows)


def measure_notes(
    results: Results, task: str, order: str | None, found: Mapping[str, Mapping[str, Estimate | None]]
) -> Iterator[Note]:
    """Notes of a table of measures."""
    ids = [way.measured_by or way.id for way, _ in results.scorings(task).values() if way.measures]
    offers = results.offered(task)
    cases = {e.n for row in found.values() for name, e in row.items() if e is not None and offers[name].measure.unit is None}
    units = sorted(cases) or [0]
    n = f"{units[0]}" if len(units) == 1 else f"{units[0]} to {units[-1]}"
    rule = f"{', '.join(ids)}; each over all cases at once" if ids else "Each over all cases at once"
    yield Note(f"n = {n} cases. {rule} [95 % bootstrap interval over cases].")
    about = [_about(offer, [e.n for row in found.values() if (e := row.get(name))]) for name, offer in offers.items()]
    if any(about):
        yield Note("; ".join(text for text in about if text) + ".")
    yield from _constant(results, task, order)
    if any(name.startswith("legacy") for row in found.values() for name in row):
        yield Note(f"{legacy.ID}: {legacy.NOTE}", True)
    if results.base is None:
        yield Note("Gain over base is left out: no editor of this run does nothing.", True)


def _about(offer: Offer, counts: Sequence[int]) -> str:
    """What a measure is where its label does not say, and over how many groups; nothing for one without a value."""
    unit = offer.measure.unit
    many = " to ".join(map(str, dict.fromkeys((min(counts), max(counts))))) if counts else ""
    resampled = f"over {many} groups by {unit}, which are resampled whole" if unit else ""
    said = ", ".join(part for part in (offer.measure.about, resampled) if part)
    return f"{offer.measure.label}: {said}" if counts and said else ""


def _constant(results: Results, task: str, order: str | None) -> Iterator[Note]:
    """What always the same answer gets in the headline, by the answer that gets most."""
    name = results.run.headline(task)
    offer = results.offered(task).get(name)
    if name == OVERALL or offer is None:
        return
    records = [r for r in results.records(results.editors[0], task, order) if r.dimension in offer.dimensions and not r.from_base]
    answers = sorted({r.reference for r in records if r.reference.strip()})
    if not 2 <= len(answers) <= _MOST_ANSWERS:
        return
    same = {a: measure([replace(r, output=a) for r in records], results.run.dimensions(task), name, order=order) for a in answers}
    best = max(((e.mean, answer) for answer, e in same.items() if e is not None), default=None)
    if best is not None:
        yield Note(f"Always answering {best[1]!r} without looking would get {best[0]:.1f} in {offer.measure.label}.")


def group_notes(results: Results, task: str, rows: Sequence[Scores]) -> Iterator[Note]:
    """Notes of a table by group."""
    yield Note(_scale(results, task, rows))
    small = sorted({row.group for row in rows if row.cases < FEW_CASES})
    if small:
        yield Note(f"Fewer than {FEW_CASES} cases in {', '.join(small)}: differences between groups may be chance.", True)


def retention_notes(results: Results, task: str, matrices: Mapping[str, Retention], shown: int) -> Iterator[Note]:
    """Notes of a table of retention."""
    cases = sorted({m.cases for m in matrices.values()})
    n = f"{cases[0]}" if len(cases) == 1 else f"{cases[0]} to {cases[-1]}"
    yield Note(
        f"Reliability ({_scored(results, task)}) of the item of each column's step, asked after the row's step; mean over "
        f"{n} chains [95 % interval]."
    )
    yield Note("Cells left of and on the diagonal are retention; those right of it were asked before their item was inserted.")
    yield Note(
        "Forgetting is the score right after an item's own step minus that after the whole chain: positive is lost, 0 for "
        "the last step by definition."
    )
    length = max((len(m.matrix) for m in matrices.values()), default=0)
    if shown < length:
        yield Note(f"{shown} of {length} steps are shown, evenly spaced; mean forgetting is over all.")
    if cases[0] < FEW_CASES:
        yield Note(f"Fewer than {FEW_CASES} chains: do not read small differences.", True)


def curve_notes(results: Results, task: str, order: str | None, by: By, curves: Sequence[Sequence[Point]]) -> Iterator[Note]:
    """Notes of a table of curves."""
    chains = max(len({r.case for r in results.records(name, task, order)}) for name in results.editors)
    items = ", ".join(f"{p.label}: {p.items}" for p in max(curves, key=len, default=()))
    what = "items asked while so many were in memory" if by == "size" else "items asked so many inserts after their own"
    unit = "items of the one chain" if chains == 1 else f"{chains} chains"
    yield Note(f"Means over {what}, scored by {_scored(results, task)} [95 % interval, resampling {unit}]. Items: {items}.")
    yield Note(
        "At several sizes the same items are asked where they were inserted by then; generality and locality are asked of what "
        "no chain inserts."
    )
    if 1 < chains < FEW_CASES:
        yield Note(f"Fewer than {FEW_CASES} chains: do not read small differences.", True)


def transfer_notes() -> Iterator[Note]:
    """Notes of a table of forgetting and transfer."""
    yield Note(
        "Forgetting: reliability when an item was first asked after its insert, minus that after the whole chain; positive is "
        "lost. Backward transfer, mean of R[T][i] - R[i][i], is its negative. Forward effect: reliability just before an item's "
        "own insert minus that of the unedited model; a dash where that was not asked."
    )


def _scored(results: Results, task: str) -> str:
    """Label and id of what reliability is scored by."""
    return next(f"{way.label}, {way.id}" for way, of in results.scorings(task).values() if any(d.name == RELIABILITY for d in of))


def _scale(results: Results, task: str, rows: Sequence[Scores]) -> str:
    cases = sorted({row.cases for row in rows}) or [0]
    n = f"{cases[0]}" if len(cases) == 1 else f"{cases[0]} to {cases[-1]}"
    ways = list(results.scorings(task).values())
    said = [(f"{', '.join(d.label for d in of)}: " if len(ways) > 1 else "") + f"{way.describe} ({way.id})" for way, of in ways]
    return f"n = {n} cases. {'; '.join(said)}; mean over cases [95 % bootstrap interval over cases]."


def _reference(results: Results, task: str, order: str | None) -> str:
    labels = {d.name: d.label for d in results.run.dimensions(task)}
    of_base: dict[str, set[bool]] = {}
    for editor in results.editors:
        for record in results.records(editor, task, order):
            of_base.setdefault(record.dimension, set()).add(record.from_base)
    own = [labels[d] for d in labels if of_base.get(d) == {True}]
    given = [labels[d] for d in labels if of_base.get(d) == {False}]
    mixed = [labels[d] for d in labels if len(of_base.get(d, ())) == 2]
    said = [
        f"{', '.join(own)} against the unedited model's own answer, asked before any edit" if own else "",
        f"{', '.join(given)} against the benchmark's answer" if given else "",
        f"{', '.join(mixed)} against either, question by question" if mixed else "",
    ]
    return f"References: {'; '.join(s for s in said if s) or 'none, nothing was asked yet'}."


def _joint_rule(rows: Sequence[Scores]) -> str:
    if all(row.joint is None for row in rows):
        return "Joint outcome: none, it takes reliability, a generality and a locality."
    at = Thresholds()
    return (
        f"Joint: cases that are reliable (at least {at.reliable:.0f}), general (at least {at.general:.0f}) and local (at least "
        f"{at.local:.0f}) at once, of those scored in every dimension."
    )


def _precision(identity: Mapping[str, Any]) -> str:
    dtype = identity["backbone"]["dtype"]
    limit = identity["decoding"]["max_new_tokens"]
    agree = "agree" if dtype == "float32" else "may differ in some tokens"
    return f"Greedy decoding, at most {limit} new tokens, in {dtype}, in which batched, cached and plain generation {agree}."


def _editors(results: Results) -> Iterator[Note]:
    declared = results.run.config["identity"]["editors"]
    for name in results.editors:
        row = declared[name]
        params = ", ".join(f"{key}={value!r}" for key, value in row["params"].items())
        does = "does nothing: the unedited model" if name == results.base else params or "no parameters"
        yield Note(f"{name}: {row['class'].rpartition('.')[2]}, {does}.{_learned(row)}")
        told = results.run.notes.get(name, {})
        if told:
            yield Note(f"{name}: {'; '.join(f'{key} {_number(value)}' for key, value in told.items())}.")


def _learned(row: Mapping[str, Any]) -> str:
    learned = row.get("learned")
    return f" Fitted: {learned}." if learned else ""


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _warnings(results: Results, task: str, order: str | None, rows: Sequence[Scores]) -> Iterator[Note]:
    few = max((row.cases for row in rows), default=0)
    if few < FEW_CASES:
        yield Note(f"Fewer than {FEW_CASES} cases: intervals are wide and uncertain (20 cases resolve about 10 points).", True)
    expected = results.run.config["identity"]["tasks"][task]["cases"]
    for row in rows:
        yield from (Note(f"{row.editor}: {text}", True) for text in _row_warnings(row))
        have = len({r.case for r in results.records(row.editor, task)})
        if have + results.failed(row.editor, task) < expected:
            yield Note(f"{row.editor}: unfinished, {have} of {expected} cases of this task so far.", True)
    yield from _overlap(results, task, rows)


def _row_warnings(row: Scores) -> Iterator[str]:
    for flag in FLAGS:
        if row.records and row.flags[flag] / row.records > MANY_FLAGS:
            share = 100 * row.flags[flag] / row.records
            yield f"{share:.0f} % of answers ({row.flags[flag]} of {row.records}) are flagged {flag.replace('_', ' ')}."
    for reason, count in row.unscored.items():
        yield f"{count} answers are unscored and left out of every mean ({reason})."
    if row.failures:
        yield f"{row.failures} cases failed and are left out of every mean; failures.jsonl says why."
    if row.missing and row.cases and len(row.dimensions) > 1:
        yield f"no Overall, because {', '.join(row.missing)} has no value."


def _overlap(results: Results, task: str, rows: Sequence[Scores]) -> Iterator[Note]:
    """What an unedited model gets for nothing, and who does not clearly do better."""
    dimensions = results.run.dimensions(task)
    base = next((row for row in rows if row.editor == results.base), None)
    first = next((d for d in dimensions if d.name == RELIABILITY), next((d for d in dimensions if not d.locality), None))
    value = base.dimensions.get(first.name) if base and first else None
    if base is None or first is None or value is None:
        return
    several = len(dimensions) > 1
    overall = f" and {base.overall.mean:.1f} Overall" if base.overall and several else ""
    yield Note(
        f"Doing nothing already scores {value.mean:.1f} in {first.label}{overall}{_why(results, first)}; read every row as a "
        "distance from that.",
        _by_words(results, first) and value.mean >= Thresholds().reliable,
    )
    for row in rows:
        gain = row.gain[OVERALL] if row.gain else None
        if gain is not None and gain.low <= 0 <= gain.high:
            what = "Overall" if several else first.label
            yield Note(f"{row.editor}: {what} cannot be told from doing nothing (the gain's interval contains 0).", True)


def _by_words(results: Results, dimension: Dimension) -> bool:
    return dimension.scoring == FREE_TEXT and results.judged is None


def _why(results: Results, dimension: Dimension) -> str:
    return ", by words that its answers share with the references" if _by_words(results, dimension) else ""
