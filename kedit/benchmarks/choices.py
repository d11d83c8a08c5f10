"""Questions with options: how they are put, how options are rotated, and what a file may call the right one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kedit.errors import UnknownNameError, unknown_name
from kedit.files.rows import Row
from kedit.scoring.choice import OPTIONS, ROTATION
from kedit.scoring.letters import LABELS
from kedit.types import Probe, Request

ACCURACY = "accuracy"
UNLABELLED = ""
"""The reference of a question whose right option is not known: scored as unscored, never as wrong."""


class Wording(NamedTuple):
    """How a question is put: one line per option (``{letter}``, ``{option}``), and the whole (``{question}``, ``{options}``)."""

    line: str
    text: str


PROMPTS: Mapping[str, Wording] = {
    # The blanks before each line are those of the published evaluation code, which the paper's numbers were made with.
    "official": Wording(
        "    {letter}. {option}", "{question}\n{options}\n    Answer with the option's letter from the given choices directly."
    ),
    "plain": Wording("{letter}. {option}", "{question}\n{options}\nAnswer with the letter of the right option only."),
    "options-first": Wording("{letter}. {option}", "{options}\n{question}"),
}
"""By name: "options-first" suits models that were never taught to choose and follow what they read last."""


def wording(prompt: str) -> Wording:
    """The wording of that name, or one of your own with ``{question}`` and ``{options}`` in it; raises UnknownNameError."""
    if prompt in PROMPTS:
        return PROMPTS[prompt]
    if "{question}" in prompt and "{options}" in prompt:
        return Wording("{letter}. {option}", prompt)
    raise unknown_name("prompt", prompt, PROMPTS, "Or give a text with {question} and {options} in it.")


def _put(template: str, parts: Mapping[str, str]) -> str:
    """Every part in its place at once: a question may itself hold the word "{options}"."""
    return re.sub(r"\{(" + "|".join(parts) + r")\}", lambda place: parts[place[1]], template)


def put(question: str, options: Sequence[str], prompt: str = "plain") -> str:
    """The question with its options, as a model is asked."""
    line, text = wording(prompt)
    lines = [_put(line, {"letter": LABELS[k], "option": option}) for k, option in enumerate(options)]
    return _put(text, {"question": question, "options": "\n".join(lines)})


def abnormal(options: Sequence[str]) -> bool:
    """Whether rotating would confuse: an option is itself a label, or holds more than one (MMBench's circular evaluation).

    Labels are the letters of these options, in capitals: "B", or "A and B", but not "Vitamin A".
    """
    labels = set(LABELS[: len(options)])
    words = [re.findall(r"\w+", option) for option in options]
    return any(len(labels.intersection(found)) > 1 or (len(found) == 1 and found[0] in labels) for found in words)


class Rotation(NamedTuple):
    """The options as they are shown, and where the right one stands (None where it is not known)."""

    number: int
    options: tuple[str, ...]
    answer: int | None


def rotations(options: Sequence[str], answer: int | None, circular: bool) -> Iterator[Rotation]:
    """The options as given, and with ``circular`` every rotation by i places to the left, unless they are abnormal."""
    size = len(options)
    for i in range(size if circular and not abnormal(options) else 1):
        yield Rotation(i, (*options[i:], *options[:i]), None if answer is None else (answer - i) % size)


@dataclass(frozen=True)
class Choice:
    """A question, its options in the file's order, and the index of the right one (None where it is not known)."""

    question: str
    options: tuple[str, ...]
    answer: int | None

    @property
    def right(self) -> str:
        """The text of the right option, "" where it is not known."""
        return UNLABELLED if self.answer is None else self.options[self.answer]


def probes(choice: Choice, make: Callable[[str], Request], *, prompt: str, circular: bool, step: int) -> tuple[Probe, ...]:
    """One probe per rotation, whose reference is the letter of the right option and whose tags hold what scoring needs.

    ``make`` turns the text that is asked into a request.
    """
    found = []
    for number, options, answer in rotations(choice.options, choice.answer, circular):
        tags = {OPTIONS: json.dumps(options, ensure_ascii=False), ROTATION: str(number)}
        reference = UNLABELLED if answer is None else LABELS[answer]
        found.append(Probe(ACCURACY, make(put(choice.question, options, prompt)), reference, step, tags))
    return tuple(found)


def options_of(row: Row, *names: str) -> tuple[str, ...]:
    """The options of a row without surrounding blanks; raises DataError for fewer than two, a blank one, or too many."""
    found = tuple(option.strip() for option in row.texts(*names))
    if not 2 <= len(found) <= len(LABELS):
        raise row.error(f"{names[0]} holds {len(found)} options, expected 2 to {len(LABELS)}")
    for k, option in enumerate(found):
        if not option or any("\ud800" <= c <= "\udfff" for c in option):
            raise row.error(f"{names[0]}[{k}] is {option!r}, expected a text")
    return found


def index_of(value: Any, options: Sequence[str]) -> int | None:
    """Which option a file means by a position from 0, a letter, or the option's text; None for anything else.

    A text of digits that is no option is a position.
    """
    if isinstance(value, str):
        text = value.strip()
        if text in options:
            return options.index(text)
        letter = LABELS.find(text.upper()) if len(text) == 1 and text.isalpha() else -1
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else letter
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < len(options) else None


def check_prompt(prompt: object) -> str:
    """The prompt, if it is one; raises UnknownNameError."""
    if not isinstance(prompt, str):
        raise UnknownNameError(f"prompt is {prompt!r}, expected a name or a text with {{question}} and {{options}} in it")
    wording(prompt)
    return prompt
