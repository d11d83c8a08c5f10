"""The rows of a file as it holds them: JSON lines, JSON, TSV or parquet, told apart by content."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from kedit.errors import DataError

_BOM = b"\xef\xbb\xbf"
_WRAPPERS = ("data", "rows", "cases", "examples")
_LONGEST_CELL = 1 << 28
"""Characters of a TSV cell: an image as base64 is far longer than the csv module's own limit."""
_SHORT = 64
"""Characters up to which the image cell of a TSV is the index of the row that holds the image."""
_BATCH = 64
"""Rows of a parquet file in memory at a time: one holds images of several megabytes."""


def read_objects(path: Path) -> Iterator[tuple[str, Any]]:
    """("line 3" or "row 3", object) of a JSON-lines, JSON, TSV or parquet file; DataError names both.

    The name decides only between TSV and JSON: JSON lines called ``.json``, arrays called ``.jsonl``, a byte order mark,
    CRLF and a missing last newline are all read. An object of parallel lists gives one row per position; one that holds
    its rows under ``data``, ``rows``, ``cases`` or ``examples`` gives these.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if start == b"PAR1" or path.suffix == ".parquet":
            yield from _parquet(path)
        elif path.suffix == ".tsv":
            yield from _tsv(path)
        else:
            yield from _json(path)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text: {error}") from error


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        lines = ((k, line) for k, line in enumerate(file, 1) if line.removeprefix(_BOM).strip())
        k, first = next(lines, (0, b""))
        row = _alone(first)
        second = next(lines, None) if row is not None else None
        if row is not None and (second is not None or _rows_in(row, path) is None):
            rest = chain([second] if second else [], lines)
            found = [(f"line {number}", _load(line, f"{path}, line {number}")) for number, line in rest]
            yield from chain([(f"line {k}", row)], found)
            return
        file.seek(0)
        yield from ((f"row {number}", row) for number, row in enumerate(_whole(file.read(), path, k) if first else [], 1))


def _alone(line: bytes) -> Any:
    """What a line holds by itself; None where that is nothing or a list, which a whole file may be."""
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return None if isinstance(found, list) else found


def _whole(data: bytes, path: Path, first: int) -> list[Any]:
    """The rows of a file that is one JSON value, or JSON lines of which the first is broken."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    content = _load(data, f"{path}, line {first}" if len(lines) > 1 and _alone(lines[1]) is not None else str(path))
    if isinstance(content, dict):
        rows = _rows_in(content, path)
        return [content] if rows is None else rows
    if not isinstance(content, list):
        raise DataError(f"{path}: holds {content!r:.80}, expected a list of rows or one row a line")
    return content


def _load(data: bytes, where: str) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: cannot be read as UTF-8 text: {error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON: {error}") from error


def _rows_in(value: Any, path: Path) -> list[Any] | None:
    """The rows that one object holds: wrapped, or as parallel lists; None where it is a row itself."""
    if not isinstance(value, Mapping):
        return None
    for key in _WRAPPERS:
        if isinstance(value.get(key), list):
            found: list[Any] = value[key]
            return found
    if len(value) < 2 or not all(isinstance(part, list) for part in value.values()):
        return None
    lengths = {key: len(part) for key, part in value.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{key} ({n})" for key, n in lengths.items())
        raise DataError(f"{path}: an object of lists of different lengths: {shown}; expected as many of each, or a list of rows")
    return [dict(zip(value, cells, strict=True)) for cells in zip(*value.values(), strict=True)]


def _tsv(path: Path) -> Iterator[tuple[str, Any]]:
    """Rows of a tab-separated file with a header; an image cell that names another row's index gives that row's image."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    images: dict[str, str] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter="\t")
        try:
            header = next(reader, [])
            for k, cells in enumerate(filter(None, reader), 1):
                if len(cells) != len(header):
                    raise DataError(f"{path}, row {k}: {len(cells)} cells, expected the header's {len(header)}")
                row = dict(zip(header, cells, strict=True))
                image, index = row.get("image", ""), row.get("index", "")
                if len(image) > _SHORT:
                    images[index] = image
                elif image in images:
                    row["image"] = images[image]
                yield f"row {k}", row
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: not tab-separated values: {error}") from error


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path}: parquet needs the package pyarrow (pip install pyarrow); or convert it to JSONL") from error
    k = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    k += 1
                    yield f"row {k}", row
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as parquet after row {k}: {error}") from error
