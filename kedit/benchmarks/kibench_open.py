"""kibench-open: an open replica of a cross-cultural knowledge insertion benchmark, drawn and written here; and its protocol.

The protocol is the CrossCult-KIBench paper's (section 3): partitions en, zh and ar; single-insert cases for zh and ar; chains
of three on one image. Items that measure generality and locality are drawn from the raw cases, reproducibly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from kedit.benchmark import Dimension, Task
from kedit.benchmarks import Lazy
from kedit.benchmarks.scene import (
    BACKGROUNDS,
    CASES,
    DISTRACTORS,
    ENGINE,
    PLACES,
    ROOT,
    SceneSpec,
    fill,
    phrase,
    render,
    scenarios,
)
from kedit.errors import DataError, unknown_name
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


def spec_of(scenario: Mapping[str, Any], index: int, seed: int = 0) -> SceneSpec:
    """The ``index``-th scene of a scenario, the same however many are drawn.

    Colours, counts and places take turns, so that they are balanced in any stretch; every combination comes once before
    any comes twice.
    """
    name, counts = scenario["id"], scenario["counts"]
    colours, size = scenario["colours"], len(counts) * len(PLACES)
    turn, at = divmod(index, len(colours))
    colour = shuffled(colours, seed, name, "colours")[at]
    # A diagonal walk over counts x places, another start for every colour.
    step, place = divmod((turn + at + number(seed, name)) % size, len(PLACES))
    key = (seed, name, index)
    things = shuffled(list(DISTRACTORS), *key, "things")[: number(*key, "how many") % 3]
    background = list(BACKGROUNDS)[number(*key, "background") % len(BACKGROUNDS)]
    count: str = counts[(step + place) % len(counts)]
    return SceneSpec(name, colour, count, PLACES[place], background, tuple(things), number(*key) % 10**9)


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
    """A case from its steps: each inserts (i, q, a), is asked again (reliability), and brings its other items as probes."""
    chain, probes = [], []
    for at, step in enumerate(steps, 1):
        request = _request(step.item, image)
        chain.append(Knowledge(request, str(step.item.answer)))
        probes.append(Probe(RELIABILITY, request, step.item.answer, at))
        for dimension, items in step.others.items():
            for item in items:
                reference = item.answer if dimension == GENERALITY else None  # None: what the unedited backbone says
                probes.append(Probe(dimension, _request(item, image), reference, at))
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


IMAGE_SIZE = 224


@dataclass(frozen=True)
class Drawing:
    """Draws the image at ``images/<scenario>/<index>.png`` when it is asked for."""

    path: str
    seed: int
    root: Path

    def __call__(self) -> bytes:
        return _drawn(self)


@lru_cache(maxsize=1024)
def _drawn(drawing: Drawing) -> bytes:
    scenario, index = Path(drawing.path).parent.name, int(Path(drawing.path).stem)
    return render(spec_of(scenarios(drawing.root)[scenario], index, drawing.seed), IMAGE_SIZE, drawing.root)


def raw_case(scenario: Mapping[str, Any], index: int, seed: int = 0, root: Path = ROOT) -> Raw:
    """The ``index``-th raw case of a scenario; no two have the same picture, question and answer in any partition."""
    name, spec, qa = scenario["id"], spec_of(scenario, index, seed), {}
    scenes = len(scenario["colours"]) * len(scenario["counts"]) * 3
    for p in PARTITIONS:
        texts = scenario["partitions"][p]
        pairs = [(q, a) for q in texts["questions"] for a in texts["answers"]]
        seen = (seed, name, p, spec.colour, spec.count, spec.place)
        question, answer = shuffled(pairs, *seen)[index // scenes]  # every look of a scene meets its pairs one after the other
        words = phrase(scenario, p, spec, root)
        qa[p] = (fill(question, words), fill(answer, words))
    return Raw(f"{name}_{index:04d}", name, scenario["topic_group"], f"images/{name}/{index:04d}.png", qa)


class KIBenchOpen:
    """The open replica: 49 drawn scenarios, up to 200 raw cases each, a pure function of ``seed`` and the scenario files.

    ``orders`` are the orders in which each chain is inserted, one case per order. ``root`` is a folder of other scenario
    files in the same form. DataError where a scenario file or an order is not as it must be, on first use.
    """

    name = "kibench-open"
    tasks = TASKS

    def __init__(self, *, seed: int = 0, root: str | Path | None = None, orders: Sequence[str] = ORDERS) -> None:
        self.seed = seed
        self.root = root
        self.orders = orders

    @property
    def folder(self) -> Path:
        """Where the scenario files are."""
        return ROOT if self.root is None else Path(self.root)

    @cached_property
    def revision(self) -> str:
        """SHA-256 over scenario files, drawing engine, seed, orders and system prompts, 64 hex digits."""
        digest = hashlib.sha256(json.dumps([ENGINE, IMAGE_SIZE, self.seed, check_orders(self.orders), SYSTEM_PROMPTS]).encode())
        for path in sorted([*self.folder.glob("*.yaml"), *self.folder.glob("*.svg")]):
            digest.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def pool(self, split: str) -> Mapping[str, Sequence[Raw]]:
        """Raw cases by scenario of a split, made when asked for."""

        def raws(scenario: Mapping[str, Any]) -> Lazy[Raw]:
            return Lazy(CASES, cache(lambda index: raw_case(scenario, index, self.seed, self.folder)))

        return {name: raws(scenario) for name, scenario in scenarios(self.folder).items() if scenario["split"] == split}

    def rows(self, split: str, limit: int | None = None) -> list[Row]:
        """Task cases of a split as rows, ``limit`` counting raw cases."""
        pool = self.pool(split)
        make = chain_row if split == "sequential_test" else single_rows
        return [row for _, index, raw in round_robin(pool, limit) for row in make(pool, raw, index)]

    def image(self, image: str | bytes) -> ImageRef:
        """The drawn image, 224 x 224 PNG; drawn when it is first opened, and kept while it is among the last 1024."""
        return ImageRef(draw=Drawing(str(image), self.seed, self.folder))

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """The test cases of a task; ``limit`` counts raw cases, taken from the scenarios in turn."""
        if task not in self.tasks:
            raise unknown_name("task", task, self.tasks)
        if task == "single":
            return single_cases(self.rows("single_test", limit), self.image)
        return chain_cases(self.rows("sequential_test", limit), check_orders(self.orders), self.image)

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """Single-insert cases of the train scenarios, which no test case shares."""
        return single_cases(self.rows("single_train", limit), self.image)

    def build(self, out: str | Path, *, cases: int = 20) -> Path:
        """Write a folder that is read like the published data, ``cases`` raw cases per scenario; returns it.

        Raises DataError where ``cases`` is not 1 to 200 or ``out`` is a folder with something in it.
        """
        from kedit.benchmarks.sheet import write_folder  # stands on this module

        return write_folder(self, Path(out), cases)

    def sheet(self, out: str | Path) -> Path:
        """Write a PNG with one labelled tile per scenario; returns its path."""
        from kedit.benchmarks.sheet import contact_sheet

        return contact_sheet(out, seed=self.seed, root=self.folder)
