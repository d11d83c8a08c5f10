"""What routers learn from: inserted knowledge, the requests that it concerns, and those that it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kedit.types import Case, Knowledge, Request

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


@dataclass(frozen=True)
class Entry:
    """One item of knowledge with the requests that should find it (``positives``) and those that should not (``negatives``)."""

    knowledge: Knowledge
    positives: tuple[Related, ...]
    negatives: tuple[Related, ...]
    case: str = ""
    topic: str = ""
    """What its case is about, where the benchmark says so (the tag "scenario"): entries of one topic may answer each other's
    questions in their language, listed or not, so that none of them is a sure negative of another."""


def entries(cases: Sequence[Case]) -> list[Entry]:
    """One entry per item of every chain, in order.

    Positives are the item's own request and the requests of its step's probes that have an answer of their own; negatives
    are those of its step's probes without one (the unedited backbone's answer is wanted), and the other items' requests.
    """
    return [_entry(case, step) for case in cases for step in range(1, len(case.chain) + 1)]


def _entry(case: Case, step: int) -> Entry:
    knowledge = case.chain[step - 1]
    own = knowledge.request
    probes = [probe for probe in case.probes if probe.step == step]
    general: dict[Request, str] = {}
    for probe in probes:
        if probe.reference is not None and probe.request != own:
            general.setdefault(probe.request, probe.reference)
    kept = dict.fromkeys(p.request for p in probes if p.reference is None and p.request != own)
    others = dict.fromkeys(item.request for item in case.chain if item.request != own)
    negatives = {request: CROSS_SCENARIO if request.language == own.language else CROSS_LANGUAGE for request in kept}
    negatives |= dict.fromkeys(others, OTHER_MEMBER)
    return Entry(
        knowledge,
        (Related(own, INSERTED, knowledge.answer), *(Related(request, GENERALITY, said) for request, said in general.items())),
        tuple(Related(request, relation) for request, relation in negatives.items()),
        case.id,
        case.tags.get("scenario", ""),
    )
