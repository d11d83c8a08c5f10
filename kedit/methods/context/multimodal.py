"""Exemplar images and a text together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kedit.methods.context.view import LIMIT, Part, Words, text_of
from kedit.methods.context.visual import FIRST, VisualContext, Which, captioned, exemplars
from kedit.types import Knowledge, Request


class MultimodalContext(VisualContext):
    """Puts exemplar images and then the text of what is inserted before the request (CROPE, section 4).

    Images are chosen as ``VisualContext`` does, the text as ``TextualContext`` does. Captions are off, since CROPE describes
    this condition as the summary and the image. An item that has only one of the two shows that one.
    """

    short: ClassVar[str] = "multimodal"

    def __init__(
        self,
        *,
        images: int | None = 1,
        which: Which = FIRST,
        permutation: int = 0,
        captions: bool = False,
        wrap: Words = "document",
        limit: int | None = LIMIT,
    ) -> None:
        self.images = images
        self.which = which
        self.permutation = permutation
        self.captions = captions
        self.wrap = wrap
        self.limit = limit

    def parts(self, items: Sequence[Knowledge], request: Request) -> list[Part]:
        shown: list[Part] = []
        for item in items:
            text = text_of(item, request.language, self.wrap)
            shown += captioned(exemplars(item, self.images, self.which, self.permutation), self.captions)
            shown += [text] if text else []
        return shown
