"""Paired differences of means: intervals, tests, their correction for many, and what a sample could have seen.

Arrays are over units (cases, or groups of cases that belong together) and columns (dimensions). Where editors were trained with
several seeds, cases and seeds are crossed factors, and both are sources of chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kedit.bootstrap import RESAMPLES, Array, resample_weights

FLIPS = 10_000
POWER = 0.8
_CELLS = 1 << 22


@dataclass(frozen=True)
class Paired:
    """Differences a - b of some columns, each field (columns,).

    ``low`` and ``high`` are the interval, ``p`` is two-sided. ``error`` is the standard error with ``df`` degrees of freedom,
    ``units`` how many units have a value, ``sd`` the standard deviation of their differences. ``means`` are the means of a and
    of b, ``seed_sd`` the standard deviations of their means by seed, NaN for one seed. Interval, ``p`` and errors are NaN where
    fewer than two units have a value.
    """

    difference: Array
    low: Array
    high: Array
    p: Array
    error: Array
    df: Array
    units: Array
    sd: Array
    seed_sd: tuple[Array, Array]
    means: tuple[Array, Array]

    def smallest(self, alpha: float, power: float = POWER) -> Array:
        """The difference that a test at ``alpha`` finds with that probability in a sample like this one; NaN without spread."""
        from scipy.special import stdtrit

        reach = stdtrit(self.df, 1 - alpha / 2) + stdtrit(self.df, power)
        found: Array = np.where(self.error > 0, reach * self.error, np.nan)
        return found


def paired(
    a: Array,
    b: Array,
    counts: Array,
    mix: Array | None = None,
    *,
    crossed: bool = False,
    alpha: float = 0.05,
    flips: int = FLIPS,
    seed: int = 0,
) -> Paired:
    """Difference of the means of a and b over the units that both have, with interval and test.

    ``a`` (seeds of a, units, columns) and ``b`` (seeds of b, units, columns) are sums over a unit's cases, ``counts``
    (units, columns) their numbers, 0 where a unit has no value. ``mix`` (columns, results) gives results that are weighted
    sums of columns, such as their mean; the columns themselves if left out. Every column has a value somewhere. ``crossed``:
    the k-th seed of a is the k-th of b, so that what a seed does to both cancels.

    The interval is a bootstrap over units, widened by Student's t for few of them; the test flips the signs of the units'
    differences (exact where all sign patterns are few). With several seeds the variance is that of a two-way layout with
    random cases and seeds, V = cases + seeds - what both hold of their interaction (never less than either), with
    Satterthwaite's degrees of freedom: the seeds' part is drawn from a normal of the observed spread and added to the
    bootstrap over units, and ``p`` is the larger of that of the sign flips and of t = difference / sqrt(V).
    """
    totals = a.mean(axis=0) - b.mean(axis=0)
    whole = counts.sum(axis=0)
    difference = _mixed(totals.sum(axis=0) / whole, mix)
    units = (_mixed(counts, None if mix is None else np.abs(mix)) > 0).sum(axis=0).astype(np.float64)
    seeds = [_mixed(x.sum(axis=1) / whole, mix) for x in (a, b)]
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = _Spread.of(_mixed(_influence(totals, counts), mix), units)
        for found in [a - b] if crossed else [a, b]:
            if len(found) > 1:
                spread = spread.pooled(_mixed(_influence(found, counts), mix), _mixed(found.sum(axis=1) / whole, mix))
        low, high = _interval(totals, counts, mix, difference, spread, alpha, seed)
        p = _flipped(_mixed(totals / whole, mix), difference, flips, seed)
        if spread.seed_df:
            p = np.maximum(p, _t_test(difference, spread))
    tested = units > 1
    nothing = np.full_like(difference, np.nan)
    sds = [means.std(axis=0, ddof=1) if len(means) > 1 else nothing for means in seeds]
    return Paired(
        difference=difference,
        low=np.where(tested, low, nothing),
        high=np.where(tested, high, nothing),
        p=np.where(tested, p, nothing),
        error=np.where(tested, np.sqrt(spread.total), nothing),
        df=np.where(tested, spread.df, nothing),
        units=units,
        sd=np.where(tested, np.sqrt(spread.cases * units), nothing),
        seed_sd=(sds[0], sds[1]),
        means=(seeds[0].mean(axis=0), seeds[1].mean(axis=0)),
    )


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: reject where they are at most alpha to keep the family's error below alpha.

    S. Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if len(p) else steps
    return [float(value) for value in adjusted]


def least_p(units: float, flips: int = FLIPS) -> float:
    """The smallest p-value that flipping the signs of so many units can give."""
    return 2.0 ** (1 - units) if _exact(units, flips) else 1 / (flips + 1)


@dataclass(frozen=True)
class _Spread:
    """Variances of a difference of means by source, each (results,): what cases, seeds and their interaction add to it.

    ``terms`` is Satterthwaite's sum of squared variances over their degrees of freedom, ``seed_df`` the fewest of a pool of
    seeds, 0 without one.
    """

    cases: Array
    case_df: Array
    interaction: Array
    seeds: Array
    terms: Array
    seed_df: int = 0

    @classmethod
    def of(cls, influence: Array, units: Array) -> _Spread:
        """From what each unit adds to the deviation of the difference, (units, results)."""
        cases = units / (units - 1) * np.square(influence).sum(axis=0)
        return cls(cases, units - 1, np.zeros_like(units), np.zeros_like(units), cases**2 / (units - 1))

    def pooled(self, influence: Array, means: Array) -> _Spread:
        """With the seeds of one side: ``influence`` (seeds, units, results) and their means (seeds, results)."""
        df = len(means) - 1
        seeds = means.var(axis=0, ddof=1) / len(means)
        within = np.square(influence - influence.mean(axis=0)).sum(axis=(0, 1))
        interaction = (self.case_df + 1) / self.case_df * within / df / len(means)
        return _Spread(
            self.cases,
            self.case_df,
            self.interaction + interaction,
            self.seeds + seeds,
            self.terms + seeds**2 / df + interaction**2 / (df * self.case_df),
            min(df, self.seed_df or df),
        )

    @property
    def total(self) -> Array:
        """The variance of the difference."""
        if not self.seed_df:
            return self.cases
        found: Array = np.maximum(self.cases + self.seeds - self.interaction, np.maximum(self.cases, self.seeds))
        return found

    @property
    def case_share(self) -> Array:
        """Which part of the variance over cases is not the seeds' as well."""
        kept = np.maximum(self.cases - self.interaction, 0.0)
        return np.divide(kept, self.cases, out=np.ones_like(kept), where=self.cases > 0)

    @property
    def df(self) -> Array:
        """Satterthwaite's degrees of freedom; those of the cases alone where no seeds are pooled."""
        if not self.seed_df:
            return self.case_df
        net = (self.cases + self.seeds - self.interaction) ** 2
        found = np.divide(net, self.terms, out=self.case_df.copy(), where=self.terms > 0)
        bounded: Array = np.maximum(found, np.minimum(self.case_df, self.seed_df))
        return bounded


