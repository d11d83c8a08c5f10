"""Documents that a user brings, each with what it is about: an image, a concept, or its own title."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedit.errors import DataError
from kedit.files.rows import SUFFIXES, Row, files_of, rows_of

Source = str | Path | Mapping[str, Any]
ABOUT = ("uid", "image", "images", "image_path", "concept", "concepts")
_KEYS = {"text", "title", "language", *ABOUT}
_PAGES = (".txt", ".md")
_MARK = Path("documents")


@dataclass(frozen=True)
class Document:
    """A text with a title, "" where it has none; ``about`` names images, concepts or rows as the file does."""

    title: str
    text: str
    about: tuple[str, ...] = ()
    language: str = "en"


class Documents(Sequence[Document]):
    """Documents in the order of their source (see ``read_documents``), found by what they are about.

    Raises DataError naming file and row, also for a document with neither a title nor one of ``ABOUT``.
    """

    def __init__(self, source: Source) -> None:
        self.found = read_documents(source, titled=True)
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
        return digest_of(self.found)


def folded(name: str) -> str:
    """A name by its words alone: "Budae-jjigae" is "budae jjigae"."""
    return " ".join(re.findall(r"\w+", name.casefold()))


def read_documents(source: Source, *, titled: bool = False) -> list[Document]:
    """Documents of a file, a folder or a mapping, in order; with ``titled`` each must say what it is about.

    A file is JSON lines, JSON, TSV or parquet: rows with ``text`` and, where there are, ``title``, ``language`` and one of
    ``ABOUT``; or an object that maps an image, a concept or a title to a text or to such a row, which a mapping does too. A
    folder holds such files, or pages (``.txt``, ``.md``), each about what its file's name says; a page's title is its first
    line where that is a heading, else that name. Raises DataError naming file and row, and where there is no document.
    """
    found = list(_of_mapping(source, _MARK) if isinstance(source, Mapping) else _of_path(Path(source)))
    for row, document in found:
        if titled and not document.title:
            keys = ", ".join(map(str, row.values))
            raise row.error(f"a document needs a title, or one of {', '.join(ABOUT)}; keys here: {keys}")
    if not found:
        where = "documents" if isinstance(source, Mapping) else source
        raise DataError(f"{where}: no document found; expected rows with a text, or pages ({', '.join(_PAGES)})")
    return [document for _, document in found]


def digest_of(documents: Sequence[Document]) -> str:
    """SHA-256 over titles, texts, languages and what they are about, 64 hex digits."""
    content = [[d.title, d.text, d.about, *([d.language] if d.language != "en" else [])] for d in documents]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _of_path(path: Path) -> Iterator[tuple[Row, Document]]:
    if not path.exists():
        raise DataError(f"{path} does not exist: give a file or a folder of documents")
    for file in [path] if path.is_file() else files_of(path, (*SUFFIXES, *_PAGES)):
        if file.suffix in _PAGES:
            yield _page(file)
            continue
        for row in rows_of(file):
            if _KEYS & row.values.keys():
                yield row, _of_row(row)
            else:
                yield from _of_mapping(row.values, file)


def _page(file: Path) -> tuple[Row, Document]:
    try:
        text = file.read_bytes().decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as UTF-8 text: {error}") from error
    heading, _, rest = text.partition("\n")
    title = heading.lstrip("# ").strip() if heading.startswith("#") else file.stem
    body = rest.strip() if heading.startswith("#") else text
    if not body:
        raise DataError(f"{file}: holds no text below its title")
    return Row(file, "line 1", {}), Document(title or file.stem, body, (file.stem,))


def _of_row(row: Row, about: str = "") -> Document:
    names = [about] if about else []
    for key in ABOUT:
        value = row.get(key)
        names += [value] if isinstance(value, str) else row.texts(key) if value is not None else []
    names = [name for name in names if name.strip()]
    title = Row(row.file, row.place, {"title": row.maybe("title") or (names[-1] if names else "")}).maybe("title")
    return Document(title, row.text("text").strip(), tuple(names), row.maybe("language") or "en")


def _of_mapping(value: Mapping[str, Any], file: Path) -> Iterator[tuple[Row, Document]]:
    for key, found in value.items():
        row = Row(file, f"key {key}", found if isinstance(found, Mapping) else {"text": found})
        yield row, _of_row(row, str(key))
