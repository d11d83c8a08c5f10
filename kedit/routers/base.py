"""The Router contract: requests and inserted knowledge as vectors, and when one concerns the other.

A router is usable alone: ``attach -> fit | load -> score``, or with a memory: ``decide(requests, memory)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kedit.artefacts import load_tensors, read_json, save_tensors, write_json
from kedit.errors import DataError, NotFittedError
from kedit.memory import Memory
from kedit.parameters import Parameters, plain
from kedit.types import Case, Knowledge, Request

if TYPE_CHECKING:
    from torch import Tensor

    from kedit.backbone import Backbone
    from kedit.editor import Progress

Vectors: TypeAlias = NDArray[np.float32]


class Decision(NamedTuple):
    """What a router decided on one request: the nearest entry and its score (None, -inf: no entries), and whether it applies."""

    nearest: str | None
    score: float
    active: bool


class Router(Parameters, ABC):
    """Maps requests and knowledge to unit vectors whose similarity says whether the knowledge concerns the request.

    Like an editor: keyword-only constructor arguments stored under their own names; what ``attach`` or ``fit`` build ends in
    an underscore. ``threshold_`` is the operating point: the parameter ``threshold``, or what ``fit`` calibrates.
    """

    strict: ClassVar[bool] = False
    """In scope above the threshold, not at it."""

    backbone_: Backbone
    threshold_: float

    def attach(self, backbone: Backbone) -> Self:
        """Give the router the backbone whose requests it routes; returns self."""
        self.backbone_ = backbone
        self.build()
        return self

    def build(self) -> None:
        """Hook: make the trainable parts, from a seed."""

    @abstractmethod
    def keys(self, knowledge: Sequence[Knowledge]) -> Vectors:
        """Unit vectors of entries, (n, width) fp32; the key of one entry does not depend on the others."""

    @abstractmethod
    def queries(self, requests: Sequence[Request]) -> Vectors:
        """Unit vectors of requests, (n, width) fp32."""

    def similarity(self, cosine: NDArray[Any]) -> NDArray[Any]:
        """The score that belongs to a cosine; rises with it. The identity unless overridden."""
        return cosine

    @property
    def cosine_threshold(self) -> float:
        """The cosine whose score is the threshold, near which a memory does not rely on an approximate index."""
        return self.threshold_

    def in_scope(self, score: float) -> bool:
        """Whether a score reaches the threshold."""
        return score > self.threshold_ if self.strict else score >= self.threshold_

    def score(self, requests: Sequence[Request], knowledge: Sequence[Knowledge]) -> NDArray[Any]:
        """Scores of every request with every entry, (requests, entries)."""
        return self.similarity(self.queries(requests) @ self.keys(knowledge).T)

    def decide(self, requests: Sequence[Request], memory: Memory) -> list[Decision]:
        """For each request the nearest entry of a memory that holds this router's keys, and whether it applies."""
        if not len(memory):
            return [Decision(None, float("-inf"), False) for _ in requests]
        found = []
        for hit in memory.search(self.queries(requests), self.cosine_threshold):
            score = float(self.similarity(np.asarray(hit.score)))
            found.append(Decision(hit.id, score, self.in_scope(score)))
        return found

    # -- learning --------------------------------------------------------------------------------------------------

    @property
    def fitted(self) -> bool:
        """Whether the router can be used: ``fit`` or ``load`` was called (which set ``fitted_``)."""
        return bool(getattr(self, "fitted_", False))

    @abstractmethod
    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from training cases and return self; the backbone stays unchanged. Arguments as for ``Editor.fit``."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything that ``fit`` learned except ``threshold_``, by name."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what ``state`` gave; raises DataError where names or shapes do not fit."""

    def save(self, path: str | Path) -> None:
        """Write ``router.json`` and ``router.safetensors`` to a folder."""
        if not self.fitted:
            raise NotFittedError(f"{type(self).__name__} has learned nothing yet; call fit(cases) or load(path) first")
        save_tensors(Path(path) / "router.safetensors", self.state())
        info = {"router": type(self).__name__, "params": plain(self.get_params()), "threshold": self.threshold_}
        write_json(Path(path) / "router.json", info)

    def load(self, path: str | Path) -> Self:
        """Read what ``save`` wrote and return self; raises DataError for another router's files."""
        info = read_json(Path(path) / "router.json")
        if info.get("router") != type(self).__name__:
            raise DataError(f"{path} holds a {info.get('router')!r}, not a {type(self).__name__!r}; load it with that router")
        self.load_state(load_tensors(Path(path) / "router.safetensors"))
        self.threshold_ = float(info["threshold"])
        self.fitted_ = True
        return self
