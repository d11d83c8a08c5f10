"""Scoring yes and no: by a reading that understands sentences, and in the three ways that are published.

The four disagree on the same answers (an answer in capitals, an empty one, a "yes." with its full stop), so each is named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kedit.bootstrap import Array
from kedit.scoring.base import Measure, Score, Scorer, Scoring
from kedit.scoring.verdict import NO, YES, verdict
from kedit.types import Record

GROUP = "consistency_group"
"""Tag of questions on one thing, such as an image, which are consistent when all are answered right."""
PROMPT = "prompt"
"""Tag of the wording of a question; measures are means over wordings."""

_ROBUST, _OFFICIAL = "yes-no/1", "yes-no-official/1"
Parse = Callable[[str], str | None]
Counts = Mapping[str, Array]


def scoring() -> Scoring:
    """Macro-averaged over yes and no, mean over wordings (CROPE, section 4); what says neither is a third, wrong answer."""
    return Scoring(
        _ROBUST,
        "100 where the answer says what the reference says, else 0; an answer that says neither yes nor no is wrong",
        _scorer(verdict),
        _macro(),
        label="accuracy",
    )


def official() -> Scoring:
    """Of POPE's own script (evaluate.py): there is no third answer, and precision, recall and F1 are those of yes.

    Undefined (NaN) instead of a division by zero where nothing is answered with yes. The macro-averaged measures of
    ``scoring`` come beside them, because numbers of both kinds are published for the same questions.
    """
    return Scoring(
        _OFFICIAL,
        "100 where the answer is right, else 0; no where its first sentence has the word No, no or not, anything else is yes",
        _scorer(first_sentence),
        (*_of_yes(first_sentence, "official", "official", np.nan), *_macro()),
        label="accuracy",
        measured_by=f"{_OFFICIAL}, {_ROBUST}",
    )


def lmms() -> Scoring:
    """Of lmms-eval's task for POPE: an answer is exactly yes or no, anything else is in neither precision nor recall.

    Its share of yes is that of the references.
    """
    measures = _of_yes(exact, "lmms", "lmms-eval", 0.0, missed=("yn",), share=("yy", "yn", "yx"))
    describe = "100 where the answer, in small letters and without blanks around it, is exactly the reference, else 0"
    return Scoring("yes-no-lmms/1", describe, _scorer(exact), measures, label="accuracy")


def vlmeval() -> Scoring:
    """Of VLMEvalKit's rating for POPE: the word yes or no alone decides; neither or both is wrong, and no for the F1."""
    measures = _of_yes(either_word, "vlmeval", "VLMEvalKit", 0.0)
    describe = "100 where the answer has the word of the reference and not the other one, else 0"
    return Scoring("yes-no-vlmeval/1", describe, _scorer(either_word), measures, label="accuracy")


def first_sentence(text: str) -> str:
    """No where the text up to its first full stop, without commas and cut at single blanks, has No, no or not; else yes."""
    words = text.partition(".")[0].replace(",", "").split(" ")
    return NO if {"No", "no", "not"} & set(words) else YES


def exact(text: str) -> str | None:
    """Yes or no where the text is nothing else, in letters of any size."""
    word = text.strip().lower()
    return word if word in (YES, NO) else None


_MARKS = ';/[]"{}()=+\\_-><@`,?!'


def either_word(text: str) -> str | None:
    """Yes where the word yes is among the words and no is not, and the reverse.

    A mark that touches a blank somewhere is dropped wherever it is, as all are once a comma stands between digits; any other
    mark parts words; a full stop before anything but a digit is dropped.
    """
    lowered = text.lower()
    thousands = re.search(r"\d,\d", lowered) is not None
    plain = lowered
    for mark in _MARKS:
        dropped = thousands or f"{mark} " in lowered or f" {mark}" in lowered
        plain = plain.replace(mark, "" if dropped else " ")
    words = set(re.sub(r"\.(?!\d)", "", plain, count=32).split())
    found = words & {YES, NO}
    return found.pop() if len(found) == 1 else None


def _reference(record: Record) -> str | None:
    return verdict(record.reference)


def _scorer(parse: Parse) -> Scorer:
    def score(record: Record) -> Score:
        wanted = _reference(record)
        if wanted is None:
            return Score(None, "the reference is neither yes nor no")
        return Score(100.0 * (parse(record.output) == wanted))

    return score


def _counts(parse: Parse) -> Callable[[Sequence[Record]], dict[str, float]]:
    """Counts by reference and answer (y, n, and x for neither) and wording: ``yx|2`` is a yes missed by no answer."""

    def counts(records: Sequence[Record]) -> dict[str, float]:
        found: Counter[str] = Counter()
        for record in records:
            if (wanted := _reference(record)) is not None:
                found[f"{wanted[0]}{(parse(record.output) or 'x')[0]}|{record.tags.get(PROMPT, '')}"] += 1
        return {name: float(n) for name, n in found.items()}

    return counts


def _mean(of_prompt: Callable[[Callable[..., Array]], Array]) -> Callable[[Counts], Array]:
    """The mean over wordings of a value of one; ``of_prompt`` gets a function that adds up counts by their names."""
    return lambda columns: np.asarray(_by_prompt(columns, of_prompt).mean(axis=0))


