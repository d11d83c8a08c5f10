"""Intervals, tests and corrections on simulated data, where the truth is known; a column is a simulation."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import ttest_ind

from kedit.bootstrap import Array, column_means
from kedit.statistics import Paired, holm, least_p, paired

SIMS = 1000
CASES = 60
FLIPS = 1000
NOISE = 3 * (0.05 * 0.95 / SIMS) ** 0.5
"""Three standard errors of a rate of 5 %."""


def against_nothing(values: Array, **options: object) -> Paired:
    """``values`` (seeds, cases, simulations) against zeros."""
    nothing = np.zeros((1, *values.shape[1:]))
    return paired(values, nothing, np.ones(values.shape[1:]), flips=FLIPS, **options)  # type: ignore[arg-type]


def covered(found: Paired, truth: float = 0.0) -> float:
    return float(((found.low <= truth) & (truth <= found.high)).mean())


def rejected(found: Paired) -> float:
    return float((found.p <= 0.05).mean())


def scores(rng: np.random.Generator, effect: float = 0.0) -> tuple[Array, Array]:
    """Two editors on the same cases, (1, cases, simulations): hard and easy cases, each editor with luck of its own."""
    ease = rng.uniform(0, 80, (1, CASES, SIMS))
    luck = rng.gamma(2.0, 5.0, (2, CASES, SIMS))
    return ease + effect + luck[:1], ease + luck[1:]


def crossed_seeds(rng: np.random.Generator, seeds: int, by_case: float, by_seed: float, both: float) -> Array:
    return (
        rng.normal(0, by_case, (1, CASES, SIMS))
        + rng.normal(0, by_seed, (seeds, 1, SIMS))
        + rng.normal(0, both, (seeds, CASES, SIMS))
    )


def test_95_percent_intervals_cover_the_truth_93_to_97_percent_of_the_time_also_for_skewed_scores() -> None:
    rng = np.random.default_rng(1)
    skewed = rng.gamma(1.5, 10.0, (1, CASES, SIMS)) - 15.0
    assert 0.93 <= covered(against_nothing(skewed)) <= 0.97
    few = rng.normal(0, 20, (1, 10, SIMS))
    assert 0.93 <= covered(against_nothing(few)) <= 0.97


def test_the_paired_test_is_wrong_5_percent_of_the_time_and_finds_more_than_the_unpaired() -> None:
    rng = np.random.default_rng(2)
    a, b = scores(rng)
    same = paired(a, b, np.ones((CASES, SIMS)), flips=FLIPS)
    assert abs(rejected(same) - 0.05) <= NOISE
    assert 0.93 <= covered(same) <= 0.97
    a, b = scores(rng, effect=6.0)
    better = paired(a, b, np.ones((CASES, SIMS)), flips=FLIPS)
    unpaired = float((ttest_ind(a[0], b[0], axis=0).pvalue <= 0.05).mean())
    assert rejected(better) > 0.8
    assert unpaired < rejected(better) / 2


def test_the_smallest_difference_is_found_in_80_percent_of_such_samples() -> None:
    rng = np.random.default_rng(3)
    smallest = float(np.nanmean(against_nothing(rng.normal(0, 20, (1, CASES, SIMS))).smallest(0.05)))
    found = rejected(against_nothing(rng.normal(smallest, 20, (1, CASES, SIMS))))
    assert found == pytest.approx(0.8, abs=0.04)
    assert np.isnan(against_nothing(np.zeros((1, 5, 1))).smallest(0.05)).all(), "no spread says nothing"


def test_holm_keeps_the_chance_of_any_false_verdict_below_5_percent_whatever_else_is_true() -> None:
    rng = np.random.default_rng(4)
    editors, runs = 5, SIMS // 5
    pairs = [(i, j) for i in range(editors) for j in range(i)]
    values = rng.normal(0, 20, (editors, CASES, runs))
    values[0] += 15.0  # one editor is better, the others are alike
    p = np.stack([paired(values[i : i + 1], values[j : j + 1], np.ones((CASES, runs)), flips=4000).p for i, j in pairs])
    alike = [k for k, (i, j) in enumerate(pairs) if 0 not in (i, j)]
    adjusted = np.array([holm(one) for one in p.T]).T
    false = float((adjusted[alike] <= 0.05).any(axis=0).mean())
    assert false <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5
    assert float((p[alike] <= 0.05).any(axis=0).mean()) > 0.12, "without a correction it happens often"
    assert (adjusted >= p).all()


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(("by_seed", "both"), [(3.0, 10.0), (6.0, 10.0), (0.0, 10.0)])
def test_pooled_seeds_cover_the_truth_of_another_seed_and_averaging_them_away_does_not(by_seed: float, both: float) -> None:
    rng = np.random.default_rng(5)
    values = crossed_seeds(rng, 3, 20.0, by_seed, both)
    pooled, averaged = against_nothing(values), against_nothing(values.mean(axis=0, keepdims=True))
    assert 0.93 <= covered(pooled) <= 0.97
    assert rejected(pooled) <= 0.05 + NOISE
    assert float(np.nanmean(pooled.seed_sd[0])) == pytest.approx((by_seed**2 + both**2 / CASES) ** 0.5, rel=0.2)
    if by_seed == 6.0:
        assert covered(averaged) < 0.85


def test_seeds_on_both_sides_are_both_chance_and_what_a_seed_does_to_both_cancels() -> None:
    rng = np.random.default_rng(6)
    a, b = crossed_seeds(rng, 3, 20.0, 4.0, 10.0), crossed_seeds(rng, 3, 20.0, 4.0, 10.0)
    counts = np.ones((CASES, SIMS))
    assert 0.93 <= covered(paired(a, b, counts, flips=FLIPS)) <= 0.97
    shared = rng.normal(0, 15.0, (3, 1, SIMS))
    alone = paired(a + shared, b + shared, counts, flips=FLIPS)
    matched = paired(a + shared, b + shared, counts, crossed=True, flips=FLIPS)
    assert 0.93 <= covered(matched) <= 0.97
    assert float((matched.high - matched.low).mean()) < float((alone.high - alone.low).mean()) / 1.5


def test_cases_that_belong_together_count_once() -> None:
    rng = np.random.default_rng(7)
    values = np.repeat(rng.normal(0, 20, (1, CASES, SIMS)), 3, axis=1) + rng.normal(0, 5, (1, 3 * CASES, SIMS))
    grouped = values.reshape(1, CASES, 3, SIMS).sum(axis=2)
    together = paired(grouped, np.zeros_like(grouped), np.full((CASES, SIMS), 3.0), flips=FLIPS)
    assert 0.93 <= covered(together) <= 0.97
    assert abs(rejected(together) - 0.05) <= NOISE
    apart = against_nothing(values)
    assert np.allclose(apart.difference, together.difference)
    assert covered(apart) < 0.85, "taken alone they look like three times as many"


def test_few_sign_patterns_are_all_tried_and_the_smallest_p_is_said() -> None:
    values = np.array([12.0, 3.0, -1.0, 7.0, 8.0, 0.5, 2.0])
    means = [abs(np.mean(values * signs)) for signs in product((-1, 1), repeat=7)]
    found = against_nothing(values[None, :, None])
    assert found.p[0] == pytest.approx(np.mean(np.array(means) >= abs(values.mean()) - 1e-12))
    all_up = against_nothing(np.abs(values)[None, :, None])
    assert all_up.p[0] == least_p(7) == 2 / 2**7
    assert least_p(60) == pytest.approx(1e-4, rel=1e-3)
    assert against_nothing(np.zeros((1, 4, 1))).p[0] == 1.0


def test_without_seeds_the_interval_is_the_bootstraps_widened_for_few_cases() -> None:
    values = np.random.default_rng(8).normal(5, 10, (40, 1))
    plain, found = column_means(values)[0], against_nothing(values[None])
    assert plain is not None
    wider = 2.0227 / 1.96 * (40 / 39) ** 0.5  # Student's t with 39 degrees of freedom over the normal
    assert found.low[0] == pytest.approx(plain.mean + wider * (plain.low - plain.mean), abs=1e-3)
    assert found.high[0] == pytest.approx(plain.mean + wider * (plain.high - plain.mean), abs=1e-3)
    assert found.error[0] == pytest.approx(values.std(ddof=1) / 40**0.5)
    assert found.sd[0] == pytest.approx(values.std(ddof=1))


def test_a_mean_of_columns_takes_each_column_over_its_own_cases() -> None:
    values = np.array([[[10.0, 4.0], [20.0, 0.0], [30.0, 8.0]]])
    counts = np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    found = paired(values, np.zeros_like(values), counts, np.array([[1.0, 0.5], [0.0, 0.5]]))
    assert list(found.difference) == [20.0, (20.0 + 6.0) / 2]
    assert list(found.units) == [3, 3]
    assert found.means[0].tolist() == [20.0, 13.0]


def test_a_single_case_is_a_number_without_a_test() -> None:
    found = against_nothing(np.array([[[7.0]]]))
    assert found.difference[0] == 7.0
    assert np.isnan([found.low[0], found.high[0], found.p[0], found.error[0]]).all()


def test_the_same_numbers_give_the_same_result() -> None:
    values = np.random.default_rng(9).normal(1, 10, (2, CASES, 3))
    one, two = against_nothing(values), against_nothing(values)
    assert np.array_equal(one.p, two.p) and np.array_equal(one.low, two.low)
