"""Knowledge entries with their keys, and exact or fast search among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedit.types import Knowledge


class Hit(NamedTuple):
    """An entry found: its id, and the inner product of query and key, computed exactly for this pair alone (float64)."""

    id: str
    score: float


class Memory:
    """Entries (id, knowledge, key) in the order in which they were added; keys never change once added."""

    def __init__(self, *, index: str = "flat") -> None:
        self.index = index
        self._items: dict[str, Knowledge] = {}
        self._keys: dict[str, NDArray[np.float32]] = {}

    def add(self, id: str, knowledge: Knowledge, key: NDArray[np.float32]) -> None:
        """Add one entry."""
        self._items[id], self._keys[id] = knowledge, np.asarray(key, np.float32).copy()

    def remove(self, id: str) -> None:
        """Take one entry out."""
        del self._items[id], self._keys[id]

    def clear(self) -> None:
        """Take all entries out."""
        self._items.clear()
        self._keys.clear()

    def search(self, queries: NDArray[np.float32]) -> list[Hit]:
        """The nearest entry of each query; of equally near ones the oldest."""
        ids, keys = list(self._items), np.stack(list(self._keys.values())).astype(np.float64)
        scores = np.asarray(queries, np.float64) @ keys.T
        return [Hit(ids[int(at)], float(row[at])) for row, at in zip(scores, scores.argmax(1), strict=True)]

    def __getitem__(self, id: str) -> Knowledge:
        return self._items[id]

    def __len__(self) -> int:
        return len(self._items)