def _by_prompt(columns: Counts, of_prompt: Callable[[Callable[..., Array]], Array]) -> Array:
    """(wordings, ...) values."""
    zero = np.zeros_like(next(iter(columns.values())))
    values = []
    for prompt in sorted({name.partition("|")[2] for name in columns}):

        def add(*names: str, prompt: str = prompt) -> Array:
            return np.asarray(sum((columns.get(f"{name}|{prompt}", zero) for name in names), zero))

        values.append(of_prompt(add))
    return np.stack(values)


def _percent(part: Array, whole: Array, empty: float = np.nan) -> Array:
    return 100 * np.divide(part, whole, out=np.full_like(whole, empty / 100), where=whole > 0)


_ALL = ("yy", "yn", "yx", "ny", "nn", "nx")


def _macro() -> tuple[Measure, ...]:
    """Measures over both classes; a class that is never answered has precision 0, one without a reference none at all."""
    counts = _counts(verdict)

    def share(name: str, label: str, *of: str) -> Measure:
        return Measure(name, label, counts, _mean(lambda add: _percent(add(*of), add(*_ALL))))

    return (
        share("accuracy", "Accuracy", "yy", "nn"),
        Measure("precision", "Precision (macro)", counts, _mean(lambda add: _both(add, _precision))),
        Measure("recall", "Recall (macro)", counts, _mean(lambda add: _both(add, _recall))),
        Measure("f1", "F1 (macro)", counts, _mean(_macro_f1)),
        Measure("f1_sd", "F1 SD over prompts", counts, _spread, about="standard deviation (n - 1) of the macro F1"),
        share("yes_share", "Yes %", "yy", "ny"),
        share("invalid", "Invalid %", "yx", "nx"),
        Measure(
            "consistency",
            "Consistency",
            _group_counts,
            _mean(lambda add: _percent(add("right"), add("n"))),
            unit=GROUP,
            about="all questions of a group right, of groups with both answers",
        ),
    )


def _both(add: Callable[..., Array], of_class: Callable[[Array, Array, Array], Array]) -> Array:
    """The mean of a value of the classes yes and no, from their hits, answers and references; NaN where a class is not asked."""
    values = []
    for own, other in (("y", "n"), ("n", "y")):
        hits, answers, asked = add(own * 2), add(own * 2, other + own), add(own + "y", own + "n", own + "x")
        values.append(np.where(asked > 0, of_class(hits, answers, asked), np.nan))
    return np.asarray((values[0] + values[1]) / 2)


def _precision(hits: Array, answers: Array, asked: Array) -> Array:
    return _percent(hits, answers, 0.0)


def _recall(hits: Array, answers: Array, asked: Array) -> Array:
    return _percent(hits, asked, 0.0)


def _macro_f1(add: Callable[..., Array]) -> Array:
    return _both(add, lambda hits, answers, asked: _percent(2 * hits, answers + asked, 0.0))


def _spread(columns: Counts) -> Array:
    """Sample standard deviation (n - 1) of the macro F1 over wordings (CROPE, Table 9, which does not name its divisor)."""
    values = _by_prompt(columns, _macro_f1)
    return np.asarray(values.std(axis=0, ddof=1)) if len(values) > 1 else np.full_like(values[0], np.nan)


def _group_counts(records: Sequence[Record]) -> dict[str, float]:
    """Per wording whether all questions of a group are answered right; none where it has no yes or no no (CROPE, section 4).

    An image whose questions all have the same answer says nothing about consistency: always answering so would be right.
    """
    found: dict[str, float] = {}
    by_prompt: dict[str, list[tuple[str, str | None]]] = {}
    for record in records:
        if (wanted := _reference(record)) is not None:
            by_prompt.setdefault(record.tags.get(PROMPT, ""), []).append((wanted, verdict(record.output)))
    for prompt, pairs in by_prompt.items():
        if {wanted for wanted, _ in pairs} == {YES, NO}:
            found[f"n|{prompt}"] = 1.0
            found[f"right|{prompt}"] = float(all(wanted == said for wanted, said in pairs))
    return found


def _of_yes(
    parse: Parse,
    prefix: str,
    label: str,
    undefined: float,
    missed: Sequence[str] = ("yn", "yx"),
    share: Sequence[str] = ("yy", "ny"),
) -> tuple[Measure, ...]:
    """Measures of the class yes: ``missed`` are the counts against recall, ``share`` those called the share of yes."""
    counts = _counts(parse)

    def f1(add: Callable[..., Array]) -> Array:
        hits, answers, asked = add("yy"), add("yy", "ny"), add("yy", *missed)
        value = _percent(2 * hits, answers + asked, undefined)
        return np.where((hits > 0) | (undefined == 0), value, np.nan)

    values: dict[str, tuple[str, Callable[[Callable[..., Array]], Array]]] = {
        "accuracy": ("Accuracy", lambda add: _percent(add("yy", "nn"), add(*_ALL))),
        "precision": ("Precision", lambda add: _percent(add("yy"), add("yy", "ny"), undefined)),
        "recall": ("Recall", lambda add: _percent(add("yy"), add("yy", *missed), undefined)),
        "f1": ("F1", f1),
        "yes_share": ("Yes %", lambda add: _percent(add(*share), add(*_ALL))),
    }
    return tuple(Measure(f"{prefix}_{name}", f"{text} ({label})", counts, _mean(value)) for name, (text, value) in values.items())
