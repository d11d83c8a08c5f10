"""A scope classifier on a text encoder: which entry a question is about, by its words alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kedit.encoders import MINILM, SentenceEncoder, TextEncoder, minilm, text_encoder
from kedit.errors import FamilyError
from kedit.routers.scope import View
from kedit.routers.scope_router import ALL, FIXED, HEAD, QUESTION, Cached, ScopeHead, ScopeRouter, identity_linear
from kedit.types import Knowledge, Request


class TextHead(ScopeHead):
    """Normalises, after a linear map where there is one."""

    def __init__(self, scale: float, width: int | None) -> None:
        super().__init__(scale)
        self.map = nn.Identity() if width is None else identity_linear(width)

    def forward(self, features: Tensor) -> Tensor:
        """(n, width) to unit vectors of the same width."""
        return nn.functional.normalize(self.map(features), dim=-1)


class TextScope(ScopeRouter):
    """Scope classifier on sentence embeddings (Mitchell et al. 2022; the encoder as in CrossCult-KIBench).

    In scope where exp(-scale |k - q|^2) > ``threshold``. With unit vectors, scale 1 and threshold 0.5 that is a cosine above
    1 - ln 2 / 2 = 0.6534. It sees no image: questions in the same words about different images are one to it.

    ``encoder`` is "minilm", a sentence-transformers name or path, or a ``TextEncoder``; vectors are what its own pooling
    gives, normalised. ``train`` is "all" (every weight of the encoder, as the papers do) or "head" (a linear map on its
    frozen embeddings, which starts as the identity; seconds, and possible for any ``TextEncoder``). ``key_text`` is what
    is encoded of an entry: "question", as of a request, or "question+answer", as originally published. ``batch_size``
    entries are in memory at a training step; ``all_negatives`` and ``loss`` are those of ``ScopeLearner``; ``scale`` is
    where the learned scale starts. ``calibration`` is "fixed" or a rule of ``kedit.routers.calibration``.
    """

    def __init__(
        self,
        *,
        encoder: str | TextEncoder = MINILM,
        train: str = ALL,
        key_text: str = QUESTION,
        threshold: float = 0.5,
        calibration: str = FIXED,
        loss: str = "bce_log",
        all_negatives: bool = True,
        epochs: int = 1,
        batch_size: int = 8,
        lr: float = 1e-4,
        scale: float = 1.0,
        scale_lr: float = 1e-2,
        seed: int = 0,
        device: str | None = None,
    ) -> None:
        self.encoder = encoder
        self.train = train
        self.key_text = key_text
        self.threshold = threshold
        self.calibration = calibration
        self.loss = loss
        self.all_negatives = all_negatives
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.scale = scale
        self.scale_lr = scale_lr
        self.seed = seed
        self.device = device

    def query_view(self, request: Request) -> View:
        return View(request.question)

    def key_view(self, knowledge: Knowledge) -> View:
        return View(self.key_text_of(knowledge))

    # -- the encoder -------------------------------------------------------------------------------------------------

    def load_encoder(self) -> Any:
        if self.encoder == MINILM:
            return minilm(self.place)
        found = text_encoder(self.encoder)
        if isinstance(found, SentenceEncoder) and found.device != self.place:
            return SentenceEncoder(found.name, self.place, found.max_length)
        return found

    def copy_encoder(self, encoder: Any) -> SentenceEncoder:
        if not isinstance(encoder, SentenceEncoder):
            raise FamilyError(f"train='all' needs a sentence-transformers model to train, got {encoder!r:.80}; use train='head'")
        own = SentenceEncoder(encoder.name, encoder.device, encoder.max_length)
        own.__dict__["model"] = copy.deepcopy(encoder.model)  # where the class keeps the model that it loads when first used
        return own

    def features(self, views: Sequence[View]) -> Tensor:
        return self.cached_([view.text for view in views], live=self.live_)

    @cached_property
    def cached_(self) -> Cached:
        """Embeddings by text."""
        return Cached(self._encode, key=str, chunk=1024)

    def _encode(self, texts: list[str]) -> Tensor:
        if self.live_ and torch.is_grad_enabled():
            model = self.own_.model
            found: Tensor = model(_on(self.place, model.preprocess(texts)))["sentence_embedding"]
            return found
        return torch.as_tensor(np.asarray(self.encoder_in_use(texts), np.float32)).to(self.place)

    def clear(self) -> None:
        self.cached_.clear()

    @property
    def width(self) -> int:
        return int(self.features([View("")]).shape[-1])

    def make_head(self) -> TextHead:
        return TextHead(self.scale, self.width if self.train == HEAD else None)


def _on(device: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.to(device) if torch.is_tensor(value) else value for name, value in inputs.items()}
