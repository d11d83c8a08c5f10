"""What a router does, looked at from several sides, because one mean hides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kedit.errors import DataError
from kedit.routers.base import Router
from kedit.routers.calibration import Curve, curve
from kedit.routers.pairs import POSITIVE, RELATIONS, Entry, entries
from kedit.types import Case, Request

MEMORIES = (1, 10, 100, None)
"""Entries in the memory of a diagnosis; None means all of the split's."""


@dataclass(frozen=True)
class Outcome:
    """What became of the requests of one relation and language, asked with a memory of some size.

    ``right`` activated an entry that concerns the request, ``wrong`` another one, ``abstained`` none. For relations in
    scope ``right`` is wanted, for the others ``abstained``, and there ``right`` is always 0. ``found`` counts the requests
    in scope whose nearest entry concerns them, whether or not it was activated.
    """

    memory: int
    relation: str
    language: str
    right: int
    wrong: int
    abstained: int
    found: int

    @property
    def n(self) -> int:
        """How many were asked."""
        return self.right + self.wrong + self.abstained

    @property
    def in_scope(self) -> bool:
        """An entry of the memory concerned these requests."""
        return self.relation in POSITIVE

    @property
    def gate(self) -> float:
        """Share whose activation or abstention was as wanted, whichever entry was activated (0 to 1)."""
        return (self.right + self.wrong if self.in_scope else self.abstained) / self.n

    @property
    def retrieval(self) -> float | None:
        """Share whose nearest entry concerns them (0 to 1); None out of scope."""
        return self.found / self.n if self.in_scope else None


@dataclass(frozen=True)
class Diagnosis:
    """Everything that ``diagnose`` found; ``curve`` has every operating point of requests against their own entry."""

    router: str
    threshold: float
    strict: bool
    entries: int
    curve: Curve
    positives: NDArray[np.float64]
    negatives: dict[str, NDArray[np.float64]]
    outcomes: tuple[Outcome, ...]

    @property
    def auc(self) -> float:
        """Area under the ROC curve: how often a request in scope scores above one out of scope, ties half."""
        return auc(self.positives, np.concatenate([*self.negatives.values(), np.zeros(0)]))

    def by(self, *names: str) -> list[Outcome]:
        """Outcomes summed over what is not named; ``names`` among "memory", "relation" and "language".

        Where relations are summed, those in scope and those out of scope stay apart: rows are called "in scope" by their
        first relation and "out of scope" by theirs.
        """
        return list(_summed(self.outcomes, names))


def diagnose(router: Router, cases: Sequence[Case], *, memories: Sequence[int | None] = MEMORIES, seed: int = 0) -> Diagnosis:
    """Ask a fitted router about every request of some cases, in memories of several sizes.

    A memory of ``m`` entries holds the entry in question, and ``m - 1`` others drawn by ``seed``. A request that some entry
    of the memory concerns is in scope, as its own relation says; it is out of scope where none does, which is how a
    question of another member of a chain is out of scope only while that member is not there. Raises DataError when the
    cases have no request in scope or none out of scope.
    """
    found = entries(cases)
    table = _Table.of(router, found)
    own = np.array([table.scores[row, column] for row, column, _ in table.asked])
    relations = np.array([relation for _, _, relation in table.asked])
    positives = own[np.isin(relations, POSITIVE)]
    negatives = {name: own[relations == name] for name in RELATIONS if name not in POSITIVE and (relations == name).any()}
    if not len(positives) or not negatives:
        raise DataError(
            f"{len(found)} entries give {len(positives)} requests in scope and {len(own) - len(positives)} out of scope; "
            "a diagnosis needs both: give cases with generality and locality questions"
        )
    # one size may stand for several, where there are fewer entries than asked for
    sizes = dict.fromkeys(min(m, len(found)) if m is not None else len(found) for m in memories)
    outcomes = [outcome for size in sizes for outcome in table.outcomes(router, size, seed)]
    everything = np.concatenate(list(negatives.values()))
    return Diagnosis(
        type(router).__name__, router.threshold_, router.strict, len(found),
        curve(positives, everything, strict=router.strict, domain=(float(own.min()) - 1, float(own.max()) + 1)),
        positives, negatives, tuple(outcomes),
    )  # fmt: skip


