"""Whatever the index, added and removed: the nearest entry is the one that comparing every pair in float64 would give."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedit.errors import DataError, UnknownNameError
from kedit.memory import Hit, Memory, indices
from kedit.memory import exact as exact_module
from kedit.memory.keysearch import KeySearch
from kedit.memory.projection import Projection
from kedit.types import Knowledge, Request

INDICES = ("numpy", "flat", "ivf", "hnsw")
WIDTH = 8


def know(name: str) -> Knowledge:
    return Knowledge(Request(name), f"answer {name}")


def units(count: int, width: int = WIDTH, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    found = np.random.default_rng(seed).standard_normal((count, width))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def low(count: int, seed: int = 0, noise: float = 0.1, width: int = 96) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Vectors close to a subspace of 12 dimensions, where a projection pays."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(np.random.default_rng(99).standard_normal((width, 12)))[0]
    found = rng.standard_normal((count, 12)) @ basis.T + noise * rng.standard_normal((count, width))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def filled(keys: np.ndarray[Any, Any], **settings: Any) -> Memory:
    memory = Memory(**settings)
    names = [str(at) for at in range(len(keys))]
    memory.add_all(names, [know(name) for name in names], keys)
    return memory


def brute(memory: Memory, queries: np.ndarray[Any, Any], k: int = 1) -> list[list[Hit]]:
    """Every pair in float64, of equal ones the oldest."""
    ids = memory.ids
    keys = np.stack([memory.key(id) for id in ids])
    rows = [(keys * query.astype(np.float64)).sum(1) for query in queries]
    return [[Hit(ids[at], float(row[at])) for at in np.argsort(-row, kind="stable")[:k]] for row in rows]


# -- equal to brute force ----------------------------------------------------------------------------------------------

step = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 39)),
    st.tuples(st.just("remove"), st.integers(0, 200)),
    st.tuples(st.just("ask"), st.integers(0, 99)),
)


@pytest.mark.parametrize("index", INDICES)
@settings(max_examples=25, deadline=None)
@given(steps=st.lists(step, min_size=5, max_size=60), k=st.integers(1, 5), few=st.integers(0, 3))
def test_any_adds_and_removes_leave_search_equal_to_brute_force(
    index: str, steps: list[tuple[str, int]], k: int, few: int
) -> None:
    pool, queries = units(40, seed=1), units(100, seed=2)
    pool[20:] = pool[:20]  # half of what may be added repeats another key
    memory = filled(units(100, seed=3), index=index, exact_below=0, candidates=few)
    for number, (what, value) in enumerate(steps):
        if what == "add":
            memory.add(f"n{number}", know("n"), pool[value])
        elif what == "remove":
            memory.remove(memory.ids[value % len(memory)])
        else:  # so few entries that "ivf" probes every cell and "hnsw" has the whole graph in view
            asked = queries[value : value + 2]
            assert memory.search_k(asked, k) == brute(memory, asked, k)
            assert memory.search(asked) == [hits[0] for hits in brute(memory, asked)]


@pytest.mark.parametrize("index", INDICES)
def test_many_entries_with_one_key_give_the_oldest_left(index: str) -> None:
    keys = np.concatenate([low(300), np.repeat(low(1, seed=5), 100, axis=0)])
    memory = filled(keys, index=index, exact_below=0)
    for gone in range(300, 330):
        assert memory.search(keys[-1:])[0].id == str(gone)
        assert [hit.id for hit in memory.search_k(keys[-1:], 3)[0]] == [str(gone + later) for later in range(3)]
        memory.remove(str(gone))
    assert memory.search(keys[:300]) == [hits[0] for hits in brute(memory, keys[:300])]


@pytest.mark.parametrize("index", ["numpy", "flat"])
@pytest.mark.parametrize("exact_below", [0, 10_000])
def test_exact_search_is_exact_through_the_projection_too(index: str, exact_below: int) -> None:
    keys, queries = low(1200, noise=0.3), np.concatenate([low(40, seed=7, noise=0.3), units(20, 96, seed=8)])
    memory = filled(keys, index=index, exact_below=exact_below)
    for gone in range(0, 300, 3):
        memory.remove(str(gone))
    memory.add_all(["new", "newer"], [know("new")] * 2, keys[:2])
    assert memory.search_k(queries, 4) == brute(memory, queries, 4)


def test_exact_search_scores_few_pairs_where_keys_lie_near_a_subspace(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []
    plain = exact_module.pair_scores

    def counted(keys: Any, rows: Any, query: Any) -> Any:
        scored.append(len(rows))
        return plain(keys, rows, query)

    monkeypatch.setattr(exact_module, "pair_scores", counted)
    memory, queries = filled(low(3000), index="numpy", exact_below=0), low(50, seed=3)
    memory.search(queries)
    assert sum(scored) < 0.02 * 50 * 3000


@pytest.mark.parametrize("index", INDICES)
def test_an_answer_does_not_depend_on_the_batch_it_was_asked_in(index: str) -> None:
    memory, queries = filled(low(700), index=index, exact_below=0, probes=2, breadth=8), low(90, seed=4)
    together = memory.search(queries)
    assert together == [memory.search(query[None])[0] for query in queries]
    assert together == memory.search(queries[::-1])[::-1]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 0.5))
def test_bounds_are_never_below_the_scores(seed: int, noise: float) -> None:
    keys, queries = low(200, seed, noise), np.concatenate([low(20, seed + 1, noise), units(20, 96, seed)])
    projection = Projection.fit(low(400, seed + 2, 0.05))
    assert projection is not None
    bounds = projection.points(queries) @ projection.points(keys).T + projection.slack
    assert (bounds >= queries.astype(np.float64) @ keys.astype(np.float64).T).all()


def test_no_projection_is_made_where_it_would_not_pay() -> None:
    assert Projection.fit(units(500, 96)) is None
    assert Projection.fit(units(500, 16)) is None


# -- near the threshold ------------------------------------------------------------------------------------------------


class Forgetful:
    """An index that proposes everything but the nearest."""

    exhaustive = False

    def build(self, points: np.ndarray[Any, Any]) -> Any:
        self.points = points.copy()
        return self

    def __len__(self) -> int:
        return len(self.points)

    def add(self, points: np.ndarray[Any, Any]) -> None:
        self.points = np.concatenate([self.points, points])

    def propose(self, points: np.ndarray[Any, Any], k: int, alive: Any) -> np.ndarray[Any, Any]:
        return np.argsort(-(points @ self.points.T), axis=1)[:, 1 : k + 1]


def test_near_the_threshold_an_index_that_misses_changes_no_decision() -> None:
    memory = Memory(index="ivf", exact_below=0, candidates=1, margin=0.05)
    angles = np.array([0.0, 0.2, 1.5, 1.6])
    keys = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    memory._searcher = lambda width: KeySearch(width, Forgetful(), candidates=1, exact_below=0)  # type: ignore[method-assign]
    memory.add_all(list("abcd"), [know("a")] * 4, keys)
    query = keys[:1]
    seen = float(np.cos(0.2))
    assert memory.search(query) == memory.search(query, 0.5) == [Hit("b", pytest.approx(seen))]  # far above: relied upon
    for threshold in (seen + 0.01, seen, seen - 0.04):
        assert memory.search(query, threshold) == [Hit("a", 1.0)]
    assert memory.search(query, seen + 0.06)[0].id == "b"  # out of the margin


@pytest.mark.parametrize("index", ["ivf", "hnsw"])
def test_decisions_near_the_threshold_equal_exact_search_whatever_the_index_finds(index: str) -> None:
    keys, queries = low(1000, noise=0.3), low(100, seed=6, noise=0.3)
    memory = filled(keys, index=index, exact_below=0, cells=40, probes=1, links=4, breadth=1, candidates=4, margin=2.0)
    true = [hits[0] for hits in brute(memory, queries)]
    assert memory.search(queries) != true  # so crippled an index misses
    assert memory.search(queries, 0.8) == true


# -- keys and entries --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", INDICES)
def test_keys_stay_bit_identical_whatever_is_added_removed_and_searched(index: str) -> None:
    keys = low(900)
    memory = filled(keys, index=index, exact_below=100)
    for at in range(0, 900, 2):
        memory.remove(str(at))
        if at % 100 == 0:
            memory.search(keys[:3])
            memory.add(f"more {at}", know("m"), keys[at])
    for at in range(1, 900, 2):
        assert memory.key(str(at)).tobytes() == keys[at].tobytes()
    assert memory.ids == [str(at) for at in range(1, 900, 2)] + [f"more {at}" for at in range(0, 900, 100)]


def test_a_key_given_or_taken_is_a_copy() -> None:
    key = units(1)[0]
    memory = Memory()
    memory.add("a", know("a"), key)
    before = key.tobytes()
    key[:] = 0
    memory.key("a")[:] = 0
    assert memory.key("a").tobytes() == before


def test_entries_are_found_counted_and_cleared_by_id() -> None:
    memory = filled(units(3))
    assert (len(memory), list(memory), "1" in memory, "9" in memory, memory["1"]) == (3, ["0", "1", "2"], True, False, know("1"))
    assert memory.width == WIDTH
    memory.remove("1")
    assert memory.ids == ["0", "2"]
    memory.clear()
    assert (len(memory), memory.width) == (0, None)
    memory.add("1", know("1"), units(1, 5)[0])  # another width
    memory.remove("1")
    memory.add("1", know("1"), units(1, 6)[0])


@pytest.mark.parametrize("index", ["ivf", "hnsw", "flat"])
def test_adding_one_at_a_time_does_not_build_an_index_each_time(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    for kind in (indices.IVF, indices.HNSW, indices.Flat):
        plain: Callable[..., Any] = kind.build

        def build(self: Any, points: Any, plain: Callable[..., Any] = plain) -> Any:
            built.append(len(points))
            return plain(self, points)

        monkeypatch.setattr(kind, "build", build)
    keys = low(1000)
    memory = Memory(index=index, exact_below=100)
    for at, key in enumerate(keys):
        memory.add(str(at), know("a"), key)
        if at % 9 == 0:
            assert memory.search(key[None])[0].id == str(at)
    assert built == [100, 406]


def test_an_index_is_built_anew_when_a_third_is_removed_and_not_before() -> None:
    keys = low(600)
    memory = filled(keys, index="ivf", exact_below=0)
    memory.prepare()
    assert memory._search is not None
    first = memory._search._built
    for at in range(199):
        memory.remove(str(at))
    memory.search(keys[:1])
    assert memory._search._built is first
    memory.remove("199")
    memory.search(keys[:1])
    assert memory._search._built is not first and len(memory._search.keys) == 400


# -- without FAISS, with a GPU ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [*INDICES, "auto"])
def test_without_faiss_every_index_is_exact_search(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    slower = pytest.warns(RuntimeWarning, match="FAISS is not installed") if index in ("ivf", "hnsw") else nullcontext()
    with slower:
        memory = filled(low(300), index=index, exact_below=0)
    queries = low(20, seed=2)
    assert memory.search_k(queries, 2) == brute(memory, queries, 2)


def test_faiss_is_not_imported_for_a_small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indices, "_faiss", lambda: pytest.fail("imported"))
    assert filled(low(300), index="ivf").search(low(1))[0].id == "0"


@pytest.mark.parametrize("gpus, asked, used", [(1, True, True), (1, False, False), (0, True, False)])
def test_a_gpu_serves_only_where_there_is_one_and_it_is_asked_for(
    gpus: int, asked: bool, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import faiss

    moved: list[int] = []

    class Device:
        """A flat index that, like those on a GPU, takes no parameters."""

        def __init__(self, index: Any) -> None:
            self.index = index

        ntotal = property(lambda self: self.index.ntotal)

        def add(self, points: Any) -> None:
            self.index.add(points)

        def search(self, points: Any, k: int) -> Any:
            return self.index.search(points, k)

    def move(resources: Any, device: int, index: Any) -> Device:
        moved.append(device)
        return Device(index)

    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: gpus)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", move, raising=False)
    keys, queries = low(500), low(20, seed=3)
    memory = filled(keys, index="flat", gpu=asked, exact_below=0)
    assert memory.search_k(queries, 2) == brute(memory, queries, 2)
    for gone in range(100):
        memory.remove(str(gone))
    assert memory.search_k(queries, 2) == brute(memory, queries, 2)
    assert bool(moved) == used


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, says",
    [
        (units(1, 5)[0], "a key has 5 numbers, the memory's keys 8"),
        (np.zeros(WIDTH), "length 0.0"),
        (np.full(WIDTH, np.nan), "length nan"),
        (np.full(WIDTH, np.inf), "length inf"),
        (units(1)[0] * 1.01, "expected a unit vector"),
        (np.float32(1), "expected \\(n, width\\)"),
        (np.array(["a"] * WIDTH), "must be numbers"),
    ],
)
def test_a_key_or_query_that_is_no_unit_vector_of_the_width_is_refused(key: Any, says: str) -> None:
    memory = filled(units(2))
    with pytest.raises(DataError, match=says):
        memory.add("new", know("new"), key)
    with pytest.raises(DataError, match=says.replace("a key", "a query")):
        memory.search(np.asarray(key)[None])
    assert memory.ids == ["0", "1"]


def test_a_length_within_rounding_of_one_is_taken_as_it_is() -> None:
    key = units(1)[0] * np.float32(1.0005)
    memory = Memory()
    memory.add("a", know("a"), key)
    assert memory.key("a").tobytes() == key.tobytes()


def test_a_taken_id_is_refused_and_nothing_of_the_batch_added() -> None:
    memory = filled(units(3))
    for ids in (["new", "1"], ["new", "new"]):
        with pytest.raises(DataError, match="is taken"):
            memory.add_all(ids, [know("a")] * 2, units(2))
    with pytest.raises(DataError, match="length nan"):
        memory.add_all(["new", "newer"], [know("a")] * 2, np.stack([units(1)[0], np.full(WIDTH, np.nan)]))
    with pytest.raises(DataError, match="2 ids, 1 items of knowledge and 2 keys"):
        memory.add_all(["new", "newer"], [know("a")], units(2))
    with pytest.raises(DataError, match="id is a text"):
        memory.add(7, know("a"), units(1)[0])  # type: ignore[arg-type]
    assert memory.ids == ["0", "1", "2"]


def test_an_unknown_id_is_a_key_error_that_lists_a_few() -> None:
    memory = filled(units(9))
    calls: list[Callable[[str], object]] = [memory.remove, memory.key, memory.__getitem__]
    for call in calls:
        with pytest.raises(KeyError, match="no entry has the id 'x'; the memory holds '0', '1', '2', '3', '4' and 4 more"):
            call("x")


def test_searches_that_make_no_sense_are_refused() -> None:
    with pytest.raises(DataError, match="memory is empty"):
        Memory().search(units(1))
    with pytest.raises(DataError, match="k=0"):
        filled(units(2)).search_k(units(1), 0)
    assert filled(units(2)).search(np.empty((0, WIDTH))) == []
    assert len(filled(units(2)).search_k(units(1), 5)[0]) == 2


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'hnsw'"):
        Memory(index="hsnw")
    with pytest.raises(DataError, match="must not be negative"):
        Memory(margin=-1)
