"""A definition or document as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from kedit.errors import unknown_name
from kedit.methods.context.view import LIMIT, InView, Part, Words, merged, text_of
from kedit.types import Knowledge, Request

_PLACES = ("question", "before")


class TextualContext(InView):
    """Puts the text of what is inserted directly before the question, after the image: ``<SUMMARY>\\n<QUESTION>`` (CROPE, C).

    An item without a text is told by its question and answer, in the words ``wrap`` (see ``kedit.wording.wrapped``).
    ``place="before"`` puts all texts before the request's images, where other editors put theirs.
    """

    short: ClassVar[str] = "textual"

    def __init__(self, *, place: str = "question", wrap: Words = "document", limit: int | None = LIMIT) -> None:
        self.place = place
        self.wrap = wrap
        self.limit = limit

    def build(self) -> None:
        super().build()
        if self.place not in _PLACES:
            raise unknown_name("place", self.place, _PLACES)

    def parts(self, items: Sequence[Knowledge], request: Request) -> list[Part]:
        return [text for item in items if (text := text_of(item, request.language, self.wrap))]

    def rewrite(self, request: Request) -> Request:
        if self.place == "before":
            return super().rewrite(request)
        shown = self.parts(list(self.in_view().values()), request)
        texts = merged([*shown, request.question]) if shown else []
        return replace(request, question="".join(map(str, texts))) if texts else request
