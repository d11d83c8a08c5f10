"""The part that editors with a memory share: every insert is an entry, every request is routed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from kedit.editor import Editor, Progress
from kedit.memory import Memory
from kedit.routers.base import Decision, Router
from kedit.routers.recent import Recent
from kedit.types import Case, Knowledge, Request

_REMEMBERED = 8192
"""Decisions kept for ``trace``: a question is traced right after it was asked."""


class Routed(Editor):
    """An editor that keeps inserts in ``memory_`` and asks ``router_`` which of them, if any, concerns a request.

    Put it before the base that says what happens to a routed request:
    ``class Mine(Routed, ContextEditor)`` or ``class Mine(Routed, ReplacementEditor)``. A subclass makes its router in
    ``make_router`` and has a parameter ``index`` ("flat", "ivf", "hnsw", "numpy" or "auto", see ``Memory``) or overrides
    ``make_memory``.
    """

    needs_fit: ClassVar[bool] = True
    router_: Router
    memory_: Memory
    decided_: Recent[Request, Decision]

    @abstractmethod
    def make_router(self) -> Router:
        """Hook: a router that is not attached yet (or one that the user gave)."""

    def make_memory(self) -> Memory:
        """Hook: an empty memory."""
        return Memory(index=getattr(self, "index", "flat"))

    def build(self) -> None:
        self.__dict__.pop("fitted_", None)  # what was said of the router before; one that was given may still be fitted
        self.router_ = self.make_router().attach(self.backbone_)
        self.memory_ = self.make_memory()
        self.decided_ = Recent(_REMEMBERED)

    @property
    def fitted(self) -> bool:
        return bool(getattr(self, "fitted_", False)) or (hasattr(self, "router_") and self.router_.fitted)

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Fit the router; editors with more to learn extend this."""
        self._require_attached()
        self.router_.fit(cases, val=val, out=out, progress=progress)
        self.fitted_ = True
        return self

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.memory_.add(edit_id, knowledge, self.router_.keys([knowledge])[0])
        self.decided_.clear()

    def unapply(self, edit_id: str) -> None:
        self.memory_.remove(edit_id)
        self.decided_.clear()

    def revert(self) -> None:
        self.memory_.clear()
        self.decided_.clear()

    def decide(self, requests: Sequence[Request]) -> list[Decision]:
        """What the router says of each request, with everything inserted so far."""
        decisions = self.router_.decide(requests, self.memory_)
        self.decided_.keep(zip(requests, decisions, strict=True))
        return decisions

    def routed(self, requests: Sequence[Request]) -> list[Knowledge | None]:
        """For each request the entry that concerns it, or None."""
        if not len(self.memory_):
            return [None] * len(requests)
        return [
            self.memory_[decision.nearest] if decision.active and decision.nearest is not None else None
            for decision in self.decide(requests)
        ]

    def trace(self, requests: Sequence[Request]) -> list[Mapping[str, str | float]]:
        """What was decided when each request was asked last, with no second look at it; nothing where it was not routed.

        ``similarity`` and ``threshold`` are there whenever there were entries to compare with; ``entry``, and ``title`` where
        it has one, when one applied, and ``nearest`` in their place when none did.
        """
        return [self._told(self.decided_.get(request)) for request in requests]

    def _told(self, decision: Decision | None) -> Mapping[str, str | float]:
        if decision is None or decision.nearest is None or decision.nearest not in self.memory_:
            return {}
        compared = {"similarity": float(decision.score), "threshold": float(self.router_.threshold_)}
        if not decision.active:
            return {"nearest": decision.nearest, **compared}
        title = self.memory_[decision.nearest].title
        return {"entry": decision.nearest, **({"title": title} if title else {}), **compared}

    def save(self, path: str | Path) -> None:
        super().save(path)
        self.router_.save(Path(path) / "router")

    def load(self, path: str | Path) -> Self:
        super().load(path)
        self.router_.load(Path(path) / "router")
        self.fitted_ = True
        return self
