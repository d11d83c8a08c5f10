"""How long a memory of many entries takes to find the nearest, and whether it decides as exact search does.

python tests/perf/memory_search.py [--index numpy ivf hnsw] [--entries 100000] [--width 1024] [--queries 10000] [--threshold 0.75]

Keys: a mixture of overlapping clusters in a subspace of ``--latent`` dimensions with falling variances, a common direction (as
hidden states have), isotropic noise; unit vectors. Queries: a third are keys with a little noise; a third lie between a key and
another point of the same distribution, at a cosine to the key drawn evenly within 0.1 of the threshold; a third are new points.
Queries are asked one at a time on one thread. Both clocks are shown: on a machine that does other work, wall time says little.
A decision is (score >= threshold, and which entry if so). The truth is exact search, itself checked against every inner product
for ``--check`` queries.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from kedit.memory import Hit, Memory
from kedit.types import Knowledge, Request

CLUSTERS, WITHIN, NOISE, NEAR, SPREAD = 400, 0.6, 0.25, 0.15, 0.1
Vectors = NDArray[np.float32]


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


class World:
    """The distribution that keys and queries come from."""

    def __init__(self, width: int, latent: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        scale = np.arange(1, latent + 1) ** -0.5
        self.scale = (scale / np.linalg.norm(scale)).astype(np.float32)
        self.basis = np.linalg.qr(self.draw(width, latent))[0].T.copy()
        self.common = 0.3 * unit(self.draw(width))
        self.centres = self.draw(CLUSTERS, latent) * self.scale

    def draw(self, *shape: int) -> Vectors:
        return self.rng.standard_normal(shape, dtype=np.float32)

    def noise(self, count: int) -> Vectors:
        width = self.basis.shape[1]
        return self.draw(count, width) / np.float32(width**0.5)

    def points(self, latent: Vectors) -> Vectors:
        return unit(self.common + latent @ self.basis + NOISE * self.noise(len(latent))).astype(np.float32)

    def members(self, count: int) -> Vectors:
        """Points of random clusters."""
        centre = self.centres[self.rng.integers(CLUSTERS, size=count)]
        return self.points(centre + WITHIN * self.draw(count, len(self.scale)) * self.scale)

    def queries(self, keys: Vectors, count: int, threshold: float) -> Vectors:
        third = count // 3
        near = keys[self.rng.integers(len(keys), size=third)] + NEAR * self.noise(third)
        source = keys[self.rng.integers(len(keys), size=third)]
        other = self.members(third)
        other = unit(other - (other * source).sum(1, keepdims=True) * source)
        cosine = self.rng.uniform(threshold - SPREAD, threshold + SPREAD, (third, 1))
        between = cosine * source + np.sqrt(1 - cosine**2) * other
        new = self.points(self.draw(count - 2 * third, len(self.scale)) * self.scale)
        return unit(np.concatenate([near, between, new])).astype(np.float32)


def truth(memory: Memory, keys: Vectors, queries: Vectors, check: int) -> list[Hit]:
    """Exact search, after a comparison with all inner products for some of the queries."""
    hits = memory.search(queries)
    for at in np.linspace(0, len(queries) - 1, check).astype(int):
        scores = keys @ queries[at]
        rows = np.flatnonzero(scores >= scores.max() - 1e-4)
        exact = (keys[rows].astype(np.float64) * queries[at].astype(np.float64)).sum(1)
        assert hits[at] == (str(rows[exact.argmax()]), exact.max()), f"exact search is wrong for query {at}"
    return hits


def measure(name: str, memory: Memory, queries: Vectors, true: list[Hit], threshold: float) -> None:
    clocks = (time.perf_counter, time.thread_time)
    start = [clock() for clock in clocks]
    memory.prepare()
    built = [clock() - begun for clock, begun in zip(clocks, start, strict=True)]
    spent, hits = np.empty((len(queries), 2)), []
    for at, query in enumerate(queries):
        start = [clock() for clock in clocks]
        hits += memory.search(query[None], threshold)
        spent[at] = [clock() - begun for clock, begun in zip(clocks, start, strict=True)]
    flips = sum((a.score >= threshold) != (b.score >= threshold) for a, b in zip(true, hits, strict=True))
    others = sum(a.score >= threshold <= b.score and a.id != b.id for a, b in zip(true, hits, strict=True))
    missed = sum(a.id != b.id for a, b in zip(true, hits, strict=True))
    print(f"{name:6} built in {built[0]:.1f} s wall, {built[1]:.1f} s CPU")
    for clock, times in zip(("wall", "CPU"), spent.T * 1e3, strict=True):
        middle, high, most = np.percentile(times, [50, 99, 100])
        print(f"       ms per search, {clock:4}: mean {times.mean():.3f}  median {middle:.3f}  99 % {high:.3f}  most {most:.3f}")
    print(
        f"       of {len(queries)}: {flips} decided otherwise, {others} active with another entry, {missed} other nearest entries"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", nargs="+", default=["numpy", "ivf", "hnsw"])
    for name, default in {"entries": 100_000, "width": 1024, "queries": 10_000, "latent": 64, "check": 200, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--threshold", type=float, default=0.75)
    options = parser.parse_args()
    world = World(options.width, options.latent, options.seed)
    keys = world.members(options.entries)
    queries = world.queries(keys, options.queries, options.threshold)
    ids = [str(at) for at in range(len(keys))]
    knowledge = [Knowledge(Request("question"), "answer")] * len(keys)
    exact = Memory(index="numpy")
    exact.add_all(ids, knowledge, keys)
    true = truth(exact, keys, queries, options.check)
    active = sum(hit.score >= options.threshold for hit in true)
    close = sum(abs(hit.score - options.threshold) <= exact.margin for hit in true)
    print(f"{len(keys)} entries, width {options.width}, seed {options.seed}, threshold {options.threshold}")
    print(f"{active} of {len(queries)} queries active, {close} within {exact.margin} of the threshold")
    start = time.thread_time()
    for query in queries[:20]:
        keys @ query
    print(f"all inner products with one query, plain NumPy: {(time.thread_time() - start) * 50:.1f} ms CPU")
    for name in options.index:
        memory = Memory(index=name)
        memory.add_all(ids, knowledge, keys)
        measure(name, memory, queries, true, options.threshold)


if __name__ == "__main__":
    main()