def _mixed(columns: Array, mix: Array | None) -> Array:
    return columns if mix is None else columns @ mix


def _influence(totals: Array, counts: Array) -> Array:
    """What each unit adds to the deviation of each column's mean; the shape of ``totals``, sums to 0 over units."""
    whole = counts.sum(axis=0)
    mean = totals.sum(axis=-2, keepdims=True) / whole
    found: Array = (totals - counts * mean) / whole
    return found


def _interval(
    totals: Array, counts: Array, mix: Array | None, difference: Array, spread: _Spread, alpha: float, seed: int
) -> tuple[Array, Array]:
    from scipy.special import ndtri, stdtrit

    drawn = np.concatenate([_mixed((w @ totals) / (w @ counts), mix) for w in resample_weights(len(totals), seed)])
    # A resample's variance is (n - 1) / n of an unbiased estimate, and percentiles of it are those of a normal, not of a t.
    small = np.sqrt((spread.case_df + 1) / spread.case_df)
    away = (drawn - difference) * small * np.sqrt(spread.case_share)
    if spread.seed_df:
        rest = np.maximum(spread.total - spread.case_share * spread.cases, 0.0)
        normal = np.random.default_rng([seed, 1]).permutation(ndtri((np.arange(RESAMPLES) + 0.5) / RESAMPLES))
        away = away + normal[:, None] * np.sqrt(rest)
    wider = stdtrit(spread.df, 1 - alpha / 2) / ndtri(1 - alpha / 2)
    away = np.where(spread.case_df > 0, away, 0.0)
    percentile = np.nanpercentile if np.isnan(away).any() else np.percentile  # the first is many times slower
    low, high = percentile(away, [50 * alpha, 100 - 50 * alpha], axis=0)
    return difference + wider * low, difference + wider * high


def _flipped(parts: Array, difference: Array, flips: int, seed: int) -> Array:
    """Two-sided p-values of ``difference`` = the sum of ``parts`` (units, results) when each unit's sign is a coin's."""
    bar = np.abs(difference) * (1 - 1e-9) - 1e-12  # sign patterns that give the same sum up to rounding count as reaching it
    moving = parts[np.any(parts != 0, axis=1)]  # a unit without a difference is the same under both signs
    reached = np.zeros_like(difference)
    tried = 0
    for up in _signs(len(moving), flips, seed):
        reached += (np.abs(2 * (up @ moving) - moving.sum(axis=0)) >= bar).sum(axis=0)
        tried += len(up)
    found: Array = reached / tried if _exact(len(moving), flips) else (reached + 1) / (tried + 1)
    return found


def _exact(units: float, flips: int) -> bool:
    return bool(2.0**units <= flips)


def _signs(units: int, flips: int, seed: int) -> Iterator[Array]:
    """Which units keep their sign, (patterns, units) of 0 and 1 in parts: every pattern where they are few, else random ones."""
    if _exact(units, flips):
        yield ((np.arange(2**units)[:, None] >> np.arange(units)) & 1).astype(np.float64)
        return
    generator = np.random.default_rng([seed, 2])
    step = max(1, _CELLS // units)
    for start in range(0, flips, step):
        size = min(step, flips - start)
        bits = np.frombuffer(generator.bytes(-(-size * units // 8)), dtype=np.uint8)
        yield np.unpackbits(bits, count=size * units).reshape(size, units).astype(np.float64)


def _t_test(difference: Array, spread: _Spread) -> Array:
    from scipy.special import stdtr

    t = np.where(difference == 0, 0.0, np.abs(difference) / np.sqrt(spread.total))
    found: Array = 2 * stdtr(spread.df, -t)
    return found
