"""Trackers of experiments: TensorBoard, Weights & Biases, MLflow, or one of your own."""

from kedit.tracking.contract import Several, Tracker, without_secrets
from kedit.tracking.opening import TRACKERS, open_trackers

__all__ = ["TRACKERS", "Several", "Tracker", "open_trackers", "without_secrets"]
