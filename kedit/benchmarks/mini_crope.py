"""A miniature of CROPE that is drawn and written here: invented concepts of invented languages, no data of the real one.

Nine concepts, one for each of three chapters and three languages, told apart by kind, colour and number of what is drawn.
Names and customs are made up, so that no model knows them; the languages' codes are those that ISO 639-2 keeps for private
use. Its rows have the published columns and are read by the same code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from kedit.benchmarks.crope_cases import PROMPTS, Questions
from kedit.benchmarks.crope_rows import Item, read_item
from kedit.benchmarks.scene import BACKGROUNDS, DISTRACTORS, ENGINE, PLACES, SceneSpec, render
from kedit.files.rows import Pictures, Row

IMAGE_SIZE = 224
_JITTER = 7_000
"""Where the scenes' jitters begin: far from those of other drawn benchmarks."""


@dataclass(frozen=True)
class Concept:
    """An invented concept: what is drawn for it, and what its definition says.

    ``captions`` are those of its definition images, of which there are ``images``.
    """

    name: str
    language: str
    chapter: str
    scenario: str
    colour: str
    count: str
    images: int
    summary: str
    captions: tuple[str, ...]


HOUSE, FOOD, CLOTHING = "The house", "Food and drink", "Clothing and grooming"
CONCEPTS = (
    Concept(
        "tovarin", "qaa", HOUSE, "lantern", "red", "two", 4,
        "A tovarin is a pair of red lanterns that hangs beside a gate. Both must be red and of one size; a house that shows "
        "a single lantern has no tovarin.",
        ("A tovarin at a gate", "Two red lanterns make a tovarin", "A tovarin in the evening", "A small tovarin"),
    ),
    Concept(
        "selmet", "qab", HOUSE, "lantern", "blue", "one", 3,
        "A selmet is one blue lantern that is put out for a traveller who is expected. It always stands alone.",
        ("A selmet waiting for a guest", "A blue lantern used as a selmet", "A selmet"),
    ),
    Concept(
        "ponduli", "qac", HOUSE, "candles", "white", "three", 2,
        "A ponduli is a set of three white candles, each on a dish of its own, which is lit on the first cold night.",
        ("A ponduli with its three candles",),
    ),
    Concept(
        "karfeme", "qaa", FOOD, "mooncake", "blue", "one", 3,
        "A karfeme is a round cake with a pressed pattern that is served alone on a blue plate to whoever arrives last.",
        ("A karfeme on its plate", "The pattern of a karfeme", "A karfeme"),
    ),
    Concept(
        "osheline", "qab", FOOD, "mooncake", "red", "three", 4,
        "Osheline are round cakes with a pressed pattern on red plates. They come in threes: for the cook, the oldest and the "
        "youngest at the table.",
        ("Three osheline", "Osheline on red plates", "Osheline for a family", "Osheline"),
    ),
    Concept(
        "dellimer", "qac", FOOD, "birthday_cake", "brown", "one", 1,
        "A dellimer is a tall brown cake in layers with lit candles on top, baked when a roof is finished.",
        ("A dellimer on the day of the roof",),
    ),
    Concept(
        "veshuna", "qaa", CLOTHING, "green_hat", "purple", "one", 3,
        "A veshuna is a purple hat with a feather at its band. The one who reads letters aloud wears it.",
        ("A reader's veshuna", "A veshuna with its feather", "A veshuna"),
    ),
    Concept(
        "ormeli", "qab", CLOTHING, "green_hat", "black", "one", 3,
        "An ormeli is a black hat with a feather at its band, worn for a journey by boat and never on land.",
        ("An ormeli before a journey", "A black hat of the kind called ormeli", "An ormeli"),
    ),
    Concept(
        "tassivar", "qac", CLOTHING, "bridal_dress", "green", "one", 2,
        "A tassivar is a green dress with a wide skirt that is lent from neighbour to neighbour for the dance of the harvest.",
        ("A tassivar", "A tassivar on its stand"),
    ),
)  # fmt: skip
QUESTIONS = (
    "Is there {a} {concept} in the picture?",
    "Does this picture show {a} {concept}?",
    "Is this an example of {concept}?",
)


@dataclass(frozen=True)
class Picture:
    """Draws a scene when it is opened; the same bytes every time."""

    spec: SceneSpec

    def __call__(self) -> bytes:
        return _drawn(self.spec)


@lru_cache(maxsize=256)
def _drawn(spec: SceneSpec) -> bytes:
    return render(spec, IMAGE_SIZE)


