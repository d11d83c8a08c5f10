"""Where judgements are kept: beside the records of a run, and by judge in a cache that all runs share."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from kedit import jsonl
from kedit.artefacts import write_bytes
from kedit.errors import DataError, StoreError, unknown_name
from kedit.judging.verdict import HIGHEST, Verdict
from kedit.locks import cache_folder, claim, taking_turns
from kedit.store import file_stem

FOLDER = "judgements"
_KEPT = ("key", "judge", "prompt", "score", "label", "reason", "tokens")
"""What the cache holds of a judgement: nothing of the run that it was made for."""


class Kept(NamedTuple):
    """The judgements of one judge, asked by one version of a prompt, in a run's folder."""

    judge: str
    version: str
    file: Path

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """By key, the last of each; raises DataError for a row that is none."""
        rows = {}
        for row in jsonl.read(self.file):
            if not {"key", "judge", "prompt", "score", "error"} <= row.keys():
                raise DataError(f"{self.file}: not a judgement: it has the keys {', '.join(row)}; delete the file and judge anew")
            if not _is_score(row["score"]):
                told = f"the score {row['score']!r:.40}, expected null or 0 to {HIGHEST}"
                raise DataError(f"{self.file}: not a judgement: it has {told}; delete the file and judge anew")
            rows[str(row["key"])] = row
        return rows


def _is_score(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and 0 <= value <= HIGHEST)  # not so: NaN


def judgements(run: Path) -> list[Kept]:
    """All judgements that a run has."""
    found = []
    for file in sorted((run / FOLDER).glob("*.jsonl")):
        row: dict[str, Any] = next(jsonl.read(file), {})
        if {"judge", "prompt"} <= row.keys():
            found.append(Kept(str(row["judge"]), str(row["prompt"]), file))
    return found


def judgements_of(run: Path, judge: str, version: str | None = None) -> Kept:
    """A run's judgements by a judge, given by its id or by a beginning that only one has.

    Raises UnknownNameError, which lists whose there are; StoreError where several prompts were used and ``version`` names none.
    """
    by_judge: dict[str, list[Kept]] = {}
    for kept in judgements(run):
        if version in (None, kept.version):
            by_judge.setdefault(kept.judge, []).append(kept)
    found = by_judge[_named(judge, by_judge, "judge of the run", f"Judge it with: kedit score {run} --judge ...")]
    if len(found) > 1:
        versions = ", ".join(kept.version for kept in found)
        raise StoreError(f"{run} has judgements of {judge} by several prompts ({versions}); say which")
    return found[0]


def recorded(judge: str, run: Path, cache_dir: str | Path | None = None) -> str:
    """The full id of a judge whose judgements are in a run or in the cache, from a beginning that only one has."""
    ids = [kept.judge for kept in judgements(run)]
    for file in cache_folder(cache_dir).glob("judge-*.jsonl"):
        row: dict[str, Any] = next(jsonl.read(file, strict=False), {})
        ids += [str(row["judge"])] if "judge" in row else []
    return _named(judge, ids, "judge of earlier judgements", "Nothing can be replayed that was not judged before.")


def _named(judge: str, ids: Iterable[str], kind: str, hint: str) -> str:
    known = sorted(set(ids))
    begun = [name for name in known if name.startswith(judge)]
    if judge in known or len(begun) == 1:
        return judge if judge in known else begun[0]
    raise unknown_name(kind, judge, known, hint)


@dataclass
class Cache:
    """Verdicts of one judge by key, in ``<cache>/judge-<id>.jsonl``, shared by runs and processes; only what has a score.

    What could not be scored is asked again by the next run: an entry would outlive its cause.
    """

    judge: str
    folder: str | Path | None = None

    @cached_property
    def path(self) -> Path:
        """The file."""
        return Path(cache_folder(self.folder)) / f"judge-{file_stem(self.judge, 'judge')}.jsonl"

    def read(self) -> dict[str, dict[str, Any]]:
        """What it holds now."""
        with taking_turns(self.path):
            jsonl.repair(self.path)
            rows = list(jsonl.read(self.path, strict=False))
        return {row["key"]: row for row in rows if set(_KEPT) <= row.keys() and row["judge"] == self.judge}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep the rows that have a score."""
        scored = [{name: row[name] for name in _KEPT} for row in rows if row["score"] is not None]
        if scored:
            with taking_turns(self.path):
                jsonl.repair(self.path)  # another process may have died while it wrote
                jsonl.append(self.path, scored)


@dataclass
class Book:
    """The one writer of a judge's judgements in a run's folder; made by ``open_book``. ``add`` may be called from any thread."""

    kept: Kept
    rows: dict[str, dict[str, Any]]
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def row(self, key: str, verdict: Verdict, **more: Any) -> dict[str, Any]:
        """A judgement as it is kept."""
        return {"key": key, "judge": self.kept.judge, "prompt": self.kept.version, **verdict._asdict(), **more}

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append judgements in one write; each takes the place of an earlier one with its key."""
        with self._lock:
            jsonl.append(self.kept.file, rows)
            self.rows |= {row["key"]: row for row in rows}

    def arrange(self, order: Iterable[str]) -> None:
        """Put the file in the order of keys, one row each, atomically; others stay behind them."""
        place = {key: index for index, key in enumerate(order)}
        rows = sorted(self.rows.values(), key=lambda row: place.get(row["key"], len(place)))
        if rows and rows != list(jsonl.read(self.kept.file)):
            try:
                write_bytes(self.kept.file, b"".join(map(jsonl.encode, rows)))
            except OSError as error:
                raise StoreError(
                    f"cannot write {self.kept.file}: {error.strerror or error}; what was written is intact"
                ) from error


@contextmanager
def open_book(run: Path, judge: str, version: str) -> Iterator[Book]:
    """A run's judgements by one judge and prompt, for writing; raises StoreError where another process writes them."""
    stem = file_stem(f"{judge} {version}", "judge")
    kept = Kept(judge, version, run / FOLDER / f"{stem}.jsonl")
    lock = claim(run / FOLDER, name=f".{stem}.lock")
    try:
        jsonl.repair(kept.file)
        yield Book(kept, kept.rows)
    finally:
        lock.release()
