"""Unit vectors in fewer dimensions, with a bound on what is lost: the fast half of exact search among many keys.

A vector is written in the leading principal directions of the keys, with the length of the rest as one more coordinate, so
that it stays a unit vector. The inner product of two such points is an upper bound of the vectors' own (Cauchy-Schwarz on the
rest), so that a search may drop every key whose bound lies below a score already found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

ENERGY = 0.9
"""Share of the keys' squared length that the kept directions must hold; with less, bounds are too loose to be of use."""
_STEP, _MOST, _SAMPLE, _CHUNK = 32, 256, 8192, 8192


@dataclass(frozen=True)
class Projection:
    """An orthonormal basis, (width, kept), float64, whose points have ``kept`` + 1 coordinates."""

    basis: NDArray[np.float64]

    @classmethod
    def fit(cls, keys: NDArray[np.float32], seed: int = 0) -> Self | None:
        """The fewest leading directions that hold ``ENERGY`` of the keys, found on a sample; None where they would not pay."""
        rng = np.random.default_rng(seed)
        count, width = keys.shape
        most = min(_MOST, width // 2)
        if most < _STEP or count < _STEP:
            return None
        sample = keys if count <= _SAMPLE else keys[np.sort(rng.choice(count, _SAMPLE, replace=False))]
        basis = _leading(sample.astype(np.float64), most, rng)
        energy = np.cumsum(((sample @ basis) ** 2).sum(0)) / float((sample.astype(np.float64) ** 2).sum())
        sizes = range(_STEP - 1, most, _STEP)
        enough = next((size for size in sizes if energy[size - 1] >= ENERGY), None)
        return None if enough is None else cls(np.ascontiguousarray(basis[:, :enough]))

    @property
    def width(self) -> int:
        """Coordinates of a point."""
        return int(self.basis.shape[1]) + 1

    @property
    def slack(self) -> float:
        """What rounding may take from a bound: the inner product of two points plus this is never below that of the vectors."""
        return 4 * (self.width + 4) * 2.0**-24

    def points(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Points of vectors, (n, width) to (n, kept + 1); the last coordinate is the length of what the others leave out."""
        found: NDArray[np.float32] = np.empty((len(vectors), self.width), np.float32)
        for start in range(0, len(vectors), _CHUNK):
            block = vectors[start : start + _CHUNK].astype(np.float64)
            kept = block @ self.basis
            rest = np.maximum((block**2).sum(1) - (kept**2).sum(1), 0.0)
            found[start : start + _CHUNK, :-1] = kept
            found[start : start + _CHUNK, -1] = np.sqrt(rest)
        return found


def _leading(sample: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Leading right singular directions by two rounds of subspace iteration (Halko et al. 2011, algorithm 4.4)."""
    basis = np.linalg.qr(sample.T @ (sample @ rng.standard_normal((sample.shape[1], count))))[0]
    basis = np.linalg.qr(sample.T @ (sample @ basis))[0]
    inner = sample @ basis
    values, turn = np.linalg.eigh(inner.T @ inner)
    return np.asarray(basis @ turn[:, np.argsort(-values)], np.float64)