def auc(positives: NDArray[np.float64], negatives: NDArray[np.float64]) -> float:
    """Area under the ROC curve of two sets of scores (Mann and Whitney's U over the number of pairs, ties half)."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, "left") + np.searchsorted(ordered, positives, "right")
    return float(below.sum() / (2 * len(positives) * len(negatives)))


@dataclass(frozen=True)
class _Table:
    """Scores of all requests with all entries, and who is related to whom."""

    requests: tuple[Request, ...]
    scores: NDArray[np.float64]
    """(requests, entries)"""
    wanted: NDArray[np.bool_]
    """(requests, entries): the entry concerns the request."""
    asked: tuple[tuple[int, int, str], ...]
    """(request, entry, relation)"""

    @classmethod
    def of(cls, router: Router, found: Sequence[Entry]) -> _Table:
        related = [(one, at) for at, entry in enumerate(found) for one in (*entry.positives, *entry.negatives)]
        place = {request: row for row, request in enumerate(dict.fromkeys(one.request for one, _ in related))}
        wanted: NDArray[np.bool_] = np.zeros((len(place), len(found)), np.bool_)
        for at, entry in enumerate(found):
            wanted[[place[one.request] for one in entry.positives], at] = True
        scores = np.asarray(router.score(list(place), [entry.knowledge for entry in found]), np.float64)
        asked = tuple((place[one.request], at, one.relation) for one, at in related)
        return cls(tuple(place), scores, wanted, asked)

    def outcomes(self, router: Router, size: int, seed: int) -> Iterator[Outcome]:
        """One per relation and language, all asked with memories of ``size`` entries."""
        count: dict[tuple[str, str], Counter[str]] = {}
        for row, column, relation in self.asked:
            held = self._memory(column, size, seed)
            in_scope = bool(self.wanted[row, held].any())
            if not in_scope or relation in POSITIVE:
                key = (relation, self.requests[row].language)
                count.setdefault(key, Counter()).update(self._one(router, row, held))
        for relation, language in sorted(count, key=lambda key: (RELATIONS.index(key[0]), key[1])):
            made = count[relation, language]
            yield Outcome(size, relation, language, made["right"], made["wrong"], made["abstained"], made["found"])

    def _memory(self, column: int, size: int, seed: int) -> NDArray[np.int64]:
        """Columns of the entries held, ascending: the one in question, and others drawn for it."""
        count = self.scores.shape[1]
        if size == count:
            return np.arange(count)
        others = np.random.default_rng([seed, column, size]).choice(count - 1, size - 1, replace=False)
        return np.sort(np.append(others + (others >= column), column))

    def _one(self, router: Router, row: int, held: NDArray[np.int64]) -> list[str]:
        best = int(held[self.scores[row, held].argmax()])
        right = bool(self.wanted[row, best])
        active = router.in_scope(float(self.scores[row, best]))
        return [("right" if right else "wrong") if active else "abstained", *(["found"] if right else [])]


def _summed(outcomes: Sequence[Outcome], names: Sequence[str]) -> Iterator[Outcome]:
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for one in outcomes:
        key = (
            one.memory if "memory" in names else None,
            one.relation if "relation" in names else one.in_scope,
            one.language if "language" in names else None,
        )
        groups.setdefault(key, []).append(one)
    for (memory, _, language), members in groups.items():
        first = members[0]
        yield Outcome(
            first.memory if memory is not None else 0,
            first.relation,
            first.language if language is not None else "all",
            *(sum(getattr(one, part) for one in members) for part in ("right", "wrong", "abstained", "found")),
        )
