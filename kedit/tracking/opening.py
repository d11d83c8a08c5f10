"""Trackers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kedit.errors import unknown_name
from kedit.tracking.contract import Several, Tracker
from kedit.tracking.mlflow_runs import MLflow
from kedit.tracking.tensorboard_events import TensorBoard
from kedit.tracking.wandb_runs import WandB

TRACKERS: Mapping[str, Callable[[Path], Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def open_trackers(names: Sequence[str], folder: str | Path) -> Tracker | None:
    """A tracker that tells those named; None without a name. Each keeps its files in a folder of its own inside ``folder``.

    Nothing is written before ``start``. Raises UnknownNameError for another name and MissingPackageError where a package is
    not installed.
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
    made = [TRACKERS[name](Path(folder) / name) for name in dict.fromkeys(names)]
    return Several(made) if made else None
