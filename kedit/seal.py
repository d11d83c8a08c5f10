"""A cheap answer to "are these still the weights we started with?"."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CHUNK = 1 << 24
_WIDTH = 1 << 10
"""Places after which weights repeat; divides ``_CHUNK``."""


class Seal:
    """A sum over every weight's bits, weighted by place, taken at construction and compared later.

    Covers parameters and persistent buffers, and edits that hooks make (see ``overlaid``). One read of the weights and no
    hashing, so that it can follow every case: any change of one element is seen. Elements that are a multiple of ``_WIDTH``
    places apart have one weight, so that exchanging these is not seen (the fingerprint at the end of an editor's run sees it).
    A model without ``state_dict`` (a remote one) has nothing to compare.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.sums = _sums(model)

    def changed(self) -> list[str]:
        """Names of weights that differ from those sealed, or that came or went; empty when all is as it was.

        A weight that a hook stands for counts as changed as long as the hook is there.
        """
        now = _sums(self.model)
        changed = {name for name in self.sums.keys() | now.keys() if self.sums.get(name) != now.get(name)}
        return sorted(changed | overlaid(self.model).keys())


def overlaid(model: Any) -> dict[str, tuple[Tensor, ...]]:
    """By the name of a weight: what forward hooks add to it, though it itself is as it was; empty where no edit is active.

    A hook says so by an attribute ``changes_weight`` that is true, and ``tensors`` holds what it computes with.
    """
    found: dict[str, tuple[Tensor, ...]] = {}
    for name, module in model.named_modules() if hasattr(model, "named_modules") else ():
        for hook in module._forward_hooks.values():
            if getattr(hook, "changes_weight", False):
                found[f"{name}.weight"] = (*found.get(f"{name}.weight", ()), *hook.tensors)
    return found


def _sums(model: Any) -> dict[str, int]:
    if not hasattr(model, "state_dict"):
        return {}
    weights = {n: t for n, t in model.state_dict().items() if isinstance(t, torch.Tensor) and t.device.type != "meta"}
    sums = {name: _sum(tensor) for name, tensor in weights.items()}
    return {name: int(value) for name, value in sums.items()}


def _sum(tensor: Tensor) -> Tensor:
    """Weighted sum of the elements' bit patterns as integers, int64 scalar on the tensor's device; wraps around.

    Without weights an equal step of as many positive as negative elements would cancel out.
    """
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    bits = flat.contiguous().view(_INTEGERS[flat.element_size()])
    columns = torch.zeros(_WIDTH, dtype=torch.int64, device=bits.device)
    for chunk in torch.split(bits, _CHUNK):
        rest = chunk.numel() % _WIDTH
        columns += chunk[: chunk.numel() - rest].view(-1, _WIDTH).sum(0, dtype=torch.int64)
        columns[:rest] += chunk[chunk.numel() - rest :]
    return (columns * _weights(bits.device)).sum()


@cache
def _weights(device: torch.device) -> Tensor:
    """Odd numbers that look random, (``_WIDTH``,), int64: by an odd factor no change of one element is lost."""
    random = torch.randint(0, 1 << 62, (_WIDTH,), generator=torch.Generator().manual_seed(0), dtype=torch.int64)
    return (2 * random + 1).to(device)
