"""Editors small enough to be trained by the command line in a test, and benchmarks to train them on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fakes import FakeBenchmark, Prepend
from toy_learner import Line

from kedit.artefacts import load_tensors, save_tensors
from kedit.editor import Progress
from kedit.training import Training, train
from kedit.types import Case
from kedit.validation import Validation


class Trained(Prepend):
    """Prepends what was inserted, and has trained something on the way."""

    needs_fit = True

    def __init__(self, *, epochs: int = 2, lr: float = 0.05, layers: tuple[int, ...] = (-1,), seed: int = 0) -> None:
        self.epochs = epochs
        self.lr = lr
        self.layers = layers
        self.seed = seed

    def build(self) -> None:
        self.learner_ = Line(lr=self.lr)

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        self.saw_ = (list(cases), list(val or []))
        self.learner_ = Line(items=len(cases), lr=self.lr)
        validate = Validation(self, val) if val else None
        train(self.learner_, Training(epochs=self.epochs, seed=self.seed), out=out, validate=validate, progress=progress)
        self.fitted_ = True
        return self

    def save(self, path: str | Path) -> None:
        super().save(path)
        save_tensors(Path(path) / "line.safetensors", self.learner_.state())

    def load(self, path: str | Path) -> Self:
        super().load(path)
        self.learner_.load_state(load_tensors(Path(path) / "line.safetensors"))
        self.fitted_ = True
        return self


class Plain(Prepend):
    """Takes nothing but cases."""

    needs_fit = True

    def fit(self, cases: Sequence[Case]) -> Self:  # type: ignore[override]
        self.fitted_ = True
        return self


@dataclass
class Six(FakeBenchmark):
    """Six raw cases to train on."""

    def train(self, limit: int | None = None) -> list[Case]:
        return super().train(limit or 6)


@dataclass
class Leaking(FakeBenchmark):
    """Its train split is its test split."""

    def train(self, limit: int | None = None) -> list[Case]:
        return self.cases("sequential")


@dataclass
class Untrainable(FakeBenchmark):
    def train(self, limit: int | None = None) -> list[Case]:
        return []
