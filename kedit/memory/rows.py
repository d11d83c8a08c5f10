"""Arrays that grow row by row without copying what they hold at every step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FIRST = 16


class Rows:
    """Rows of one width, fp32; the capacity doubles when it is reached, and a row once written is never computed with again."""

    def __init__(self, width: int) -> None:
        self._data: NDArray[np.float32] = np.empty((_FIRST, width), np.float32)
        self._count = 0

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return int(self._data.shape[1])

    @property
    def view(self) -> NDArray[np.float32]:
        """All rows, (n, width); a view, valid until the next ``append`` or ``keep``."""
        return self._data[: self._count]

    def append(self, block: NDArray[np.float32]) -> None:
        """Add rows, (m, width)."""
        wanted = self._count + len(block)
        if wanted > len(self._data):
            grown: NDArray[np.float32] = np.empty((max(wanted, 2 * len(self._data)), self.width), np.float32)
            grown[: self._count] = self.view
            self._data = grown
        self._data[self._count : wanted] = block
        self._count = wanted

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Leave only the rows that ``mask`` (n,) marks, in order."""
        kept = self.view[mask]
        self._data, self._count = kept, len(kept)

    def __len__(self) -> int:
        return self._count
