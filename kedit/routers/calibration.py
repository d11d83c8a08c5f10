"""Where a router's threshold belongs: the operating points of two sets of scores, and the best of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedit.errors import DataError, unknown_name

RULES = ("accuracy", "balanced", "youden")


@dataclass(frozen=True)
class Curve:
    """Every distinct operating point of a router, from the lowest threshold (all active) to the highest (fewest active).

    Arrays of the same length. ``lower`` and ``upper`` bound the thresholds that decide alike: above ``lower`` up to
    ``upper`` itself, or for a ``strict`` router from ``lower`` itself to below ``upper``; ``thresholds`` are points between.
    ``hits`` are positives in scope and ``rejections`` negatives out of scope, as counts.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    hits: NDArray[np.int64]
    rejections: NDArray[np.int64]
    positives: int
    negatives: int
    strict: bool = False

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """One threshold per operating point: the middle of those that decide alike."""
        return np.array([middle(a, b, strict=self.strict) for a, b in zip(self.lower, self.upper, strict=True)])

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Share of all scores decided rightly (equation 16 over the number of scores)."""
        return (self.hits + self.rejections) / max(self.positives + self.negatives, 1)

    @property
    def tpr(self) -> NDArray[np.float64]:
        """Share of positives in scope; NaN where there are none."""
        return self.hits / self.positives if self.positives else np.full(len(self.hits), np.nan)

    @property
    def fpr(self) -> NDArray[np.float64]:
        """Share of negatives in scope; NaN where there are none."""
        return 1 - self.rejections / self.negatives if self.negatives else np.full(len(self.hits), np.nan)


@dataclass(frozen=True)
class Calibration:
    """A threshold, what its rule says of it, and the ends of the interval whose middle it is."""

    threshold: float
    value: float
    interval: tuple[float, float]
    rule: str
    curve: Curve


def curve(
    positives: ArrayLike, negatives: ArrayLike, *, strict: bool = False, domain: tuple[float, float] = (-1.0, 1.0)
) -> Curve:
    """The operating points that thresholds in ``domain`` reach, for scores of any shape; either side may be empty.

    Raises DataError for scores that are not finite, and when both sides are empty.
    """
    inside, outside = _scores(positives, "positive"), _scores(negatives, "negative")
    if not len(inside) + len(outside):
        raise DataError("there is no score at all; expected scores of requests in scope and out of scope")
    steps = np.unique(np.concatenate([inside, outside]))
    lower, upper = np.concatenate([[-np.inf], steps]), np.concatenate([steps, [np.inf]])
    hits = np.concatenate([len(inside) - np.searchsorted(inside, steps, "left"), [0]])
    rejections = np.concatenate([np.searchsorted(outside, steps, "left"), [len(outside)]])
    # a threshold on the border of the domain counts where its interval includes that border
    reached = (lower <= domain[1]) & (upper > domain[0]) if strict else (lower < domain[1]) & (upper >= domain[0])
    return Curve(
        np.clip(lower[reached], *domain), np.clip(upper[reached], *domain), hits[reached].astype(np.int64),
        rejections[reached].astype(np.int64), len(inside), len(outside), strict,
    )  # fmt: skip


def calibrate(
    positives: ArrayLike,
    negatives: ArrayLike,
    rule: str = "accuracy",
    *,
    strict: bool = False,
    domain: tuple[float, float] = (-1.0, 1.0),
) -> Calibration:
    """The threshold in ``domain`` that decides best on scores of requests in scope and out of scope (equation 16).

    ``accuracy`` maximises the number of right decisions, so that the larger side weighs more, as the paper has it;
    ``balanced`` the mean of both sides' shares; ``youden`` the sum of both shares less 1, which is another number for the
    same threshold. Between neighbouring scores nothing changes: the threshold is the middle of the interval of optimal
    thresholds; of several such intervals, the widest; of equally wide ones, the highest, which leaves more requests alone.
    A ``strict`` router is in scope above its threshold, not at it.

    Raises UnknownNameError for a rule and DataError when either side is empty or a score is not finite.
    """
    if rule not in RULES:
        raise unknown_name("calibration rule", rule, RULES)
    found = curve(positives, negatives, strict=strict, domain=domain)
    if not found.positives or not found.negatives:
        raise DataError(
            f"calibration got {found.positives} scores in scope and {found.negatives} out of scope, and needs both; give "
            "cases with questions of both kinds, or a threshold of your own"
        )
    p, n = found.positives, found.negatives
    # whole numbers: two operating points are equally good or they are not
    gains = found.hits + found.rejections if rule == "accuracy" else found.hits * n + found.rejections * p
    best = int(gains.max())
    low, high = max(_runs(found, gains == best), key=lambda run: (run[1] - run[0], run[1]))
    value = {"accuracy": best / (p + n), "balanced": best / (2 * p * n), "youden": best / (p * n) - 1}[rule]
    return Calibration(middle(low, high, strict=strict), value, (low, high), rule, found)


def middle(low: float, high: float, *, strict: bool = False) -> float:
    """The middle of (low, high], or of [low, high) where ``strict``; always a member, however close the ends are."""
    found = low + (high - low) / 2
    if strict:
        return float(low if found >= high else found)
    return float(high if found <= low else found)


def _runs(found: Curve, optimal: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Ends of the intervals of optimal thresholds; neighbouring operating points that are equally good make one."""
    runs: list[tuple[float, float]] = []
    after = False
    for low, high, good in zip(found.lower.tolist(), found.upper.tolist(), optimal.tolist(), strict=True):
        if good:
            runs.append((runs.pop()[0] if after else low, high))
        after = good
    return runs


def _scores(values: ArrayLike, what: str) -> NDArray[np.float64]:
    scores = np.sort(np.asarray(values, dtype=np.float64).reshape(-1))
    if not np.isfinite(scores).all():
        raise DataError(f"{int((~np.isfinite(scores)).sum())} of {len(scores)} {what} scores are not finite; check the router")
    return scores
