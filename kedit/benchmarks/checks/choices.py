"""Rules of questions with options."""

from __future__ import annotations

from collections.abc import Iterator

from kedit.benchmarks.checks.base import Rule, names
from kedit.benchmarks.checks.dirt import ANYWHERE, dirt, options_dirt
from kedit.benchmarks.checks.report import Finding
from kedit.errors import DataError
from kedit.files.rows import Row


def choice(options: str, answer: str, *, count: int = 4, unlabelled: bool = False) -> Rule:
    """A rule: so many options, told apart, and an answer that is the index of one.

    ``unlabelled``: an answer that names no option means that it was held back, which is no error.
    """

    def rule(row: Row) -> Iterator[Finding]:
        try:
            found = row.texts(*names(options))
        except DataError as error:
            yield Finding("malformed", row.where, str(error))
            return
        if len(found) != count:
            yield Finding("options", row.where, f"{len(found)} options, expected {count}")
        yield from options_dirt(found, row.where)
        for option in found:
            yield from dirt(ANYWHERE, "option", option, row.where)
        value = row.get(*names(answer))
        if isinstance(value, bool) or index(value) not in range(len(found)):
            message = f"{names(answer)[0]} is {value!r:.40}, which is none of the {len(found)} options"
            yield Finding("unlabelled" if unlabelled else "label", row.where, message, not unlabelled)

    return rule


def index(value: object) -> int | None:
    """The index that an answer is, from a number, digits or a letter; None where it is none of these."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) == 1 and text.isascii() and text.isalpha():
            return ord(text.upper()) - ord("A")
        return int(text) if text.isascii() and text.isdigit() else None
    return int(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else None
