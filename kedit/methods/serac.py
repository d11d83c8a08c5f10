"""Semi-parametric editing: a memory of edits, a classifier of scope on questions, and a model that answers in scope."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kedit.editor import Hit, Progress
from kedit.encoders import MINILM, TextEncoder
from kedit.errors import unknown_name
from kedit.forcing import Forced
from kedit.replacement.editor import Replaced, below, token_limit
from kedit.replacement.mixing import MixedScope, Partners, write_mixed
from kedit.replacement.model import lessons
from kedit.routers.pairs import entries
from kedit.routers.text_scope import TextScope
from kedit.types import Answer, Case, Knowledge, Request
from kedit.weights.modules import trainable

SOFT_MIXING = "soft_mixing"


class SERAC(Replaced):
    """Keeps edits in a memory; a question near enough to one of theirs is answered by a replacement model (Mitchell et al. 2022).

    The router compares questions by MiniLM embeddings, exp(-scale |k - q|^2) > ``threshold``, and sees no image; the answer
    to be judged is never shown to it. Router and replacement are trained with what is wanted of each: see ``TextScope`` for
    ``encoder``, ``router_train``, ``key_text``, ``calibration``, ``all_negatives``, and ``Replacement`` for ``replacement``
    (None: what the catalogue names for the backbone), ``replacement_layers`` and ``stored_image``. Defaults are those of
    CrossCult-KIBench (Table 5: threshold 0.5, learning rates 1e-4 and 1e-5, one epoch, the replacement's last layer).

    ``legacy="soft_mixing"`` does what EasyEdit's multimodal port does: router and replacement are trained together on the
    mixture log((1 - s) p_base + s p_replacement) of the nearest entry, without labels of scope, and the mixture answers every
    request once something is inserted. It needs a backbone whose logits can be read, and one vocabulary; it is slow.
    """

    def __init__(
        self,
        *,
        encoder: str | TextEncoder = MINILM,
        router_train: str = "all",
        key_text: str = "question",
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
        legacy: str | None = None,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.router_train = router_train
        self.key_text = key_text
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
        self.legacy = legacy
        self.seed = seed

    def make_router(self) -> TextScope:
        """The scope classifier; the one that is trained through the mixture where that is asked for."""
        if self.legacy not in (None, SOFT_MIXING):
            raise unknown_name("legacy behaviour", str(self.legacy), [SOFT_MIXING])
        kind = MixedScope if self.legacy else TextScope
        return kind(**self.router_params())

    # -- the published mixture -----------------------------------------------------------------------------------------

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Fit the router, then the replacement; in the published way both at once, for ``router_epochs``."""
        self._require_attached()
        if not isinstance(self.router_, MixedScope):
            return super().fit(cases, val=val, out=out, progress=progress)
        backbone = trainable(self.backbone_, "soft mixing")
        given = [*cases, *(val or ())]
        kept = list(dict.fromkeys(one.request for entry in entries(given) for one in entry.negatives))
        said = dict(zip(kept, (answer.text for answer in backbone.generate(kept)), strict=True))
        answers = {(one.entry, one.request): one.answer for one in lessons(given)}
        teaching = self.replacement_.begin(lessons(cases))
        self.router_.partners_ = Partners(backbone, teaching, answers, said)
        try:
            self.router_.fit(cases, val=val, out=below(out, "mixture"), progress=progress)
        finally:
            del self.router_.partners_
        self.replacement_.end(teaching)
        return self

    def route(self, requests: Sequence[Request]) -> list[Knowledge | None]:
        """The entry in scope; in the published way the nearest entry, whatever its score."""
        if not self.legacy or not len(self.memory_):
            return super().route(requests)
        return [self.memory_[found.nearest] if found.nearest is not None else None for found in self.decide(requests)]

    def replace(self, requests: Sequence[Request], knowledge: Sequence[Knowledge]) -> list[Answer]:
        """The replacement's answers; in the published way the mixture's."""
        if not self.legacy:
            return super().replace(requests, knowledge)
        return [self._mixed(request, entry) for request, entry in zip(requests, knowledge, strict=True)]

    def forced_hit(self, hit: Hit, answer: str, k: int) -> Forced | None:
        """The replacement's predictions; None in the published way, where they would not be those of the mixture."""
        return None if self.legacy else super().forced_hit(hit, answer, k)

    def _mixed(self, request: Request, entry: Knowledge) -> Answer:
        backbone, replacement = trainable(self.backbone_, "soft mixing"), self.replacement_
        weight = float(self.router_.score([request], [entry])[0, 0])
        told = replacement.told(request, entry)
        return write_mixed(backbone, request, replacement.backbone_, told, weight, token_limit(backbone))
