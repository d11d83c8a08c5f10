"""Processes that train together, played by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor


class Alone:
    """One process."""

    rank, world = 0, 1

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)


class Meeting:
    """Where the threads of one team add up; a thread that fails lets the others fail too."""

    def __init__(self, world: int) -> None:
        self.barrier = threading.Barrier(world, timeout=60)
        self.brought: list[list[Tensor]] = [[] for _ in range(world)]


class Member:
    """One of several."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.world, self._meeting = rank, len(meeting.brought), meeting

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        self._meeting.brought[self.rank] = list(tensors)
        self._meeting.barrier.wait()
        found = [sum(parts[1:], parts[0]) for parts in zip(*self._meeting.brought, strict=True)]
        self._meeting.barrier.wait()
        return found


def together(world: int, work: Callable[[Any], Any]) -> list[Any]:
    """What ``work(team)`` gives in each of ``world`` threads, by rank; raises the error of the first that failed."""
    meeting, results, errors = Meeting(world), [None] * world, []

    def run(rank: int) -> None:
        try:
            results[rank] = work(Member(rank, meeting))
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
