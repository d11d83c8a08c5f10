"""Which option an answer to a question with options means: by its letter or by the option's text, in any script around it.

The rule, in order; what is never done is to guess:

1. An answer that is one letter, whatever marks are around it and however large it is ("b", "(B).", "**B**"), is that letter.
2. One that is an option's text and nothing else is that option ("Vitamin A" is no A).
3. One that opens with a letter and a mark or a new line ("B. ...", "(B) ...", "B) ...") is that letter, unless what follows
   is the text of another option and nothing else.
4. Letters that are said to be the answer ("the answer is B", "option B", 答案是B, الإجابة B), if they are one and the same.
5. Options whose text occurs, the longest first, so that an option within another is not taken for it; and letters that stand
   alone outside of those texts in capitals, where A before a word in small letters is an article. One option is the answer,
   and so is one letter, unless the two differ. Everyday words such as "Do" count as an option's text only in its own capitals.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

LABELS = string.ascii_uppercase
_WORDS = "a an and as at be but by can do for go he i if in is it me my no not of on or so the to up us we"
_EVERYDAY = frozenset(_WORDS.split())
"""Options that must occur with their capitals, being words of any sentence: "Do" is no option in "I do not know"."""

_IN_WORD = r"[0-9A-Za-z_\u00C0-\u024F\u0370-\u052F]"
"""Characters next to which an option of Latin, Greek or Cyrillic letters is part of another word."""
_ALONE = re.compile(r"[\W_]*([A-Za-z])[\W_]*")
_FIRST = re.compile(
    r"\W*([A-Z])(?:\s*[\])}:.,、。：，]+(?=\s|[^\x00-\x7f]|$)|\s*\n|\s+[-–—]\s)(.*)|\W*[(\[{]([A-Za-z])[\])}](.*)", re.DOTALL
)
_ANOTHER = re.compile(r"[\s,;/&]*(?:and|or|&|和|或|و)[\s(\[{]*([A-Z])(?![A-Za-z0-9])|[\W_]*([A-Z])[\W_]*$")
"""What follows an opening letter where it is not the only one: "A, B", "(A) and (B)"."""
_SAID = re.compile(
    r"(?:(?:answer|option|choice|letter)(?:\s+(?:is|would be|should be))?|choose|select|pick|答案(?:是|为|应该是|选)?|选项?|選項?"
    r"|الإجابة(?:\s+الصحيحة)?(?:\s+هي)?|الجواب(?:\s+الصحيح)?(?:\s+هو)?|الخيار|정답은?)"
    r"\s*(?:option\s+|letter\s+|الخيار\s+)?[:：]?\s*"
    r"(?P<open>[\"'“‘(\[{*_]*)(?-i:(?P<large>[A-Z])|(?P<small>[a-z]))(?P<close>[\"'”’)\]}*_]*)"
    r"(?![A-Za-z0-9'’-])(?P<after>\s*[^\s]?[^\s]?)",
    re.IGNORECASE,
)
_BEFORE = re.compile(r"(?:\bnot|n't|\bneither|\bnor|不是|不选|ليس)\s+(?:the\s+)?$", re.IGNORECASE)
_WRONG = re.compile(r"[\"'”’)\]}*_]*\s+(?:is|are|was)(?:\s+not|n't|\s+(?:wrong|incorrect|false))\b|不对|不正确", re.IGNORECASE)
_RIGHT = re.compile(r"(?<![A-Za-z0-9'’])([A-Z])(?![A-Za-z0-9'’])\W*\s+is\s+(?:the\s+)?(?:right|correct|answer|best)\b")
_FREE = re.compile(
    r"(?<![A-Za-z0-9'’.-])(?:[AI](?!\s+(?!(?:or|and|is|because|since|as)\b)[a-z]+\b)|[B-HJ-Z])(?![A-Za-z0-9'’-]|\.[A-Za-z])"
)
"""A and I before a word in small letters are an article and a pronoun."""


@lru_cache(maxsize=1 << 16)
def letter(text: str, options: tuple[str, ...]) -> str | None:
    """The letter of the option that is meant, None where none or more than one is; see the module for the rule."""
    text = unicodedata.normalize("NFKC", text).strip()
    labels = LABELS[: len(options)]
    if (alone := _ALONE.fullmatch(text)) and alone[1].upper() in labels:
        return alone[1].upper()
    whole = {label for label, option in zip(labels, options, strict=False) if _plain(option) and _plain(option) == _plain(text)}
    if whole:
        return whole.pop() if len(whole) == 1 else None
    opening = _opening(text, labels)
    if opening is not None:
        rest = {label for label, option in zip(labels, options, strict=False) if _plain(option) == _plain(opening[1])}
        another = _ANOTHER.match(opening[1])
        several = another is not None and (another[1] or another[2]) not in {opening[0], *rest}
        return None if several or (rest and opening[0] not in rest) else opening[0]
    said = _said(text, labels)
    if said:
        return said.pop() if len(said) == 1 else None
    return _mentioned(text, options, labels)


def _plain(text: str) -> str:
    """For comparing whole texts: no case, marks only inside."""
    return re.sub(r"^[\W_]+|[\W_]+$", "", re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).casefold()))


def _opening(text: str, labels: str) -> tuple[str, str] | None:
    """The letter that an answer opens with, and what follows it."""
    found = _FIRST.match(text)
    if found is None:
        return None
    opening = str(found[1] or found[3]).upper()
    return (opening, found[2] if found[1] else found[4]) if opening in labels else None


def _said(text: str, labels: str) -> set[str]:
    """Letters that are said to be the answer and not said to be wrong."""
    found = {match[1] for match in _RIGHT.finditer(text) if not _BEFORE.search(text[: match.start(1)])}
    for match in _SAID.finditer(text):
        inside = bool(match["open"]) and bool(match["close"])
        small = match["small"]
        if small and not (inside or re.fullmatch(r"\s*(?:[^\w\s].?|)", match["after"])):
            continue  # "the answer is a dog"
        at = match.start("large") if match["large"] else match.start("small")
        if not _BEFORE.search(text[: match.start()]) and not _WRONG.match(text, at + 1):
            found.add((match["large"] or small).upper())
    return found & set(labels)


def _mentioned(text: str, options: Sequence[str], labels: str) -> str | None:
    rest, texts = text, set()
    for label, option in sorted(zip(labels, options, strict=False), key=lambda pair: -len(pair[1])):
        pattern = _pattern(option)
        if pattern is not None and pattern.search(rest):
            texts.add(label)
            rest = pattern.sub("\N{REPLACEMENT CHARACTER}", rest)
    free = [m for m in _FREE.finditer(rest) if not _BEFORE.search(rest[: m.start()]) and not _WRONG.match(rest, m.end())]
    letters = {m.group() for m in free} & set(labels)
    if len(letters) == 1 and (not texts or letters <= texts):
        return letters.pop()
    return texts.pop() if len(texts) == 1 and not letters else None


def _pattern(option: str) -> re.Pattern[str] | None:
    """Finds an option's text: between borders of words where its script has such, in its own capitals where it is short."""
    option = unicodedata.normalize("NFKC", option).strip()
    if not _plain(option):
        return None
    before, after = (f"(?<!{_IN_WORD})" if _spaced(option[0]) else ""), (f"(?!{_IN_WORD})" if _spaced(option[-1]) else "")
    flags = 0 if option.lower() in _EVERYDAY else re.IGNORECASE
    return re.compile(before + r"\s+".join(map(re.escape, option.split())) + after, flags)


def _spaced(char: str) -> bool:
    """Whether words of the character's script stand apart and take no endings: Latin, Greek, Cyrillic, digits."""
    return char.isdigit() or unicodedata.name(char, "").startswith(("LATIN", "GREEK", "CYRILLIC"))
