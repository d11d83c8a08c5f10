"""How a case becomes a stream of inserts and questions; a protocol is a function, so a notebook can define its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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


def unedited(case: Case) -> Iterator[Event]:
    """Insert nothing and ask every probe: what the backbone knows by itself (paper, Fig. 1b)."""
    yield Ask(0, tuple(range(len(case.probes))))


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


def together(*protocols: Protocol) -> Protocol:
    """What several protocols ask of one chain, which is inserted once: after each insert the probes of all of them."""

    def asked(case: Case) -> Plan:
        plan: dict[int, set[int]] = {}
        for one in protocols:
            for event in one(case):
                if isinstance(event, Ask):
                    plan.setdefault(event.after, set()).update(event.probes)
        return plan

    return _planned(" and ".join(str(getattr(one, "__qualname__", one)) for one in protocols), asked)


def gap(*gaps: int, sample: int | None = None) -> Protocol:
    """Ask every probe of an item after so many further inserts: ``gap(0, 1, 10)`` right away, one later, ten later.

    The same items are asked at every gap and again after the whole chain: those that have all the gaps behind them before the
    chain ends, or ``sample`` of them, drawn by the case's id. A gap as long as the chain is left out. Raises ValueError for a
    negative gap, or none.
    """
    wanted = _numbers("gap", gaps, 0)

    def asked(case: Case) -> Plan:
        last, mine = len(case.chain), _by_step(case)
        possible = [g for g in wanted if g < last]
        plan: dict[int, set[int]] = {last: set()}
        for step in drawn(range(1, last - max(possible, default=0) + 1), sample, case.id, "gap"):
            for after in {*(step + g for g in possible), last}:
                plan.setdefault(after, set()).update(mine.get(step, ()))
        return plan

    return _planned(f"gap({_listed(wanted)}, sample={sample})", asked)


def milestones(*sizes: int, sample: int | None = 20, every: int | None = None) -> Protocol:
    """Ask every probe of a fixed sample of the items inserted so far, at these memory sizes and after the whole chain.

    Of the items inserted between one size and the next, ``sample`` (None: all) are drawn by the case's id; they are asked
    at every size from then on, so that the same items are compared at several sizes. ``every`` adds its multiples to the
    sizes. Sizes beyond the chain are left out. Raises ValueError for a size below 1, or none.
    """
    wanted = _numbers("memory size", (*sizes, *((every,) if every is not None else ())), 1)

    def asked(case: Case) -> Plan:
        last, mine = len(case.chain), _by_step(case)
        more = range(every, last, every) if every else ()
        plan: dict[int, set[int]] = {}
        known: set[int] = set()
        before = 0
        for size in sorted({*(size for size in wanted if size < last), *more, last}):
            for step in drawn(range(before + 1, size + 1), sample, case.id, "milestones"):
                known.update(mine.get(step, ()))
            plan[size], before = set(known), size
        return plan

    return _planned(f"milestones({_listed(wanted)}, sample={sample}, every={every})", asked)


Plan = Mapping[int, Collection[int]]
"""Which probes are asked after how many inserts."""


def drawn(steps: Sequence[int], sample: int | None, *seed: object) -> list[int]:
    """``sample`` of the steps, in order, the same in every process and whatever the others are; all of them for None."""

    def place(step: int) -> bytes:
        return hashlib.sha256("|".join(map(str, (*seed, step))).encode("utf-8", "surrogatepass")).digest()

    return list(steps) if sample is None else sorted(sorted(steps, key=place)[:sample])


def _planned(name: str, plan: Callable[[Case], Plan]) -> Protocol:
    def protocol(case: Case) -> Iterator[Event]:
        asked = plan(case)
        if asked.get(0):
            yield Ask(0, tuple(sorted(asked[0])))
        for step, knowledge in enumerate(case.chain, 1):
            yield Insert(step, knowledge)
            if asked.get(step):
                yield Ask(step, tuple(sorted(asked[step])))

    protocol.__name__ = protocol.__qualname__ = name  # what a run's identity says of it
    return protocol


def _by_step(case: Case) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for index, probe in enumerate(case.probes):
        found.setdefault(probe.step, []).append(index)
    return found


def _numbers(what: str, given: Sequence[int], least: int) -> tuple[int, ...]:
    if not given or min(given) < least:
        raise ValueError(f"{what}s {tuple(given)}: expected one or more numbers, each at least {least}")
    return tuple(sorted(set(given)))


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
