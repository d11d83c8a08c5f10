"""Rows with one photograph each, whose bytes stay in their file until they are looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kedit.files.parquet import light
from kedit.files.rows import NoImage, Pictures, Row, rows_of
from kedit.types import ImageRef

COLUMNS = ("image",)
"""Columns of a parquet file that hold encoded images."""


def photograph_rows(files: Sequence[Path]) -> Iterator[Row]:
    """Rows of all files; a row's ``uid`` is its file and number, with the folder where files lie in several."""
    root = Path(os.path.commonpath([file.parent for file in files])) if files else None
    for file in files:
        yield from (light(row, *COLUMNS) for row in rows_of(file, root))


def picture(row: Row, pictures: Pictures, *names: str) -> ImageRef:
    """The image of a row by the first of the columns that it has; raises DataError for what is none.

    A row without any keeps its place, and opening its image fails.
    """
    value = next((found for name in names if (found := row.get(name)) and not _empty(found)), None)
    if value is None:
        return ImageRef(draw=NoImage(row.where))
    return ImageRef(draw=value) if callable(value) else pictures.ref(value, row)


def _empty(value: object) -> bool:
    """The hub's struct without anything in it, or blanks."""
    if isinstance(value, Mapping):
        return not any(value.get(key) for key in ("bytes", "path"))
    return isinstance(value, str) and not value.strip()
