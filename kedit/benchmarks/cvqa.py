"""CVQA: questions with four options in the languages of many countries, read from its published files."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from kedit.benchmark import Dimension, Task
from kedit.benchmarks import Lazy
from kedit.benchmarks.choices import ACCURACY, Choice, check_prompt, index_of, options_of, probes, wording
from kedit.benchmarks.hub import local
from kedit.benchmarks.photographs import photograph_rows, picture
from kedit.errors import unknown_name
from kedit.files.rows import Pictures, Row, content_digest, files_of
from kedit.protocols import final
from kedit.types import Case, ImageRef, Request

GROUPS = {"country": "country", "language": "language", "category": "category"}
TASKS = {"test": Task("test", final, (Dimension(ACCURACY, "Acc.", scoring="choice"),), groups=GROUPS)}
CODES: Mapping[str, str] = {
    "amharic": "am", "bengali": "bn", "breton": "br", "bulgarian": "bg", "chinese": "zh", "egyptian arabic": "ar",
    "filipino": "fil", "french": "fr", "hindi": "hi", "igbo": "ig", "indonesian": "id", "irish": "ga", "japanese": "ja",
    "javanese": "jv", "kinyarwanda": "rw", "korean": "ko", "malay": "ms", "marathi": "mr", "minangkabau": "min",
    "mongolian": "mn", "norwegian": "no", "oromo": "om", "portuguese": "pt", "romanian": "ro", "russian": "ru",
    "sinhala": "si", "spanish": "es", "sundanese": "su", "swahili": "sw", "tamil": "ta", "telugu": "te", "urdu": "ur",
}  # fmt: skip
"""Codes of languages by the names that the data use; another name stands for itself."""


@dataclass(frozen=True)
class Item:
    """One row; ``choice.answer`` is None where the right option is not published."""

    uid: str
    choice: Choice
    image: ImageRef
    language: str
    country: str
    category: str
    row: Row


class CVQA:
    """CVQA from ``path``: the hub's parquet files of either revision, or JSON of the same columns.

    ``translated`` asks the English translations instead of the local language. ``images`` is the folder of images that rows
    name by path. ``prompt`` and ``circular`` are those of K-Viscuit. A label outside the options means that the right one is
    not published: such rows are asked and counted as unscored. Raises DataError, on first use, naming file and row.
    """

    name = "cvqa"
    tasks = TASKS

    def __init__(
        self,
        path: str | Path,
        *,
        images: str | Path | None = None,
        translated: bool = False,
        prompt: str = "plain",
        circular: bool = False,
    ) -> None:
        self.path = path
        self.images = images
        self.translated = translated
        self.prompt = prompt
        self.circular = circular

    @cached_property
    def files(self) -> list[Path]:
        """The data files: parquet files where there are any."""
        found = files_of(local(self.path), (".jsonl", ".json", ".parquet"))
        return [path for path in found if path.suffix == ".parquet"] or found

    @cached_property
    def items(self) -> list[Item]:
        """The rows, in the order of the files."""
        beside = self.files[0].parent
        pictures = Pictures([Path(self.images)] if self.images else [beside, beside.parent], ("images",))
        return [item_of(plain(row), pictures, self.translated) for row in photograph_rows(self.files)]

    @property
    def unlabelled(self) -> int:
        """Rows whose right option is not published."""
        return sum(item.choice.answer is None for item in self.items)

    @cached_property
    def revision(self) -> str:
        """SHA-256 over the data files and every option that changes what is asked, 64 hex digits."""
        return content_digest(self.files, self.translated, wording(check_prompt(self.prompt)), self.circular)

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """One case per row, in the order of the files; ``limit`` counts rows."""
        if task not in self.tasks:
            raise unknown_name("task", task, self.tasks)
        check_prompt(self.prompt)
        chosen = self.items[:limit]
        return Lazy(len(chosen), lambda k: self._case(chosen[k]))

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """None: the benchmark has a test split only."""
        return ()

    def _case(self, item: Item) -> Case:
        code = "en" if self.translated else CODES.get(item.language.lower(), item.language.lower())
        make = partial(Request, images=(item.image,), language=code)
        found = probes(item.choice, make, prompt=self.prompt, circular=self.circular, step=0)
        tags = {"raw": item.uid, "country": item.country, "language": item.language, "category": item.category}
        return Case(item.uid, (), found, tags)


def plain(row: Row) -> Row:
    """The row with its columns in small letters and underscores: ``Translated Question`` is ``translated_question``."""
    return replace(row, values={"_".join(name.lower().split()): value for name, value in row.values.items()})


def item_of(row: Row, pictures: Pictures, translated: bool) -> Item:
    """A row as the benchmark asks it; raises DataError naming file and row for whatever is not as it must be."""
    prefix = "translated_" if translated else ""
    options = options_of(row, f"{prefix}options")
    language, country = subset_of(row)
    choice = Choice(row.text(f"{prefix}question"), options, label_of(row, options))
    return Item(row.uid, choice, picture(row, pictures, "image"), language, country, row.maybe("category"), row)


def label_of(row: Row, options: Sequence[str]) -> int | None:
    """The position of the right option; None where the file says none, or one outside the options."""
    value = row.get("label")
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return index_of(value, options)
    if isinstance(value, str) and value.strip().lstrip("-").isdigit():
        return index_of(int(value.strip()), options)
    found = index_of(value, options)
    if found is None and not (isinstance(value, str) and not value.strip()):
        raise row.error(f"Label is {value!r:.80}, expected a position from 0, or -1 where it is not published")
    return found


def subset_of(row: Row) -> tuple[str, str]:
    """(language, country), also of a pair written as text, such as ``"('Japanese', 'Japan')"``; "" where there is none."""
    value: Any = row.get("subset")
    if isinstance(value, str) and value.strip().startswith(("(", "[")):
        try:
            value = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise row.error(f"Subset is {value!r:.80}, expected a language and a country in brackets") from None
    parts = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value or ""]
    if not 1 <= len(parts) <= 2 or not all(isinstance(part, str) for part in parts):
        raise row.error(f"Subset is {row.get('subset')!r:.80}, expected a language and a country")
    texts = [replace(row, values={"subset": part}).maybe("subset").strip() for part in parts]
    return texts[0], texts[1] if len(texts) > 1 else ""
