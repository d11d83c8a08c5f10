"""Rows of a benchmark's files, each with the place it came from, and the images that they name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kedit.benchmarks import read_objects
from kedit.benchmarks.check import allowed
from kedit.errors import DataError
from kedit.types import ImageRef

SUFFIXES = (".jsonl", ".json", ".parquet", ".tsv")


@dataclass(frozen=True)
class Row:
    """One row as its file holds it, and where that is; every error names file and row."""

    file: Path
    place: str
    values: Mapping[str, Any]

    @property
    def uid(self) -> str:
        """File and row, for data whose own ids repeat: ``annotations/17``."""
        return f"{self.file.stem}/{self.place.split()[1]}"

    def error(self, message: str) -> DataError:
        """The error to raise for this row."""
        return DataError(f"{self.file}, {self.place}: {message}")

    def get(self, *names: str) -> Any:
        """The first value that there is among a field's names; None where there is none."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def text(self, *names: str) -> str:
        """A text that must be there; raises DataError, which lists the keys found."""
        value = self.get(*names)
        if not isinstance(value, str) or not value.strip():
            found = "nothing" if value is None else repr(value)[:80]
            raise self.error(f"{names[0]} is {found}, expected a text; keys here: {', '.join(map(str, self.values)) or 'none'}")
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise self.error(f"{names[0]} holds a lone surrogate (half of a character): {value!r:.80}")
        return value

    def maybe(self, *names: str) -> str:
        """A text, "" where there is none."""
        return self.text(*names) if str(self.get(*names) or "").strip() else ""

    def texts(self, *names: str) -> list[str]:
        """A list of texts, however it was stored: a list, an array, or a list written as a string."""
        value = self.get(*names)
        if isinstance(value, str):
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                raise self.error(f"{names[0]} is the text {value!r:.80}, expected a list of texts") from None
        if hasattr(value, "tolist"):
            value = value.tolist()
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise self.error(f"{names[0]} is {value!r:.80}, expected a list of texts")
        return list(value)


def read_rows(path: Path, suffixes: Sequence[str] = SUFFIXES) -> Iterator[Row]:
    """Rows of a file, or of all files of a folder in the order of their names; raises DataError with file and row."""
    if not path.exists():
        raise DataError(f"{path} does not exist: give the file or the folder that holds the data")
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in suffixes and p.is_file())
    if not files:
        raise DataError(f"{path} holds no {', '.join(suffixes)} file")
    for file in files:
        for place, values in read_objects(file):
            if not isinstance(values, Mapping):
                raise DataError(f"{file}, {place}: expected an object with keys, got {values!r:.80}")
            yield Row(file, place, {str(key).strip(): value for key, value in values.items()})


@dataclass(frozen=True)
class Pictures:
    """Where a benchmark's images lie: several roots are tried, each also below the folders that ``aliases`` name.

    A file that is not there keeps its row: the reference names the place where it was expected, and asking it fails.
    """

    roots: Sequence[Path]
    aliases: Sequence[str] = field(default=())

    def ref(self, value: Any, row: Row) -> ImageRef:
        """The reference for a path, encoded bytes or the hub's ``{"bytes": ..., "path": ...}``.

        Raises DataError for what is none of these and for a path that could leave the data's folder or the machine.
        """
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes) and value:
            return ImageRef(data=value)
        if not isinstance(value, str) or not value.strip():
            raise row.error(f"image is {value!r:.80}, expected a path below the data's folder, or encoded bytes")
        try:
            return ImageRef(path=str(self._find(allowed(value.strip()))))
        except ValueError as error:
            raise row.error(str(error)) from error

    def _find(self, name: str) -> Path:
        relative = name.lstrip("/")
        for root in self.roots:
            for folder in (root, *(root / alias for alias in self.aliases)):
                found = folder / relative
                if found.is_file():
                    if not found.resolve().is_relative_to(root.resolve()):
                        raise ValueError(f"image path {name!r} leads outside {root}: put the images below it")
                    return found
        return self.roots[0] / relative
