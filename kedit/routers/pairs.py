"""What routers learn from: inserted knowledge, the requests that it concerns, and those that it does not."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from kedit.rouge import is_sentence
from kedit.types import Case, Knowledge, Probe, Request

INSERTED, GENERALITY = "inserted", "generality"
CROSS_LANGUAGE, CROSS_SCENARIO, OTHER_MEMBER = "cross-language", "cross-scenario", "other member"
POSITIVE = (INSERTED, GENERALITY)
RELATIONS = (INSERTED, GENERALITY, CROSS_LANGUAGE, CROSS_SCENARIO, OTHER_MEMBER)
"""How a request is related to an entry: its own question; another that the entry answers; the rest it must leave alone:
in another language, in the same language, or the question of another entry of the same chain."""


class Related(NamedTuple):
    """A request and how it is related to an entry."""

    request: Request
    relation: str
    answer: str | None = None
    """What the entry answers to it; None where the request is not the entry's concern."""
    topic: str = ""
    """What the request is about, as ``Entry.topic``; empty where that is not known."""


@dataclass(frozen=True)
class Entry:
    """One item of knowledge with the requests that should find it (``positives``) and those that should not (``negatives``).

    No request is both: what has an answer of its own is the entry's concern.
    """

    knowledge: Knowledge
    positives: tuple[Related, ...]
    negatives: tuple[Related, ...]
    case: str = ""
    topic: str = ""
    """What its case is about, where the benchmark says so (the tag "scenario"): entries of one topic may answer each other's
    questions in their language, listed or not, so that none of them is a sure negative of another."""

    @property
    def subject(self) -> tuple[str, str]:
        """Topic and language."""
        return self.topic, self.knowledge.request.language


class Concern(NamedTuple):
    """An entry as far as it decides whose requests it may answer; ``key`` and ``answered`` as the router sees them."""

    key: Hashable
    answered: frozenset[Hashable]
    answer: str
    """Empty where it is too short to tell knowledge apart."""
    subject: tuple[str, str]

    @classmethod
    def of(cls, entry: Entry, key: Hashable, answered: Iterable[Hashable]) -> Self:
        """From an entry and what the router takes for its key and for the requests that it answers."""
        answer = entry.knowledge.answer.strip()
        return cls(key, frozenset(answered), answer if is_sentence(answer) else "", entry.subject)


def unrelated(one: Concern, other: Concern) -> bool:
    """Whether requests that one entry answers surely must not find the other.

    They may, where both have the same key, a request that both answer, one and the same sentence as their answer, or the same
    topic and language.
    """
    same_answer = one.answer == other.answer and bool(one.answer)
    same_subject = one.subject == other.subject and bool(one.subject[0])
    return one.key != other.key and not same_answer and not same_subject and one.answered.isdisjoint(other.answered)


def entries(cases: Sequence[Case]) -> list[Entry]:
    """One entry per item of every chain, in order.

    Positives are the item's own request and the requests of its step's probes that have an answer of their own; negatives
    are those of its step's probes without one (the unedited backbone's answer is wanted), and the other items' requests. A
    request in the entry's language that must be left alone is about what the probe's tag "asked_scenario" says, the others
    are about what their case is.
    """
    return [_entry(case, step) for case in cases for step in range(1, len(case.chain) + 1)]


def _entry(case: Case, step: int) -> Entry:
    knowledge, topic = case.chain[step - 1], case.tags.get("scenario", "")
    own = knowledge.request
    positives = {own: Related(own, INSERTED, knowledge.answer, topic)}
    negatives: dict[Request, Related] = {}
    probes = [probe for probe in case.probes if probe.step == step]
    for probe in probes:
        if probe.reference is not None:
            positives.setdefault(probe.request, Related(probe.request, GENERALITY, probe.reference, topic))
    for probe in probes:
        if probe.reference is None and probe.request not in positives:
            negatives.setdefault(probe.request, _kept(probe, own.language, topic))
    for item in case.chain:
        if item.request not in positives:
            negatives[item.request] = Related(item.request, OTHER_MEMBER, None, topic)
    return Entry(knowledge, tuple(positives.values()), tuple(negatives.values()), case.id, topic)


def _kept(probe: Probe, language: str, topic: str) -> Related:
    relation = CROSS_SCENARIO if probe.request.language == language else CROSS_LANGUAGE
    return Related(probe.request, relation, None, probe.tags.get("asked_scenario", "" if relation == CROSS_SCENARIO else topic))
