"""Runs of MLflow."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedit.errors import package
from kedit.tracking.contract import Rows, flat, without_secrets

EXPERIMENT = "kedit"
_LONGEST = 500
"""Characters of a parameter's value that every server takes."""
_MOST = 100
"""Parameters that a server takes in one call."""
_MOST_METRICS = 1000
"""The same of metrics."""
_LONGEST_NAME = 250


class MLflow:
    """One run in experiment MLFLOW_EXPERIMENT_NAME (``kedit``) on the server MLFLOW_TRACKING_URI, else in a folder.

    In the folder are ``mlflow.db`` (SQLite) and the artifacts: ``mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db``.
    The settings as a whole are the artifact ``config.json``; as parameters long values are cut. No global state of MLflow's
    is changed.
    """

    def __init__(self, folder: str | Path) -> None:
        self._mlflow = package("mlflow", "mlflow", "tracking by MLflow")
        self._folder = Path(folder).absolute()
        self._client: Any = None
        self._run = ""

    def start(self, config: Mapping[str, Any]) -> None:
        """See ``Tracker``."""
        served = os.environ.get("MLFLOW_TRACKING_URI")
        if not served:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._client = self._mlflow.MlflowClient(tracking_uri=served or f"sqlite:///{self._folder / 'mlflow.db'}")
        self._run = self._client.create_run(self._experiment(local=not served)).info.run_id
        kept = without_secrets(config)
        self._client.log_dict(self._run, kept, "config.json")
        values = {_name(name): str(value)[:_LONGEST] for name, value in flat(kept).items()}  # no name twice
        params = [self._mlflow.entities.Param(name, value) for name, value in values.items()]
        for start in range(0, len(params), _MOST):
            self._client.log_batch(self._run, params=params[start : start + _MOST])

    def _experiment(self, *, local: bool) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        place = (self._folder / "artifacts").as_uri() if local else None
        return str(self._client.create_experiment(name, artifact_location=place))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``; values that are not finite, which not every store takes, are left out."""
        now = int(time.time() * 1000)
        metric = self._mlflow.entities.Metric
        found = [metric(_name(name), float(value), now, step) for name, value in values.items() if math.isfinite(value)]
        for start in range(0, len(found), _MOST_METRICS):
            self._client.log_batch(self._run, metrics=found[start : start + _MOST_METRICS])

    def table(self, name: str, rows: Rows) -> None:
        """As an artifact in the form that MLflow shows as a table."""
        if rows:
            found = {"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}
            self._client.log_dict(self._run, found, f"{_name(name)}.json")

    def finish(self, *, failed: bool = False) -> None:
        """See ``Tracker``."""
        if self._client is not None and self._run:
            self._client.set_terminated(self._run, status="FAILED" if failed else "FINISHED")
            self._run = ""


def _name(name: str) -> str:
    """A name in the letters that MLflow takes, without parts that a path would lose (empty, ``.``, ``..``)."""
    parts = (part for part in re.sub(r"[^\w\-. /]", "_", name).split("/") if part.strip("."))
    return "/".join(parts)[:_LONGEST_NAME].strip("/.") or "_"
