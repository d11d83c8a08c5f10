"""A scope classifier on an image-text encoder: which entry a request is about, by its question and its image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kedit.encoders import unit
from kedit.errors import ContractError
from kedit.image_encoders import ARCHITECTURE, PRETRAINED, PairEncoder, load_clip
from kedit.memory import Memory
from kedit.routers.base import Decision
from kedit.routers.scope import View, squared_distances
from kedit.routers.scope_router import ALL, FIXED, HEAD, QUESTION, Cached, ScopeHead, ScopeRouter, identity_linear
from kedit.types import ImageRef, Knowledge, Request

WEIGHTS = "weights"
ENTRY, DOT_LEGACY = "entry", "dot_legacy"


class PairHead(ScopeHead):
    """Fuses [text; image] features, (n, 2 width); with ``mapped`` each half passes a linear map first."""

    def __init__(self, scale: float, width: int, *, mapped: bool, legacy: bool) -> None:
        super().__init__(scale)
        self.width = width
        self.legacy = legacy
        self.text_map = identity_linear(width) if mapped else nn.Identity()
        self.image_map = identity_linear(width) if mapped else nn.Identity()
        if not legacy:
            self.text_weight = nn.Parameter(torch.tensor(1.0))
            self.image_weight = nn.Parameter(torch.tensor(1.0))

    def halves(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Text and image features, (n, width) each."""
        return self.text_map(features[:, : self.width]), self.image_map(features[:, self.width :])

    def forward(self, features: Tensor) -> Tensor:
        """Every row by itself: [w_t t/|t| ; w_v v/|v|] normalised (an image half of zeros stays so); [t ; v] for legacy."""
        text, image = self.halves(features)
        if self.legacy:
            return torch.cat([text, image], -1)
        text, image = nn.functional.normalize(text, dim=-1), nn.functional.normalize(image, dim=-1)
        return nn.functional.normalize(torch.cat([self.text_weight * text, self.image_weight * image], -1), dim=-1)

    def mixed(self, features: Tensor) -> Tensor:
        """All rows together, as published: [T ; A V] with A = softmax(T V^T) over the rows."""
        text, image = self.halves(features)
        return torch.cat([text, torch.softmax(text @ image.T, -1) @ image], -1)


