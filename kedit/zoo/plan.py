"""How long an embedded backbone is trained, and on what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """A stretch of training: its mix of samples, its steps, its peak rate, and the steps after which the rate's cosine ends."""

    mix: str
    steps: int
    rate: float
    horizon: int


@dataclass(frozen=True)
class Plan:
    """Everything that a training is made of beside the model's shape."""

    phases: tuple[Phase, ...]
    seed: int = 0
    corpus: int = 12_000
    """Draws of every kind of sentence that the tokenizer is trained on."""
    images: int = 160
    """Pictures per scenario."""
    vision_steps: int = 250
    vision_batch: int = 96
    batches: int = 2
    """Batches per step, whose losses are averaged; as many processes can share a step."""
    budget: int = 5000
    """Padded tokens per batch."""
    rate: float = 2e-3
    """Of the eyes' training."""
    eyes_imitate: int = 0
    """Steps in which the eyes learn to see as the parent's do, for a model that has one."""
    layer_imitate: int = 0
    """Steps in which each layer without a counterpart learns to do as the parent's does."""
    save_every: int = 50

    @property
    def steps(self) -> int:
        """Steps of all phases together."""
        return sum(phase.steps for phase in self.phases)

    def phase(self, step: int) -> tuple[Phase, int]:
        """The phase that a step of the language training belongs to, and the step's place in it."""
        for phase in self.phases:
            if step < phase.steps:
                return phase, step
            step -= phase.steps
        return self.phases[-1], self.phases[-1].steps


FOLLOW = Plan((Phase("follow", 100, 8e-4, 100),))
"""Practice of a smaller model that starts from all that its parent knows."""
