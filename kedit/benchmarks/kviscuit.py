"""K-Viscuit: questions with four options about photographs of Korean culture, read from its published files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from kedit.benchmark import Dimension, Task
from kedit.benchmarks import Lazy
from kedit.benchmarks.choices import ACCURACY, Choice, check_prompt, index_of, options_of, probes, wording
from kedit.benchmarks.hub import local
from kedit.benchmarks.kibench_cases import round_robin
from kedit.benchmarks.noise import Noise
from kedit.benchmarks.photographs import photograph_rows, picture
from kedit.benchmarks.translations import Name, Translations, digest_of, translated
from kedit.errors import unknown_name
from kedit.files.documents import Document, Documents
from kedit.files.rows import Pictures, Row, content_digest, files_of
from kedit.protocols import final
from kedit.types import Case, ImageRef, Knowledge, Probe, Request

PAPER_NAMES = {"ArchitecturePlaces": "Architecture", "GamePlayPerformance": "Game"}
"""What the paper's tables call categories that its files call otherwise."""
GROUPS = {"question_type": "question type", "category": "category"}
RECOGNITION, REASONING = "1", "2"
TEST, ONE_SHOT, FREE_FORM, RETRIEVAL = "test", "one_shot", "free_form", "retrieval"
_CHOICE = (Dimension(ACCURACY, "Acc.", scoring="choice"),)
TASKS = {
    TEST: Task(TEST, final, _CHOICE, groups=GROUPS),
    ONE_SHOT: Task(ONE_SHOT, final, _CHOICE, groups={"category": "category"}),
    FREE_FORM: Task(FREE_FORM, final, (Dimension("answer", "ROUGE-L"),), groups=GROUPS),
    RETRIEVAL: Task(RETRIEVAL, final, (Dimension(ACCURACY, "Acc.", scoring="kedit.scoring.retrieval:choice"),), groups=GROUPS),
}


@dataclass(frozen=True)
class Item:
    """One row: a question about one image.

    ``image`` is what the file calls the image, ``id`` the file's own id, which may repeat.
    """

    uid: str
    id: str
    image: str
    photograph: ImageRef
    choice: Choice
    category: str
    type: str
    row: Row

    @property
    def tags(self) -> dict[str, str]:
        """What every case of the row is grouped and found by."""
        return {"raw": self.uid, "question_type": self.type, "category": self.category}


