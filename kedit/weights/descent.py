"""The optimisation loop of editors that train weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kedit.errors import DivergedError

Loss = Callable[[], Tensor]


def descend(
    parameters: Sequence[Tensor],
    loss: Loss,
    *,
    lr: float,
    steps: int,
    weight_decay: float = 0.0,
    stop_loss: float | None = None,
) -> list[float]:
    """Take AdamW steps on ``parameters`` and return the loss before each; gradients of other tensors are not touched.

    Ends early before a step whose loss is at most ``stop_loss``. Raises DivergedError when the loss or a parameter becomes
    NaN or infinite.
    """
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
    seen: list[float] = []
    with torch.enable_grad():
        for step in range(1, steps + 1):
            value = loss()
            seen.append(value.item())
            if not torch.isfinite(value):
                raise DivergedError(
                    f"the loss at step {step} of {steps} is {seen[-1]}; no weight was changed, try a lower lr than {lr}"
                )
            if stop_loss is not None and seen[-1] <= stop_loss:
                break
            gradients = torch.autograd.grad(value, parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
    for parameter in parameters:
        parameter.grad = None
    if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
        raise DivergedError(
            f"a weight is NaN or infinite after {len(seen)} steps; no weight was changed, try a lower lr than {lr}"
        )
    return seen
