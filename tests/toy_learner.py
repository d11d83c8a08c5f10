"""A learner of a few numbers that does what real ones do: noise, running statistics, shares of several processes."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kedit.training import Group, Team, Training, train


class Line:
    """Learns a linear map by squared error; one backward pass per item, so that shares add up without rounding of their own.

    ``noise`` draws from the global generators. ``poison`` is the micro-batch that gives NaN; ``pause`` is in seconds.
    """

    def __init__(self, items: int = 7, lr: float = 0.05, noise: bool = False, poison: int = -1, pause: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(5)
        self.inputs = torch.randn(items, 4, generator=generator)
        self.targets = torch.randn(items, 3, generator=generator)
        self.weight = torch.randn(4, 3, generator=generator).requires_grad_()
        self.bias = torch.zeros(3, requires_grad=True)
        self.spare = torch.ones(2, requires_grad=True)  # never receives a gradient
        self.mean = torch.zeros(4)
        self.lr, self.noise, self.poison, self.pause = lr, noise, poison, pause
        self.batches: list[list[int]] = []

    def groups(self) -> list[Group]:
        return [Group([self.weight], self.lr, 0.01), Group([self.bias, self.spare], 2 * self.lr)]

    def __len__(self) -> int:
        return len(self.inputs)

    def error(self, item: int) -> Tensor:
        return (self.inputs[item] @ self.weight + self.bias - self.targets[item]).square().mean()

    def step(self, batch: Sequence[int], own: Sequence[int], team: Team, step: int) -> Mapping[str, float]:
        self.batches.append(list(batch))
        time.sleep(self.pause)
        total = 0.0
        for item in own:
            loss = self.error(item) / len(batch)
            if self.noise:
                loss = loss * (random.random() + float(np.random.rand()) + float(torch.rand(())))
            loss.backward()
            total += loss.item() if step != self.poison else float("nan")
        (seen,) = team.sum([self.inputs[list(own)].sum(0)])
        self.mean = 0.9 * self.mean + 0.1 * seen / len(batch)
        return {"loss": total}

    def state(self) -> dict[str, Tensor]:
        return {"weight": self.weight, "bias": self.bias, "spare": self.spare, "mean": self.mean}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name in ("weight", "bias", "spare"):
                getattr(self, name).copy_(state[name])
        self.mean = state["mean"].clone()

    def score(self) -> float:
        """How well the items are known; draws random numbers, as a validation may."""
        with torch.no_grad():
            return -sum(self.error(item).item() for item in range(len(self))) + 0.01 * random.random()


def files(folder: Path) -> dict[str, bytes]:
    """What a training left that must not depend on how it came about: the checkpoint and the log."""
    return {name: (folder / name).read_bytes() for name in ("last.safetensors", "log.jsonl")}


def main(out: str) -> None:
    torch.set_num_threads(1)
    learner = Line()
    train(learner, Training(epochs=3, batch_size=2, seed=1, clip=1.0), out=out, validate=learner.score)


if __name__ == "__main__":
    main(sys.argv[1])
