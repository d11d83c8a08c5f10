"""What came last, and no more of it than is wanted."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(dict[K, V]):
    """A dict that forgets what was kept longest ago once it holds more than ``size`` pairs; looking up renews nothing."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def keep(self, pairs: Iterable[tuple[K, V]]) -> None:
        """Take over pairs, the last one as the latest, however often it was kept before."""
        for key, value in pairs:
            self.pop(key, None)
            self[key] = value
        for old in list(islice(self, max(len(self) - self.size, 0))):
            del self[old]
