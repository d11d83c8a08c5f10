"""Routers that are scope classifiers: an entry concerns a request where exp(-scale |key - query|^2) exceeds a threshold."""

from __future__ import annotations

import hashlib
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kedit.artefacts import read_json
from kedit.editor import Progress
from kedit.errors import DataError, unknown_name
from kedit.routers.base import Router, Vectors
from kedit.routers.calibration import RULES, calibrate
from kedit.routers.pairs import Entry, entries
from kedit.routers.scope import LOSSES, ScopeLearner, View
from kedit.training import Group, Training, train
from kedit.types import Case, Knowledge, Request

KEPT = 100_000
"""Items whose features a frozen encoder's cache keeps; beyond it the oldest are forgotten."""
QUESTION, QUESTION_ANSWER = "question", "question+answer"
KEY_TEXTS = (QUESTION, QUESTION_ANSWER)
FIXED = "fixed"
ALL, HEAD = "all", "head"


class Cached:
    """An encoder that encodes every item once, ``chunk`` at a time; ``key`` says when two items are the same."""

    def __init__(self, encode: Callable[[list[Any]], Tensor], key: Callable[[Any], Hashable], chunk: int = 64) -> None:
        self.encode = encode
        self.key = key
        self.chunk = chunk
        self._kept: dict[Hashable, Tensor] = {}

    def __call__(self, items: Sequence[Any], *, live: bool = False) -> Tensor:
        """Features, one row per item; ``live`` keeps none, for an encoder that is being trained."""
        names = [self.key(item) for item in items]
        distinct = dict(zip(names, items, strict=True))
        kept = {} if live else self._kept
        missing = [name for name in distinct if name not in kept]
        if missing:
            kept.update(zip(missing, self._encoded([distinct[name] for name in missing], live), strict=True))
        rows = torch.stack([kept[name] for name in names])
        while len(kept) > KEPT:
            del kept[next(iter(kept))]
        return rows

    def _encoded(self, items: list[Any], live: bool) -> Tensor:
        if live and torch.is_grad_enabled():
            return self.encode(items)
        with torch.no_grad():
            return torch.cat([self.encode(items[start : start + self.chunk]) for start in range(0, len(items), self.chunk)])

    def clear(self) -> None:
        """Forget all features."""
        self._kept.clear()


