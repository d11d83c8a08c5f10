"""TensorBoard's event files."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedit.errors import package
from kedit.tracking.contract import Rows, without_secrets


class TensorBoard:
    """Event files in a folder. ``begin`` hides what an earlier process wrote there after that step."""

    def __init__(self, folder: str | Path, begin: int | None = None) -> None:
        self._make = package("torch.utils.tensorboard", "tensorboard", "TensorBoard").SummaryWriter
        self._folder, self._begin = Path(folder), begin
        self._writer: Any = None
        self._step = 0

    def start(self, config: Mapping[str, Any]) -> None:
        """See ``Tracker``; without settings there is no text of them."""
        _after_the_last_file(self._folder)
        self._writer = self._make(str(self._folder), purge_step=None if self._begin is None else self._begin + 1)
        if config:
            text = json.dumps(without_secrets(config), indent=2, ensure_ascii=False, default=str)
            self._writer.add_text("config", "\n".join(f"    {line}" for line in text.splitlines()), 0)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._step = step
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def table(self, name: str, rows: Rows) -> None:
        """As text in Markdown."""
        if rows:
            cells = [list(rows[0]), ["---"] * len(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
            self._writer.add_text(name, "\n".join(f"| {' | '.join(line)} |" for line in cells), self._step)

    def flush(self) -> None:
        """Let everything so far survive a kill."""
        if self._writer is not None:
            self._writer.flush()

    def finish(self, *, failed: bool = False) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _cell(value: str | float | None) -> str:
    shown = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return shown.replace("|", "\\|").replace("\n", " ")


def _after_the_last_file(folder: Path) -> None:
    """Wait, at most a second, until a new name sorts last: names hold whole seconds, and TensorBoard reads in name order."""
    seconds = [int(second) for path in folder.glob("events.out.tfevents.*") if (second := path.name.split(".")[3]).isdigit()]
    if seconds and 0 <= (left := max(seconds) + 1 - time.time()) <= 1:
        time.sleep(left)
