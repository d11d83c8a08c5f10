"""CROPE's tasks and how an item becomes a case: three wordings of its question, and a definition that may be inserted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from kedit.benchmark import Dimension, Task
from kedit.benchmarks import Lazy
from kedit.benchmarks.crope_rows import Item
from kedit.benchmarks.kibench_cases import number, round_robin
from kedit.errors import DataError, unknown_name
from kedit.protocols import final
from kedit.types import Case, Knowledge, Probe, Request

QUESTION = "{question}"
PROMPTS = (
    "Answer with yes or no: {question}",
    "{question}\nAnswer the question using a single word or phrase.",
    "Look carefully at the previous image and answer the following question with yes or no: {question}",
)
"""The wordings of the paper's Table 8; scores are means over them."""
TEST, EASY, THREE_IMAGES = "test", "easy", "three_images"
ACCURACY = "accuracy"
MANY = 3
"""Definition images that a question needs for the comparison of numbers of images (paper, section 5.2)."""
_GROUPS = {"source_language": "source language", "chapter": "chapter"}
_MEASURED = (Dimension(ACCURACY, "Accuracy", scoring="yes-no"),)
TASKS: Mapping[str, Task] = {name: Task(name, final, _MEASURED, "f1", _GROUPS) for name in (TEST, EASY, THREE_IMAGES)}


class Questions(ABC):
    """Items as a benchmark; a subclass says where they come from and stores the options of this class under these names.

    ``prompts`` are wordings with ``{question}`` in them. ``which`` is, by concept, the place from 0 of the definition image
    that is shown where only one is; the first one for others. ``language`` is that of the questions. ``seed`` draws the
    concepts of the easy version.
    """

    prompts: Sequence[str]
    which: Mapping[str, int] | None
    language: str
    seed: int

    @property
    def settings(self) -> list[object]:
        """The options that decide what is asked, as JSON can hold them."""
        return [list(self.prompts), dict(self.which or {}), self.language, self.seed]

    @abstractmethod
    def read(self) -> list[Item]:
        """All items, in the order of the data, also those without an answer; raises DataError."""

    @cached_property
    def items(self) -> list[Item]:
        """The items that have an answer, with ids that differ."""
        found = [item for item in self._read if item.answer]
        seen = Counter(item.id for item in found)
        return [replace(item, id=f"{item.id}@{item.uid}") if seen[item.id] > 1 else item for item in found]

    @cached_property
    def _read(self) -> list[Item]:
        return self.read()

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(file and row, reason) of what was left out."""
        return [(item.where, "answer is empty") for item in self._read if not item.answer]

    @cached_property
    def _of_task(self) -> dict[str, list[Item]]:
        first = [with_first(item, (self.which or {}).get(item.concept, 0)) for item in self.items]
        many = [item for item in self.items if len(item.images) >= MANY]  # in the data's own order: "the first k"
        return {TEST: first, EASY: easier(first, self.seed), THREE_IMAGES: many}

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Those of the paper's comparisons that the data have questions for, ``test`` first."""
        return {name: task for name, task in TASKS.items() if name == TEST or self._of_task[name]}

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """The cases of a task, one per question; ``limit`` takes questions of all source languages alike."""
        if task not in self.tasks:
            raise unknown_name("task", task, self.tasks)
        prompts, items = checked(self.prompts), chosen(self._of_task[task], limit)
        return Lazy(len(items), lambda k: make_case(items[k], prompts, self.language))

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """None: everything is there to be asked."""
        return []


def checked(prompts: Sequence[str]) -> tuple[str, ...]:
    """The wordings; raises DataError where one has no place for the question, or there is none."""
    if isinstance(prompts, str) or not prompts or any(QUESTION not in prompt for prompt in prompts):
        raise DataError(f"prompts must be a sequence of texts with {QUESTION} in them, got {prompts!r}; such as {PROMPTS[:2]}")
    return tuple(prompts)


