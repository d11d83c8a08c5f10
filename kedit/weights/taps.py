"""What a linear module reads and the gradient of a loss at its output: the two factors of its weight's gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kedit.errors import FamilyError


class Signal(NamedTuple):
    """Rows of one linear module: inputs (rows, inputs) and gradients at the output (rows, outputs).

    Their summed outer products, gradients^T inputs, are the gradient of the module's weight (outputs, inputs).
    """

    inputs: Tensor
    gradients: Tensor


def signals(modules: Mapping[str, nn.Module], loss: Callable[[], Tensor]) -> dict[str, Signal]:
    """The rows of each named module in one forward and backward pass, at least fp32 and without gradient themselves.

    Nothing below the lowest of the modules is differentiated, and no parameter needs or gets a gradient. Raises FamilyError
    for a module that does not run exactly once.
    """
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def tap(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            if name in seen:
                raise FamilyError(f"{name!r} ran more than once in one forward pass, so its gradient has no single input")
            output = output if output.requires_grad else output.detach().requires_grad_()
            seen[name] = (args[0].detach(), output)
            return output

        return hook

    hooks = [module.register_forward_hook(tap(name)) for name, module in modules.items()]
    try:
        with torch.enable_grad():
            value = loss()
            if missing := [name for name in modules if name not in seen]:
                raise FamilyError(f"{missing[0]!r} did not run in the forward pass, so it cannot be edited by what it reads")
            gradients = torch.autograd.grad(value, [seen[name][1] for name in modules])
    finally:
        for hook in hooks:
            hook.remove()
    return {
        name: Signal(_rows(seen[name][0]), _rows(gradient.detach())) for name, gradient in zip(modules, gradients, strict=True)
    }


def _rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1]).to(torch.promote_types(tensor.dtype, torch.float32))
