"""Exact nearest neighbours: scores of pairs in float64, found through bounds in fp32.

Exact means: the result is that of computing every pair's score in float64 and taking the largest, of equal ones the first row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_CHUNK = 4096
_BLOCK = 1 << 24
_FEW = 8


class Found(NamedTuple):
    """Rows found for one query, the best first, with their scores (float64)."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]


def rounding(width: int) -> float:
    """How far an fp32 inner product of unit vectors of this width may lie from the exact one, whatever the order of summation."""
    return 1.01 * width * 2.0**-24 + 2.0**-22


def pair_scores(keys: NDArray[np.float32], rows: NDArray[np.int64], query: NDArray[np.float32]) -> NDArray[np.float64]:
    """Inner products of single pairs in float64: the value of a pair does not depend on which others are asked for."""
    wide = query.astype(np.float64)
    if len(rows) <= _CHUNK:
        return np.asarray((keys.take(rows, 0) * wide).sum(1))
    return np.concatenate([(keys.take(rows[at : at + _CHUNK], 0) * wide).sum(1) for at in range(0, len(rows), _CHUNK)])


def best(rows: NDArray[np.int64], scores: NDArray[np.float64], k: int) -> Found:
    """The k best of some rows, of equal scores the lower row first."""
    order = np.lexsort((rows, -scores))[:k]
    return Found(rows[order], scores[order])


class Bounds(NamedTuple):
    """Points of keys, (n, w), and of queries, (m, w), whose inner product plus ``slack`` is never below the vectors' score."""

    keys: NDArray[np.float32]
    queries: NDArray[np.float32]
    slack: float


def plain(keys: NDArray[np.float32], queries: NDArray[np.float32]) -> Bounds:
    """The vectors themselves as points: what fp32 may lose is the slack."""
    return Bounds(keys, queries, rounding(keys.shape[1]))


def search(
    keys: NDArray[np.float32], alive: NDArray[np.bool_], queries: NDArray[np.float32], k: int, bounds: Bounds | None = None
) -> list[Found]:
    """The k best living rows of each query (all of them where there are fewer), exactly."""
    points, asked, slack = bounds or plain(keys, queries)
    dead = np.flatnonzero(~alive)
    k = min(k, len(keys) - len(dead))
    if not k:
        return [Found(np.empty(0, np.int64), np.empty(0))] * len(queries)
    step = max(1, _BLOCK // len(points))
    found = []
    for start in range(0, len(queries), step):
        upper = asked[start : start + step] @ points.T
        upper[:, dead] = -np.inf
        for row, query in zip(upper, queries[start : start + step], strict=True):
            found.append(_choose(keys, _within(keys, None, row, query, k, slack), query, k))
    return found


def among(
    keys: NDArray[np.float32], rows: NDArray[np.int64], queries: NDArray[np.float32], at: int, k: int, bounds: Bounds
) -> tuple[Found, bool]:
    """The k best of some rows (k or more) for query ``at``, and whether the last of these rows are surely worse than those k.

    If not, the rows are no more than part of those that are about equally near. ``bounds`` are of all keys and all queries.
    """
    upper = bounds.keys.take(rows, 0) @ bounds.queries[at]
    found = _choose(keys, _within(keys, rows, upper, queries[at], k, bounds.slack), queries[at], k)
    return found, float(upper.min()) < found.scores[-1] - 4 * bounds.slack


def _within(
    keys: NDArray[np.float32],
    rows: NDArray[np.int64] | None,
    upper: NDArray[np.float32],
    query: NDArray[np.float32],
    k: int,
    slack: float,
) -> NDArray[np.int64]:
    """Those of some rows (None: all) whose bound lets them be among the k best."""
    first = _largest(upper, k)
    least = float((keys.take(first if rows is None else rows[first], 0) @ query).min()) - rounding(keys.shape[1])
    kept = np.flatnonzero(upper >= least - slack)
    return kept if rows is None else rows[kept]


def _choose(keys: NDArray[np.float32], rows: NDArray[np.int64], query: NDArray[np.float32], k: int) -> Found:
    """The k best of some rows; fp32 scores first leave out most: float64 for every pair takes several times as long."""
    if len(rows) > max(k, _FEW):
        if len(rows) > len(keys) // 4:
            scores = (keys @ query)[rows]
        else:
            scores = np.concatenate([keys.take(rows[at : at + _CHUNK], 0) @ query for at in range(0, len(rows), _CHUNK)])
        least = float(scores[_largest(scores, k)].min())
        rows = rows[scores >= least - 2 * rounding(keys.shape[1])]
    return best(rows, pair_scores(keys, rows, query), k)


def _largest(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Where the k largest are, in any order."""
    if k == 1:  # many times faster than a partition
        return np.array([scores.argmax()])
    return np.argpartition(scores, len(scores) - k)[len(scores) - k :]
