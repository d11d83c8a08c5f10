"""Wall time of the stages of a run, with the accelerator waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Lap:
    """One timed block; ``seconds`` is set when the block ends, by an error too."""

    stage: str
    seconds: float = 0.0


@contextmanager
def timing(stage: str, device: Any = None) -> Iterator[Lap]:
    """Time a block: ``with timing("insert", device) as lap: ...``, then read ``lap.seconds``.

    ``device`` is a torch.device, its name, or None. Work queued on a CUDA device is waited for before and after, so that
    it counts where it was caused.
    """
    lap = Lap(stage)
    _wait(device)
    start = time.perf_counter()
    try:
        yield lap
    finally:
        _wait(device)
        lap.seconds = time.perf_counter() - start


@dataclass
class Timings:
    """All laps by stage, in seconds; never cumulative, each lap is its own."""

    device: Any = None
    laps: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def timing(self, stage: str) -> Iterator[Lap]:
        """Time a block and keep its lap, by an error too."""
        lap = Lap(stage)
        try:
            with timing(stage, self.device) as lap:
                yield lap
        finally:
            self.laps.setdefault(stage, []).append(lap.seconds)


def _wait(device: Any) -> None:
    if device is not None and str(device).startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)
