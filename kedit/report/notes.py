"""What stands under a table: how its numbers were made, and which of them not to trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kedit.flags import FLAGS
from kedit.metrics import OVERALL, Retention, Scores, Thresholds
from kedit.protocols import RELIABILITY
from kedit.report.results import Results
from kedit.rouge import rouge_id

FEW_CASES = 20
MANY_FLAGS = 0.05


@dataclass(frozen=True)
class Note:
    """A sentence under a table; a warning says what not to trust."""

    text: str
    warning: bool = False


def score_notes(results: Results, task: str, order: str | None, rows: Sequence[Scores]) -> Iterator[Note]:
    """Notes of a table of scores, warnings last."""
    yield Note(_scale(rows))
    yield Note(_reference(results, task, order))
    if order is not None:
        original = results.run.order(task)
        yield Note(
            f"Chains are inserted in the order {order}"
            + (", the original." if order == original else f"; the original is {original}.")
        )
    yield Note(_joint_rule(rows))
    yield Note(_precision(results.run.config["identity"]))
    yield from _editors(results)
    if results.base is None:
        yield Note("Gain over base is left out: no editor of this run does nothing; add one to see what editing changes.", True)
    yield from _warnings(results, task, order, rows)


def group_notes(rows: Sequence[Scores]) -> Iterator[Note]:
    """Notes of a table by group."""
    yield Note(_scale(rows))
    small = sorted({row.group for row in rows if row.cases < FEW_CASES})
    if small:
        yield Note(f"Fewer than {FEW_CASES} cases in {', '.join(small)}: differences between groups may be chance.", True)


def retention_notes(matrices: Mapping[str, Retention], shown: int) -> Iterator[Note]:
    """Notes of a table of retention."""
    cases = sorted({m.cases for m in matrices.values()})
    n = f"{cases[0]}" if len(cases) == 1 else f"{cases[0]} to {cases[-1]}"
    yield Note(
        f"Reliability (ROUGE-L, {rouge_id()}) of the item of each column's step, asked after the row's step; mean over "
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


def _scale(rows: Sequence[Scores]) -> str:
    cases = sorted({row.cases for row in rows}) or [0]
    n = f"{cases[0]}" if len(cases) == 1 else f"{cases[0]} to {cases[-1]}"
    return f"n = {n} cases. ROUGE-L F-measure, 0 to 100 ({rouge_id()}); mean over cases [95 % bootstrap interval over cases]."


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
    if row.missing and row.cases:
        yield f"no Overall, because {', '.join(row.missing)} has no value."


def _overlap(results: Results, task: str, rows: Sequence[Scores]) -> Iterator[Note]:
    """What an unedited model gets for nothing, and who does not clearly do better."""
    base = next((row for row in rows if row.editor == results.base), None)
    reliability = base.dimensions.get(RELIABILITY) if base else None
    if base is None or reliability is None:
        return
    label = next(d.label for d in results.run.dimensions(task) if d.name == RELIABILITY)
    easy = reliability.mean >= Thresholds().reliable
    overall = f" and {base.overall.mean:.1f} Overall" if base.overall else ""
    yield Note(
        f"Doing nothing already scores {reliability.mean:.1f} in {label}{overall}, by words that its answers share with the "
        "references; read every row as a distance from that.",
        easy,
    )
    for row in rows:
        gain = row.gain[OVERALL] if row.gain else None
        if gain is not None and gain.low <= 0 <= gain.high:
            yield Note(f"{row.editor}: Overall cannot be told from doing nothing (the gain's interval contains 0).", True)
