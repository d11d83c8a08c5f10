"""A run is a folder: written by appending, resumed after anything, never edited."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock

from kedit import jsonl
from kedit.artefacts import read_json, write_bytes, write_json
from kedit.config import difference
from kedit.errors import DataError, StoreError
from kedit.locks import claim
from kedit.types import Record

CONFIG = "run.json"
FAILURES = "failures.jsonl"
TIMING = "timing.jsonl"
NOTES = "notes.json"
RECORDS = "records"
Key = tuple[str, str, int, int]
_FIELDS = {f.name for f in fields(Record)}


def records_file(folder: Path, editor: str) -> Path:
    """Where an editor's records are: its name, made safe for a file; names that had to change get a hash, so none collide."""
    return folder / RECORDS / f"{file_stem(editor, 'editor')}.jsonl"


def file_stem(name: str, empty: str) -> str:
    """A name, made safe for a file, with a hash where it had to change; ``empty`` stands for one of which nothing is left."""
    safe = re.sub(r"[^\w.-]+", "-", name).strip(".-")[:60]  # 60 characters of four bytes still fit a file's name
    if safe != name:
        safe = f"{safe or empty}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return safe


def read_records(file: Path) -> list[Record]:
    """Records of a file in its order, without a torn last line; raises DataError for a malformed one elsewhere."""
    return [_record(row, file, number) for number, row in enumerate(jsonl.read(file), 1)]


def read_failures(folder: Path) -> list[dict[str, Any]]:
    """Failures that no later attempt made good: the last of each (editor, task, case)."""
    last: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in jsonl.read(folder / FAILURES):
        key = (row["editor"], row["task"], row["case"])
        last.pop(key, None)
        if not row.get("solved"):
            last[key] = row
    return list(last.values())


class RunStore:
    """The one writer of a run's folder; made by ``open``, held by a lock until ``close``."""

    def __init__(self, path: Path, config: Mapping[str, Any], lock: FileLock) -> None:
        self.path = path
        self.config = config
        self._lock = lock
        self._open_failures: dict[tuple[str, str, str], str] = {}

    @classmethod
    def open(cls, path: str | Path, config: Mapping[str, Any]) -> Self:
        """Create a run's folder, or resume it where ``config["identity"]`` is equal.

        Torn last lines are cut off. Raises StoreError when another process has the folder, when it holds another
        configuration (with the difference key by key), and when it cannot be written; DataError for a malformed line.
        """
        folder = Path(path)
        with _disk(folder):
            if folder.exists() and not folder.is_dir():
                raise StoreError(f"{folder} is not a folder; name a folder for the run")
            folder.mkdir(parents=True, exist_ok=True)
            lock = claim(folder)
        store = cls(folder, config, lock)
        try:
            store._begin()
        except BaseException:
            store.close()
            raise
        return store

    def _begin(self) -> None:
        """Check or write the configuration and make every file safe to append to."""
        file = self.path / CONFIG
        with _disk(self.path):
            if file.exists():
                _same(self.path, read_json(file), self.config)
            elif (self.path / RECORDS).exists():
                raise StoreError(f"{self.path} has records but no {CONFIG}; restore it, or name another folder")
            else:
                write_json(file, self.config)
            for lines in [*(self.path / RECORDS).glob("*.jsonl"), self.path / FAILURES, self.path / TIMING]:
                jsonl.repair(lines)
        for row in read_failures(self.path):
            self._open_failures[row["editor"], row["task"], row["case"]] = row["error"]

    def done(self, editor: str) -> set[Key]:
        """Keys of all records that an editor has."""
        return {record.key for record in read_records(records_file(self.path, editor))}

    def append(self, editor: str, records: Iterable[Record]) -> None:
        """Append records, all in one write; raises StoreError where the disk refuses."""
        jsonl.append(records_file(self.path, editor), (asdict(record) for record in records))

    def fail(self, editor: str, task: str, case: str, stage: str, error: BaseException) -> None:
        """Note that a case failed and at what stage; the same failure again is not noted twice."""
        text = f"{type(error).__name__}: {error}"
        if self._open_failures.get((editor, task, case)) == text:
            return
        self._open_failures[editor, task, case] = text
        jsonl.append(self.path / FAILURES, [{"editor": editor, "task": task, "case": case, "stage": stage, "error": text}])

    def succeed(self, editor: str, task: str, case: str, seconds: Mapping[str, Sequence[float]]) -> None:
        """Note how long a finished case took by stage, and that an earlier failure of it is made good."""
        jsonl.append(self.path / TIMING, [{"editor": editor, "task": task, "case": case, **seconds}])
        self.settle(editor, task, [case])

    def note(self, editor: str, notes: Mapping[str, Any]) -> None:
        """Keep what an editor says of its work, in place of what it said before; nothing where it says nothing."""
        if notes:
            with _disk(self.path):
                write_json(self.path / NOTES, {**read_notes(self.path), editor: dict(notes)})

    def settle(self, editor: str, task: str, cases: Iterable[str]) -> None:
        """Note that earlier failures of cases that now have all their records are made good."""
        for case in cases:
            if self._open_failures.pop((editor, task, case), None) is not None:
                jsonl.append(self.path / FAILURES, [{"editor": editor, "task": task, "case": case, "solved": True}])

    def arrange(self, editor: str, order: Iterable[Key]) -> None:
        """Put an editor's records in the given order, atomically, where a case that was tried again came late."""
        file = records_file(self.path, editor)
        place = {key: index for index, key in enumerate(order)}
        records = read_records(file)
        wanted = sorted(records, key=lambda r: place.get(r.key, len(place)))
        if wanted != records:
            data = b"".join(jsonl.encode(asdict(record)) for record in wanted)
            with _disk(self.path):
                write_bytes(file, data)

    def close(self) -> None:
        """Let go of the folder."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _same(folder: Path, stored: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    changes = difference(stored.get("identity"), config["identity"])
    if changes:
        listed = "\n  ".join(changes)
        raise StoreError(
            f"{folder} holds a run of another configuration (there -> here):\n  {listed}\n"
            "name another folder for this one (kedit compare reads several), or delete the folder to start over"
        )


def _record(row: Mapping[str, Any], file: Path, number: int) -> Record:
    if row.keys() != _FIELDS:
        odd = ", ".join(sorted(row.keys() ^ _FIELDS))
        raise DataError(f"{file}, line {number}: not a record; fields missing or unknown: {odd}")
    return Record(**{**row, "flags": tuple(row["flags"])})


def read_notes(folder: Path) -> dict[str, dict[str, Any]]:
    """By editor: what it said of its work."""
    found: dict[str, dict[str, Any]] = read_json(folder / NOTES) if (folder / NOTES).exists() else {}
    return found


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """Errors of the disk as StoreError."""
    try:
        yield
    except (StoreError, DataError):
        raise
    except OSError as error:
        raise StoreError(f"cannot write the run in {folder}: {error.strerror or error}; what was written is intact") from error
