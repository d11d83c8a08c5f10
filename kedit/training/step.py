"""One step of the optimiser: micro-batches, shares of processes, and the gradient of the mean over all their items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from kedit.errors import ContractError, DivergedError
from kedit.training.contract import Learner, Team, Training
from kedit.training.randomness import seed_step

LOSS, NORM = "loss", "gradient_norm"


def advance(
    learner: Learner,
    optimiser: torch.optim.Optimizer,
    settings: Training,
    team: Team,
    order: Sequence[int],
    epoch: int,
    at: int,
) -> dict[str, float]:
    """Take step ``at`` of an epoch over ``order`` and give its values: means over its items, and the gradient's norm.

    Raises DivergedError, with no parameter changed, when the loss or the gradient is not finite.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    optimiser.zero_grad()
    values, number = _accumulate(learner, parameters, settings, team, order, epoch, at)
    values = _share(parameters, values, team)
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = get_total_norm(gradients)
    if not (math.isfinite(values[LOSS]) and bool(torch.isfinite(norm))):
        optimiser.zero_grad()
        raise DivergedError(
            f"training diverged at step {number}: the loss is {values[LOSS]:g}, the gradient's norm {float(norm):g}; this step "
            "was not taken and the last checkpoint is intact, try a lower learning rate or a smaller clip"
        )
    if settings.clip is not None:
        clip_grads_with_norm_(parameters, settings.clip, norm)
    optimiser.step()
    return {**values, NORM: float(norm), "epoch": float(epoch + 1)}


def _accumulate(
    learner: Learner,
    parameters: Sequence[Tensor],
    settings: Training,
    team: Team,
    order: Sequence[int],
    epoch: int,
    at: int,
) -> tuple[dict[str, float], int]:
    """This process's part of the mean over the items of all micro-batches of a step, in ``.grad`` and in values."""
    size = settings.batch_size
    items = order[at * size * settings.accumulate : (at + 1) * size * settings.accumulate]
    micro = [items[start : start + size] for start in range(0, len(items), size)]
    first = epoch * -(-len(order) // size) + at * settings.accumulate
    values: dict[str, float] = {}
    before = 0
    for number, batch in enumerate(micro, first):
        _scale(parameters, before / len(batch))  # what is there counts as a mean over this batch, as what comes does
        seed_step(settings.seed, number)
        with torch.enable_grad():
            found = learner.step(batch, batch[team.rank :: team.world], team, number)
        for name, value in found.items():
            values[name] = values.get(name, 0.0) + float(value) * len(batch) / len(items)
        before = len(batch)
    _scale(parameters, before / len(items))
    if LOSS not in values:
        raise ContractError(f"{type(learner).__name__}.step gave no {LOSS!r} among its values ({', '.join(values) or 'none'})")
    return values, epoch * -(-len(order) // (size * settings.accumulate)) + at + 1


def _scale(parameters: Sequence[Tensor], factor: float) -> None:
    if factor == 1.0:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


def _share(parameters: Sequence[Tensor], values: Mapping[str, float], team: Team) -> dict[str, float]:
    """Sum gradients and values over processes; a parameter that no process has a gradient for keeps none."""
    if team.world == 1:
        return dict(values)
    names = sorted(values)
    present = torch.tensor([float(p.grad is not None) for p in parameters], dtype=torch.float64)
    numbers = torch.tensor([values[name] for name in names], dtype=torch.float64)
    own = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    present, numbers, *summed = team.sum([present, numbers, *own])
    for parameter, gradient, holders in zip(parameters, summed, present.tolist(), strict=True):
        parameter.grad = gradient if holders else None
    return dict(zip(names, numbers.tolist(), strict=True))
