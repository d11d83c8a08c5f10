"""The right document, given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kedit.methods.context.view import LIMIT, InView, Part, Words, at_least, pages
from kedit.types import Knowledge, Request


class OracleDocument(InView):
    """Puts the documents that were inserted before the request, with their titles: K-Viscuit's Oracle setting (section 5.2).

    What is shown is worded as it is where documents are looked up: ``frame`` introduces them (see ``kedit.wording.framed``),
    ``max_chars`` of each are shown (None: all), and an item without a text is told by question and answer (``wrap``).
    """

    short: ClassVar[str] = "oracle"

    def __init__(
        self,
        *,
        frame: Words = "language",
        wrap: Words = "document",
        max_chars: int | None = None,
        limit: int | None = LIMIT,
    ) -> None:
        self.frame = frame
        self.wrap = wrap
        self.max_chars = max_chars
        self.limit = limit

    def build(self) -> None:
        super().build()
        at_least(1, max_chars=self.max_chars)

    def parts(self, items: Sequence[Knowledge], request: Request) -> list[Part]:
        return pages(items, request.language, self.frame, self.wrap, self.max_chars)
