"""The processes that train together, as Accelerate sees them; one process needs no launcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kedit.training.contract import Team


def gather_team() -> Team:
    """The processes that ``accelerate launch`` started, or this one alone."""
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))
    return Processes(state) if state.num_processes > 1 else Alone()


@dataclass(frozen=True)
class Alone:
    """A team of one process."""

    rank: int = 0
    world: int = 1

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors themselves."""
        return list(tensors)


class Processes:
    """Several processes, connected by Accelerate's process group."""

    def __init__(self, state: Any) -> None:
        self._state = state

    @property
    def rank(self) -> int:
        """Which of the processes this is, from 0."""
        return int(self._state.process_index)

    @property
    def world(self) -> int:
        """How many processes there are."""
        return int(self._state.num_processes)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Element-wise sums over all processes, one exchange per type of number, wherever the tensors lie."""
        from accelerate.utils import reduce

        found: list[Tensor] = list(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [at for at, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = torch.cat([tensors[at].detach().reshape(-1).to(self._state.device) for at in places])
            parts = reduce(flat, reduction="sum").split([tensors[at].numel() for at in places])
            for at, part in zip(places, parts, strict=True):
                found[at] = part.view_as(tensors[at]).to(tensors[at].device)
        return found
