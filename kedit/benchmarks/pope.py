"""POPE: is an object in the picture? Read from its question files in all published shapes; and scores of answer files."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from kedit.benchmark import Dimension, Task
from kedit.benchmarks import Lazy
from kedit.benchmarks.hub import local
from kedit.benchmarks.photographs import photograph_rows, picture
from kedit.errors import DataError, unknown_name
from kedit.files.rows import Pictures, Row, content_digest, files_of, rows_of
from kedit.metrics import offered
from kedit.protocols import final
from kedit.scoring import Measure, scoring
from kedit.types import Case, ImageRef, Probe, Record, Request

ACCURACY = "accuracy"
SOURCES = ("aokvqa", "gqa", "coco")
NEGATIVES = ("random", "popular", "adversarial")
SCORINGS = ("yes-no-official", "yes-no", "yes-no-lmms", "yes-no-vlmeval")
"""The published scripts' ways and kedit's own; they disagree on the same answers."""
GROUPS = {"label": "right answer", "object": "object"}
FOLDERS = ("images", "val2014", "coco", "coco/val2014", "gqa", "gqa/images", "aokvqa")
"""Folders below a root that the photographs may be in."""
_ASKED, _LABEL, _IMAGE = ("text", "query", "question"), ("label", "answer"), ("image", "image_name")
_OBJECT = re.compile(r"\b(?:is|are) there (?:an? |any )?(.+?)(?: in (?:the|this) (?:image|picture|photo)\b|\?|$)", re.IGNORECASE)
_SHARD = re.compile(r"-\d+-of-\d+$")


@dataclass(frozen=True)
class Question:
    """One row: the question as published, "yes" or "no", and what it is grouped by."""

    uid: str
    text: str
    label: str
    image: ImageRef
    tags: Mapping[str, str]


class POPE:
    """POPE (Li et al., 2023) and POPEv2: yes/no questions on objects, one task per variant that ``path`` holds.

    ``path`` is a question file, a folder of them, or ``hf:owner/name``; ``images`` one or several folders of photographs
    (default: the data's). ``prompt`` has ``{question}`` where the question goes. ``scoring`` is ``"yes-no-official"`` (the
    published script's reading of an answer) or another yes/no scoring. There is nothing to insert: every chain is empty, and
    an editor answers as the unedited backbone does unless what it learned changes every answer. Raises DataError, on first
    use, with file and row.
    """

    name = "pope"

    def __init__(
        self,
        path: str | Path,
        *,
        images: str | Path | Sequence[str | Path] | None = None,
        prompt: str = "{question}",
        scoring: str = SCORINGS[0],
    ) -> None:
        self.path = path
        self.images = images
        self.prompt = prompt
        self.scoring = scoring

    @cached_property
    def root(self) -> Path:
        """The local folder or file."""
        return local(self.path)

    @cached_property
    def files(self) -> list[Path]:
        """Question files; other data files of a folder, such as answers, have no column of images and are left aside."""
        found = files_of(self.root)
        kept = [file for file in found if self.root.is_file() or _has_images(file)]
        if not kept:
            raise DataError(f"{self.root} holds no question file: none of its {len(found)} data files has a column of images")
        return kept

    @cached_property
    def questions(self) -> Mapping[str, Sequence[Question]]:
        """Questions by variant, in the order of files and rows."""
        found: dict[str, list[Question]] = {}
        owners: dict[str, str] = {}
        pictures = Pictures(self._roots, FOLDERS)
        places = {file: file.relative_to(self._folder) for file in self.files}
        for row in photograph_rows(self.files):
            place = places[row.file]
            owner = _SHARD.sub("", place.with_suffix("").as_posix())
            for kind, variant in _variants(row, place.as_posix().lower()):
                # A variant that comes again in another file, as in two layouts of one data set, is a task of its own.
                name = variant if owners.setdefault(variant, owner) == owner else f"{variant} ({owner})"
                found.setdefault(name, []).append(_question(row, name, kind, pictures))
        return found

    @property
    def _folder(self) -> Path:
        return self.root if self.root.is_dir() else self.root.parent

    @property
    def _roots(self) -> list[Path]:
        if self.images is None:
            return [self._folder]
        return [Path(one) for one in ([self.images] if isinstance(self.images, str | Path) else self.images)]

    @cached_property
    def revision(self) -> str:
        """SHA-256 over the question files and the prompt, 64 hex digits; images have their own digests."""
        return content_digest(self.files, self.prompt)

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """One per variant, named after it, such as ``coco-random``; its headline is the accuracy."""
        scoring(self.scoring)
        if "{question}" not in self.prompt:
            raise DataError(f"prompt {self.prompt!r} does not say where the question goes; write {{question}} there")
        dimension = Dimension(ACCURACY, "Accuracy", scoring=self.scoring)
        return {name: Task(name, final, (dimension,), groups=dict(GROUPS)) for name in self.questions}

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """A case per question, with an empty chain; ``limit`` counts questions, which files keep in the order of images."""
        if task not in self.tasks:
            raise unknown_name("task", task, self.tasks)
        asked = self.questions[task][:limit]
        return Lazy(len(asked), lambda k: self._case(asked[k]))

    def _case(self, asked: Question) -> Case:
        request = Request(self.prompt.replace("{question}", asked.text), (asked.image,))
        return Case(asked.uid, (), (Probe(ACCURACY, request, asked.label, 0),), asked.tags)

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """No cases: the benchmark is a test set."""
        return ()


def _has_images(file: Path) -> bool:
    first = next(rows_of(file), None)
    return first is not None and any(name in first.values for name in _IMAGE)


def _variants(row: Row, lowered: str) -> list[tuple[str, str]]:
    """(kind of negatives, variant) of a row by its file's path; several where a row of a TSV stands for several splits."""
    if "target_object" in row.values:
        return [("edited", "popev2")]
    image = row.get("image_source") or row.get(*_IMAGE)
    published = str(image.get("path") if isinstance(image, Mapping) else image if isinstance(image, str) else "")
    source = next((s for s in SOURCES if s in lowered), "coco" if published.startswith("COCO_") else "")
    parts = [part.strip().lower() for part in str(row.get("category") or "").split(",")]
    kinds = [part for part in parts if part in NEGATIVES] or [k for k in NEGATIVES if k in lowered][-1:] or [""]
    return [(kind, "-".join(filter(None, (source, kind))) or _SHARD.sub("", row.file.stem)) for kind in kinds]


def _question(row: Row, variant: str, kind: str, pictures: Pictures) -> Question:
    text, label = row.text(*_ASKED), row.text(*_LABEL).strip().lower()
    if label not in ("yes", "no"):
        raise row.error(f"label is {label!r:.80}, expected yes or no")
    image = picture(row, pictures, *_IMAGE)
    found = _OBJECT.search(text)
    tags = {
        "raw": row.uid,
        "question_id": str(row.get("question_id", "id", "index", "image_id") or ""),
        "variant": variant,
        "category": kind,
        "object": row.maybe("target_object") or (found.group(1).strip() if found else ""),
        "label": label,
    }
    if image.path is not None:
        tags["consistency_group"] = f"{variant} {Path(image.path).name}"
    return Question(row.uid, text.strip(), label, image, tags)


def score_answers(
    questions: str | Path, answers: str | Path, *, scorings: Iterable[str] = SCORINGS
) -> dict[str, dict[str, float | None]]:
    """Measures (in points) by scoring of a file of ``{"question", "answer"}`` rows, joined to a question file by line order.

    None for a measure without a value. Raises DataError where the files have different numbers of rows or an answer's own
    question is another than the one at its line: files in another order would be scored without anyone's notice.
    """
    asked, said = (list(rows_of(Path(path))) for path in (questions, answers))
    if len(asked) != len(said):
        raise DataError(f"{answers} has {len(said)} rows, but {questions} asks {len(asked)} questions; they are joined by order")
    records = [_record(k, question, answer) for k, (question, answer) in enumerate(zip(asked, said, strict=True))]
    found = {}
    for name in scorings:
        offers = offered(records, (Dimension(ACCURACY, "Accuracy", scoring=name),))
        found[name] = {key: _value(offer.measure, list(offer.rows(records).values())) for key, offer in offers.items()}
    return found


def _value(measure: Measure, rows: Sequence[Mapping[str, float]]) -> float | None:
    """A measure of the sum of all rows of counts; None where it has no value."""
    total = Counter[str]()
    for row in rows:
        total.update(row)  # type: ignore[arg-type]  # adds, and counts may be halves
    value = float(measure.value({name: np.array([n], dtype=float) for name, n in total.items()})[0]) if total else math.nan
    return None if math.isnan(value) else value


def _record(k: int, question: Row, answer: Row) -> Record:
    text, own = question.text(*_ASKED).strip(), answer.get("question", "text", "query")
    if isinstance(own, str) and text not in own:
        raise answer.error(f"answers {own[:80]!r}, but {question.place} of {question.file} asks {text[:80]!r}")
    output = answer.get("answer", "output", "prediction")
    if not isinstance(output, str):
        raise answer.error(f"answer is {output!r:.80}, expected a text; keys here: {', '.join(map(str, answer.values))}")
    label, image = question.text(*_LABEL).strip().lower(), question.get(*_IMAGE)
    tags = {"consistency_group": image} if isinstance(image, str) else {}
    return Record("answers", str(k), 0, ACCURACY, 0, 0, "en", output, label, False, 0, 0.0, (), tags)
