"""What a router does, looked at from several sides, because one mean hides it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kedit.errors import DataError
from kedit.routers.base import Router
from kedit.routers.calibration import Curve, curve
from kedit.routers.pairs import GENERALITY, POSITIVE, RELATIONS, Entry, entries
from kedit.types import Case, Request

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEMORIES = (1, 10, 100, None)
"""Entries in the memory of a diagnosis; None means all of the split's."""


@dataclass(frozen=True)
class Outcome:
    """What became of the requests of one relation and language, asked with a memory of some size.

    ``right`` activated an entry that concerns the request, ``related`` another one of the request's topic and language,
    ``wrong`` any other, ``abstained`` none. For relations in scope ``right`` is wanted, for the others ``abstained``, and
    there ``right`` and ``related`` are always 0. Only generality can be ``related``: an entry of the same topic may answer
    such a question as well as the one it was written for, whereas an inserted question has an answer of its own.

    ``unsure`` counts requests that count as none of these: nobody says what they are about, so that an entry of the memory in
    their language may be meant for them.

    ``found`` counts the requests in scope whose nearest entry concerns them, ``akin`` those whose nearest is a related one,
    whether or not it was activated.
    """

    memory: int
    relation: str
    language: str
    right: int
    wrong: int
    abstained: int
    found: int
    related: int = 0
    akin: int = 0
    unsure: int = 0

    @property
    def n(self) -> int:
        """How many were asked and are known to be in scope or out of it."""
        return self.right + self.related + self.wrong + self.abstained

    @property
    def in_scope(self) -> bool:
        """An entry of the memory concerned these requests."""
        return self.relation in POSITIVE

    @property
    def gate(self) -> float | None:
        """Share whose activation or abstention was as wanted, whichever entry was activated (0 to 1); None where n is 0."""
        return (self.n - self.abstained if self.in_scope else self.abstained) / self.n if self.n else None

    @property
    def retrieval(self) -> float | None:
        """Share whose nearest entry concerns them (0 to 1), of those whose nearest is not a related one; None out of scope."""
        asked = self.n - self.akin
        return self.found / asked if self.in_scope and asked else None


@dataclass(frozen=True, repr=False)
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

    def plot(self, what: str = "scores") -> Figure:
        """One of ``kedit.routers.report.PLOTS``: scores, thresholds, roc or outcomes; raises UnknownNameError for another."""
        from kedit.routers.report import plot

        return plot(self, what)

    def __repr__(self) -> str:
        return self._repr_markdown_()

    def _repr_markdown_(self) -> str:
        from kedit.routers.report import to_text

        text: str = to_text(self)
        return text


def diagnose(router: Router, cases: Sequence[Case], *, memories: Sequence[int | None] = MEMORIES, seed: int = 0) -> Diagnosis:
    """Ask a fitted router about every request of some cases, in memories of several sizes.

    A memory of ``m`` entries holds the entry in question, and ``m - 1`` others drawn by ``seed``. For a request that is to be
    left alone none of them concerns it, nor may concern it: entries that list it, and those of its topic and language
    (``Entry.topic``), are not drawn, so that where there are not enough others its memory is smaller than said. A chain's
    other members stay away while one of their questions is asked of it. Raises DataError when the cases have no request in
    scope or none out of scope.
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
    akin: NDArray[np.bool_]
    """(requests, entries): the entry has the request's topic and language, though it does not list the request."""
    unknown: NDArray[np.bool_]
    """(requests, entries): nobody says what the request is about, and the entry has its language and a topic that is possible."""
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
        return cls(tuple(place), scores, wanted, *_by_topic(list(place), found), asked)

    def outcomes(self, router: Router, size: int, seed: int) -> Iterator[Outcome]:
        """One per relation and language, all asked with memories of ``size`` entries."""
        count: dict[tuple[str, str], Counter[str]] = {}
        for row, column, relation in self.asked:
            barred = np.zeros_like(self.wanted[row]) if relation in POSITIVE else self.wanted[row] | self.akin[row]
            held = self._memory(column, size, seed, barred)
            counted = count.setdefault((relation, self.requests[row].language), Counter())
            counted.update(self._one(router, row, held, relation))
        for relation, language in sorted(count, key=lambda key: (RELATIONS.index(key[0]), key[1])):
            made = count[relation, language]
            yield Outcome(size, relation, language, *(made[part] for part in _COUNTS))

    def _memory(self, column: int, size: int, seed: int, barred: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Columns of the entries held, ascending: the one in question, and others drawn for it, none of those barred."""
        others = np.flatnonzero(~barred)
        others = others[others != column]
        if size <= len(others):
            others = np.random.default_rng([seed, column, size]).choice(others, size - 1, replace=False)
        return np.sort(np.append(others, column))

    def _one(self, router: Router, row: int, held: NDArray[np.int64], relation: str) -> list[str]:
        """The counts of an outcome that one request adds to."""
        if relation not in POSITIVE and self.unknown[row, held].any():
            return ["unsure"]
        best = int(held[self.scores[row, held].argmax()])
        right = bool(self.wanted[row, best])
        akin = relation == GENERALITY and bool(self.akin[row, best])
        done = "right" if right else "related" if akin else "wrong"
        active = router.in_scope(float(self.scores[row, best]))
        return [done if active else "abstained", *(["found"] if right else ["akin"] if akin else [])]


_COUNTS = ("right", "wrong", "abstained", "found", "related", "akin", "unsure")


def _by_topic(requests: Sequence[Request], found: Sequence[Entry]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """See ``_Table.akin`` and ``_Table.unknown``."""
    about: dict[Request, set[tuple[str, str]]] = defaultdict(set)
    denied: dict[Request, set[tuple[str, str]]] = defaultdict(set)
    listed: dict[Request, list[int]] = defaultdict(list)
    columns: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, entry in enumerate(found):
        if entry.topic:
            columns[entry.subject].append(at)
        for one in (*entry.positives, *entry.negatives):
            listed[one.request].append(at)
            if one.topic:
                about[one.request].add((one.topic, one.request.language))
        for one in entry.negatives:
            denied[one.request].add(entry.subject)
    akin: NDArray[np.bool_] = np.zeros((len(requests), len(found)), np.bool_)
    unknown = akin.copy()
    for row, request in enumerate(requests):
        possible = {subject for subject in columns if subject[1] == request.language} - denied[request]
        for subject in about[request] or possible:
            (akin if about[request] else unknown)[row, columns.get(subject, [])] = True
        akin[row, listed[request]] = unknown[row, listed[request]] = False
    return akin, unknown


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
            *(sum(getattr(one, part) for one in members) for part in _COUNTS),
        )