class KViscuit:
    """K-Viscuit from ``path``: the GitHub folder (annotations.jsonl and images), the hub's parquet files, or one such file.

    ``images`` is the folder of the photographs where it is not beside the file. ``circular`` asks every row in all rotations
    of its options (paper, A.1). ``prompt`` is a name of ``choices.PROMPTS`` or a text with ``{question}`` and ``{options}``.
    ``noise`` shows noise instead of photographs (Fig. 7). ``translations`` puts the questions in ``language``; rows without
    one are left out and named in ``skipped``. ``documents`` (Section 5.2) are about images or concepts: the one about a row
    is its knowledge to insert, and the task "retrieval" asks the rows that have one.

    Tasks: "test" (the official one), "one_shot" (Type 2 after the Type 1 pair of the same image, Table 8), "free_form" (no
    options, Table 6), and "retrieval" where there are documents. Raises DataError, on first use, naming file and row.
    """

    name = "kviscuit"
    instruction = "This is a question about Korean culture. Answer the given questions briefly and concisely."
    """What comes before a question without options (paper, Section 5.1)."""
    about = "What is shown here, and what is known about it?"
    """The question that a document answers, for editors that insert a question and its answer."""

    def __init__(
        self,
        path: str | Path,
        *,
        images: str | Path | None = None,
        circular: bool = False,
        prompt: str = "official",
        noise: bool = False,
        translations: str | Path | Mapping[str, Mapping[str, Any]] | None = None,
        documents: str | Path | Mapping[str, Any] | None = None,
        language: str = "en",
    ) -> None:
        self.path: str | Path = path
        self.images = images
        self.circular = circular
        self.prompt = prompt
        self.noise = noise
        self.translations = translations
        self.documents: str | Path | Mapping[str, Any] | None = documents
        self.language = language

    # -- reading -------------------------------------------------------------------------------------------------------

    @cached_property
    def files(self) -> list[Path]:
        """The data files: ``annotations.jsonl`` where there is one, else parquet files, else JSON files."""
        path = local(self.path)
        aside = {Path(p).resolve() for p in (self.documents, self.translations) if isinstance(p, str | Path)}
        found = [p for p in files_of(path, (".jsonl", ".json", ".parquet")) if p.resolve() not in aside or path.is_file()]
        named = [p for p in found if p.name == "annotations.jsonl"]
        return named or [p for p in found if p.suffix == ".parquet"] or found or files_of(path, (".tsv",))

    @cached_property
    def _originals(self) -> list[Item]:
        return [item_of(row, self.photograph(row)) for row in photograph_rows(self.files)]

    @cached_property
    def _translated(self) -> list[Item | None]:
        if self.translations is None:
            return list(self._originals)
        found = Translations(self.translations).rows([Name(item.uid, item.id) for item in self._originals])
        pairs = zip(self._originals, found, strict=True)
        choices = [(item, None if row is None else translated(item.choice, row)) for item, row in pairs]
        return [None if choice is None else replace(item, choice=choice) for item, choice in choices]

    @cached_property
    def items(self) -> list[Item]:
        """The rows that are asked, in the order of the file."""
        return [item for item in self._translated if item is not None]

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(file and row, reason) of what was left out."""
        pairs = zip(self._originals, self._translated, strict=True)
        return [(item.row.where, "no translation") for item, found in pairs if found is None]

    @cached_property
    def _pictures(self) -> Pictures:
        beside = self.files[0].parent
        roots = [Path(self.images)] if self.images else [p for p in (beside / "images", beside, beside.parent) if p.is_dir()]
        return Pictures(roots, ("images",))

    def photograph(self, row: Row) -> ImageRef:
        """The image of a row, not opened here; it need not exist."""
        return picture(row, self._pictures, "image", "image_path")

    def picture(self, item: Item) -> ImageRef:
        """What is shown with a row: its photograph, or noise in its place."""
        return ImageRef(draw=Noise(f"{self.name}/{item.image}")) if self.noise else item.photograph

    @property
    def missing(self) -> list[tuple[str, str]]:
        """(uid, path) of the rows whose photograph is not there: asking them fails, and a run reports them and goes on."""
        found = [(item.uid, item.photograph.path) for item in self._originals]
        return [(uid, path) for uid, path in found if path is not None and not Path(path).is_file()]

    @property
    def sources(self) -> list[Path]:
        """Files that decide what is asked."""
        return self.files

    @property
    def settings(self) -> list[Any]:
        """Every option that changes what is asked."""
        documents = None if self._documents is None else self._documents.digest
        other = None if self.translations is None else digest_of(self.translations)
        prompt = wording(check_prompt(self.prompt))
        return [self.circular, prompt, self.noise, self.language, self.instruction, self.about, documents, other]

    @cached_property
    def revision(self) -> str:
        """SHA-256 over ``sources`` and ``settings``, 64 hex digits; photographs beside the file have their own digests."""
        return content_digest(self.sources, *self.settings)

    # -- knowledge -----------------------------------------------------------------------------------------------------

    @cached_property
    def _documents(self) -> Documents | None:
        return None if self.documents is None else Documents(self.documents)

    @cached_property
    def _concepts(self) -> dict[str, Item]:
        """By image: the row that asks what it shows."""
        return {item.image: item for item in reversed(self._originals) if item.type == RECOGNITION}

    def document(self, item: Item) -> Document | None:
        """The document about a row, its image, or what it shows, in this order; None where there is none."""
        if self._documents is None:
            return None
        concept = self._concepts[item.image].choice.right if item.image in self._concepts else ""
        return self._documents.about(item.uid, item.image, Path(item.image).stem, concept)

    def library(self) -> Sequence[Knowledge]:
        """All documents as knowledge without an image: what a retrieving editor searches."""
        return [Knowledge(Request(self.about, language=self.language), d.text, d.title, d.text) for d in self._documents or ()]

    # -- cases ---------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The tasks; "retrieval" only where there are documents."""
        return {name: task for name, task in TASKS.items() if name != RETRIEVAL or self.documents is not None}

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """One case per row of the task, in the order of the file; ``limit`` takes rows from the categories in turn."""
        if task not in self.tasks:
            raise unknown_name("task", task, self.tasks, "The task 'retrieval' needs documents." if task == RETRIEVAL else "")
        check_prompt(self.prompt)
        if task == ONE_SHOT:
            found = [item for item in self.items if item.type == REASONING and item.image in self._pairs]
        else:
            found = [item for item in self.items if task != RETRIEVAL or self.document(item) is not None]
        chosen = balanced(found, limit)
        return Lazy(len(chosen), lambda k: self._case(task, chosen[k]))

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """None: the benchmark has a test split only."""
        return ()

    @cached_property
    def _pairs(self) -> dict[str, Item]:
        """By image: the Type 1 row that is asked of it."""
        return {item.image: item for item in reversed(self.items) if item.type == RECOGNITION}

    def _case(self, task: str, item: Item) -> Case:
        image, tags = self.picture(item), item.tags
        if task == ONE_SHOT:
            pair = self._pairs[item.image].choice
            chain = [Knowledge(Request(pair.question, (image,), self.language), pair.right)]
        else:
            chain = []
            if (document := self.document(item)) is not None:
                about = Request(self.about, (image,), self.language)
                chain = [Knowledge(about, document.text, document.title, document.text)]
                tags["document"] = document.title
        return Case(item.uid, tuple(chain), self._probes(task, item, image, len(chain)), tags)

    def _probes(self, task: str, item: Item, image: ImageRef, step: int) -> tuple[Probe, ...]:
        make = partial(Request, images=(image,), language=self.language)
        if task != FREE_FORM:
            return probes(item.choice, make, prompt=self.prompt, circular=self.circular, step=step)
        asked = f"{self.instruction}\n{item.choice.question}"
        return (Probe("answer", make(asked), item.choice.right, step, {"question": item.choice.question}),)


