"""Keys in rows and the search among them: exact, or through an index whose proposals are scored exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kedit.memory import exact
from kedit.memory.exact import Bounds, Found
from kedit.memory.indices import Built, Index
from kedit.memory.projection import Projection
from kedit.memory.rows import Rows

Vectors: TypeAlias = NDArray[np.float32]
Doubt: TypeAlias = Callable[[float], bool]

_TAIL = 256
"""Rows newer than the index that are searched exactly before they are moved into it."""
_GROWTH = 4
"""An index is built anew when there are this many times the rows it was built for: its parts were sized and trained on those."""
_BATCH = 256


class KeySearch:
    """Rows of unit vectors that are never computed with, and what makes finding the nearest fast.

    Below ``exact_below`` rows nothing is built. From there on a projection gives bounds for exact search and, unless it is
    exhaustive, the points that ``index`` (None: exact search only) works on. All of that is built when a search needs it.
    """

    def __init__(self, width: int, index: Index | None, *, candidates: int, exact_below: int) -> None:
        self.keys = Rows(width)
        self.alive: NDArray[np.bool_] = np.ones(0, np.bool_)
        self.dead = 0
        self._index, self._candidates, self._exact_below = index, candidates, exact_below
        self._drop()

    def _drop(self) -> None:
        """Forget everything but the rows."""
        self._projection: Projection | None = None
        self._points: Rows | None = None
        self._built: Built | None = None
        self._built_for = 0

    def append(self, keys: Vectors) -> None:
        """Add rows."""
        self.keys.append(keys)
        wanted = len(self.keys)
        if wanted > len(self.alive):
            grown: NDArray[np.bool_] = np.ones(max(wanted, 2 * len(self.alive)), np.bool_)
            grown[: len(self.alive)] = self.alive
            self.alive = grown

    def kill(self, row: int) -> None:
        """Take a row out of every later search; it stays in its place until ``compact``."""
        self.alive[row] = False
        self.dead += 1

    def compact(self) -> NDArray[np.int64]:
        """Remove dead rows, and with them the index; gives the old numbers of the rows that remain, in order."""
        kept = self.alive[: len(self.keys)].copy()
        self.keys.keep(kept)
        self.alive, self.dead = np.ones(len(self.keys), np.bool_), 0
        self._drop()
        return np.flatnonzero(kept)

    # -- what is built -------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Build or bring up to date what the next search needs; costs nothing when it is."""
        count = len(self.keys)
        if not self._built_for and count - self.dead < max(1, self._exact_below):
            return
        if count > _GROWTH * self._built_for:
            self._drop()
            self._built_for = count
            if self._index is None or not self._index.exhaustive:
                self._projection = Projection.fit(self.keys.view[self.alive[:count]])
        if self._projection is not None:
            self._points = Rows(self._projection.width) if self._points is None else self._points
            if len(self._points) < count:
                self._points.append(self._projection.points(self.keys.view[len(self._points) :]))
        if self._index is None:
            return
        points = self.keys.view if self._points is None else self._points.view
        if self._built is None:
            self._built = self._index.build(points)
        elif count - len(self._built) > _TAIL:
            self._built.add(points[len(self._built) :])

    # -- search --------------------------------------------------------------------------------------------------------

    def find(self, queries: Vectors, k: int, doubt: Doubt | None = None) -> list[Found]:
        """The k best living rows of each query (all of them where there are fewer).

        Exact without an index, and with one that is exhaustive. Another index may miss a row; a query whose best score is in
        ``doubt`` is searched exactly, and so is one whose proposals are too few or do not reach beyond the k best.
        """
        self.prepare()
        if self._built is None:
            return self._exact(queries, k)
        exhaustive = self._index is not None and self._index.exhaustive
        step = _BATCH if exhaustive else 1  # a batch may not change what an approximate index proposes
        found: list[Found | None] = []
        for start in range(0, len(queries), step):
            found += self._through(self._built, queries[start : start + step], k, None if exhaustive else doubt)
        missed = [at for at, one in enumerate(found) if one is None]
        rest = iter(self._exact(queries[missed], k)) if missed else iter(())
        return [next(rest) if one is None else one for one in found]

    def _through(self, built: Built, queries: Vectors, k: int, doubt: Doubt | None) -> list[Found | None]:
        """What the index finds, with the rows that it does not have yet searched exactly; None: ask exact search."""
        size = len(built)
        alive = self.alive[: len(self.keys)]
        some_dead = self.dead > 0 and not alive[:size].all()
        living = int(alive[:size].sum()) if some_dead else size
        wanted = min(k + self._candidates, living)
        if not wanted:
            return [None] * len(queries)
        bounds = self._bounds(queries)
        asked = bounds.queries
        if self._projection is not None:  # an estimate of the score ranks better than a bound: what is left out counts as zero
            asked = asked.copy()
            asked[:, -1] = 0.0
        proposed = built.propose(asked, wanted, alive[:size] if some_dead else None)
        newer: list[Found] | None = None
        if size < len(self.keys):
            newer = exact.search(self.keys.view[size:], alive[size:], queries, k)
        found: list[Found | None] = []
        for at, row in enumerate(proposed):
            one = None
            row = row[row >= 0]
            if len(row) == wanted:
                one, spread = exact.among(self.keys.view, row, queries, at, min(k, living), bounds)
                one = one if spread or wanted == living else None
            if one is not None and newer is not None:
                rows, scores = newer[at]
                one = exact.best(np.append(one.rows, rows + size), np.append(one.scores, scores), k)
            found.append(None if one is None or (doubt and doubt(float(one.scores[0]))) else one)
        return found

    def _exact(self, queries: Vectors, k: int) -> list[Found]:
        return exact.search(self.keys.view, self.alive[: len(self.keys)], queries, k, self._bounds(queries))

    def _bounds(self, queries: Vectors) -> Bounds:
        if self._projection is None or self._points is None:
            return exact.plain(self.keys.view, queries)
        return Bounds(self._points.view, self._projection.points(queries), self._projection.slack)
