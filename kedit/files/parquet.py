"""Pictures that stay in their parquet file until they are opened, alone in a cell or in lists."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from kedit.errors import DataError, ImageError
from kedit.files.rows import Row, rows_of

_COLUMNS = 2
"""Columns of a row group that are kept after reading: rows that are asked about together mostly lie together."""
_BUFFER, _BATCH = 1 << 18, 8


@dataclass(frozen=True)
class Stored:
    """A picture in a parquet file; calling it gives its encoded bytes, the same at every call.

    ``row`` counts the file's rows from 0; ``index`` is the place in a list, None where the cell is no list; ``stamp`` is when
    the file was last written. Memory holds the column of the row's group at most. Raises ImageError where the file no longer
    holds the bytes.
    """

    file: str
    row: int
    column: str
    index: int | None = None
    stamp: int = 0

    def __call__(self) -> bytes:
        import pyarrow

        try:
            starts = _starts(self.file, self.stamp)
            group = bisect.bisect_right(starts, self.row) - 1
            cell = _column(self.file, group, self.column, self.stamp)[self.row - starts[group]].as_py()
            data = encoded(cell if self.index is None else cell[self.index])
        except (OSError, LookupError, TypeError, pyarrow.ArrowException) as error:
            raise ImageError(f"{self._place}: image cannot be read any more: {error}") from error
        if not data:
            raise ImageError(f"{self._place}: image has no bytes")
        return data

    @property
    def _place(self) -> str:
        return f"{self.file}, row {self.row + 1}, {self.column}{'' if self.index is None else f'[{self.index}]'}"


def encoded(cell: Any) -> bytes | None:
    """The bytes in a cell that holds them plainly or as the hub's ``{"bytes": ..., "path": ...}``; None without any."""
    data = cell.get("bytes") if isinstance(cell, Mapping) else cell
    return data if isinstance(data, bytes) and data else None


def light_rows(file: Path, root: Path | None, pictures: Collection[str]) -> Iterator[Row]:
    """Rows of a file as ``rows_of`` gives them, with a ``Stored`` in place of pictures in a parquet file's bytes.

    ``pictures`` are the names, in small letters, of columns that hold them. Where the file's own statistics say that no
    picture lacks its bytes, these are not read at all. Raises DataError naming the file.
    """
    if file.suffix != ".parquet":
        yield from rows_of(file, root)
        return
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{file}: parquet needs the package pyarrow (pip install pyarrow); or convert it to JSONL") from error
    row = 0
    try:
        stamp = file.stat().st_mtime_ns
        with pyarrow.parquet.ParquetFile(file, buffer_size=_BUFFER) as opened:
            for group in range(opened.num_row_groups):
                for values in _group(opened, group, pictures, Stored(str(file), row, "", stamp=stamp)):
                    row += 1
                    yield Row(file, f"row {row}", values, root)
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{file}: cannot be read as parquet after row {row}: {error}") from error


def light(row: Row, *columns: str) -> Row:
    """The row with a ``Stored`` in place of all pictures in these columns whose bytes can be read again from its file."""
    if row.file.suffix != ".parquet":
        return row
    number, stamp = int(row.place.split()[1]) - 1, row.file.stat().st_mtime_ns
    found = {name: _left(row.values.get(name), Stored(str(row.file), number, name, stamp=stamp)) for name in columns}
    return replace(row, values={**row.values, **{name: cell for name, cell in found.items() if cell is not None}})


def _left(cell: Any, at: Stored) -> Any:
    """A cell with ``at`` in place of its bytes."""
    if isinstance(cell, list):
        return [replace(at, index=k) if encoded(part) else part for k, part in enumerate(cell)]
    return at if encoded(cell) else cell


def _group(opened: Any, group: int, pictures: Collection[str], first: Stored) -> Iterator[dict[str, Any]]:
    names = opened.schema_arrow.names
    left = [name for name in names if name.strip().lower() in pictures]
    texts = opened.read_row_group(group, columns=[name for name in names if name not in left]).to_pylist()
    columns = {name.strip(): _outline(opened, group, name, replace(first, column=name.strip())) for name in left}
    for k in range(opened.metadata.row_group(group).num_rows):
        values = {name.strip(): value for name, value in texts[k].items()} if texts else {}
        yield {**values, **{name: cells[k] for name, cells in columns.items()}}


def _outline(opened: Any, group: int, name: str, first: Stored) -> list[Any]:
    """The cells of a column with ``Stored`` in place of bytes."""
    paths = _complete(opened, group, name)
    if paths is not None:
        return [_present(cell, replace(first, row=first.row + k)) for k, cell in enumerate(paths)]
    batches = opened.iter_batches(batch_size=_BATCH, row_groups=[group], columns=[name])
    cells = (cell for batch in batches for cell in batch.column(name).to_pylist())
    return [_left(cell, replace(first, row=first.row + k)) for k, cell in enumerate(cells)]


def _complete(opened: Any, group: int, name: str) -> list[Any] | None:
    """The cells of a column without their bytes, if it is sure that only empty places lack them; None if it is not."""
    info = opened.metadata.row_group(group)
    parts = [part for k in range(info.num_columns) if (part := info.column(k)).path_in_schema.startswith(f"{name}.")]
    data = [part for part in parts if part.path_in_schema.endswith(".bytes") and part.physical_type == "BYTE_ARRAY"]
    rest = [part.path_in_schema for part in parts if part not in data]
    counted = len(data) == 1 and data[0].statistics is not None and data[0].statistics.has_null_count
    if not rest or not counted or data[0].statistics.logical_type.type == "STRING":
        return None
    cells: list[Any] = opened.read_row_group(group, columns=rest).column(name).to_pylist()
    return cells if sum(map(_places_without, cells)) == data[0].statistics.null_count else None


def _places_without(cell: Any) -> int:
    """How many nulls a cell adds to what is stored for each of its fields."""
    if isinstance(cell, list):
        return sum(part is None for part in cell) or int(not cell)
    return int(cell is None)


def _present(cell: Any, at: Stored) -> Any:
    if isinstance(cell, list):
        return [replace(at, index=k) if part is not None else None for k, part in enumerate(cell)]
    return at if cell is not None else None


@lru_cache(maxsize=8)
def _starts(file: str, stamp: int) -> list[int]:
    """The first row of each row group, and the number of all."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(Path(file)) as opened:
        sizes = [opened.metadata.row_group(k).num_rows for k in range(opened.num_row_groups)]
    return [0, *accumulate(sizes)]


@lru_cache(maxsize=_COLUMNS)
def _column(file: str, group: int, column: str, stamp: int) -> Any:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(Path(file), buffer_size=_BUFFER) as opened:
        name = {name.strip(): name for name in opened.schema_arrow.names}[column]
        return opened.read_row_group(group, columns=[name]).column(name)
