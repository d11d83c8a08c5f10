"""Losses and logits of prompts that end in an answer, from the captured trunk or from the whole model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from kedit.backbone import HFBackbone, Taught
from kedit.errors import unknown_name
from kedit.trunk import Captured, capture, replay, replay_logits
from kedit.types import Request

Prompt = Captured | Taught
ROWS = ("after_image", "all", "answer")
"""Token positions: those after the last image token (all of them in a prompt without images), all, or those that predict
the answer and the end-of-sequence token."""


class Passes:
    """Forward passes of a model whose layers below ``lowest`` never change.

    These layers run once per prompt. ``plain`` runs the whole model in every pass instead, with the same results.
    """

    def __init__(self, backbone: HFBackbone, lowest: int, *, plain: bool = False) -> None:
        self.backbone = backbone
        self.lowest = lowest
        self.plain = plain
        self._keep = 0
        self._kept: OrderedDict[tuple[Request, str], Prompt] = OrderedDict()

    @contextmanager
    def remembering(self, count: int) -> Iterator[None]:
        """Inside the block, in which no weight may change, the ``count`` prompts last used need not be prepared again."""
        self._keep = count
        try:
            yield
        finally:
            self._keep = 0
            self._kept.clear()

    def prompt(self, request: Request, answer: str) -> Prompt:
        """A prompt and the answer after it, ready for passes; raises RequestError and ImageError."""
        key = (request, answer)
        found = self._kept.pop(key, None)
        if found is None:
            make = self.backbone.teach if self.plain else lambda r, a: capture(self.backbone, r, a, self.lowest)
            found = make(request, answer)
        if self._keep:
            self._kept[key] = found
            while len(self._kept) > self._keep:
                self._kept.popitem(last=False)
        return found

    def nll(self, prompt: Prompt) -> Tensor:
        """``backbone.loss`` of the prompt: nats per token of the answer, end-of-sequence token included."""
        if isinstance(prompt, Captured):
            return replay(prompt)
        output = self.backbone.forward(prompt.inputs, rows=prompt.rows)
        return self.backbone.nll(output, prompt.rows, prompt.targets)

    def logits(self, prompt: Prompt, rows: Tensor) -> Tensor:
        """Logits (rows, vocabulary; fp32) at some token positions."""
        if isinstance(prompt, Captured):
            return replay_logits(replace(prompt, rows=rows))
        return self.backbone.logits(self.backbone.forward(prompt.inputs, rows=rows), rows)

    def positions(self, prompt: Prompt, which: str) -> Tensor:
        """Token positions of the kind ``which`` (one of ``ROWS``), ascending; padding is left out."""
        if which not in ROWS:
            raise unknown_name("kind of rows", which, ROWS)
        if which == "answer":
            return prompt.rows
        tokens = prompt.inputs["input_ids"][0]
        real = prompt.inputs["attention_mask"][0].bool() if "attention_mask" in prompt.inputs else torch.ones_like(tokens).bool()
        image = self.backbone.structure.image_token_id
        if which == "after_image" and image is not None:
            up_to_last_image = (tokens == image).flip(0).cumsum(0).flip(0) > 0
            real = real & ~up_to_last_image
        return real.nonzero()[:, 0]


def divergence(base: Tensor, edited: Tensor) -> Tensor:
    """KL(base || edited) in nats, from logits (rows, vocabulary), mean over rows."""
    p, q = base.log_softmax(-1), edited.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).mean()
