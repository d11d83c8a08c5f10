"""Reading documents from files and folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from kedit.errors import DataError
from kedit.types import Knowledge, Request

Documents: TypeAlias = str | Path | Sequence[Knowledge]
_PAGES, _ROWS = (".txt", ".md"), (".json", ".jsonl")


def read_documents(source: Documents | None) -> list[Knowledge]:
    """Documents from a file, a folder or a sequence; none for None.

    A file is JSON lines or JSON: rows with ``text`` and, where there are, ``title`` and ``language``, or an object that maps
    titles to texts. A folder holds such files and pages (.txt, .md), titled by their names. Raises DataError naming file and
    row.
    """
    if source is None:
        return []
    if not isinstance(source, str | Path):
        return list(source)
    path = Path(source)
    if not path.exists():
        raise DataError(f"documents: {path} does not exist; give a JSON or JSON-lines file, or a folder of pages (.txt, .md)")
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (*_PAGES, *_ROWS) and p.is_file())
    found = [document for file in files for document in _of_file(file)]
    if not found:
        raise DataError(f"documents: {path} holds none; expected rows with a text, or pages ({', '.join(_PAGES)})")
    return found


def _of_file(file: Path) -> Iterator[Knowledge]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as UTF-8 text: {error}") from error
    if file.suffix not in _ROWS:
        yield _document(file.stem, text, f"{file}")
        return
    for place, row in _rows(text, file):
        if not isinstance(row, Mapping) or not isinstance(row.get("title", ""), str):
            raise DataError(f"{place}: expected an object with text and title, got {row!r:.80}")
        yield _document(row.get("title", ""), row.get("text"), place, str(row.get("language") or "en"))


def _rows(text: str, file: Path) -> Iterable[tuple[str, Any]]:
    if file.suffix == ".jsonl":
        return [
            (place, _json(line, place))
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip() and (place := f"{file}, line {number}")
        ]
    content = _json(text, str(file))
    if isinstance(content, dict) and "text" not in content:
        content = [{"title": title, "text": page} for title, page in content.items()]
    rows = content if isinstance(content, list) else [content]
    return [(f"{file}, row {number}", row) for number, row in enumerate(rows, 1)]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON: {error}") from error


def _document(title: str, text: Any, where: str, language: str = "en") -> Knowledge:
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{where}: text is {text!r:.80}, expected a text that is not empty")
    return Knowledge(Request(title or "What is this document about?", language=language), "", title, text.strip())
