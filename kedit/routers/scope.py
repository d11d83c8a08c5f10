"""How a scope classifier learns (Mitchell et al. 2022): a request is in scope where exp(-scale |key - query|^2) is high."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from kedit.routers.pairs import Concern, Entry, unrelated
from kedit.training import Group, Team
from kedit.types import ImageRef, Knowledge, Request

EPS = 1e-6
"""The smallest scaled squared distance that a negative is taken to have; its loss there is 13.8."""


# -- the loss ----------------------------------------------------------------------------------------------------------


def bce_log(u: Tensor, related: bool) -> Tensor:
    """Binary cross-entropy of the similarity exp(-u), from u itself: u where related, else -log(1 - exp(-u)).

    The gradient of the first is 1 at every distance; that of the second fades as exp(-u), as it should.
    """
    return u if related else -torch.log(-torch.expm1(-u.clamp(min=EPS)))


def bce_prob(u: Tensor, related: bool) -> Tensor:
    """The same through the similarity itself, as published with the multimodal scope classifier of Zeng et al. 2024.

    torch divides by max(p (1 - p), 1e-12): beyond u = 27.6 the gradient of a related pair decays as 1e12 exp(-u), and pairs
    that start far apart never come together.
    """
    return nn.functional.binary_cross_entropy(torch.exp(-u), torch.full_like(u, float(related)), reduction="none")


LOSSES: Mapping[str, Callable[[Tensor, bool], Tensor]] = {"bce_log": bce_log, "bce_prob": bce_prob}


def squared_distances(queries: Tensor, keys: Tensor) -> Tensor:
    """|q - k|^2 of every query with every key, (queries, keys), from differences: exactly 0 for equal vectors."""
    return torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist").square()


# -- what is learned from ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """What a router sees of a request or of an entry; two that look the same to it are equal."""

    text: str
    images: tuple[ImageRef, ...] = field(default=(), compare=False, repr=False)
    digests: tuple[str, ...] = ()


class Seen(NamedTuple):
    """An entry as a router sees it: its key, the requests that should find it, and those that should not."""

    key: View
    positives: tuple[View, ...]
    negatives: tuple[View, ...]
    answer: str
    concern: Concern

    @property
    def topic(self) -> tuple[str, str]:
        """Topic and language."""
        return self.concern.subject


def seen(entry: Entry, scope: Scope) -> Seen:
    """An entry as a router sees it."""
    key = scope.key_view(entry.knowledge)
    positives, negatives = (tuple(scope.query_view(one.request) for one in side) for side in (entry.positives, entry.negatives))
    return Seen(key, positives, negatives, entry.knowledge.answer.strip(), Concern.of(entry, key, positives))


class Scope(Protocol):
    """What a learner asks of the router that it trains."""

    def key_view(self, knowledge: Knowledge) -> View:
        """What the router sees of an entry."""
        ...

    def query_view(self, request: Request) -> View:
        """What the router sees of a request."""
        ...

    def vectors(self, keys: Sequence[View], queries: Sequence[View]) -> tuple[Tensor, Tensor]:
        """Vectors of keys and of queries, differentiable."""
        ...

    @property
    def scale_(self) -> Tensor:
        """What squared distances are multiplied with, above 0."""
        ...

    def groups(self) -> Sequence[Group]:
        """What is trained."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What was learned so far."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what ``state`` gave."""
        ...


# -- the learner -------------------------------------------------------------------------------------------------------


class _Term:
    """A weighted sum of losses over (request, key) pairs, all related or all unrelated."""

    def __init__(self, related: bool) -> None:
        self.related = related
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.weights: list[float] = []

    def mean(self, pairs: Iterable[tuple[int, int]], share: float) -> None:
        """Add the mean over some pairs, times ``share``; nothing where there are none."""
        found = list(pairs)
        if not found:
            return
        self.rows += [row for row, _ in found]
        self.columns += [column for _, column in found]
        self.weights += [share / len(found)] * len(found)

    def loss(self, u: Tensor, form: Callable[[Tensor, bool], Tensor]) -> Tensor:
        if not self.rows:
            return u.new_zeros(())
        return (form(u[self.rows, self.columns], self.related) * u.new_tensor(self.weights)).sum()


class ScopeLearner:
    """Trains a scope classifier: every step holds the keys of a batch of entries in memory and routes these entries' requests.

    The loss of an entry is the mean over its positives with its own key, plus the mean over its negatives with its own key,
    plus (``all_negatives``) the mean over its requests with the keys of the batch's other entries. Only the last depends on
    what else is in memory: it trains *which* entry is nearest. Left out of it are requests that the other entry may answer:
    positives of entries that are not ``unrelated``, and negatives that the other entry lists among its positives or whose
    topic is the other's or unknown, where entries have topics. ``loss`` is among ``LOSSES``.

    See ``kedit.training.Learner`` for the split of a batch over processes: all keys are encoded in every process, requests
    only where the entry is the process's own.
    """

    def __init__(self, scope: Scope, items: Sequence[Entry], *, loss: str = "bce_log", all_negatives: bool = True) -> None:
        self.scope = scope
        self.form = LOSSES[loss]
        self.all_negatives = all_negatives
        self.items = [seen(item, scope) for item in items]
        self.topics: dict[View, set[tuple[str, str]]] = {}
        for one in self.items:
            for view in one.positives:
                self.topics.setdefault(view, set()).add(one.topic)

    def groups(self) -> Sequence[Group]:
        """What the router trains."""
        return self.scope.groups()

    def __len__(self) -> int:
        return len(self.items)

    def step(self, batch: Sequence[int], own: Sequence[int], team: Team, step: int) -> Mapping[str, float]:
        """See ``kedit.training.Learner``."""
        parts = self.losses(batch, own)
        loss = torch.stack(list(parts.values())).sum()
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        return {"loss": loss.item(), **{name: part.item() for name, part in parts.items()}}

    def losses(self, batch: Sequence[int], own: Sequence[int]) -> dict[str, Tensor]:
        """The parts of the loss of ``own`` as a share of the mean over ``batch``: positive, negative, other."""
        positive, negative, other = _Term(True), _Term(False), _Term(False)
        terms = {"positive": positive, "negative": negative, "other": other}
        queries: list[View] = []
        for item in own:
            one, column, start = self.items[item], list(batch).index(item), len(queries)
            queries += [*one.positives, *one.negatives]
            between = start + len(one.positives)
            positive.mean(((row, column) for row in range(start, between)), 1 / len(batch))
            negative.mean(((row, column) for row in range(between, len(queries))), 1 / len(batch))
            if self.all_negatives:
                other.mean(self._others(batch, item, start), 1 / len(batch))
        if not queries:
            return {name: torch.zeros(()) for name in terms}
        keys, asked = self.scope.vectors([self.items[item].key for item in batch], queries)
        u = self.scope.scale_ * squared_distances(asked, keys)
        return {name: term.loss(u, self.form) for name, term in terms.items()}

    def _others(self, batch: Sequence[int], item: int, start: int) -> Iterable[tuple[int, int]]:
        """Rows of an entry's requests, the first being ``start``, with columns of other entries that they must not find."""
        one = self.items[item]
        for column, number in enumerate(batch):
            other = self.items[number]
            if number == item:
                continue
            if unrelated(one.concern, other.concern):
                yield from ((start + at, column) for at in range(len(one.positives)))
            for at, view in enumerate(one.negatives, start + len(one.positives)):
                if self._surely_not(view, other):
                    yield at, column

    def _surely_not(self, view: View, other: Seen) -> bool:
        """Whether a request that another entry must leave alone is known to be outside this one's scope too."""
        if view in other.positives:
            return False
        known = self.topics.get(view, set())
        return not other.topic[0] or (bool(known) and other.topic not in known)

    def mean_loss(self, size: int) -> float:
        """The mean loss over all items, ``size`` of them in memory at a time, without gradients."""
        total = 0.0
        with torch.no_grad():
            for start in range(0, len(self), size):
                batch = range(start, min(start + size, len(self)))
                total += len(batch) * float(torch.stack(list(self.losses(batch, batch).values())).sum())
        return total / len(self)

    def state(self) -> dict[str, Tensor]:
        """What the router has learned so far."""
        return self.scope.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what ``state`` gave."""
        self.scope.load_state(state)
