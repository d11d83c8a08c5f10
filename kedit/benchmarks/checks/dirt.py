"""Dirt in texts, by kind: what scraping, chat models and wrong decoding leave behind. It is worth a look and no error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from kedit.benchmarks.checks.report import Finding

_INVISIBLE = re.compile("[\u200b\u2060\ufeff]")
_TWICE_ENCODED = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u2122]+")
_REFUSAL = re.compile(r"\b(I'm sorry|I am sorry|I apologi[sz]e|as an AI|AI language model|I cannot|I can't)\b", re.IGNORECASE)
_QUOTES = "\"'\u201c\u201d\u2018\u2019\u00ab"
SHOWN = 60
"""Characters of a text that a message shows."""


def mojibake(text: str) -> bool:
    """Whether UTF-8 was once decoded as Windows-1252 (``itâ€™s``), or a character could not be decoded at all."""
    return "\ufffd" in text or any(_decodes(found.group()) for found in _TWICE_ENCODED.finditer(text))


def _decodes(text: str) -> bool:
    try:
        return bool(text.encode("cp1252").decode("utf-8"))
    except UnicodeError:
        return False


ANYWHERE: Mapping[str, Callable[[str], object]] = {
    "zero_width": _INVISIBLE.search,
    "mojibake": mojibake,
    "double_space": re.compile(r"\S {2,}\S").search,
}
"""Dirt in any text."""
IN_ANSWERS: Mapping[str, Callable[[str], object]] = {
    "outer_whitespace": lambda text: text != text.strip(),
    "newline": lambda text: "\n" in text.strip(),
}
"""Dirt in what an answer is compared with."""
IN_REPHRASES: Mapping[str, Callable[[str], object]] = {
    "quoted_rephrase": lambda text: text.strip()[:1] in _QUOTES and text.strip() != "",
    "several_rephrases": lambda text: "\n" in text.strip(),
    "refusal": _REFUSAL.search,
}
"""Dirt in what a chat model was asked to rephrase."""


def dirt(kinds: Mapping[str, Callable[[str], object]], name: str, text: str, where: str) -> Iterator[Finding]:
    """A finding for each kind of dirt in a text."""
    for kind, dirty in kinds.items():
        if dirty(text):
            yield Finding(kind, where, f"{name} is {text[:SHOWN]!r}", False)


def options_dirt(options: Iterable[str], where: str) -> Iterator[Finding]:
    """Options of a choice that mislead whoever looks for a letter or an option's text in an answer."""
    stripped = [option.strip() for option in options]
    labels = {chr(ord("A") + k) for k in range(len(stripped))}
    for k, option in enumerate(stripped):
        if labels & set(re.split(r"\W+", option)):
            yield Finding("label_in_option", where, f"option {option[:SHOWN]!r} holds the letter of an option", False)
        others = [other.casefold() for other in stripped[:k] + stripped[k + 1 :]]
        if option and any(option.casefold() in other and option.casefold() != other for other in others):
            yield Finding("option_in_option", where, f"option {option[:SHOWN]!r} is part of another", False)
    if len({option.casefold() for option in stripped}) < len(stripped):
        yield Finding("same_options", where, f"two options are the same: {', '.join(stripped)[: 2 * SHOWN]}")
    if any(not option for option in stripped):
        yield Finding("empty", where, "an option is empty")
