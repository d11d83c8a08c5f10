"""A question about an image, with its answer, as the example that precedes another question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kedit.methods.context.view import LIMIT, InView, Part, Words, said
from kedit.types import Knowledge, Request


class OneShot(InView):
    """Puts image, question and answer of what is inserted before the request: grounding by the Type 1 pair (K-Viscuit, A.3).

    ``repeat=False`` leaves out images that the request shows itself, for models that take one image, or to save their cost.
    ``wrap`` says in which words question and answer stand (see ``kedit.wording.wrapped``). Texts, titles and exemplars of an
    item make no difference, and one without an answer shows nothing.
    """

    short: ClassVar[str] = "one-shot"

    def __init__(self, *, repeat: bool = True, wrap: Words = "example", limit: int | None = LIMIT) -> None:
        self.repeat = repeat
        self.wrap = wrap
        self.limit = limit

    def parts(self, items: Sequence[Knowledge], request: Request) -> list[Part]:
        shown: list[Part] = []
        there = set() if self.repeat else {image.digest for image in request.images}
        for item in items:
            if text := said(item, request.language, self.wrap):
                shown += [image for image in item.request.images if self.repeat or image.digest not in there]
                shown.append(text)
        return shown
