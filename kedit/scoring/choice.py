"""Scoring questions with options: by a reading that finds the option in a sentence, and by the strict published one.

Both readings are reported beside each other whichever one a dimension is scored by: they differ by what a model writes around
its letter, which is no difference in what it knows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from kedit.bootstrap import Array
from kedit.errors import DataError
from kedit.scoring.base import Measure, Score, Scorer, Scoring
from kedit.scoring.letters import LABELS, letter
from kedit.types import Record

OPTIONS = "options"
"""Tag: the options as a JSON list in the order shown."""
ROTATION = "rotation"
"""Tag: how far the options are rotated; "0" is the order of the file."""

_STANDARD = 4
"""Options of a question that does not list them."""
_SHOWN = 6
"""Letters with a measure of their own."""

_ROBUST, _OFFICIAL = "choice/1", "choice-official/1"
Parse = Callable[[Record], str | None]
Counts = Mapping[str, Array]


def scoring() -> Scoring:
    """By the option that an answer means, in letters or in words (see ``kedit.scoring.letters``)."""
    describe = "100 where the answer means the right option, by letter or by its text, else 0; what means no one option is wrong"
    return Scoring(_ROBUST, describe, _scorer(meant), _measures(), "accuracy", f"{_ROBUST}, {_OFFICIAL}")


def official() -> Scoring:
    """By the letter alone: an answer that is not exactly one capital letter of an option is wrong (K-Viscuit's run_vqa.py)."""
    describe = "100 where the answer is exactly the capital letter of the right option, else 0"
    return Scoring(_OFFICIAL, describe, _scorer(strict), _measures(), "accuracy", f"{_ROBUST}, {_OFFICIAL}")


def meant(record: Record) -> str | None:
    """The letter of the option that an answer means; None for none or several."""
    return letter(record.output, options(record))


def strict(record: Record) -> str | None:
    """The answer without blanks around it where it is the capital letter of an option; None for anything else."""
    found = record.output.strip()
    return found if len(found) == 1 and found in LABELS[: len(options(record))] else None


def options(record: Record) -> tuple[str, ...]:
    """The options in the order in which they were shown; four without a text where a record does not tell.

    Raises DataError, which names the case, where the tag holds no list.
    """
    try:
        return _options(record.tags.get(OPTIONS, ""))
    except (ValueError, TypeError) as error:
        listed = record.tags[OPTIONS]
        raise DataError(f"case {record.case}: tag {OPTIONS!r} is {listed!r:.80}, expected a JSON list of texts") from error


@lru_cache(maxsize=1 << 14)
def _options(listed: str) -> tuple[str, ...]:
    return tuple(str(option) for option in json.loads(listed)) if listed else ("",) * _STANDARD


def _right(record: Record) -> str | None:
    """The letter of the right option; that of the unedited model's answer where this is the reference."""
    return letter(record.reference, options(record)) if record.reference.strip() else None


def _scorer(parse: Parse) -> Scorer:
    def score(record: Record) -> Score:
        right = _right(record)
        if right is None:
            return Score(None, "the right option is not known" if not record.from_base else "the reference names no option")
        return Score(100.0 * (parse(record) == right))

    return score


def _measures() -> tuple[Measure, ...]:
    """Accuracies in the file's order of the options, and what all orders show."""
    circular = "every rotation of a question's options answered right, wherever the right one stands"
    bias = "half the sum over letters of how far a letter's share of the answers is from its share of the right ones"
    return (
        Measure("accuracy", "Accuracy", _first_order(meant), _share("right", "asked"), about="in the first order of the options"),
        Measure("official_accuracy", "Accuracy (letter only)", _first_order(strict), _share("right", "asked")),
        Measure("circular", "Circular accuracy", _circular, _circular_value, about=circular),
        Measure("invalid", "Invalid %", _answers, _share("answer|", "asked"), about="answers that mean no one option"),
        Measure("position_bias", "Position bias", _answers, _bias, about=bias),
        *(Measure(f"letter_{x.lower()}", f"{x} given - right", _answers, _excess(x)) for x in LABELS[:_SHOWN]),
    )


def _share(part: str, whole: str) -> Callable[[Counts], Array]:
    return lambda columns: _percent(_get(columns, part), _get(columns, whole))


def _percent(part: Array, whole: Array) -> Array:
    return 100 * np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 0)


def _get(columns: Counts, name: str) -> Array:
    return columns[name] if name in columns else np.zeros_like(next(iter(columns.values())))


def _scored(records: Sequence[Record]) -> list[tuple[Record, str]]:
    return [(record, right) for record in records if (right := _right(record)) is not None]


def _first_order(parse: Parse) -> Callable[[Sequence[Record]], dict[str, float]]:
    """Counts over questions in the order of the file, so that rotations do not count several times."""

    def counts(records: Sequence[Record]) -> dict[str, float]:
        found = [parse(record) == right for record, right in _scored(records) if record.tags.get(ROTATION, "0") == "0"]
        return {"right": float(sum(found)), "asked": float(len(found))} if found else {}

    return counts


def _circular(records: Sequence[Record]) -> dict[str, float]:
    """Right where every rotation is answered right by its own letter (MMBench's circular evaluation, as VLMEvalKit has it)."""
    rotated: dict[tuple[str, int], dict[str, bool]] = {}
    for record, right in _scored(records):
        turns = rotated.setdefault((record.dimension, record.step), {})
        turn = record.tags.get(ROTATION, "0")
        turns[turn] = turns.get(turn, True) and meant(record) == right
    if not rotated:
        return {}
    whole = sum(all(turns.values()) for turns in rotated.values())
    return {"right": float(whole), "asked": float(len(rotated)), "turns": float(sum(map(len, rotated.values())))}


def _circular_value(columns: Counts) -> Array:
    """NaN where no question was rotated; one whose options cannot be rotated counts by its only order."""
    value = _percent(_get(columns, "right"), _get(columns, "asked"))
    return np.where(_get(columns, "turns") > _get(columns, "asked"), value, np.nan)


def _answers(records: Sequence[Record]) -> dict[str, float]:
    """How often each letter is an option (``option|A``), right (``right|A``) and given (``answer|A``; ``answer|`` is none)."""
    found: Counter[str] = Counter()
    for record, right in _scored(records):
        found["asked"] += 1
        found[f"right|{right}"] += 1
        found[f"answer|{meant(record) or ''}"] += 1
        for label in LABELS[: len(options(record))]:
            found[f"option|{label}"] += 1
    return {name: float(n) for name, n in found.items()}


def _gap(columns: Counts, label: str) -> Array:
    """Share of a letter among the letters given minus its share among the right ones, in points."""
    given = _get(columns, "asked") - _get(columns, "answer|")
    return _percent(_get(columns, f"answer|{label}"), given) - _percent(_get(columns, f"right|{label}"), _get(columns, "asked"))


def _excess(label: str) -> Callable[[Counts], Array]:
    return lambda columns: np.where(_get(columns, f"option|{label}") > 0, _gap(columns, label), np.nan)


def _bias(columns: Counts) -> Array:
    """Half the sum over letters of what is given too often or too rarely: 0 is none, 75 is always the same of four."""
    labels = {name.partition("|")[2] for name in columns if name.startswith("option|")}
    return np.asarray(sum(np.abs(_gap(columns, label)) for label in sorted(labels)) / 2)