class ScopeHead(nn.Module):  # type: ignore[misc]
    """Features to unit vectors, (n, features) to (n, width); ``log_scale`` keeps the learned scale positive."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))


def identity_linear(width: int) -> nn.Linear:
    """A square linear map without bias that changes nothing yet."""
    layer = nn.Linear(width, width, bias=False)
    nn.init.eye_(layer.weight)
    return layer


class ScopeRouter(Router):
    """A router whose similarity is exp(-scale |key - query|^2), learned from which requests an entry concerns.

    Usable without a backbone: ``fit`` or ``load``, then ``score``. A subclass stores the parameters annotated below and
    implements the abstract methods. ``train`` is one of ``TRAINABLE``; with "all" the encoder is trained, in a copy of the
    router's own and without dropout; otherwise it is frozen and its features are cached by content.
    """

    strict: ClassVar[bool] = True
    TRAINABLE: ClassVar[tuple[str, ...]] = (ALL, HEAD)
    IDENTITY: ClassVar[tuple[str, ...]] = ("encoder", "train", "key_text")
    """Parameters that must be the same where a saved router is loaded."""

    train: str
    key_text: str
    threshold: float
    calibration: str
    loss: str
    all_negatives: bool
    epochs: int
    batch_size: int
    lr: float
    scale: float
    scale_lr: float
    seed: int
    device: str | None

    # -- what a subclass says ----------------------------------------------------------------------------------------

    @abstractmethod
    def query_view(self, request: Request) -> View:
        """What is encoded of a request."""

    @abstractmethod
    def key_view(self, knowledge: Knowledge) -> View:
        """What is encoded of an entry."""

    @abstractmethod
    def load_encoder(self) -> Any:
        """The published encoder, frozen, which other routers may share; its torch module is called ``model``."""

    @abstractmethod
    def copy_encoder(self, encoder: Any) -> Any:
        """The same encoder with a module of its own."""

    @abstractmethod
    def features(self, views: Sequence[View]) -> Tensor:
        """What the encoder makes of views, one row each; anew while it is being trained (``live_``), else each view once."""

    @abstractmethod
    def make_head(self) -> ScopeHead:
        """A new head, which changes nothing yet."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all features."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers per vector."""

    # -- parts -------------------------------------------------------------------------------------------------------

    def build(self) -> None:
        for kind, known in {
            "train": self.TRAINABLE,
            "key_text": KEY_TEXTS,
            "loss": LOSSES,
            "calibration": (FIXED, *RULES),
        }.items():
            self._check(kind, known)
        self.threshold_ = self.threshold
        self.fitted_ = self.live_ = False
        self.__dict__.pop("head_", None)
        if self.__dict__.get("placed_", self.place) != self.place:
            self.__dict__.pop("encoder_", None)
            self.clear()
        self.placed_ = self.place
        if self.__dict__.pop("own_", None) is not None:
            self.clear()

    @property
    def place(self) -> str:
        """Where the encoder runs: ``device``, else where the backbone is, else the CPU."""
        return self.device or str(getattr(getattr(self, "backbone_", None), "device", "cpu"))

    @cached_property
    def encoder_(self) -> Any:
        """The published encoder."""
        return self.load_encoder()

    @cached_property
    def own_(self) -> Any:
        """The encoder that is trained; made when it is first asked for, equal to the published one until then."""
        return self.copy_encoder(self.encoder_)

    @property
    def encoder_in_use(self) -> Any:
        """The trained encoder where there is one, else the published one."""
        return self.__dict__.get("own_", self.encoder_)

    @cached_property
    def head_(self) -> ScopeHead:
        """What turns features into vectors."""
        self._ready()
        head: ScopeHead = self.make_head().to(self.place)
        return head

    @property
    def scale_(self) -> Tensor:
        """The learned scale, above 0."""
        return self.head_.log_scale.exp()

    def key_text_of(self, knowledge: Knowledge) -> str:
        """The text that is encoded of an entry."""
        question = knowledge.request.question
        return question if self.key_text == QUESTION else f"{question} {knowledge.answer}"

    # -- routing -----------------------------------------------------------------------------------------------------

    def keys(self, knowledge: Sequence[Knowledge]) -> Vectors:
        self._ready()
        return self.encoded([self.key_view(item) for item in knowledge])

    def queries(self, requests: Sequence[Request]) -> Vectors:
        self._ready()
        return self.encoded([self.query_view(request) for request in requests])

    def similarity(self, cosine: NDArray[Any]) -> NDArray[Any]:
        """exp(-scale |k - q|^2) of unit vectors, in (0, 1]."""
        return self.closeness(np.maximum(2 - 2 * np.asarray(cosine, np.float64), 0))

    @property
    def cosine_threshold(self) -> float:
        """1 + ln(threshold) / (2 scale): where exp(-scale |k - q|^2) is the threshold; -inf for a threshold of 0."""
        self._ready()
        return 1 + math.log(self.threshold_) / (2 * float(self.scale_.detach())) if self.threshold_ > 0 else -math.inf

    def closeness(self, squared: NDArray[Any]) -> NDArray[Any]:
        """exp(-scale times a squared distance)."""
        self._ready()
        found: NDArray[Any] = np.exp(-float(self.scale_.detach()) * np.asarray(squared, np.float64))
        return found

    def encoded(self, views: Sequence[View]) -> Vectors:
        """Vectors of views, (n, width) fp32."""
        if not views:
            return np.zeros((0, self.width), np.float32)
        with torch.no_grad():
            found: Vectors = self.head_(self.features(views)).float().cpu().numpy()
        return found

    def vectors(self, keys: Sequence[View], queries: Sequence[View]) -> tuple[Tensor, Tensor]:
        """Vectors of a training step, encoded together so that what occurs twice is encoded once."""
        found: Tensor = self.head_(self.features([*keys, *queries]))
        return found[: len(keys)], found[len(keys) :]

    # -- learning ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from cases and return self, starting at the published encoder whatever was learned before.

        The state after the epoch with the lowest loss on ``val`` is kept, and the threshold is calibrated on ``val`` where
        it is given, else on ``cases``. ``out`` and ``progress`` as for ``kedit.training.train``. Raises DataError where
        there is nothing to learn from.
        """
        items, held = entries(cases), entries(val or ())
        if not items:
            raise DataError(f"{type(self).__name__}.fit got {len(cases)} cases without any knowledge; give training cases")
        self.build()
        learner, judge = self.learner(items), self.learner(held)
        settings = Training(epochs=self.epochs, batch_size=self.batch_size, seed=self.seed)
        settings = settings.validated_each_epoch(len(items))
        validate = (lambda: -judge.mean_loss(self.batch_size)) if held else None
        self._live(True)
        try:
            train(learner, settings, out=out, validate=validate, progress=progress, identity=self._identity(learner, held))
        finally:
            self._live(False)
        self.threshold_ = self.calibrated(held or items)
        self.fitted_ = True
        return self

    def learner(self, items: Sequence[Entry]) -> ScopeLearner:
        """What trains this router on entries."""
        self._ready()
        return ScopeLearner(self, items, loss=self.loss, all_negatives=self.all_negatives)

    def groups(self) -> list[Group]:
        """Encoder and matrices at ``lr``, single numbers (scale, weights) at ``scale_lr``; at 0 they stay as they are."""
        encoder = list(self.own_.model.parameters()) if self.train == ALL else []
        head = list(self.head_.parameters())
        parts = [
            (encoder, self.lr),
            ([p for p in head if p.dim() > 0], self.lr),
            ([p for p in head if p.dim() == 0], self.scale_lr),
        ]
        return [Group(parameters, lr) for parameters, lr in parts if parameters and lr > 0]

    def calibrated(self, items: Sequence[Entry]) -> float:
        """The threshold: the parameter where ``calibration`` is "fixed", else by that rule on entries' own requests."""
        if self.calibration == FIXED:
            return self.threshold
        positives, negatives = self.own_scores(items)
        return calibrate(positives, negatives, self.calibration, strict=self.strict, domain=(0.0, 1.0)).threshold

    def own_scores(self, items: Sequence[Entry]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scores of entries' positives, and of their negatives, each with its own entry's key."""
        self._ready()
        keys = self.encoded([self.key_view(item.knowledge) for item in items])
        found = []
        for side in ("positives", "negatives"):
            pairs = [(at, one.request) for at, item in enumerate(items) for one in getattr(item, side)]
            queries = self.encoded([self.query_view(request) for _, request in pairs])
            apart = queries.astype(np.float64) - keys[np.array([at for at, _ in pairs], int)]
            found.append(self.closeness((apart**2).sum(-1)))
        return found[0], found[1]

    def _live(self, live: bool) -> None:
        """Let gradients reach the encoder, or freeze it again and forget what it said before."""
        if self.train == ALL:
            self.own_.model.requires_grad_(live)
            self.live_ = live
            self.clear()

    def _identity(self, learner: ScopeLearner, held: Sequence[Entry]) -> dict[str, Any]:
        """What decides the result of a training besides its settings."""
        params = {name: v if isinstance(v, str | int | float | None) else _name(v) for name, v in self.get_params().items()}
        seen = [[s.answer, *([v.text, v.digests] for v in (s.key, *s.positives, *s.negatives))] for s in learner.items]
        data = json.dumps([seen, [item.case for item in held]]).encode()
        return {"router": type(self).__name__, "params": params, "data": hashlib.sha256(data).hexdigest()}

    # -- what was learned --------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """The head, and the encoder where it is trained, fp32."""
        self._ready()
        return {
            f"{part}.{name}": tensor.detach().clone()
            for part, module in self._modules().items()
            for name, tensor in module.state_dict().items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._ready()
        for part, module in self._modules().items():
            own = {name.removeprefix(f"{part}."): tensor for name, tensor in state.items() if name.startswith(f"{part}.")}
            expected = module.state_dict()
            if wrong := [
                n for n in {**expected, **own} if n not in own or n not in expected or own[n].shape != expected[n].shape
            ]:
                raise DataError(
                    f"what was learned does not fit the {part} of this {type(self).__name__}: {', '.join(wrong[:5])}"
                    f"{'...' if wrong[5:] else ''}; load it into a router with the parameters that it was saved with"
                )
            module.load_state_dict(own)
        if self.train == ALL:
            self.clear()

    def load(self, path: str | Path) -> Self:
        """Read what ``save`` wrote and return self; DataError for another router's files, or another encoder's."""
        self.build()
        stored = read_json(Path(path) / "router.json").get("params", {})
        for name in self.IDENTITY:
            own = getattr(self, name)
            if isinstance(own, str) and stored.get(name, own) != own:
                raise DataError(f"{path} was fitted with {name}={stored[name]!r}, not {own!r}; load it with that, or fit again")
        return super().load(path)

    def _modules(self) -> dict[str, nn.Module]:
        return {"head": self.head_, **({"encoder": self.own_.model} if self.train == ALL else {})}

    def _ready(self) -> None:
        if not hasattr(self, "placed_"):
            self.build()

    def _check(self, kind: str, known: Collection[str]) -> None:
        if (got := getattr(self, kind)) not in known:
            raise unknown_name(f"{kind} of {type(self).__name__}", got, known)


def _name(value: Any) -> str:
    """Of an object or function, the same in every process: a default repr holds an address."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))
