"""Cases of the CrossCult-KIBench protocol (paper, section 3), whatever the raw cases come from.

Partitions en, zh and ar; single-insert cases for zh and ar; chains of three on one image. Items that measure generality and
locality are drawn from the raw cases, reproducibly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TypeVar

from kedit.benchmark import Dimension, Task
from kedit.benchmarks import Lazy
from kedit.errors import DataError
from kedit.protocols import RELIABILITY, final, retention
from kedit.types import Case, ImageRef, Knowledge, Probe, Request
from kedit.wording import SYSTEM_PROMPTS

T = TypeVar("T")
Opener = Callable[[str | bytes], ImageRef]
PARTITIONS = ("en", "zh", "ar")
TARGETS = ("zh", "ar")
"""Partitions that are inserted in the single task; English is not (paper, section 3.1)."""
ORDERS = ("en-zh-ar", "ar-zh-en")
GENERALITY, LOCALITY = "generality", "locality"
CROSS_LANGUAGE, CROSS_SCENARIO = "cross_language_locality", "cross_scenario_locality"
_RELIABLE, _GENERAL = Dimension(RELIABILITY, "Rel"), Dimension(GENERALITY, "Gen")
TASKS: Mapping[str, Task] = {
    "single": Task(
        "single",
        final,
        (_RELIABLE, _GENERAL, Dimension(CROSS_LANGUAGE, "C-Lang Loc", True), Dimension(CROSS_SCENARIO, "C-Scen Loc", True)),
    ),
    "sequential": Task("sequential", retention, (_RELIABLE, _GENERAL, Dimension(LOCALITY, "Loc", True))),
}
BLOCK = 10
"""Items are drawn within blocks of ten cases of a scenario, so that no draw depends on how many cases are looked at."""


@dataclass(frozen=True)
class Item:
    """One question about one image in one partition; ``image`` is a path below the data's root, or encoded bytes."""

    partition: str
    image: str | bytes
    question: str
    answer: str | None = None
    scenario: str = ""
    case_id: str = ""


@dataclass(frozen=True)
class Raw:
    """A raw multilingual case: one image and, per partition, a question and its answer."""

    id: str
    scenario: str
    topic_group: str
    image: str | bytes
    qa: Mapping[str, tuple[str, str | None]]

    def item(self, partition: str) -> Item:
        """The case in one partition."""
        return Item(partition, self.image, *self.qa[partition], self.scenario, self.id)


