"""A network that turns the gradient of a fine-tuning step, as its factors, into an edit (Mitchell et al. 2022, section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from kedit.errors import DataError
from kedit.hypernet.running import RunningMoments, moments
from kedit.weights.lowrank import Factors
from kedit.weights.taps import Signal

if TYPE_CHECKING:
    from kedit.training import Team


class Site(NamedTuple):
    """A linear map whose weight is edited: width of what goes in and of what comes out."""

    inputs: int
    outputs: int


class ResidualBlock(nn.Module):  # type: ignore[misc]
    """z + max(0, scale * (U V z + b) + shift), the identity at first: U and b are zero, V is normal (IDMLP of the paper).

    ``scale`` and ``shift`` have a row per mode. The gradient of the maximum at exactly 0, where everything starts, is 1 here;
    with that of a ReLU, or of a clamp in present versions of torch, it is 0, and nothing would ever be learned.
    """

    def __init__(self, width: int, rank: int, modes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(width, rank))
        self.down = nn.Parameter(torch.randn(rank, width, generator=generator))
        self.bias = nn.Parameter(torch.zeros(width))
        self.scale = nn.Parameter(torch.ones(modes, width))
        self.shift = nn.Parameter(torch.zeros(modes, width))

    def forward(self, rows: Tensor, mode: int) -> Tensor:
        """Rows (rows, width) of the weight that is number ``mode`` among those that share the block."""
        hidden = rows @ self.down.T @ self.up.T + self.bias
        moved = self.scale[mode] * hidden + self.shift[mode]
        return rows + torch.where(moved >= 0, moved, torch.zeros_like(moved))


class GradientTransform(nn.Module):  # type: ignore[misc]
    """The network of all weights of one shape: running statistics, then two residual blocks over [input; gradient]."""

    def __init__(self, site: Site, modes: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        self.inputs = RunningMoments(site.inputs)
        self.gradients = RunningMoments(site.outputs)
        width = sum(site)
        self.blocks = nn.ModuleList([ResidualBlock(width, min(rank, width), modes, generator) for _ in range(2)])

    def forward(self, signal: Signal, mode: int) -> Signal:
        """Transformed rows of normalised ones, same shapes."""
        joined = torch.cat(signal, dim=1)
        for block in self.blocks:
            joined = block(joined, mode)
        return Signal(*joined.split([signal.inputs.shape[1], signal.gradients.shape[1]], dim=1))


class Hypernetwork(nn.Module):  # type: ignore[misc]
    """One ``GradientTransform`` per weight shape (per weight where not ``shared``), and a step size per weight.

    The edit of a weight is ``sign * step size * sum over rows of gradient~ input~^T`` (divided by the number of rows where
    ``mean``), kept as factors; ``sign`` -1 is descent. Everything is drawn from ``seed``: equal in every process.
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        *,
        rank: int,
        step_size: float,
        seed: int = 0,
        shared: bool = True,
        mean: bool = True,
        sign: float = -1.0,
    ) -> None:
        super().__init__()
        self.sites = dict(sites)
        self.mean = mean
        self.sign = sign
        self.places = _places(self.sites, shared)
        generator = torch.Generator().manual_seed(seed)
        shapes = {self.places[name][0]: site for name, site in self.sites.items()}
        modes = {key: sum(other == key for other, _ in self.places.values()) for key in shapes}
        self.transforms = nn.ModuleDict(
            {key: GradientTransform(site, modes[key], rank, generator) for key, site in shapes.items()}
        )
        self.step_sizes = nn.Parameter(torch.full((len(self.sites),), step_size))

    def observe(self, signals: Sequence[Mapping[str, Signal]], team: Team) -> None:
        """Take the rows of one step of training, of all items and all processes together, into the running statistics."""
        device, dtype = self.step_sizes.device, self.step_sizes.dtype
        groups: list[Tensor] = []
        for key in self.transforms:
            rows = [signal[name] for name, (other, _) in self.places.items() if other == key for signal in signals]
            site = next(self.sites[name] for name, (other, _) in self.places.items() if other == key)
            for part, width in enumerate(site):
                groups.append(torch.cat([torch.empty(0, width, device=device, dtype=dtype), *(pair[part] for pair in rows)]))
        found = iter(moments(groups, team))
        for transform in self.transforms.values():
            transform.inputs.merge(next(found))
            transform.gradients.merge(next(found))

    def normalise(self, signals: Mapping[str, Signal]) -> dict[str, Signal]:
        """Rows minus mean, over standard deviation, by name; NotFittedError before any training."""
        dtype = self.step_sizes.dtype
        found = {}
        for name, signal in signals.items():
            transform = self.transforms[self.places[name][0]]
            inputs, gradients = (rows.to(dtype) for rows in signal)
            found[name] = Signal(transform.inputs.normalise(inputs), transform.gradients.normalise(gradients))
        return found

    def forward(self, normalised: Mapping[str, Signal]) -> dict[str, Factors]:
        """The edit as factors by name, with gradient to the network and the step sizes."""
        found = {}
        for step_size, (name, (key, mode)) in zip(self.step_sizes, self.places.items(), strict=True):
            inputs, gradients = self.transforms[key](normalised[name], mode)
            share = self.sign * step_size / (max(1, len(inputs)) if self.mean else 1)
            found[name] = Factors(inputs, (share * gradients).T)
        return found

    def load(self, state: Mapping[str, Tensor], where: str) -> None:
        """Take over a state; raises DataError, with nothing changed, where names or shapes are not those of this network."""
        own = self.state_dict()
        for name in sorted(own.keys() | state.keys()):
            here = tuple(own[name].shape) if name in own else "none"
            there = tuple(state[name].shape) if name in state else "none"
            if here != there:
                raise DataError(
                    f"{where} was trained for other weights: {name!r} has shape {there} there and {here} here; load it with the "
                    "layers, rank and backbone that it was trained with"
                )
        self.load_state_dict(state)


def _places(sites: Mapping[str, Site], shared: bool) -> dict[str, tuple[str, int]]:
    """For each weight, which network transforms it and which number it has among those of that network."""
    found: dict[str, tuple[str, int]] = {}
    for number, (name, site) in enumerate(sites.items()):
        key = f"{site.inputs}x{site.outputs}" + ("" if shared else f"-{number}")
        found[name] = (key, sum(other == key for other, _ in found.values()))
    return found
