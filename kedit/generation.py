"""Looking into a generation while it runs: what the prompt's states say can end it before a token is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kedit.errors import ContractError
from kedit.types import Request

Decide = Callable[[Sequence[Request], Sequence[Tensor]], Sequence[bool]]
"""Given requests and their prompts' states, (tokens, width) each without padding: which of them are not to be answered."""


@contextmanager
def states_of(watched: nn.Module, lengths: Tensor, seen: Callable[[list[Tensor]], None]) -> Iterator[None]:
    """Inside the block, the first pass through a module hands over its output, row by row without the padding on the left."""
    done = False

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal done
        if not done:
            done = True
            states = output if isinstance(output, Tensor) else output[0]
            seen([row[-length:].clone() for row, length in zip(states, lengths.tolist(), strict=True)])

    handle = watched.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class Gate:
    """A stopping criterion: rows that ``decide`` takes, given the states of the prompts, end after the prompt."""

    def __init__(self, decide: Decide, requests: Sequence[Request]) -> None:
        self.decide = decide
        self.requests = requests
        self.taken: list[bool] = []

    def look(self, states: list[Tensor]) -> None:
        """Ask ``decide`` once; raises ContractError when it does not say one thing for each request."""
        self.taken = [bool(taken) for taken in self.decide(self.requests, states)]
        if len(self.taken) != len(self.requests):
            raise ContractError(f"decide() gave {len(self.taken)} results for {len(self.requests)} requests; give one for each")

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        return torch.tensor(self.taken, device=input_ids.device)