@dataclass(frozen=True)
class Step:
    """One insertion and the other items that measure it, by dimension."""

    item: Item
    others: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One task case: a single insertion, or a chain on one image."""

    id: str
    raw: str
    scenario: str
    topic_group: str
    steps: tuple[Step, ...]


Pool = Mapping[str, Sequence[Raw]]


def number(*seed: object) -> int:
    """64 bits of SHA-256 of the seeds: the only randomness here, because ``hash`` and ``random`` may differ between Pythons."""
    digest = hashlib.sha256("|".join(map(str, seed)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


@lru_cache(maxsize=65536)
def _order(size: int, seed: tuple[object, ...]) -> list[int]:
    return sorted(range(size), key=lambda k: number(*seed, k))


def shuffled(values: Sequence[T], *seed: object) -> list[T]:
    """The values in an order that depends on the seeds alone."""
    return [values[k] for k in _order(len(values), seed)]


def pick(options: Sequence[T], *seed: object) -> T:
    """One of ``options``, the same in every process."""
    return options[number(*seed) % len(options)]


def _near(cases: Sequence[Raw], index: int, partition: str, avoid: str | None) -> list[Raw]:
    """Raw cases of the block of ten around ``index`` that have the partition, but not ``avoid``; else of the whole scenario."""
    start = index - index % BLOCK
    for window in (range(start, start + BLOCK), range(len(cases))):
        found = [cases[k] for k in window if k < len(cases)]
        found = [raw for raw in found if raw.id != avoid and partition in raw.qa]
        if found:
            return found
    return []


def general(pool: Pool, raw: Raw, index: int, partition: str) -> tuple[Item, ...]:
    """Another raw case of the same scenario and partition, none where there is no other."""
    near = _near(pool.get(raw.scenario, ()), index, partition, raw.id)
    found = [other for other in near if other.image != raw.image and other.qa[partition][1]]
    return (pick(found, raw.id, partition, GENERALITY).item(partition),) if found else ()


def elsewhere(pool: Pool, raw: Raw, index: int, partition: str) -> tuple[Item, ...]:
    """A raw case of another scenario of the same split, same partition, reference unknown."""
    others = [scenario for scenario in pool if scenario != raw.scenario]
    if not others:
        return ()
    scenario = pick(others, raw.id, partition, CROSS_SCENARIO)
    found = _near(pool[scenario], index, partition, None)
    return (_unanswered(pick(found, raw.id, partition, scenario).item(partition)),) if found else ()


def other_language(raw: Raw, partition: str) -> tuple[Item, ...]:
    """The same image with the question of another partition, reference unknown."""
    others = [p for p in PARTITIONS if p != partition and p in raw.qa]
    return (_unanswered(raw.item(pick(others, raw.id, partition, CROSS_LANGUAGE))),) if others else ()


def _unanswered(item: Item) -> Item:
    return Item(item.partition, item.image, item.question, None, item.scenario, item.case_id)


def single_rows(pool: Pool, raw: Raw, index: int) -> list[Row]:
    """The two single-insert cases of a raw case (paper, section 3.1); ``index`` is its position in its scenario."""
    rows = []
    for p in TARGETS:
        if p in raw.qa and raw.qa[p][1]:
            others = {
                GENERALITY: general(pool, raw, index, p),
                CROSS_LANGUAGE: other_language(raw, p),
                CROSS_SCENARIO: elsewhere(pool, raw, index, p),
            }
            rows.append(Row(f"{raw.id}_{p}", raw.id, raw.scenario, raw.topic_group, (Step(raw.item(p), others),)))
    return rows


def chain_row(pool: Pool, raw: Raw, index: int) -> list[Row]:
    """The sequential case of a raw case, its steps in the order en, zh, ar; none where a partition is missing."""
    if any(p not in raw.qa or not raw.qa[p][1] for p in PARTITIONS):
        return []
    steps = tuple(
        Step(raw.item(p), {GENERALITY: general(pool, raw, index, p), LOCALITY: elsewhere(pool, raw, index, p)})
        for p in PARTITIONS
    )
    return [Row(raw.id, raw.id, raw.scenario, raw.topic_group, steps)]


def round_robin(groups: Mapping[str, Sequence[T]], limit: int | None) -> Iterator[tuple[str, int, T]]:
    """(group, index, element), one of each group in turn, ``limit`` in all: balanced, and a prefix of any higher limit."""
    longest = max(map(len, groups.values()), default=0)
    places = ((name, k) for k in range(longest) for name in groups if k < len(groups[name]))
    yield from ((name, k, groups[name][k]) for name, k in islice(places, limit))


def reorder(row: Row, order: str) -> tuple[Step, ...]:
    """The steps of a chain by partition, as in ``"ar-zh-en"``; empty where the chain does not have just these partitions."""
    wanted = order.split("-")
    steps = {step.item.partition: step for step in row.steps}
    if len(steps) != len(row.steps) or sorted(steps) != sorted(wanted):
        return ()
    return tuple(steps[p] for p in wanted)


def check_orders(orders: Sequence[str]) -> tuple[str, ...]:
    """The orders of a chain as a tuple; raises DataError for one that does not name each partition once, or for none."""
    for order in orders:
        if sorted(order.split("-")) != sorted(PARTITIONS):
            raise DataError(f"order {order!r} must name each of {', '.join(PARTITIONS)} once, such as {ORDERS[0]!r}")
    if isinstance(orders, str) or not orders:
        raise DataError(f"orders must be a sequence of orders such as {ORDERS!r}, got {orders!r}")
    return tuple(dict.fromkeys(orders))


def _request(item: Item, image: Opener) -> Request:
    return Request(item.question, (image(item.image),), item.partition, SYSTEM_PROMPTS[item.partition])


def build_case(row: Row, steps: Sequence[Step], tags: Mapping[str, str], id: str, image: Opener) -> Case:
    """A case from its steps: each inserts (i, q, a), is asked again (reliability), and brings its other items as probes.

    A probe about another scenario than its case's names it in the tag "asked_scenario".
    """
    chain, probes = [], []
    for at, step in enumerate(steps, 1):
        request = _request(step.item, image)
        chain.append(Knowledge(request, str(step.item.answer)))
        probes.append(Probe(RELIABILITY, request, step.item.answer, at))
        for dimension, items in step.others.items():
            for item in items:
                reference = item.answer if dimension == GENERALITY else None  # None: what the unedited backbone says
                about = {"asked_scenario": item.scenario} if item.scenario not in ("", row.scenario) else {}
                probes.append(Probe(dimension, _request(item, image), reference, at, about))
    tags = {"scenario": row.scenario, "topic_group": row.topic_group, "raw": row.raw, **tags}
    return Case(id, tuple(chain), tuple(probes), tags)


def single_cases(rows: Sequence[Row], image: Opener) -> Sequence[Case]:
    """A case per row, built when asked for."""

    def make(k: int) -> Case:
        row = rows[k]
        return build_case(row, row.steps, {"partition": row.steps[0].item.partition}, row.id, image)

    return Lazy(len(rows), make)


def chain_cases(rows: Sequence[Row], orders: Sequence[str], image: Opener) -> Sequence[Case]:
    """A case per row and order, with the same ``tags["raw"]``; a chain of other partitions keeps its own order."""
    plan = []
    for row in rows:
        possible = [(order, steps) for order in orders if (steps := reorder(row, order))]
        own = "-".join(step.item.partition for step in row.steps)
        plan += [(row, order, steps) for order, steps in possible or [(own, row.steps)]]

    def make(k: int) -> Case:
        row, order, steps = plan[k]
        return build_case(row, steps, {"order": order}, f"{row.id}_{order}", image)

    return Lazy(len(plan), make)
