"""Teacher forcing: what a model predicts while a given answer is fed to it token by token, for the field's older metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from kedit.types import Request


class Forced(NamedTuple):
    """The predictions of one model along one prompt and answer."""

    top: Tensor
    """Likeliest next tokens at every position of prompt and answer, likeliest first: (positions, k) ids on the CPU."""
    answer: Tensor
    """The answer's own ids, (tokens,), without an end-of-sequence token."""
    finite: bool = True
    """No NaN or infinity among the logits; without that, ids mean nothing: a model of NaN agrees with any other."""

    @property
    def predicted(self) -> Tensor:
        """The likeliest token at each of the answer's positions, (tokens,)."""
        count = len(self.answer)
        return self.top[len(self.top) - count - 1 : len(self.top) - 1, 0]

    def accuracy(self) -> float | None:
        """Share of the answer's tokens that are the likeliest at their position, 0 to 1; None where that cannot be told."""
        if not self.finite or not len(self.answer):
            return None
        return float((self.predicted == self.answer).float().mean())

    def agreement(self, other: Forced, k: int) -> float | None:
        """Share of equal ids, position by position and rank by rank, among the ``k`` likeliest, 0 to 1.

        All positions count, those of the prompt too; the longer of two prompts loses its beginning. None where the ids of the
        two cannot be compared: NaN, or another tokenizer (seen by the answer's ids).
        """
        same_tokens = self.answer.shape == other.answer.shape and bool((self.answer == other.answer).all())
        if not (self.finite and other.finite and same_tokens):
            return None
        shared = min(len(self.top), len(other.top))
        return float((self.top[-shared:, :k] == other.top[-shared:, :k]).float().mean())


def forced_by(backbone: Any, requests: Sequence[Request], answers: Sequence[str], k: int) -> list[Forced | None]:
    """``backbone.forced``, or None for each request where a backbone has no such method, as one behind an API."""
    ask = getattr(backbone, "forced", None)
    return [None] * len(requests) if ask is None else list(ask(requests, answers, k))
