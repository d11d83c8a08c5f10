"""What a training writes as it goes: ``log.jsonl`` and, where tensorboard is installed, its event files."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from kedit import jsonl
from kedit.artefacts import write_bytes
from kedit.errors import MissingPackageError
from kedit.tracking.tensorboard_events import TensorBoard

log = logging.getLogger(__name__)

LOG = "log.jsonl"
EVENTS = "events"


class Journal:
    """One row per optimiser step. A resumed training takes back the rows after its checkpoint, so that no step appears twice."""

    def __init__(self, folder: Path, step: int) -> None:
        self._file, self._folder, self._begin = folder / LOG, folder / EVENTS, step
        self._resume(step)

    @cached_property
    def _events(self) -> TensorBoard | None:
        """Made at the first step, so that a training that is already complete leaves its folder as it is."""
        return _events(self._folder, self._begin)

    def _resume(self, step: int) -> None:
        rows = [row for row in jsonl.read(self._file, strict=False) if row.get("step", 0) <= step]
        if self._file.exists():
            data = b"".join(jsonl.encode(row) for row in rows)
            write_bytes(self._file, data)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append the values of a step; what JSON has no number for (NaN, infinity) is written as null."""
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        jsonl.append(self._file, [{"step": step, **finite}])
        if self._events is not None:
            self._events.log(step, values)

    def flush(self) -> None:
        """Let everything so far survive a kill."""
        if self._events is not None:
            self._events.flush()

    def close(self) -> None:
        """Close the event file."""
        if "_events" in vars(self) and self._events is not None:
            self._events.finish()


def _events(folder: Path, step: int) -> TensorBoard | None:
    """Event files, which hide what an earlier process wrote after ``step``; None without the package."""
    try:
        events = TensorBoard(folder, step)
    except MissingPackageError:
        log.info("no TensorBoard event files: install kedit[tensorboard] to get them")
        return None
    events.start({})
    return events