def picture(concept: Concept, number: int) -> Picture:
    """The ``number``-th picture of a concept; definition images come first, then those that are asked about."""
    turn = CONCEPTS.index(concept)
    things = tuple(DISTRACTORS)[(turn + 3 * number) % len(DISTRACTORS) :][: number % 3]
    background = tuple(BACKGROUNDS)[(turn + 2 * number + number // 3) % len(BACKGROUNDS)]
    place, jitter = PLACES[(turn + number + number // 3) % len(PLACES)], _JITTER + 10 * turn + number
    return Picture(SceneSpec(concept.scenario, concept.colour, concept.count, place, background, things, jitter))


def rows(convert: Callable[[Picture, str], Any] = lambda drawn, name: drawn) -> Iterator[dict[str, Any]]:
    """The rows in the published columns; ``convert`` gives what stands for a picture of a name.

    Of every concept there are two pictures. On the first the concept and one that looks or is used alike are asked for; on
    the second the third concept of the chapter and, for one concept in three, the concept itself.
    """
    for place, concept in enumerate(CONCEPTS):
        alike = [other for other in CONCEPTS if other.chapter == concept.chapter and other is not concept]
        asked = [(0, concept), (0, alike[0]), *([(1, concept)] if place % 3 == 1 else []), (1, alike[1])]
        for number, (shown, about) in enumerate(asked):
            yield _row(concept, shown, about, f"{concept.name}-{number}", convert)


def _row(concept: Concept, shown: int, about: Concept, id: str, convert: Callable[[Picture, str], Any]) -> dict[str, Any]:
    name = f"{concept.name}-{concept.images + shown}"
    question = QUESTIONS[(len(id) + shown + CONCEPTS.index(about)) % len(QUESTIONS)]
    yes = about is concept
    definitions = [convert(picture(about, k), f"{about.name}-{k}") for k in range(about.images)]
    return {
        "sample_id": id,
        "image": convert(picture(concept, concept.images + shown), name),
        "question": question.format(a="an" if about.name[0] in "aeiou" else "a", concept=about.name),
        "answer": "Yes" if yes else "No",
        "definition_images": definitions,
        "definition_captions": list(about.captions),
        "definition_summary": about.summary,
        "chapter": about.chapter,
        "metadata": {
            "definition_concept": about.name,
            "definition_images_url": [],
            "definition_wikipedia_page_url": "",
            "image_concept": concept.name,
            "image_concept_chapter": concept.chapter,
            "image_concept_source": "drawn by kedit",
            "image_en_concept": concept.scenario.replace("_", " "),
            "image_id": f"{name}.png",
            "image_url": "",
            "source_language": concept.language,
        },
    }  # fmt: skip


class MiniCROPE(Questions):
    """A miniature of CROPE, drawn and written here: nine invented concepts in three chapters and three invented languages.

    Its options are those of ``Questions``. It says nothing about the real data set: it lets everything that runs on that one
    run without it.
    """

    name = "mini-crope"

    def __init__(
        self,
        *,
        prompts: Sequence[str] = PROMPTS,
        which: Mapping[str, int] | None = None,
        language: str = "en",
        seed: int = 0,
    ) -> None:
        self.prompts = prompts
        self.which = which
        self.language = language
        self.seed = seed

    @cached_property
    def revision(self) -> str:
        """SHA-256 over the rows with what is drawn, the drawing engine and the options, 64 hex digits."""
        described = list(rows(lambda drawn, name: asdict(drawn.spec)))
        content = [ENGINE, IMAGE_SIZE, self.settings, described]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def read(self) -> list[Item]:
        """All items, their pictures drawn when they are opened."""
        pictures = Pictures(())
        return [read_item(Row(Path(self.name), f"row {k}", row), pictures) for k, row in enumerate(rows(), 1)]

    def build(self, out: str | Path, *, cases: int = 20, layout: str = "jsonl") -> Path:
        """Write a folder that is read like the published data, at most ``cases`` questions per concept; returns it.

        ``layout`` is "jsonl" (test.jsonl and images/*.png, to look at) or "parquet" (the hub's, needs pyarrow). Raises
        DataError where ``out`` is a folder with something in it, UnknownNameError for another layout.
        """
        from kedit.benchmarks.mini_crope_files import write_folder  # stands on this module

        return write_folder(Path(out), cases, layout)

    def sheet(self, out: str | Path) -> Path:
        """Write a PNG with one labelled tile per concept; returns its path."""
        from kedit.benchmarks.mini_crope_files import contact_sheet

        return contact_sheet(Path(out))
