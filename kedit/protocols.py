"""How a case becomes a stream of inserts and questions; a protocol is a function, so a notebook can define its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kedit.types import Case, Knowledge


@dataclass(frozen=True)
class Insert:
    """Insert one item of the chain; ``step`` is its 1-based position."""

    step: int
    knowledge: Knowledge


@dataclass(frozen=True)
class Ask:
    """Ask probes of the case (by index into ``case.probes``) now that ``after`` items are inserted."""

    after: int
    probes: tuple[int, ...]


Event = Insert | Ask
Protocol = Callable[[Case], Iterator[Event]]


def final(case: Case) -> Iterator[Event]:
    """Insert the whole chain, then ask every probe of the resulting model (paper, equations 4 to 12)."""
    for step, knowledge in enumerate(case.chain, 1):
        yield Insert(step, knowledge)
    yield Ask(len(case.chain), tuple(range(len(case.probes))))


RELIABILITY = "reliability"


def retention(case: Case) -> Iterator[Event]:
    """After every insert ask the reliability probes of all steps, and after the last one every probe.

    Gives the whole matrix R[asked after step t][inserted at step i] (i > t included: what a chain does to knowledge that
    is yet to come); its last row is what ``final`` asks (paper, Fig. 6).
    """
    reliability = tuple(i for i, p in enumerate(case.probes) if p.dimension == RELIABILITY)
    last = len(case.chain)
    for step, knowledge in enumerate(case.chain, 1):
        yield Insert(step, knowledge)
        yield Ask(step, reliability if step < last else tuple(range(len(case.probes))))
