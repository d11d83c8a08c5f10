"""Multimodal scope classification: edits in a memory, a classifier on question and image, and a model that answers in scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kedit.encoders import unit
from kedit.image_encoders import ARCHITECTURE, PRETRAINED
from kedit.replacement.editor import Replaced
from kedit.routers.image_text import DOT_LEGACY, ImageTextScope
from kedit.types import Knowledge, Request

if TYPE_CHECKING:
    from kedit.image_encoders import PairEncoder


class MSCKE(Replaced):
    """Keeps edits in a memory; a request whose question and image are near to one's is answered by a replacement model.

    Zeng et al. 2024 (arXiv 2411.12790), without the defects of the code published with it. The router compares normalised
    text and image features of an open_clip model, fused for every entry by itself, exp(-scale |k - q|^2) > ``threshold``.
    Its default encoder reads 77 tokens of English: longer questions, and most in other scripts, are cut, and ``notes`` gives
    the share of those; a multilingual encoder is an argument away: ``encoder="xlm-roberta-base-ViT-B-32",
    pretrained="laion5b_s13b_b90k"``. Defaults are those of CrossCult-KIBench (Table 5: ViT-L/14, threshold 0.5, learning
    rates 1e-4 and 1e-5, one epoch, the replacement's last layer).

    ``encoder``, ``pretrained``, ``router_train``, ``key_text``, ``fusion``, ``loss``, ``calibration`` and ``all_negatives``
    are those of ``ImageTextScope``; ``replacement`` (None: what the catalogue names for the backbone), ``replacement_layers``
    and ``stored_image`` those of ``Replacement``. ``fusion="dot_legacy"``, where one entry's key depends on the others, and
    ``loss="bce_prob"``, whose gradient dies for pairs that start far apart, are what was published.
    """

    router_: ImageTextScope

    def __init__(
        self,
        *,
        encoder: str | PairEncoder = ARCHITECTURE,
        pretrained: str | None = PRETRAINED,
        router_train: str = "all",
        key_text: str = "question",
        fusion: str = "entry",
        loss: str = "bce_log",
        threshold: float = 0.5,
        calibration: str = "fixed",
        all_negatives: bool = True,
        router_epochs: int = 1,
        router_batch_size: int = 8,
        router_lr: float = 1e-4,
        replacement: str | None = None,
        replacement_layers: Sequence[int] | None = (-1,),
        stored_image: bool = True,
        replacement_epochs: int = 1,
        replacement_batch_size: int = 1,
        replacement_lr: float = 1e-5,
        index: str = "flat",
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.pretrained = pretrained
        self.router_train = router_train
        self.key_text = key_text
        self.fusion = fusion
        self.loss = loss
        self.threshold = threshold
        self.calibration = calibration
        self.all_negatives = all_negatives
        self.router_epochs = router_epochs
        self.router_batch_size = router_batch_size
        self.router_lr = router_lr
        self.replacement = replacement
        self.replacement_layers = replacement_layers
        self.stored_image = stored_image
        self.replacement_epochs = replacement_epochs
        self.replacement_batch_size = replacement_batch_size
        self.replacement_lr = replacement_lr
        self.index = index
        self.seed = seed

    def make_router(self) -> ImageTextScope:
        """The scope classifier on question and image."""
        return ImageTextScope(**self.router_params(), pretrained=self.pretrained, fusion=self.fusion, loss=self.loss)

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        """Add the entry; the published fusion makes keys anew from all entries, so that the one stored is never looked at."""
        key = self.router_.keys([knowledge])
        self.memory_.add(edit_id, knowledge, (unit(key) if self.fusion == DOT_LEGACY else key)[0])

    def route(self, requests: Sequence[Request]) -> list[Knowledge | None]:
        """The entry in scope; with the published fusion one request at a time, since requests of a call would mix as well."""
        if self.fusion != DOT_LEGACY:
            return super().route(requests)
        return [found for request in requests for found in super(MSCKE, self).route([request])]

    def notes(self) -> Mapping[str, str | int | float]:
        """Also the share of questions asked, 0 to 1, that the encoder could not read to their end."""
        return {**super().notes(), "share of questions cut": self.router_.truncated_share}
