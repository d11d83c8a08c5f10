"""What the training loop asks of something that learns, and what it is told in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Training:
    """How to train; raises ValueError for numbers that make no sense.

    A step of the optimiser takes ``accumulate`` micro-batches of ``batch_size`` items, over all processes together, and
    moves along the gradient of the mean over all of them. ``clip`` is the largest total norm of the gradient. Every
    ``validate_every`` steps, and at the end, the learner is validated, where there is something to validate with.
    ``save_every`` counts steps as well; a checkpoint is written at the end of every epoch where it is None, and at every
    validation.
    """

    epochs: int = 1
    batch_size: int = 1
    accumulate: int = 1
    clip: float | None = None
    seed: int = 0
    save_every: int | None = None
    validate_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "save_every", "validate_every", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Training: {name} is {value}; give a number above 0")

    def steps_per_epoch(self, items: int) -> int:
        """Steps of the optimiser that one pass over so many items takes; the last one may have fewer items."""
        return -(-items // (self.batch_size * self.accumulate))

    def validated_each_epoch(self, items: int) -> Training:
        """The same settings, with a validation after every pass over so many items."""
        return replace(self, validate_every=self.steps_per_epoch(items) or None)


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate."""

    parameters: Sequence[Tensor]
    lr: float
    weight_decay: float = 0.0


class Team(Protocol):
    """The processes that train together."""

    @property
    def rank(self) -> int:
        """Which of them this is, from 0."""
        ...

    @property
    def world(self) -> int:
        """How many there are."""
        ...

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Element-wise sums over all processes (out of place); the tensors themselves when there is one process.

        Every process must call it equally often, with tensors of the same shapes.
        """
        ...


class Learner(Protocol):
    """Something to train: it knows its parameters, its items and the gradient of its loss.

    All randomness of a step comes from (seed, step), never from a running generator, so that a resumed training equals an
    uninterrupted one whatever the number of processes. The loop seeds the generators of Python, NumPy and torch before
    every step, so that what a learner draws from them keeps to this as well.
    """

    def groups(self) -> Sequence[Group]:
        """What the optimiser moves; the tensors of the answer given after ``load_state`` are those that are moved."""
        ...

    def __len__(self) -> int:
        """How many training items there are."""
        ...

    def step(self, batch: Sequence[int], own: Sequence[int], team: Team, step: int) -> Mapping[str, float]:
        """Add gradients to ``.grad`` of the parameters and give logged values, ``loss`` among them.

        ``batch`` are the items of the whole micro-batch, the same in every process; ``own``, a part of it, those that this
        process works on: none, where there are more processes than items. Gradients are scaled so that their sum over
        processes is the gradient of the mean over ``batch``; logged values are scaled alike, and have the same names in
        every process. ``step`` counts micro-batches from 0, over all epochs.
        """
        ...

    def state(self) -> dict[str, Tensor]:
        """Everything learned so far, running statistics included, never a weight of the backbone."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what ``state`` gave."""
        ...
