"""Exemplar images with their captions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, TypeAlias, TypeVar

from kedit.errors import DataError
from kedit.methods.context.view import LIMIT, InView, Part, at_least
from kedit.types import ImageRef, Knowledge, Request

T = TypeVar("T")
Which: TypeAlias = str | Sequence[int]
FIRST = "first"


class VisualContext(InView):
    """Puts exemplar images of what is inserted before the request, each followed by its caption (CROPE, section 4).

    Of an item's images, ``images`` are shown (None: all; fewer where there are fewer): the first ones, as in CROPE's
    experiments with several, or those at the positions ``which``, such as ``(2, 0)``, as far as they exist. ``permutation``
    numbers the orders of those shown, 0 as they are, counted as ``itertools.permutations`` does and from the beginning again
    after the last. An item with neither images nor a text is a sample: its own image, with its answer as the caption.
    """

    short: ClassVar[str] = "visual"

    def __init__(
        self,
        *,
        images: int | None = 1,
        which: Which = FIRST,
        permutation: int = 0,
        captions: bool = True,
        limit: int | None = LIMIT,
    ) -> None:
        self.images = images
        self.which = which
        self.permutation = permutation
        self.captions = captions
        self.limit = limit

    def build(self) -> None:
        super().build()
        check_exemplars(self.images, self.which, self.permutation)

    def parts(self, items: Sequence[Knowledge], request: Request) -> list[Part]:
        shown = [exemplar for item in items for exemplar in exemplars(item, self.images, self.which, self.permutation)]
        return captioned(shown, self.captions)


def captioned(exemplars: Sequence[tuple[ImageRef, str]], captions: bool) -> list[Part]:
    """Images in order, each with its caption behind it where it has one and captions are wanted."""
    return [part for image, caption in exemplars for part in (image, caption.strip() if captions else "") if part]


def exemplars(item: Knowledge, images: int | None, which: Which, permutation: int) -> list[tuple[ImageRef, str]]:
    """The images of an item to show, with captions, in the order to show them."""
    have = item.images
    if not have and not item.text.strip() and item.answer.strip():
        have = tuple((image, item.answer) for image in item.request.images)
    places = range(len(have)) if isinstance(which, str) else [at for at in which if -len(have) <= at < len(have)]
    return permuted([have[at] for at in places][:images], permutation)


def permuted(items: Sequence[T], number: int) -> list[T]:
    """The order with that number, in which ``itertools.permutations`` gives it; after the last comes the first again."""
    left, found = list(items), []
    number %= math.factorial(len(left))
    while left:
        at, number = divmod(number, math.factorial(len(left) - 1))
        found.append(left.pop(at))
    return found


def check_exemplars(images: int | None, which: Which, permutation: int) -> None:
    """Raise DataError for a choice of exemplars that is none."""
    at_least(1, images=images)
    at_least(0, permutation=permutation)
    numbers = [] if isinstance(which, str) else list(which)
    if which != FIRST and (isinstance(which, str) or not numbers or not all(isinstance(at, int) for at in numbers)):
        raise DataError(f"which={which!r}; expected {FIRST!r}, or positions of images such as (0, 2)")