class ImageTextScope(ScopeRouter):
    """Scope classifier on question and image (Zeng et al. 2024, arXiv 2411.12790; encoder and rates as in CrossCult-KIBench).

    A vector is F = [w_t t/|t| ; w_v v/|v|] normalised, from the encoder's text features t and image features v, with learned
    w_t and w_v. In scope where exp(-scale |F_k - F_q|^2) > ``threshold``. The image of a request is the mean of the unit
    features of its images; where it has none, its image half is zero: with equal weights the same question with and
    without an image has the similarity exp(-0.586 scale) = 0.557, just in scope at the defaults.

    ``encoder`` and ``pretrained`` are those of ``kedit.image_encoders.load_clip`` (a multilingual one is named the same way),
    or ``encoder`` is a ``PairEncoder``. ``train`` is "all" (every weight of the encoder, as published), "head" (a linear
    map on each half of its frozen features, which starts as the identity) or "weights" (w_t, w_v and scale alone).
    ``key_text`` is what is encoded of an entry beside its image: "question", as of a request, or "question+answer".

    ``fusion="dot_legacy"`` is the published one: F = [T ; A V], not normalised, with A = softmax(T V^T) over all keys in
    memory, and over all requests of a call: what is stored or asked besides moves a vector, often to another entry's image.
    ``decide`` and ``score`` fuse sets, anew at every call; ``keys`` and ``queries`` give the direction of [t ; v], which is what
    the fusion makes of a single one. A request without image gets the features of pixels that are zero. The published scale
    is 1 and stays so (``scale_lr=0``), and published keys hold the answer (``key_text``). A training step
    fuses the keys of its batch, and each request by itself, as published code asks one at a time.

    ``queries_`` and ``truncated_`` count the requests encoded since ``attach``, and those whose question the encoder cut.
    """

    TRAINABLE: ClassVar[tuple[str, ...]] = (ALL, HEAD, WEIGHTS)
    IDENTITY: ClassVar[tuple[str, ...]] = ("encoder", "pretrained", "train", "key_text", "fusion")

    def __init__(
        self,
        *,
        encoder: str | PairEncoder = ARCHITECTURE,
        pretrained: str | None = PRETRAINED,
        train: str = ALL,
        key_text: str = QUESTION,
        fusion: str = ENTRY,
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
        self.pretrained = pretrained
        self.train = train
        self.key_text = key_text
        self.fusion = fusion
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

    def build(self) -> None:
        self._check("fusion", (ENTRY, DOT_LEGACY))
        super().build()
        self.queries_ = self.truncated_ = 0
        self._cut: dict[str, bool] = {}

    @property
    def truncated_share(self) -> float:
        """Share of the requests so far whose question was cut, 0 to 1; 0 where none was asked."""
        self._ready()
        return self.truncated_ / self.queries_ if self.queries_ else 0.0

    # -- what is seen ------------------------------------------------------------------------------------------------

    def query_view(self, request: Request) -> View:
        return self._view(request.question, request)

    def key_view(self, knowledge: Knowledge) -> View:
        return self._view(self.key_text_of(knowledge), knowledge.request)

    def _view(self, text: str, request: Request) -> View:
        images = request.images[:1] if self.fusion == DOT_LEGACY else request.images
        return View(text, images, tuple(image.digest for image in images))

    # -- the encoder -------------------------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        return str(self.encoder.device) if isinstance(self.encoder, PairEncoder) else super().place

    def load_encoder(self) -> PairEncoder:
        if isinstance(self.encoder, PairEncoder):
            return self.encoder
        return load_clip(self.encoder, self.pretrained, device=self.place)

    def copy_encoder(self, encoder: PairEncoder) -> PairEncoder:
        return encoder.copy()

    def features(self, views: Sequence[View]) -> Tensor:
        """[t ; v] of every view, (n, 2 width)."""
        text = self.texts_([view.text for view in views], live=self.live_)
        return torch.cat([text, self._image_half(views, text)], -1)

    def _image_half(self, views: Sequence[View], text: Tensor) -> Tensor:
        legacy = self.fusion == DOT_LEGACY
        wanted = [(at, image) for at, view in enumerate(views) for image in view.images or ((None,) if legacy else ())]
        if not wanted:
            return torch.zeros_like(text)
        found = self.images_([image for _, image in wanted], live=self.live_)
        if legacy:
            return found  # one each
        owner = torch.tensor([at for at, _ in wanted], device=found.device)
        counts = torch.bincount(owner, minlength=len(views)).clamp(min=1).unsqueeze(1)
        return torch.zeros_like(text).index_add(0, owner, nn.functional.normalize(found, dim=-1)) / counts

    @cached_property
    def texts_(self) -> Cached:
        """Text features by text."""
        return Cached(lambda texts: self.encoder_in_use.text_features(texts), key=str)

    @cached_property
    def images_(self) -> Cached:
        """Image features by content; None stands for pixels that are zero."""
        return Cached(self._encode_images, key=lambda image: image.digest if image is not None else "")

    def _encode_images(self, images: list[ImageRef | None]) -> Tensor:
        real = [image for image in images if image is not None]
        rows = iter(self.encoder_in_use.image_features(real)) if real else iter(())
        return torch.stack([next(rows) if image is not None else self.encoder_in_use.blank_feature() for image in images])

    def clear(self) -> None:
        self.texts_.clear()
        self.images_.clear()

    @property
    def width(self) -> int:
        return 2 * int(self.encoder_.width)

    def make_head(self) -> PairHead:
        return PairHead(self.scale, self.width // 2, mapped=self.train == HEAD, legacy=self.fusion == DOT_LEGACY)

    # -- routing -----------------------------------------------------------------------------------------------------

    def keys(self, knowledge: Sequence[Knowledge]) -> NDArray[np.float32]:
        return unit(super().keys(knowledge))  # only legacy vectors have another length

    def queries(self, requests: Sequence[Request]) -> NDArray[np.float32]:
        self._ready()
        self._count([request.question for request in requests])
        return unit(super().queries(requests))

    def _count(self, texts: Sequence[str]) -> None:
        if new := [text for text in dict.fromkeys(texts) if text not in self._cut]:
            self._cut.update(zip(new, self.encoder_.tokens(new)[1], strict=True))
        self.queries_ += len(texts)
        self.truncated_ += sum(self._cut[text] for text in texts)

    def vectors(self, keys: Sequence[View], queries: Sequence[View]) -> tuple[Tensor, Tensor]:
        if self.fusion != DOT_LEGACY:
            return super().vectors(keys, queries)
        features = self.features([*keys, *queries])
        return self.head_.mixed(features[: len(keys)]), self.head_(features[len(keys) :])

    def similarity(self, cosine: NDArray[Any]) -> NDArray[Any]:
        """exp(-scale |k - q|^2) of unit vectors, in (0, 1]; raises ContractError for the legacy fusion, which has none such."""
        if self.fusion == DOT_LEGACY:
            raise ContractError(
                "fusion='dot_legacy' compares vectors that are no unit vectors and depend on each other: use score"
            )
        return super().similarity(cosine)

    def score(self, requests: Sequence[Request], knowledge: Sequence[Knowledge]) -> NDArray[Any]:
        if self.fusion != DOT_LEGACY or not (requests and knowledge):
            return super().score(requests, knowledge)
        self._ready()
        self._count([request.question for request in requests])
        with torch.no_grad():
            keys = self.head_.mixed(self.features([self.key_view(item) for item in knowledge]))
            queries = self.head_.mixed(self.features([self.query_view(request) for request in requests]))
            return self.closeness(squared_distances(queries, keys).cpu().numpy())

    def decide(self, requests: Sequence[Request], memory: Memory) -> list[Decision]:
        if self.fusion != DOT_LEGACY or not (requests and len(memory)):
            return super().decide(requests, memory)
        ids = memory.ids
        scores = self.score(requests, [memory[id] for id in ids])
        best = [(ids[int(row.argmax())], float(row.max())) for row in scores]
        return [Decision(id, score, self.in_scope(score)) for id, score in best]
