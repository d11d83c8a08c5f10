"""Rows of a benchmark's files, each with the place it came from, and the images that they name."""

from __future__ import annotations

import ast
import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from kedit.errors import DataError, ImageError
from kedit.files.objects import read_objects
from kedit.types import ImageRef

SUFFIXES = (".jsonl", ".json", ".parquet", ".tsv")
_DATA_URI = re.compile(r"data:image/[\w.+-]+;base64,")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{64,}={0,2}\s*")
_MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")


def allowed(path: str) -> str:
    """A path from a file, with forward slashes; ValueError where it could leave the data's folder or the machine."""
    plain = path.replace("\\", "/")
    if "\0" in path or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", plain) or ".." in PurePosixPath(plain).parts:
        raise ValueError(f"image path {path[:200]!r} is refused: only paths below the data's folder, without '..' or a URL")
    return plain


@dataclass(frozen=True)
class Row:
    """One row as its file holds it, and where that is; every error names file and row."""

    file: Path
    place: str
    values: Mapping[str, Any]
    root: Path | None = None
    """The folder that was read, where there are several files."""

    @property
    def uid(self) -> str:
        """File and row, for data whose own ids repeat: ``annotations/17``, below folders ``entity/eval/17``."""
        return f"{_stem(self.file, self.root)}/{self.place.split()[1]}"

    @property
    def where(self) -> str:
        """File and row, as messages name them."""
        return f"{self.file}, {self.place}"

    def error(self, message: str) -> DataError:
        """The error to raise for this row."""
        return DataError(f"{self.where}: {message}")

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
            value = self._listed(value, names[0])
        if hasattr(value, "tolist"):
            value = value.tolist()
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise self.error(f"{names[0]} is {value!r:.80}, expected a list of texts")
        return list(value)

    def _listed(self, text: str, name: str) -> Any:
        for read in (json.loads, ast.literal_eval):
            try:
                return read(text)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
        raise self.error(f"{name} is the text {text!r:.80}, expected a list of texts")


@lru_cache(maxsize=64)
def _stem(file: Path, root: Path | None) -> str:
    """A file's path below the folder that was read, without its suffix; thousands of rows ask for it."""
    below = file.relative_to(root) if root and file.is_relative_to(root) else Path(file.name)
    return below.with_suffix("").as_posix()


def files_of(path: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """The file, or all data files of a folder in the order of their names; DataError where there is none.

    Hidden files and folders are left aside: downloads and operating systems keep their own there.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist: give the file or the folder that holds the data")
    if path.is_file():
        return [path]
    found = sorted(p for p in path.rglob("*") if p.suffix in suffixes and p.is_file())
    seen = [p for p in found if not any(part.startswith(".") for part in p.relative_to(path).parts)]
    if not seen:
        raise DataError(f"{path} holds no {', '.join(suffixes)} file")
    return seen


def read_rows(path: Path, suffixes: Sequence[str] = SUFFIXES) -> Iterator[Row]:
    """Rows of a file, or of all files of a folder in the order of their names; raises DataError with file and row."""
    for file in files_of(path, suffixes):
        yield from rows_of(file, path if path.is_dir() else path.parent)


def rows_of(file: Path, root: Path | None = None) -> Iterator[Row]:
    """Rows of one file; raises DataError with file and row."""
    for place, values in read_objects(file):
        if not isinstance(values, Mapping):
            raise DataError(f"{file}, {place}: expected an object with keys, got {values!r:.80}")
        yield Row(file, place, {str(key).strip(): value for key, value in values.items()}, root)


def content_digest(files: Iterable[Path], *settings: Any) -> str:
    """SHA-256 over the files' contents, in order, and settings that JSON can hold, 64 hex digits."""
    digest = hashlib.sha256(json.dumps(settings, ensure_ascii=True, sort_keys=True, default=str).encode())
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@dataclass(frozen=True)
class NoImage:
    """Stands for a picture that a row does not have: the row stays, and what needs the picture fails."""

    where: str

    def __call__(self) -> bytes:
        raise ImageError(f"{self.where} has no image; expected encoded bytes or a path")


@dataclass(frozen=True)
class Pictures:
    """Where a benchmark's images lie: several roots are tried, each also below the folders that ``aliases`` name.

    A file that is not there keeps its row: the reference names the place where it was expected, and asking it fails.
    Encoded bytes that come again, as one photograph does for several questions, are kept once.
    """

    roots: Sequence[Path]
    aliases: Sequence[str] = field(default=())
    _kept: dict[bytes, ImageRef] = field(default_factory=dict, init=False, repr=False, compare=False)
    _places: dict[str, ImageRef] = field(default_factory=dict, init=False, repr=False, compare=False)

    def ref(self, value: Any, row: Row) -> ImageRef:
        """The reference for a path, encoded bytes, base64, a list of one of these, or the hub's ``{"bytes", "path"}``.

        Raises DataError for what is none of these and for a path that could leave the data's folder or the machine.
        """
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, str):
            value = _decoded(value) or value
        if isinstance(value, bytes | bytearray) and value:
            data = bytes(value)
            return self._kept.setdefault(hashlib.sha256(data).digest(), ImageRef(data=data))
        if not isinstance(value, str) or not value.strip():
            raise row.error(f"image is {value!r:.80}, expected a path below the data's folder, or encoded bytes")
        try:
            if value not in self._places:  # rows that name it again need no second search through all folders
                self._places[value] = ImageRef(path=str(self._find(allowed(value.strip()))))
            return self._places[value]
        except (ValueError, OSError) as error:  # OSError: a name too long for the file system
            raise row.error(str(error)) from error

    def refs(self, value: Any, row: Row) -> tuple[ImageRef, ...]:
        """The references of a list of images, or of one; also of a list written as a string."""
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, str) and value.strip().startswith("["):
            value = row._listed(value.strip(), "image")
        return tuple(self.ref(one, row) for one in (value if isinstance(value, list | tuple) else [value]))

    def _find(self, name: str) -> Path:
        for root in self.roots:
            inside = Path(name).is_absolute() and Path(name).is_relative_to(root.absolute())
            relative = Path(name).relative_to(root.absolute()) if inside else name.lstrip("/")
            for folder in (root, *(root / alias for alias in self.aliases)):
                found = folder / relative
                if found.is_file():
                    if not found.resolve().is_relative_to(root.resolve()):
                        raise ValueError(f"image path {name!r} leads outside {root}: put the images below it")
                    return found
        return self.roots[0] / name.lstrip("/")


def _decoded(text: str) -> bytes | None:
    """The image in a data URI or in base64 text, None for a path: a path has a dot and does not decode to an image."""
    uri = _DATA_URI.match(text)
    body = text[uri.end() :] if uri else text
    if not _BASE64.fullmatch(body):
        return None
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if data.startswith(_MAGIC) or uri else None
