"""Memory-conditioned knowledge insertion: what was inserted is kept aside, and shown to the model when a request concerns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path

from torch import Tensor

from kedit.editor import ContextEditor
from kedit.features import PooledFeatures
from kedit.routers.base import Router
from kedit.routers.contrastive import HiddenRouter
from kedit.routers.routed import Routed
from kedit.types import Answer, Knowledge, Request
from kedit.wording import wrapped

_FEATURES = "features"


class MCKI(Routed, ContextEditor):
    """Keeps every insert in a memory and puts the one that a request concerns before it (CrossCult-KIBench, section 4).

    The entry whose key is nearest to the request by cosine applies at or above a calibrated threshold (equations 1 and 3); the
    backbone then answers [Wrap(entry), image, question] (equation 2), and otherwise the request as it is, which comes back
    unchanged. ``dim``, ``gamma``, ``negative_loss_weight``, ``language_weight``, ``scenario_weight``, ``in_batch_negatives``,
    ``lr``, ``epochs``, ``batch_size``, ``layer``, ``calibration``, ``threshold`` and ``seed`` are those of ``HiddenRouter``;
    ``router`` takes any other router in its place. ``in_batch_negatives=False`` is the paper's loss, which never trains *which*
    entry a request finds.

    The paper leaves the text of Wrap open. ``wrap`` is "language" (a reference in the request's language), "fact" (the line
    "New Fact: ..."), or texts by language (see ``kedit.wording.wrapped``). With ``stored_image`` the entry's image precedes the
    text, since equation 2 wraps the whole sample (image, question, answer); turn it off for a model that takes one image.

    A request is read once: the states that decide its routing are those from which a request that no entry concerns is
    answered. ``plain`` reads it for each of the two, with the same result in fp32.
    """

    def __init__(
        self,
        *,
        router: Router | None = None,
        dim: int = 1024,
        gamma: float = 20.0,
        negative_loss_weight: float = 1.0,
        language_weight: float = 1.0,
        scenario_weight: float = 1.5,
        in_batch_negatives: bool = True,
        lr: float = 1e-3,
        epochs: int = 1,
        batch_size: int = 32,
        layer: int = -1,
        calibration: str = "accuracy",
        threshold: float | None = None,
        index: str = "flat",
        wrap: str | Mapping[str, str] = "language",
        stored_image: bool = True,
        seed: int = 0,
        plain: bool = False,
    ) -> None:
        self.router = router
        self.dim = dim
        self.gamma = gamma
        self.negative_loss_weight = negative_loss_weight
        self.language_weight = language_weight
        self.scenario_weight = scenario_weight
        self.in_batch_negatives = in_batch_negatives
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.layer = layer
        self.calibration = calibration
        self.threshold = threshold
        self.index = index
        self.wrap = wrap
        self.stored_image = stored_image
        self.seed = seed
        self.plain = plain

    @property
    def deferrable(self) -> bool:
        """True: ``generate`` gives what the backbone answers to the rewritten requests."""
        return True

    def make_router(self) -> Router:
        if self.router is not None:
            return self.router
        own = self.get_params()
        return HiddenRouter(**{name: own[name] for name in signature(HiddenRouter).parameters if name in own})

    # -- asking --------------------------------------------------------------------------------------------------------

    def rewrite(self, request: Request) -> Request:
        return self.rewrite_all([request])[0]

    def rewrite_all(self, requests: Sequence[Request]) -> list[Request]:
        """Those that an entry concerns with it before them, the others as they are (the same objects)."""
        found = self.routed(requests)
        return [request if entry is None else self._with(entry, request) for request, entry in zip(requests, found, strict=True)]

    def _with(self, entry: Knowledge, request: Request) -> Request:
        text = wrapped(entry.request.question, entry.answer, request.language, self.wrap)
        images = entry.request.images if self.stored_image else ()
        return replace(request, context=(*images, text, *request.context))

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        self._require_attached()
        features, ask = self._features, getattr(self.backbone_, "generate_unless", None)
        if self.plain or ask is None or features is None or not len(self.memory_):
            return super().generate(requests)
        fresh = [request for request in dict.fromkeys(requests) if not features.knows(request)]

        def concerned(batch: Sequence[Request], states: Sequence[Tensor]) -> list[bool]:
            features.take(batch, states)
            return [new is not old for new, old in zip(self.rewrite_all(batch), batch, strict=True)]

        found = zip(fresh, ask(fresh, concerned, layer=features.layer), strict=True)
        answers: dict[Request, Answer] = {request: answer for request, answer in found if answer is not None}
        rest = [request for request in requests if request not in answers]  # those that an entry concerns, and those read before
        others = iter(self.backbone_.generate(self.rewrite_all(rest)))
        return [answers[request] if request in answers else next(others) for request in requests]

    @property
    def _features(self) -> PooledFeatures | None:
        """What the router reads requests with, where it looks at the backbone's own states."""
        found = getattr(self.router_, "features_", None)
        return found if isinstance(found, PooledFeatures) else None

    # -- artefacts -----------------------------------------------------------------------------------------------------

    def save_edits(self, path: str | Path) -> None:
        """As for every editor, plus the states that keys are made from, where the router reads the backbone's."""
        super().save_edits(path)
        if self._features is not None:
            self._features.save(Path(path) / _FEATURES, [knowledge.request for knowledge in self.edits_.values()])

    def load_edits(self, path: str | Path) -> None:
        """As for every editor; on the backbone that they were saved with, no request is read again."""
        self._require_ready()
        if self._features is not None:
            self._features.load(Path(path) / _FEATURES)
        super().load_edits(path)
