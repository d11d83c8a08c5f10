"""JSON lines that survive being killed: appended in one write, and a torn last line is dropped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kedit.errors import DataError, StoreError


def encode(row: Mapping[str, Any]) -> bytes:
    """One line, newline included: sorted keys, text as it is; escaped only where it is no valid Unicode."""
    try:
        return (json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n").encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate
        return (json.dumps(row, sort_keys=True) + "\n").encode("ascii")


def append(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows in one write; raises StoreError, with the file as it was before, where the disk refuses."""
    data = b"".join(encode(row) for row in rows)
    if not data:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            _write_all(file.fileno(), data)
    except OSError as error:
        raise StoreError(f"cannot append to {path}: {error.strerror or error}; what was written before is intact") from error


def _write_all(descriptor: int, data: bytes) -> None:
    before = os.fstat(descriptor).st_size
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except BaseException:  # also Ctrl-C: half a line must not stay
        os.ftruncate(descriptor, before)
        raise


def read(path: Path, *, strict: bool = True) -> Iterator[dict[str, Any]]:
    """Rows of a file, none where it does not exist; a last line that is cut off is left out.

    A malformed line elsewhere raises DataError with file and line, or is left out when not ``strict``.
    """
    try:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    complete = lines[:-1]  # what follows the last newline was cut off
    for number, line in enumerate(complete, 1):
        row = _decode(line)
        if row is not None:
            yield row
        elif strict and number < len(complete):
            raise DataError(f"{path}, line {number}: not a JSON object: {line[:80]!r}; remove the line, or restore the file")


def repair(path: Path) -> int:
    """Cut a torn last line off a file, so that appending is safe; the number of bytes dropped."""
    try:
        if not path.exists():
            return 0
        size = path.stat().st_size
        tail = _last_line(path, size)
        whole, newline, torn = tail.rpartition(b"\n")
        drop = len(torn)
        last = whole.rpartition(b"\n")[2]
        if newline and _decode(last) is None:  # complete but unreadable: a block that the system never wrote
            drop += len(last) + 1
        if drop:
            os.truncate(path, size - drop)
    except OSError as error:
        raise StoreError(f"cannot repair {path}: {error.strerror or error}") from error
    return drop


def _last_line(path: Path, size: int) -> bytes:
    """The end of a file: at least its last complete line and what follows it."""
    window = 1 << 16
    with path.open("rb") as file:
        while True:
            start = max(size - window, 0)
            file.seek(start)
            tail = file.read()
            if start == 0 or tail.count(b"\n") >= 2:
                return tail
            window *= 4


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line.decode("utf-8"))
    except ValueError:  # not JSON or not UTF-8
        return None
    return row if isinstance(row, dict) else None
