"""Means over cases with percentile bootstrap intervals; whole cases are resampled, a chain's steps together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
LEVEL = 0.95
_CELLS = 1 << 22
Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` cases with its 95 % interval; of a single case the interval is that case."""

    mean: float
    low: float
    high: float
    n: int


def column_means(values: Array) -> list[Estimate | None]:
    """One estimate per column of a (cases, columns) array; NaN is a case without a value, a column of them gives None."""
    point, resampled = _means(values), _resampled_means(values)
    counts = (~np.isnan(values)).sum(axis=0)
    return [_estimate(point[j], resampled[:, j], int(counts[j])) for j in range(values.shape[1])]


def combined(values: Array, combine: Callable[[Array], Array]) -> Estimate | None:
    """An estimate of a function of the column means, such as their mean.

    ``combine`` maps (resamples, columns) to (resamples,). None when any column has no value; ``n`` is the number of cases
    with a value in some column.
    """
    if values.size == 0 or np.isnan(values).all(axis=0).any():
        return None
    point = combine(_means(values)[None, :])[0]
    return _estimate(point, combine(_resampled_means(values)), int((~np.isnan(values)).any(axis=1).sum()))


@dataclass(frozen=True)
class Sums:
    """Sums over ``n`` cases by name, (1,), and over each resample of them, (resamples,)."""

    whole: Mapping[str, Array]
    resampled: Mapping[str, Array]
    n: int

    def estimate(self, value: Callable[[Mapping[str, Array]], Array]) -> Estimate | None:
        """An estimate of a function of the sums; NaN is no value, and None where the sums over all cases have none."""
        if not self.whole or np.isnan(point := value(self.whole)[0]):
            return None
        return _estimate(point, value(self.resampled), self.n)


def sums(rows: Sequence[Mapping[str, float]]) -> Sums:
    """Sums of numbers by name, of one case each, drawn once for all that is computed from them; a name a case lacks is 0."""
    names = sorted({name for row in rows for name in row})
    table = np.array([[row.get(name, 0.0) for name in names] for row in rows], dtype=np.float64).reshape(len(rows), len(names))
    resampled = np.concatenate([weights @ table for weights in resample_weights(len(rows))])
    columns = dict(enumerate(names))
    return Sums(
        {name: table[:, j].sum(keepdims=True) for j, name in columns.items()},
        {name: resampled[:, j] for j, name in columns.items()},
        len(rows),
    )


def of_sums(rows: Sequence[Mapping[str, float]], value: Callable[[Mapping[str, Array]], Array]) -> Estimate | None:
    """An estimate of a function of sums over cases: ``value`` maps arrays of sums by name to an array of their shape.

    ``rows`` are one case each; a name that a case lacks is 0. NaN is no value; None where the sums over all cases have none.
    """
    return sums(rows).estimate(value)


def arithmetic(means: Array) -> Array:
    """Mean of the columns."""
    averaged: Array = means.mean(axis=1)
    return averaged


def harmonic(means: Array) -> Array:
    """Harmonic mean of the columns; 0 where one of them is 0 or below."""
    positive = np.where(means > 0, means, np.inf)
    with np.errstate(divide="ignore"):
        inverse = means.shape[1] / (1 / positive).sum(axis=1)
    known = np.where(np.isnan(means).any(axis=1), np.nan, inverse)
    result: Array = np.where((means <= 0).any(axis=1), 0.0, known)
    return result


def _estimate(point: float, resampled: Array, n: int) -> Estimate | None:
    if n == 0:
        return None
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.nanpercentile(resampled, [tail, 100 - tail])
    return Estimate(float(point), float(low), float(high), n)


def _means(values: Array) -> Array:
    means: Array = _weighted(values, np.ones((1, len(values))))[0]
    return means


def _resampled_means(values: Array, seed: int = 0) -> Array:
    """Column means of each resample, (resamples, columns); NaN where a resample has no value of a column."""
    resampled: Array = np.concatenate([_weighted(values, weights) for weights in resample_weights(len(values), seed)])
    return resampled


def resample_weights(cases: int, seed: int = 0) -> Iterator[Array]:
    """How often each resample has each case, (resamples, cases), in parts that fit in memory."""
    generator = np.random.default_rng(seed)
    step = max(1, _CELLS // max(cases, 1))
    for start in range(0, RESAMPLES, step):
        size = min(step, RESAMPLES - start)
        picks = generator.multinomial(cases, np.full(cases, 1 / cases), size=size) if cases else np.zeros((size, 0))
        yield picks.astype(np.float64)


def _weighted(values: Array, weights: Array) -> Array:
    """Means of the columns under (resamples, cases) weights, ignoring NaN."""
    known = ~np.isnan(values)
    total = weights @ known
    summed = weights @ np.where(known, values, 0.0)
    means: Array = np.divide(summed, total, out=np.full_like(summed, np.nan), where=total > 0)
    return means
