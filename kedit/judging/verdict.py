"""Reading what a judge replies: one JSON object with a verdict, or unscored with the reason; nothing is guessed.

The rules, in order:

1. What a model thought before it replied (up to ``</think>``) is left out.
2. Every JSON object in the rest that has the wanted key is a verdict; prose and code fences around it do not matter, and what
   lies inside another object is not looked at.
3. There must be exactly one verdict: objects that repeat it agree, and no remains of another one are outside of them.
4. A score is a whole number from 0 to 10: 7, 7.0 and "7" are; 7.5, "7/10", 11, -1, true and null are not. A label is one of
   those asked for, whatever its case.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

EMPTY = "empty reply"
THINKING = "reply ends within the model's reasoning"
CUT = "reply cut off before its verdict was complete"
NO_OBJECT = "no JSON object in the reply"
BROKEN = "broken JSON"
NO_VERDICT = "no verdict in the reply's JSON"
SEVERAL = "several verdicts in one reply"
RANGE = "score outside 0 to 10"
NO_NUMBER = "score is no whole number"
NO_LABEL = "label that was not asked for"

HIGHEST = 10
_LONGEST = 20_000
"""Characters of a reply that are read; a verdict takes a hundred."""
_REASON = 300


class Verdict(NamedTuple):
    """A score from 0 to 10 with the judge's reason (and label, where it gives one), or None with what was wrong."""

    score: float | None
    label: str = ""
    reason: str = ""
    error: str = ""


Read = Callable[[str, bool], Verdict]
"""From a reply's text, and whether it was cut off, to the verdict."""


def read_score(text: str, truncated: bool = False) -> Verdict:
    """The verdict of a reply such as ``{"score": 7, "reason": "..."}``."""
    found = _verdict(text, "score", truncated)
    if isinstance(found, str):
        return Verdict(None, error=found)
    score = _whole(found["score"])
    if isinstance(score, str):
        return Verdict(None, error=score)
    return Verdict(float(score), reason=_reason(found))


def read_label(scores: Mapping[str, float]) -> Read:
    """A reader of replies such as ``{"label": "correct", "reason": "..."}``; ``scores`` are the labels with what each gives."""

    def read(text: str, truncated: bool = False) -> Verdict:
        found = _verdict(text, "label", truncated)
        if isinstance(found, str):
            return Verdict(None, error=found)
        label = found["label"].strip().lower() if isinstance(found["label"], str) else ""
        if label not in scores:
            return Verdict(None, error=NO_LABEL)
        return Verdict(scores[label], label, _reason(found))

    return read


def _verdict(text: str, key: str, truncated: bool) -> dict[str, Any] | str:
    """The one object with the key, or what is wrong with the reply."""
    said = _after_thought(text[:_LONGEST].strip())
    if said is None:
        return THINKING
    if not said:
        return EMPTY
    rest, objects = _objects(said)
    if re.search(rf'"{key}"\s*:', rest):  # a verdict that cannot be read, beside or instead of one that can
        return SEVERAL if any(key in found for found in objects) else CUT if truncated else BROKEN
    verdicts = [found for found in objects if key in found]
    if verdicts:
        agree = all(repr(found[key]) == repr(verdicts[0][key]) and not found.get(_TWICE) for found in verdicts)
        return verdicts[0] if agree else SEVERAL
    if truncated:
        return CUT
    return NO_VERDICT if objects else BROKEN if "{" in rest else NO_OBJECT


def _after_thought(text: str) -> str | None:
    """What follows the reasoning, whose opening mark some servers leave out; None where nothing does."""
    if text.startswith(("{", "`")):  # a verdict, which may quote such marks
        return text
    thought, mark, said = text.partition("</think>")
    if mark:
        return said.strip()
    return None if text.startswith("<think>") else text


_TWICE = "\0twice"
"""Marks an object in which a key stands twice, which no reply can spell: readers differ in which one they take."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else {**found, _TWICE: True}


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs)


def _objects(text: str) -> tuple[str, list[dict[str, Any]]]:
    """What is no JSON object, and the objects, the outermost of each."""
    return "".join(part for part in _parts(text) if isinstance(part, str)), [p for p in _parts(text) if isinstance(p, dict)]


def _parts(text: str) -> Iterator[str | dict[str, Any]]:
    start = 0
    while (brace := text.find("{", start)) >= 0:
        yield text[start:brace]
        try:
            found, start = _DECODER.raw_decode(text, brace)
        except (ValueError, RecursionError):
            yield "{"
            start = brace + 1
        else:
            yield found
    yield text[start:]


def _whole(value: Any) -> int | str:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,3}\s*", value):
        value = int(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return NO_NUMBER
    return value if 0 <= value <= HIGHEST else RANGE


def _reason(found: Mapping[str, Any]) -> str:
    reason = found.get("reason")
    return reason.strip()[:_REASON] if isinstance(reason, str) else ""
