"""Knowledge entries with their keys, and exact or fast search among them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kedit.errors import DataError, UnknownNameError, unknown_name
from kedit.memory import files
from kedit.memory.exact import Found
from kedit.memory.indices import HNSW, IVF, Flat, Index, available
from kedit.memory.keysearch import Doubt, KeySearch
from kedit.types import Knowledge

INDICES = ("flat", "hnsw", "ivf", "numpy", "auto")
TOLERANCE = 1e-3
"""How far a vector's length may be from 1."""
_FEW_DEAD = 64
_SHOWN = 5


class Hit(NamedTuple):
    """An entry found: its id, and the inner product of query and key, computed exactly for this pair alone (float64)."""

    id: str
    score: float


class Memory:
    """Entries (id, knowledge, key) in the order in which they were added; keys never change once added.

    Keys and queries are unit vectors of one width; a score is their inner product in float64, and of equal scores the oldest
    entry wins. ``index`` says how the nearest is found:

    - ``"numpy"``: exact, without FAISS.
    - ``"flat"``: exact; FAISS compares every key (on a GPU with ``gpu=True`` where FAISS has one).
    - ``"ivf"``, ``"hnsw"``: FAISS proposes ``candidates`` entries beyond those wanted, which are scored exactly. What is
      exact: every score, the order among proposals, and ``search(..., threshold=t)`` for a query whose best proposal is within
      ``margin`` of t. What is only measured: that the index proposes the nearest entry (tests/perf/memory_search.py).
    - ``"auto"``: "ivf" where FAISS is installed, else "numpy".

    Without FAISS all of them are "numpy", which gives the same or better answers. Below ``exact_below`` entries every search
    compares all keys and nothing is built. The first search from there on builds the index, which takes seconds for 100,000
    entries; later entries join it in batches, and it is built anew when the memory has grown fourfold or a third is removed.

    ``cells`` and ``probes`` belong to "ivf", ``links`` and ``breadth`` to "hnsw" (see ``kedit.memory.indices``). ``encoder``
    names what made the keys: it is saved with them, and a memory that has one loads only files with the same.
    Raises UnknownNameError for another index, DataError for a negative ``candidates`` or ``margin``.
    """

    def __init__(
        self,
        *,
        index: str = "flat",
        candidates: int = 128,
        margin: float = 0.01,
        exact_below: int = 8192,
        cells: int | None = None,
        probes: int = 192,
        links: int = 32,
        breadth: int = 256,
        gpu: bool = False,
        encoder: str | None = None,
    ) -> None:
        if index not in INDICES:
            raise unknown_name("index", index, INDICES)
        if candidates < 0 or margin < 0:
            raise DataError(f"candidates={candidates} and margin={margin} must not be negative")
        self.index, self.candidates, self.margin, self.exact_below = index, candidates, margin, exact_below
        self.cells, self.probes, self.links, self.breadth, self.gpu = cells, probes, links, breadth, gpu
        self.encoder = encoder
        self._items: dict[str, Knowledge] = {}
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._search: KeySearch | None = None

    # -- entries -------------------------------------------------------------------------------------------------------

    def add(self, id: str, knowledge: Knowledge, key: NDArray[Any]) -> None:
        """Add one entry with its key, (width,); raises DataError for a known id or a key that is no unit vector of the width."""
        self.add_all([id], [knowledge], np.asarray(key)[None])

    def add_all(self, ids: Sequence[str], knowledge: Sequence[Knowledge], keys: NDArray[Any] | Sequence[NDArray[Any]]) -> None:
        """Add entries in order, keys (n, width): all of them, or none where one cannot be added (DataError, see ``add``)."""
        if not len(ids) == len(knowledge) == len(keys):
            raise DataError(f"{len(ids)} ids, {len(knowledge)} items of knowledge and {len(keys)} keys; expected as many of each")
        if not len(ids):
            return
        seen: set[str] = set()
        for id in ids:
            if not isinstance(id, str):
                raise DataError(f"an entry's id is a text, got {id!r}")
            if id in self._items or id in seen:
                raise DataError(f"the id {id!r} is taken; remove that entry first, or choose another id")
            seen.add(id)
        vectors = _units(keys, "key", self._search.keys.width if self._search else None)
        if self._search is None:
            self._search = self._searcher(vectors.shape[1])
        start = len(self._names)
        self._search.append(vectors)
        self._names += ids
        self._items.update(zip(ids, knowledge, strict=True))
        self._rows.update(zip(ids, range(start, start + len(ids)), strict=True))

    def remove(self, id: str) -> None:
        """Take one entry out; the others' keys stay bit-identical. Raises UnknownNameError (a KeyError) for an unknown id."""
        row = self._row(id)
        if len(self) == 1:
            self.clear()
            return
        assert self._search is not None
        self._search.kill(row)
        del self._items[id], self._rows[id]
        if self._search.dead >= max(_FEW_DEAD, len(self._names) / 3):
            self._names = [self._names[old] for old in self._search.compact()]
            self._rows = {name: at for at, name in enumerate(self._names)}

    def clear(self) -> None:
        """Take all entries out; the next may have keys of another width."""
        self._items, self._rows, self._names, self._search = {}, {}, [], None

    def key(self, id: str) -> NDArray[np.float32]:
        """A copy of an entry's key, (width,), as it was added; raises UnknownNameError for an unknown id."""
        row = self._row(id)
        assert self._search is not None
        return self._search.keys.view[row].copy()

    @property
    def ids(self) -> list[str]:
        """All ids, the oldest entry first."""
        return list(self._items)

    @property
    def width(self) -> int | None:
        """Numbers in a key; None while there is no entry."""
        return self._search.keys.width if self._search else None

    def __getitem__(self, id: str) -> Knowledge:
        self._row(id)
        return self._items[id]

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, id: object) -> bool:
        return id in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    # -- search --------------------------------------------------------------------------------------------------------

    def search(self, queries: NDArray[Any], threshold: float | None = None) -> list[Hit]:
        """The nearest entry of each query, (n, width); of equally near ones the oldest.

        Give the ``threshold`` that scores will be compared with: an approximate index is then not relied upon within ``margin``
        of it. Raises DataError where the memory is empty or a query is no unit vector of its width.
        """
        margin = self.margin

        def near(score: float) -> bool:
            return threshold is not None and abs(score - threshold) <= margin

        return [Hit(self._names[int(one.rows[0])], float(one.scores[0])) for one in self._found(queries, 1, near)]

    def search_k(self, queries: NDArray[Any], k: int) -> list[list[Hit]]:
        """The k nearest entries of each query, (n, width), the nearest first (all entries where there are fewer than k).

        Raises DataError as ``search`` does, and for k below 1.
        """
        if k < 1:
            raise DataError(f"k={k}: ask for one entry at least")
        return [
            [Hit(self._names[int(row)], float(score)) for row, score in zip(one.rows, one.scores, strict=True)]
            for one in self._found(queries, k)
        ]

    def prepare(self) -> None:
        """Build now what the first search would build."""
        if self._search is not None:
            self._search.prepare()

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write all entries to a folder, in place of a memory saved there before; a kill leaves the old one or the new one.

        ``memory.json`` names the files of knowledge (JSON lines, with ``images/``) and keys (safetensors). The index is not
        saved. Raises ImageError when an image cannot be read, OSError when the disk refuses.
        """
        rows = list(self._rows.values())
        keys = self._search.keys.view[rows] if self._search else np.empty((0, 0), np.float32)
        files.write(Path(path), self.ids, list(self._items.values()), keys, self.encoder)

    def load(self, path: str | Path) -> Self:
        """Take over the entries that ``save`` wrote, in place of those held, and return self; this memory's index settings stay.

        Raises DataError for a folder that is incomplete, changed or foreign, or whose keys another encoder made; the memory is
        then as it was.
        """
        saved = files.read(Path(path))
        if self.encoder is not None and saved.encoder != self.encoder:
            raise DataError(
                f"{path} holds keys of the encoder {saved.encoder!r}, expected {self.encoder!r}: scores between them mean "
                "nothing; insert the knowledge again with this encoder, or load with the one it was saved with"
            )
        fresh = copy.copy(self)
        fresh.encoder = saved.encoder
        fresh.clear()
        try:
            fresh.add_all(saved.ids, saved.knowledge, saved.keys)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        vars(self).update(vars(fresh))
        return self

    # -- small parts ---------------------------------------------------------------------------------------------------

    def _found(self, queries: NDArray[Any], k: int, doubt: Doubt | None = None) -> list[Found]:
        if self._search is None:
            raise DataError("the memory is empty, so nothing is nearest; add an entry first, or ask len(memory)")
        if not len(queries):
            return []
        return self._search.find(_units(queries, "query", self._search.keys.width), k, doubt)

    def _row(self, id: str) -> int:
        if id not in self._rows:
            known = ", ".join(repr(name) for name in self.ids[:_SHOWN]) or "none"
            more = f" and {len(self) - _SHOWN} more" if len(self) > _SHOWN else ""
            raise UnknownNameError(f"no entry has the id {id!r}; the memory holds {known}{more}")
        return self._rows[id]

    def _searcher(self, width: int) -> KeySearch:
        return KeySearch(width, self._settings(), candidates=self.candidates, exact_below=self.exact_below)

    def _settings(self) -> Index | None:
        if self.index == "numpy":
            return None
        if not available():
            if self.index in ("hnsw", "ivf") or self.gpu:
                message = f"FAISS is not installed: the memory searches exactly with NumPy instead of {self.index!r}"
                warnings.warn(message, RuntimeWarning, stacklevel=4)
            return None
        if self.index == "flat":
            return Flat(gpu=self.gpu)
        if self.index == "hnsw":
            return HNSW(links=self.links, breadth=self.breadth)
        return IVF(cells=self.cells, probes=self.probes)


def _units(vectors: Any, what: str, width: int | None) -> NDArray[np.float32]:
    """Vectors as fp32, (n, width); raises DataError where one is not a unit vector of this width."""
    try:
        found = np.asarray(vectors, np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} vectors must be numbers, (n, width): {error}") from error
    if found.ndim != 2 or not found.shape[1]:
        raise DataError(f"{what} vectors of shape {found.shape}; expected (n, width)")
    if width is not None and found.shape[1] != width:
        raise DataError(f"a {what} has {found.shape[1]} numbers, the memory's keys {width}; use the encoder that made those")
    lengths = np.sqrt((found.astype(np.float64) ** 2).sum(1))
    right = np.abs(lengths - 1) <= TOLERANCE
    if not right.all():
        at = int(right.argmin())
        raise DataError(
            f"{what} {at} has length {lengths[at]}; expected a unit vector (a score is a cosine): divide it by its length, "
            "and look for NaN or infinity where it came from"
        )
    return found
