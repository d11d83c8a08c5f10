"""What editors that put knowledge in view share: what of an item is shown, where, and what is told of it afterwards."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias

from kedit.editor import ContextEditor
from kedit.errors import DataError
from kedit.types import ImageRef, Knowledge, Request
from kedit.wording import QUERY, framed, wrapped

Part: TypeAlias = str | ImageRef
Words: TypeAlias = str | Mapping[str, str]
"""A word that stands for texts by language, or such texts."""
LIMIT = 8
"""Inserted items in view: more than any chain of the benchmarks here that asks about all of its items at once."""


class InView(ContextEditor):
    """Puts inserted items, oldest first, before every request: its own context, images and question follow.

    A subclass says in ``parts`` what of them is shown. Nothing is looked up and nothing gated: every request sees the same
    items, the newest ``limit`` of them (None: all), so that locality is the backbone's to keep. What was inserted but has
    nothing to show leaves requests as they are.
    """

    short: ClassVar[str]
    limit: int | None

    @property
    def name(self) -> str:
        return self.short

    def build(self) -> None:
        at_least(1, limit=self.limit)
        check_words(**{name: value for name, value in self.get_params().items() if name in ("wrap", "frame")})
        self.beyond_ = 0

    @abstractmethod
    def parts(self, items: Sequence[Knowledge], request: Request) -> list[Part]:
        """Texts and images that precede a request; none where the items have nothing to show."""

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        if self.limit is not None:
            self.beyond_ = max(self.beyond_, len(self.edits_) + 1 - self.limit)

    def in_view(self) -> dict[str, Knowledge]:
        """The newest items by edit id, the oldest of them first."""
        edits = list(self.edits_.items())
        return dict(edits if self.limit is None else edits[-self.limit :])

    def rewrite(self, request: Request) -> Request:
        return before(request, self.parts(list(self.in_view().values()), request))

    def trace(self, requests: Sequence[Request]) -> list[Mapping[str, str | float]]:
        """What was in view, the newest first."""
        items = list(self.in_view().items())[::-1]
        return [told([(id, item) for id, item in items if self.parts([item], request)]) for request in requests]

    def notes(self) -> Mapping[str, str | int | float]:
        return {f"inserted items out of view (limit={self.limit})": self.beyond_} if self.beyond_ else {}


def before(request: Request, parts: Iterable[Part]) -> Request:
    """The request with something before it; the request itself where that is nothing."""
    shown = merged(parts)
    return replace(request, context=(*shown, *request.context)) if shown else request


def merged(parts: Iterable[Part]) -> list[Part]:
    """Texts that follow each other made one, line after line; what opens the query stands only at the end of all."""
    given, found = list(parts), list[Part]()
    for at, part in enumerate(given):
        if isinstance(part, str) and at < len(given) - 1:
            part = part.removesuffix(QUERY)
        last = found[-1] if found else None
        if isinstance(part, str) and isinstance(last, str):
            found[-1] = last + ("" if last.endswith("\n") else "\n") + part
        else:
            found.append(part)
    return found


def said(item: Knowledge, language: str, wrap: Words) -> str:
    """An item's question and answer in words; empty where one of them is."""
    question, answer = item.request.question.strip(), item.answer.strip()
    return wrapped(question, answer, language, wrap) if question and answer else ""


def text_of(item: Knowledge, language: str, wrap: Words) -> str:
    """An item as a text: its own, else its question and answer; empty where it has neither."""
    return item.text.strip() or said(item, language, wrap)


def pages(items: Iterable[Knowledge], language: str, frame: Words, wrap: Words, max_chars: int | None) -> list[Part]:
    """Items as documents to read: those with a text framed together, then the questions and answers of the others."""
    items = list(items)
    texts = [(item.title.strip(), item.text.strip()[:max_chars].rstrip()) for item in items if item.text.strip()]
    others = [said(item, language, wrap) for item in items if not item.text.strip()]
    return [*([framed(texts, language, frame)] if texts else []), *(text for text in others if text)]


def told(found: Sequence[tuple[str, Knowledge]], **more: str | float) -> dict[str, str | float]:
    """What a record keeps of items shown, the most telling first: its ``entry`` and ``title``, and lists where there are more."""
    if not found:
        return dict(more)
    entry, item = found[0]
    row: dict[str, str | float] = {"entry": entry, **({"title": item.title} if item.title else {}), **more}
    if len(found) > 1:
        row["entries"] = json.dumps([id for id, _ in found])
        row["titles"] = json.dumps([item.title for _, item in found], ensure_ascii=False)
    return row


def check_words(wrap: Words = "language", frame: Words = "language") -> None:
    """Raise UnknownNameError for a word that stands for no texts: when an editor is attached, not at the first question."""
    wrapped("", "", "", wrap)
    framed((), "", frame)


def at_least(least: int, **values: int | None) -> None:
    """Raise DataError where a value is given that is smaller, or no whole number."""
    for name, value in values.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise DataError(f"{name}={value!r}; expected a whole number from {least} on, or None where there is to be no limit")