def item_of(row: Row, photograph: ImageRef) -> Item:
    """A row as the benchmark asks it; raises DataError naming file and row for whatever is not as it must be."""
    options = options_of(row, "options")
    answer = index_of(row.get("answer"), options)
    if answer is None:
        expected = f"expected the right option's position, 0 to {len(options) - 1}"
        raise row.error(f"answer is {row.get('answer')!r:.80}, {expected}")
    id, category = row.maybe("id_", "id"), row.maybe("category")
    choice = Choice(row.text("question"), options, answer)
    return Item(row.uid, id, image_name(row), photograph, choice, PAPER_NAMES.get(category, category), _type(row, id), row)


def _type(row: Row, id: str) -> str:
    """ "1" or "2"; from the file's id, which ends in .0 for Type 1, where the row does not say."""
    value = row.get("question_type")
    if value is None and "." in id:
        return RECOGNITION if id.endswith(".0") else REASONING
    text = str(int(value)) if isinstance(value, int | float) and value in (1, 2) and value is not True else str(value).strip()
    if text not in (RECOGNITION, REASONING):
        raise row.error(f"question_type is {value!r:.80}, expected 1 (recognition) or 2 (reasoning)")
    return text


def image_name(row: Row) -> str:
    """What the file calls the image of a row; the row itself where it has only bytes."""
    value = row.get("image_path") or row.get("image")
    if isinstance(value, Mapping):
        value = value.get("path")
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        raise row.error(f"image holds a lone surrogate (half of a character): {value!r:.80}")
    return value.strip() if isinstance(value, str) and value.strip() else row.uid


def balanced(items: Sequence[Item], limit: int | None) -> list[Item]:
    """``limit`` rows, taken from the categories in turn, in the order of the file; all of them without a limit."""
    groups: dict[str, list[int]] = {}
    for k, item in enumerate(items):
        groups.setdefault(item.category, []).append(k)
    return [items[k] for k in sorted(k for _, _, k in round_robin(groups, limit))]
