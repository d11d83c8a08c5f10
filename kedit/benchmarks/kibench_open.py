"""kibench-open: an open replica of a cross-cultural knowledge insertion benchmark, drawn and written here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from kedit.benchmark import Task
from kedit.benchmarks import Lazy
from kedit.benchmarks.kibench_cases import (
    ORDERS,
    PARTITIONS,
    Raw,
    Row,
    chain_cases,
    chain_row,
    check_orders,
    number,
    round_robin,
    shuffled,
    single_cases,
    single_rows,
)
from kedit.benchmarks.lifelong import Lifelong, lifelong_cases, with_lifelong
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
from kedit.errors import unknown_name
from kedit.types import Case, ImageRef
from kedit.wording import SYSTEM_PROMPTS


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

    ``orders`` are the orders in which each chain is inserted, one case per order. ``lifelong`` are options of the task of that
    name, one long chain over all test scenarios (see ``Lifelong``). ``root`` is a folder of other scenario files in the same
    form. DataError where a scenario file, an order or an option is not as it must be, on first use.
    """

    name = "kibench-open"

    def __init__(
        self,
        *,
        seed: int = 0,
        root: str | Path | None = None,
        orders: Sequence[str] = ORDERS,
        lifelong: Lifelong | Mapping[str, Any] | None = None,
    ) -> None:
        self.seed = seed
        self.root = root
        self.orders = orders
        self.lifelong = lifelong

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """Single inserts, chains of three, and a long chain for who asks for it."""
        return with_lifelong(self.lifelong)

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
        if task == "sequential":
            return chain_cases(self.rows("sequential_test", limit), check_orders(self.orders), self.image)
        return lifelong_cases(self, self.lifelong, limit)

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
