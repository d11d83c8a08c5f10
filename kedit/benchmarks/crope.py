"""CROPE (culture-specific probing) from its published parquet files, or from files of the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from kedit.benchmarks import hub
from kedit.benchmarks.crope_cases import PROMPTS, TASKS, Questions
from kedit.benchmarks.crope_rows import COLUMNS, DEFINITIONS, IMAGE, METADATA, Item, read_item
from kedit.errors import DataError, unknown_name
from kedit.files.parquet import light_rows
from kedit.files.rows import Pictures, content_digest, files_of

__all__ = ["CROPE", "PROMPTS", "TASKS"]
_NO_ROWS = ("dataset_infos.json", "dataset_info.json", "state.json")
"""What the hub and its library keep beside a data set's files."""
_COPY = "default"
"""The folder in which the hub keeps its own conversion of files that lie in another one."""


class CROPE(Questions):
    """CROPE: is a culture-specific concept in the picture, read from a folder, a file, or ``hf:owner/name`` (downloaded).

    Parquet in the hub's layouts (``data/test-*``, ``default/test/*``), JSON lines or JSON; pictures as bytes, as base64 or
    as paths below ``images`` (default: the data's folder). Those in parquet stay there until they are opened. ``mapping``
    renames columns. The other options are those of ``Questions``. Raises DataError, on first use, naming file and row. A
    missing picture keeps its row; ``skipped`` holds the rows left out for want of an answer. There is no train split.
    """

    name = "crope"

    def __init__(
        self,
        path: str | Path,
        *,
        prompts: Sequence[str] = PROMPTS,
        which: Mapping[str, int] | None = None,
        language: str = "en",
        seed: int = 0,
        images: str | Path | None = None,
        mapping: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self.prompts = prompts
        self.which = which
        self.language = language
        self.seed = seed
        self.images = images
        self.mapping = mapping

    @cached_property
    def root(self) -> Path:
        """The local folder or file."""
        return hub.local(self.path)

    @property
    def folder(self) -> Path:
        """The folder of the data."""
        return self.root if self.root.is_dir() else self.root.parent

    @cached_property
    def files(self) -> list[Path]:
        """The data files: parquet where there is any, else JSON lines, else JSON; no second copy of the same rows."""
        found = [path for path in files_of(self.root) if path == self.root or path.name not in _NO_ROWS]
        kind = next((kind for kind in (".parquet", ".jsonl", ".json") if any(path.suffix == kind for path in found)), None)
        of_kind = [path for path in found if kind is None or path.suffix == kind]
        if not of_kind:
            raise DataError(f"{self.root} holds no file of rows; expected data/test-*.parquet, .jsonl or .json")
        return [path for path in of_kind if _COPY not in path.relative_to(self.folder).parts] or of_kind

    @cached_property
    def revision(self) -> str:
        """SHA-256 over the data files and the options, 64 hex digits; images beside them have their own digests."""
        return content_digest(self.files, self.settings, dict(self.mapping or {}))

    def read(self) -> list[Item]:
        """All items, in the order of the files and their rows."""
        for name in self.mapping or ():
            if name not in (*COLUMNS, *METADATA, "metadata"):
                raise unknown_name("field of mapping", name, (*COLUMNS, *METADATA, "metadata"))
        held = {IMAGE, DEFINITIONS} | {
            theirs.strip().lower() for ours, theirs in (self.mapping or {}).items() if ours in (IMAGE, DEFINITIONS)
        }
        found = []
        for file in self.files:
            roots = [Path(self.images)] if self.images else [self.folder, file.parent]
            pictures = Pictures(tuple(dict.fromkeys(roots)))
            found += [read_item(row, pictures, self.mapping) for row in light_rows(file, self.folder, held)]
        if not any(item.answer for item in found):
            raise DataError(f"{self.root} holds no row with an answer; expected columns {', '.join(COLUMNS)}, metadata")
        return found