def chosen(items: Sequence[Item], limit: int | None) -> list[Item]:
    """At most ``limit`` items, of the source languages in turn, in the order of the data."""
    by_language: dict[str, list[int]] = defaultdict(list)
    for k, item in enumerate(items):
        by_language[item.language].append(k)
    return [items[k] for k in sorted(k for _, _, k in round_robin(by_language, limit))]


def with_first(item: Item, at: int) -> Item:
    """The item with its definition image number ``at`` (from 0) before the others; DataError where it has none there."""
    if at == 0:
        return item
    if not 0 < at < len(item.images):
        raise DataError(f"{item.where}: which says {at} for {item.concept!r}, which has {len(item.images)} definition images")
    return replace(item, images=(item.images[at], *item.images[:at], *item.images[at + 1 :]))


def make_case(item: Item, prompts: Sequence[str], language: str = "en") -> Case:
    """A case that inserts the definition, if there is one, and asks the question in every wording (tag ``prompt``)."""
    probes = tuple(
        Probe(
            ACCURACY,
            Request(prompt.replace(QUESTION, item.question), (item.image,), language),
            item.answer,
            tags={"prompt": str(k)},
        )
        for k, prompt in enumerate(prompts, 1)
    )
    tags = {
        "raw": item.id,
        "source_language": item.language,
        "chapter": item.chapter,
        "consistency_group": item.picture,
        "concept": item.concept,
        "image_concept": item.image_concept,
        "answer": item.answer,
    }
    return Case(item.id, definition(item, language), probes, tags)


def definition(item: Item, language: str = "en") -> tuple[Knowledge, ...]:
    """What may be inserted: what the concept is, asked of its first definition image; nothing where nothing is known."""
    answer = item.summary or next((caption for _, caption in item.images if caption), "") or item.concept
    if not answer or not (item.summary or item.images):
        return ()
    question = f"What is {item.concept}?" if item.concept else "What is shown in this picture?"
    request = Request(question, tuple(image for image, _ in item.images[:1]), language)
    return (Knowledge(request, answer, item.concept, item.summary, item.images),)


# -- the easy version ------------------------------------------------------------------------------------------------------


def easier(items: Sequence[Item], seed: int) -> list[Item]:
    """The easy version: every "no" asks for a concept of another chapter instead (paper, section 5.2); every "yes" stays.

    The question and definition are those of the concept's first item; which concept, ``seed`` and the item's id decide, so
    that neither the order nor the number of rows matters. A concept that occurs in the picture's chapter anywhere is never
    drawn. An item without a chapter, or for which there is no such concept, is left out; without any "no", all are.
    """
    asked: dict[str, Item] = {}
    chapters: dict[str, set[str]] = defaultdict(set)
    for item in items:
        asked.setdefault(_name(item.concept), item)
        chapters[_name(item.concept)] |= _chapters(item.chapter)
        chapters[_name(item.image_concept)] |= _chapters(item.image_chapter)
    names = [name for name in sorted(asked) if name and chapters[name]]
    found = [item if item.answer == "yes" else _with_other(item, asked, names, chapters, seed) for item in items]
    kept = [item for item in found if item is not None]
    return kept if any(item.answer == "no" for item in kept) else []


def _with_other(
    item: Item, asked: Mapping[str, Item], names: Sequence[str], chapters: Mapping[str, set[str]], seed: int
) -> Item | None:
    own = _chapters(item.chapter) | _chapters(item.image_chapter)
    possible = [name for name in names if own and not own & chapters[name]]
    if not possible:
        return None
    other = asked[min(possible, key=lambda name: number("easy", seed, item.id, name))]
    return replace(
        item,
        question=other.question,
        concept=other.concept,
        summary=other.summary,
        images=other.images,
        chapter=item.image_chapter or item.chapter,
    )


def _name(concept: str) -> str:
    return concept.strip().casefold()


def _chapters(chapter: str) -> set[str]:
    return {name} if (name := _name(chapter)) else set()
