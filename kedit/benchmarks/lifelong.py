"""Long chains of insertions over the images of many scenarios, measured by items that are never inserted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby, islice, zip_longest
from typing import Any
from typing import Protocol as Structural

from kedit.benchmark import Dimension, Task
from kedit.benchmarks.kibench_cases import (
    GENERALITY,
    LOCALITY,
    PARTITIONS,
    TASKS,
    Item,
    Opener,
    Pool,
    Raw,
    Row,
    Step,
    build_case,
    pick,
    round_robin,
    shuffled,
)
from kedit.benchmarks.scene import SPLITS
from kedit.errors import DataError, unknown_name
from kedit.protocols import RELIABILITY, Protocol, gap, milestones, together
from kedit.types import Case, ImageRef

TASK = "lifelong"
ORDERS = ("shuffled", "turns", "blocks", "scenarios")
KEPT_OUT = 5
"""Every fifth scenario is never inserted (locality is asked there), nor every fifth raw case of the others (generality)."""


@dataclass(frozen=True)
class Fact:
    """One item to insert, the raw case that it comes from, and the place of that in its scenario."""

    item: Item
    raw: Raw
    index: int


@dataclass(frozen=True)
class Lifelong:
    """How long chains are made and when they are asked.

    ``chain`` items (all there are, where they are fewer) of ``partitions`` go into each of ``chains`` chains, which share no
    item. ``order`` is one of these, or several, each of which gives the same items as a case of its own: "shuffled" (by
    ``seed``); "turns", the partitions in turn; "blocks", one partition after the other; "scenarios", one scenario after the
    other. Questions are asked at the memory ``sizes``, at every multiple of ``probe_every``, and of items after ``gaps``
    further inserts; ``sample`` items per size and for the gaps (see ``kedit.protocols.milestones`` and ``gap``).
    """

    chain: int = 1000
    chains: int = 1
    partitions: Sequence[str] = ("zh", "ar")
    order: str | Sequence[str] = "shuffled"
    sizes: Sequence[int] = (1, 10, 100, 1000)
    gaps: Sequence[int] = (0, 1, 10, 100)
    probe_every: int | None = None
    sample: int | None = 20
    seed: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any] | Lifelong | None) -> Lifelong:
        """From options by name; raises UnknownNameError for another name and DataError for a value that means nothing."""
        options = {} if given is None or isinstance(given, Lifelong) else dict(given)
        names = [field.name for field in fields(cls)]
        for name in options:
            if name not in names:
                raise unknown_name("option of a lifelong chain", name, names)
        made = given if isinstance(given, Lifelong) else cls(**options)
        made.check()
        return made

    @property
    def orders(self) -> tuple[str, ...]:
        """The orders of each chain."""
        return (self.order,) if isinstance(self.order, str) else tuple(dict.fromkeys(self.order))

    def check(self) -> None:
        """Raises UnknownNameError for an order or partition, DataError for numbers below 1 and for nothing to ask."""
        for order in self.orders:
            if order not in ORDERS:
                raise unknown_name("order of a lifelong chain", order, ORDERS)
        for partition in self.partitions:
            if partition not in PARTITIONS:
                raise unknown_name("partition", partition, PARTITIONS)
        numbers = {"chain": self.chain, "chains": self.chains, "probe_every": self.probe_every, "sample": self.sample}
        if wrong := {name: value for name, value in numbers.items() if value is not None and value < 1}:
            raise DataError(f"lifelong chains: {wrong} must be 1 or more")
        if not self.orders or not self.partitions:
            raise DataError("lifelong chains need at least one order and one partition")
        try:
            self.protocol()
        except ValueError as error:
            raise DataError(f"lifelong chains: {error}") from error

    def protocol(self) -> Protocol:
        """When what is asked."""
        sizes = milestones(*(self.sizes or (self.chain,)), sample=self.sample, every=self.probe_every)
        return together(sizes, gap(*self.gaps, sample=self.sample)) if self.gaps else sizes

    def task(self) -> Task:
        """The task: reliability, generality and locality, run only where it is named."""
        dimensions = (Dimension(RELIABILITY, "Rel"), Dimension(GENERALITY, "Gen"), Dimension(LOCALITY, "Loc", True))
        return Task(TASK, self.protocol(), dimensions, on_request=True)

    # -- cases ---------------------------------------------------------------------------------------------------------

    def cases(self, pool: Pool, image: Opener, limit: int | None = None) -> list[Case]:
        """A case per chain and order; ``limit`` counts the raw cases that items come from. None where the pool is empty."""
        held = list(pool)[KEPT_OUT - 1 :: KEPT_OUT] or list(pool)[1:][-1:]
        inserted = {name: raws for name, raws in pool.items() if name not in held}
        facts = list(islice(self._facts(inserted, limit), self.chain * self.chains))
        length = min(self.chain, len(facts) // self.chains)
        parts = [facts[at * length : (at + 1) * length] for at in range(self.chains)] if length else []
        elsewhere = {name: pool[name] for name in held}
        return [
            self._case(f"chain-{number}", order, self._ordered(part, order, number), pool, elsewhere, image)
            for number, part in enumerate(parts, 1)
            for order in self.orders
        ]

    def _facts(self, pool: Pool, limit: int | None) -> Iterator[Fact]:
        """Items in turns over scenarios and partitions, without the raw cases that are kept out."""
        open_ = {name: [k for k in range(len(raws)) if not _kept_out(k)] for name, raws in pool.items()}
        for name, _, k in round_robin(open_, limit):
            raw = pool[name][k]
            yield from (Fact(raw.item(p), raw, k) for p in self.partitions if p in raw.qa and raw.qa[p][1])

    def _ordered(self, facts: Sequence[Fact], order: str, chain: int) -> list[Fact]:
        if order == "shuffled":
            return shuffled(facts, self.seed, "lifelong", chain)
        if order == "scenarios":
            return sorted(facts, key=lambda fact: fact.raw.scenario)  # stable
        place = list(self.partitions).index
        blocks = groupby(sorted(facts, key=lambda fact: place(fact.item.partition)), key=lambda fact: fact.item.partition)
        rows = [list(block) for _, block in blocks]
        if order == "blocks":
            return [fact for row in rows for fact in row]
        return [fact for turn in zip_longest(*rows) for fact in turn if fact is not None]

    def _case(self, name: str, order: str, facts: Sequence[Fact], pool: Pool, held: Pool, image: Opener) -> Case:
        steps = tuple(Step(fact.item, self._others(fact, pool, held)) for fact in facts)
        made = build_case(Row(name, "", "", "", steps), steps, {}, f"{name}_{order}", image)
        probes = tuple(replace(p, tags={**p.tags, **_tags(facts[p.step - 1])}) for p in made.probes)
        tags = {"order": order, "raw": name, "length": str(len(facts))}
        return Case(made.id, made.chain, probes, tags)

    def _others(self, fact: Fact, pool: Pool, held: Pool) -> dict[str, tuple[Item, ...]]:
        """Another raw case of the scenario, and one of another scenario, neither of which any chain inserts."""
        p, seed = fact.item.partition, (fact.raw.id, fact.item.partition, TASK)
        near, far = pool[fact.raw.scenario], pick(list(held.values()), *seed) if held else ()
        kept_out = [k for k in range(len(near)) if _kept_out(k)]
        general = (near[k] for k in shuffled(kept_out, *seed, GENERALITY))
        local = (far[k] for k in shuffled(range(len(far)), *seed, LOCALITY))
        answered = next((raw.item(p) for raw in general if p in raw.qa and raw.qa[p][1]), None)
        elsewhere = next((replace(raw.item(p), answer=None) for raw in local if p in raw.qa), None)
        return {GENERALITY: (answered,) if answered else (), LOCALITY: (elsewhere,) if elsewhere else ()}


class Pooled(Structural):
    """A benchmark whose raw cases lie in pools by split."""

    def pool(self, split: str) -> Pool: ...

    def image(self, image: str | bytes) -> ImageRef: ...


def with_lifelong(given: Lifelong | Mapping[str, Any] | None) -> Mapping[str, Task]:
    """The tasks of the protocol, and that of long chains."""
    return {**TASKS, TASK: Lifelong.of(given).task()}


def lifelong_cases(benchmark: Pooled, given: Lifelong | Mapping[str, Any] | None, limit: int | None) -> list[Case]:
    """Long chains over the scenarios of both test splits."""
    pool = {name: raws for split in SPLITS[1:] for name, raws in benchmark.pool(split).items()}
    return Lifelong.of(given).cases(pool, benchmark.image, limit)


def _kept_out(index: int) -> bool:
    return index % KEPT_OUT == KEPT_OUT - 1


def _tags(fact: Fact) -> dict[str, str]:
    found = {"partition": fact.item.partition, "scenario": fact.raw.scenario, "topic_group": fact.raw.topic_group}
    return {name: value for name, value in found.items() if value}
