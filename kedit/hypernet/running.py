"""Running mean and variance of rows, taken in batches and over processes as exactly as row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from kedit.errors import DivergedError, NotFittedError

if TYPE_CHECKING:
    from kedit.training import Team

_EPSILON = 1e-7


class Moments(NamedTuple):
    """How many rows there were (scalar), their mean and their summed squared deviations from it (width,); all float64."""

    count: Tensor
    mean: Tensor
    squares: Tensor


class RunningMoments(nn.Module):  # type: ignore[misc]
    """Mean and standard deviation per dimension of all rows seen so far, never forgotten (Mitchell et al. 2022, appendix).

    ``count``, ``mean`` and ``squares`` are float64 buffers, so that they are saved with whatever holds them and a batch of
    many rows adds no error that one row at a time would not.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(width, dtype=torch.float64))

    def merge(self, more: Moments) -> None:
        """Take in the moments of further rows (Chan et al. 1979: equal to Welford's update by every row in turn)."""
        total = self.count + more.count
        if total == 0:
            return
        apart = more.mean - self.mean
        self.squares += more.squares + apart.square() * (self.count * more.count / total)
        self.mean += apart * (more.count / total)
        self.count.copy_(total)

    def normalise(self, rows: Tensor) -> Tensor:
        """(rows - mean) / (standard deviation + 1e-7), (rows, width), in the rows' dtype; NotFittedError before two rows."""
        if self.count < 2:
            raise NotFittedError(f"the running statistics hold {int(self.count)} row(s); at least two are needed: train first")
        deviation = (self.squares / (self.count - 1)).sqrt() + _EPSILON
        return (rows - self.mean.to(rows.dtype)) / deviation.to(rows.dtype)


def moments(groups: Sequence[Tensor], team: Team) -> list[Moments]:
    """The moments of several groups of rows, (rows, width) each, over all processes together.

    Two passes and no difference of large numbers; how rows are spread over processes makes no difference beyond the rounding
    of float64. A process without rows gives groups of none. Raises DivergedError, in every process, for NaN or infinity.
    """
    counts = [torch.tensor(float(len(rows)), dtype=torch.float64, device=rows.device) for rows in groups]
    summed = team.sum([*counts, *(rows.sum(0, dtype=torch.float64) for rows in groups)])
    counts, sums = summed[: len(groups)], summed[len(groups) :]
    if not all(bool(torch.isfinite(total).all()) for total in sums):
        raise DivergedError("an input or a gradient holds NaN or infinity; the running statistics were not changed")
    means = [total / count.clamp(min=1) for total, count in zip(sums, counts, strict=True)]
    # any centre near the mean will do, so it is rounded to the rows' dtype: subtracting it then costs no float64 copy of them
    centres = [mean.to(rows.dtype) for mean, rows in zip(means, groups, strict=True)]
    apart = [(rows - centre).square().sum(0, dtype=torch.float64) for rows, centre in zip(groups, centres, strict=True)]
    shifts = [mean - centre.double() for mean, centre in zip(means, centres, strict=True)]
    parts = zip(counts, means, team.sum(apart), shifts, strict=True)
    return [Moments(count, mean, (about - count * shift.square()).clamp(min=0)) for count, mean, about, shift in parts]
