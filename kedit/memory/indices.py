"""Indices that propose rows near a query; whoever asks scores the proposals, so that an index can miss but never mislead.

An index's settings are immutable and say how to build one from points (unit vectors). FAISS does the work where it is
installed and is imported when the first index is built; without it every search is exact (``available``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray


class Built(Protocol):
    """An index that holds points, numbered from 0 in the order in which they came."""

    def __len__(self) -> int: ...

    def add(self, points: NDArray[np.float32]) -> None:
        """Take in more points, (n, width)."""
        ...

    def propose(self, points: NDArray[np.float32], k: int, alive: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Rows near each query point, (n, k), filled up with -1; none that ``alive`` (one per row; None: all) excludes."""
        ...


class Index(Protocol):
    """How to build an index. ``exhaustive``: it looks at every point, so that nothing but rounding parts it from exact search."""

    exhaustive: ClassVar[bool]

    def build(self, points: NDArray[np.float32]) -> Built:
        """An index of these points, (n, width)."""
        ...


@dataclass(frozen=True)
class Flat:
    """Every point is compared (FAISS IndexFlatIP), on the first GPU where ``gpu`` asks for it and FAISS has one."""

    exhaustive: ClassVar[bool] = True
    gpu: bool = False

    def build(self, points: NDArray[np.float32]) -> Built:
        faiss = _faiss()
        index = faiss.IndexFlatIP(points.shape[1])
        on_gpu = self.gpu and hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0
        resources = faiss.StandardGpuResources() if on_gpu else None
        if on_gpu:
            index = faiss.index_cpu_to_gpu(resources, 0, index)
        index.add(np.ascontiguousarray(points))
        return FaissIndex(faiss, index, None if on_gpu else "SearchParameters", {}, resources)


@dataclass(frozen=True)
class HNSW:
    """A graph of near neighbours (Malkov and Yashunin 2018): ``links`` per point, ``breadth`` points kept in view in a search.

    Hundreds of entries with one and the same key link to each other only and make others hard to reach; prefer IVF for those.
    """

    exhaustive: ClassVar[bool] = False
    links: int = 32
    breadth: int = 256
    build_breadth: int = 100

    def build(self, points: NDArray[np.float32]) -> Built:
        faiss = _faiss()
        index = faiss.IndexHNSWFlat(points.shape[1], self.links, faiss.METRIC_L2)
        index.hnsw.efConstruction = self.build_breadth
        index.add(np.ascontiguousarray(points))
        return FaissIndex(faiss, index, "SearchParametersHNSW", {"efSearch": self.breadth})


@dataclass(frozen=True)
class IVF:
    """Cells around centroids (k-means): the ``probes`` cells nearest to a query are searched in full.

    ``cells`` None: three times the square root of the number of points. Points are held in half precision, which is enough to
    propose. Centroids are trained on a sample drawn by ``seed``.
    """

    exhaustive: ClassVar[bool] = False
    cells: int | None = None
    probes: int = 192
    seed: int = 0

    def build(self, points: NDArray[np.float32]) -> Built:
        faiss = _faiss()
        count, width = points.shape
        wanted = self.cells or round(3 * count**0.5)
        cells = max(1, min(wanted, count // _PER_CELL))
        half = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatL2(width), width, cells, half, faiss.METRIC_L2, False)
        index.cp.seed, index.cp.niter, index.cp.min_points_per_centroid = self.seed, 10, 1
        index.cp.max_points_per_centroid = 2 * _PER_CELL
        points = np.ascontiguousarray(points)
        index.train(points)
        index.add(points)
        return FaissIndex(faiss, index, "SearchParametersIVF", {"nprobe": min(self.probes, cells)})


_PER_CELL = 39
"""Training points that a centroid needs at least, as FAISS has it."""


class FaissIndex:
    """A FAISS index and how it is searched. ``parameters`` names the class of its search parameters; None: it takes none."""

    def __init__(
        self, faiss: ModuleType, index: Any, parameters: str | None, values: Mapping[str, int], resources: Any = None
    ) -> None:
        self._faiss, self._index, self._values = faiss, index, dict(values)
        self._parameters = getattr(faiss, parameters) if parameters else None
        self._usual = self._parameters(**values) if self._parameters else None
        self._resources = resources  # a GPU index must not outlive them

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, points: NDArray[np.float32]) -> None:
        self._index.add(np.ascontiguousarray(points))

    def propose(self, points: NDArray[np.float32], k: int, alive: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        if self._parameters is None:
            return self._sieve(points, k, alive)
        narrow = k > self._values.get("efSearch", k)
        usual = self._usual if alive is None and not narrow else self._special(k, alive)
        return np.asarray(self._index.search(points, k, params=usual)[1], np.int64)

    def _special(self, k: int, alive: NDArray[np.bool_] | None) -> Any:
        """Search parameters for a breadth that does not hold k, or for an index with dead rows."""
        assert self._parameters is not None
        values: dict[str, Any] = {name: max(value, k) if name == "efSearch" else value for name, value in self._values.items()}
        if alive is not None:
            values["sel"] = self._faiss.IDSelectorBitmap(np.packbits(alive, bitorder="little"))
        return self._parameters(**values)

    def _sieve(self, points: NDArray[np.float32], k: int, alive: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """GPU indices know no selector: more are asked for, and the dead ones taken out."""
        if alive is None:
            return np.asarray(self._index.search(points, min(k, _GPU_MOST))[1], np.int64)
        more = min(k + int((~alive).sum()), len(self), _GPU_MOST)
        found = np.asarray(self._index.search(points, more)[1], np.int64)
        found[~alive[found]] = -1
        return np.take_along_axis(found, np.argsort(found < 0, axis=1, kind="stable"), axis=1)[:, :k]


_GPU_MOST = 2048
"""Neighbours that a GPU index gives at most."""


def available() -> bool:
    """Whether FAISS is installed."""
    return find_spec("faiss") is not None


def _faiss() -> ModuleType:
    import faiss

    return faiss  # type: ignore[no-any-return]
