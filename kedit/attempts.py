"""One case on its way through a run, and the parts of a long one that are kept before it is done."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kedit import jsonl
from kedit.answers import Asked
from kedit.benchmark import Task
from kedit.editor import Hit
from kedit.errors import StoreError
from kedit.measuring import Forcing
from kedit.store import Key, read_records, records_file
from kedit.types import Case, Record, Request
from kedit.work import keys_of

PARTS = "parts"
LONG = 32
"""Inserts from which on a chain is worth keeping in parts: as many as there are cases in a block."""


@dataclass
class Question:
    """One probe to ask at one state: answered, or what is to be asked later of the unedited backbone or of a replacement."""

    after: int
    probe: int
    found: Asked | Request | Hit
    trace: Mapping[str, str | float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether it is still to be asked."""
        return not isinstance(self.found, Asked)


@dataclass
class Attempt:
    """One case on its way: what is missing of it, its references, its questions, what is kept, and how it went."""

    case: Case
    missing: set[tuple[int, int]]
    references: dict[int, Asked] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    kept: list[Record] = field(default_factory=list)
    inserts: list[float] = field(default_factory=list)
    stage: str = "base"
    error: Exception | None = None
    forcing: Forcing | None = None


@dataclass(frozen=True)
class Parts:
    """Records of long chains that are under way, so that a killed run asks nothing of them twice.

    They are no records of the run yet: a chain is scored as a whole or not at all. One file per case, in
    ``parts/<editor>/``, which goes when the case is done.
    """

    folder: Path
    editor: str

    def of(self, task: str, case: Case) -> list[Record]:
        """What an earlier run kept of a case."""
        file = self._file(task, case)
        if len(case.chain) < LONG or not file.exists():
            return []
        jsonl.repair(file)
        return read_records(file)

    def keep(self, task: str, case: Case, records: Iterable[Record]) -> None:
        """Append records of a case; raises StoreError where the disk refuses."""
        jsonl.append(self._file(task, case), (asdict(record) for record in records))

    def drop(self, task: str, case: Case) -> None:
        """Forget what was kept of a case that is done."""
        file = self._file(task, case)
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot remove {file}: {error.strerror or error}; its records are in the run") from error

    def _file(self, task: str, case: Case) -> Path:
        name = hashlib.sha256(f"{task}\x1f{case.id}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return self.folder / PARTS / records_file(self.folder, self.editor).stem / f"{name}.jsonl"


def todo(name: str, task: Task, cases: Sequence[Case], done: Set[Key], parts: Parts) -> list[Attempt]:
    """The cases that lack records, each with what it lacks and what an earlier run has kept of it."""
    attempts = []
    for case in cases:
        lacking = [key for key in keys_of(name, task, [case]) if key not in done]
        if lacking:
            wanted = set(lacking)
            kept = [record for record in parts.of(name, case) if record.key in wanted]
            missing = {key[2:] for key in wanted - {record.key for record in kept}}
            attempts.append(Attempt(case, missing, kept=kept))
    return attempts
