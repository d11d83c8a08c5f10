"""Documents that a user brings to a benchmark, each with what it is about: an image, a concept, or its own title."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedit.benchmarks import read_objects
from kedit.benchmarks.files import Row
from kedit.errors import DataError

Source = str | Path | Mapping[str, Any]
ABOUT = ("uid", "image", "images", "image_path", "concept", "concepts")
_PAGES = (".txt", ".md")
_MARK = Path("documents")


@dataclass(frozen=True)
class Document:
    """A text with a title; ``about`` names images, concepts or rows as the file does."""

    title: str
    text: str
    about: tuple[str, ...] = ()


class Documents(Sequence[Document]):
    """Documents in the order of their source, found by what they are about.

    ``source`` is a JSON or JSON-lines file of rows with ``text`` (and ``title``, and one of ``ABOUT``); an object that maps an
    image, a concept or a title to a text or to such a row, as a file or a mapping; or a folder of such files or of pages
    (``.txt``, ``.md``), each about what its file's name says. Raises DataError naming file and row.
    """

    def __init__(self, source: Source) -> None:
        self.found = list(_read(source))
        if not self.found:
            raise DataError(f"{source if not isinstance(source, Mapping) else 'documents'}: no document found")
        self._places: dict[str, Document] = {}
        for document in self.found:
            for name in document.about:
                self._places.setdefault(name, document)
        for document in self.found:  # only after all of them: what says whom it is about goes before a title that fits
            for name in (*document.about, document.title):
                self._places.setdefault(folded(name), document)

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: Any) -> Any:
        return self.found[index]

    def about(self, *names: str) -> Document | None:
        """The document about the first of the names that any is about; case and punctuation do not matter."""
        places = (self._places.get(name) or self._places.get(folded(name)) for name in names if name)
        return next((document for document in places if document is not None), None)

    @property
    def digest(self) -> str:
        """SHA-256 over titles, texts and what they are about, 64 hex digits."""
        content = [[d.title, d.text, d.about] for d in self.found]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def folded(name: str) -> str:
    """A name by its words alone: "Budae-jjigae" is "budae jjigae"."""
    return " ".join(re.findall(r"\w+", name.casefold()))


def _read(source: Source) -> Iterator[Document]:
    if isinstance(source, Mapping):
        yield from _of_mapping(source, _MARK)
        return
    path = Path(source)
    if not path.exists():
        raise DataError(f"{path} does not exist: give a file or a folder of documents")
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (".json", ".jsonl", *_PAGES))
    for file in files:
        if file.suffix in _PAGES:
            yield _page(file)
            continue
        for place, value in read_objects(file):
            if not isinstance(value, Mapping):
                raise DataError(f"{file}, {place}: expected an object with title and text, got {value!r:.80}")
            if "text" in value:
                yield _of_row(Row(file, place, value))
            else:
                yield from _of_mapping(value, file)


def _page(file: Path) -> Document:
    try:
        text = file.read_bytes().decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as UTF-8 text: {error}") from error
    heading, _, rest = text.partition("\n")
    title = heading.lstrip("# ").strip() if heading.startswith("#") else file.stem
    body = rest.strip() if heading.startswith("#") else text
    if not body:
        raise DataError(f"{file}: holds no text below its title")
    return Document(title or file.stem, body, (file.stem,))


def _of_row(row: Row, about: str = "") -> Document:
    names = [about] if about else []
    for key in ABOUT:
        value = row.get(key)
        names += [value] if isinstance(value, str) else row.texts(key) if value is not None else []
    names = [name for name in names if name.strip()]
    title = row.maybe("title") or (names[-1] if names else "")
    if not title:
        raise row.error(f"a document needs a title, or one of {', '.join(ABOUT)}; keys here: {', '.join(map(str, row.values))}")
    return Document(title, row.text("text").strip(), tuple(names))


def _of_mapping(value: Mapping[str, Any], file: Path) -> Iterator[Document]:
    for key, found in value.items():
        row = found if isinstance(found, Mapping) else {"text": found}
        yield _of_row(Row(file, f"key {key}", row), str(key))
