"""Runs of Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedit.errors import package
from kedit.tracking.contract import Rows, without_secrets


class WandB:
    """One run in project WANDB_PROJECT (``kedit``), kept in a folder; nothing leaves the machine unless WANDB_MODE=online.

    ``wandb sync`` sends a run that was kept. The service's own key is read by its package and never seen here; neither code,
    nor output, nor the state of a Git checkout is kept.
    """

    def __init__(self, folder: str | Path) -> None:
        self._wandb = package("wandb", "wandb", "tracking by Weights & Biases")
        self._folder = Path(folder)
        self._run: Any = None

    def start(self, config: Mapping[str, Any]) -> None:
        """See ``Tracker``."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "kedit"),
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(self._folder),
            config=without_secrets(config),
            settings=self._wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True, save_code=False),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._run.log(dict(values), step=step)

    def table(self, name: str, rows: Rows) -> None:
        """See ``Tracker``."""
        if rows:
            data = [list(row.values()) for row in rows]
            self._run.log({name: self._wandb.Table(columns=list(rows[0]), data=data)})

    def finish(self, *, failed: bool = False) -> None:
        """See ``Tracker``."""
        if self._run is not None:
            self._run.finish(exit_code=int(failed))
            self._run = None
