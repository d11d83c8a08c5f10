"""Equation 16: the threshold that decides most scores rightly, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedit.errors import DataError, UnknownNameError
from kedit.routers.calibration import RULES, calibrate, curve


def right(positives: list[float], negatives: list[float], t: float, strict: bool = False) -> int:
    """Equation 16's sum, written out."""
    inside = [p > t if strict else p >= t for p in positives]
    outside = [n <= t if strict else n < t for n in negatives]
    return sum(inside) + sum(outside)


def test_separable_scores_are_split_in_the_middle_of_the_gap() -> None:
    found = calibrate([0.9, 0.7], [0.1, 0.3])
    assert found.threshold == pytest.approx(0.5)
    assert found.interval == (0.3, 0.7)
    assert found.value == 1.0


def test_overlapping_scores_give_the_interval_with_most_right_decisions() -> None:
    # right of 5, by threshold: 0: 3, .3: P3 N1 = 4, .5: P2 N1 = 3, .7: P2 N2 = 4, .85: P1 N2 = 3, .95: P0 N2 = 2
    found = calibrate([0.4, 0.8, 0.9], [0.1, 0.6])
    assert found.value == 4 / 5
    assert found.interval == (0.1, 0.4)  # 0.3 wide; the other optimum, (0.6, 0.8], is 0.2 wide
    assert found.threshold == pytest.approx(0.25)


def test_of_equally_wide_intervals_the_highest_is_taken() -> None:
    # t in (.25,.5]: P2 N1 = 3; (.5,.625]: P1 N1 = 2; (.625,.875]: P1 N2 = 3; both optima are 0.25 wide
    found = calibrate([0.5, 0.875], [0.25, 0.625])
    assert found.value == 3 / 4
    assert found.interval == (0.625, 0.875)
    assert found.threshold == 0.75


def test_a_tie_between_a_positive_and_a_negative_joins_the_intervals_beside_it() -> None:
    # at or below .5 both are active, above it neither: 2 of 3 right on either side once .0 is out
    found = calibrate([0.5], [0.5, 0.0])
    assert found.interval == (0.0, 1.0)
    assert found.value == 2 / 3
    assert found.threshold == 0.5
    assert right([0.5], [0.5, 0.0], found.threshold) == 2


def test_scores_in_the_wrong_order_leave_all_requests_alone_or_none_whichever_is_wider() -> None:
    # every positive is below every negative: all active gets 2 right, none active gets 2 right
    found = calibrate([-0.5, -0.25], [0.25, 0.75])
    assert found.value == 1 / 2
    assert found.interval == (-1.0, -0.5)
    assert calibrate([-0.75, -0.25], [0.25, 0.5]).interval == (0.5, 1.0)


def test_the_larger_side_weighs_more_unless_the_rule_is_balanced() -> None:
    positives, negatives = [0.5], [0.2, 0.6, 0.7, 0.8]
    assert calibrate(positives, negatives).interval == (0.8, 1.0)  # 4 of 5 with nothing in scope, 2 of 5 at .35
    found = calibrate(positives, negatives, "balanced")
    assert found.interval == (0.2, 0.5)  # (1 + 1/4) / 2, against (0 + 1) / 2 with nothing in scope
    assert found.value == pytest.approx(0.625)


def test_youden_is_another_number_for_the_threshold_of_balanced_accuracy() -> None:
    positives, negatives = [0.5, 0.3, 0.9], [0.2, 0.6, 0.7, 0.8, 0.1]
    youden, balanced = calibrate(positives, negatives, "youden"), calibrate(positives, negatives, "balanced")
    assert youden.threshold == balanced.threshold
    assert youden.value == pytest.approx(2 * balanced.value - 1)


def test_scores_at_the_ends_of_the_domain_are_on_the_right_side_of_the_threshold() -> None:
    assert calibrate([1.0], [1.0, 1.0]).threshold <= 1.0  # "nothing in scope" cannot be reached by a threshold up to 1
    assert calibrate([-1.0], [-1.0]).threshold == 0.0  # flat over all of it
    assert right([-1.0, 0.0], [-1.0], calibrate([-1.0, 0.0], [-1.0]).threshold) == 2
    slightly_above = float(np.nextafter(1.0, 2.0))
    assert calibrate([slightly_above], [0.0]).threshold == pytest.approx(0.5)


def test_neighbouring_floats_are_still_told_apart() -> None:
    low = 0.3
    high = float(np.nextafter(low, 1.0))
    assert right([high], [low], calibrate([high], [low]).threshold) == 2
    strict = calibrate([high], [low], strict=True)
    assert right([high], [low], strict.threshold, strict=True) == 2


@pytest.mark.parametrize("sides", [([], [0.1]), ([0.1], []), ([], [])])
def test_an_empty_side_is_refused_with_what_to_do(sides: tuple[list[float], list[float]]) -> None:
    with pytest.raises(DataError, match="scores"):
        calibrate(*sides)


def test_an_unknown_rule_and_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="balanced"):
        calibrate([0.1], [0.2], "balance")
    with pytest.raises(DataError, match="1 of 2 positive scores"):
        calibrate([0.1, float("nan")], [0.2])


scores = st.lists(st.integers(-8, 8).map(lambda n: n / 8), min_size=1, max_size=12)


@given(scores, scores, st.booleans())
def test_no_threshold_on_a_fine_grid_decides_better(positives: list[float], negatives: list[float], strict: bool) -> None:
    found = calibrate(positives, negatives, strict=strict)
    assert -1 <= found.threshold <= 1
    grid = [n / 32 for n in range(-32, 33)]
    best = max(right(positives, negatives, t, strict) for t in grid)
    assert right(positives, negatives, found.threshold, strict) == best == round(found.value * (len(positives) + len(negatives)))


@given(scores, scores, st.booleans())
def test_the_curve_holds_every_operating_point_once(positives: list[float], negatives: list[float], strict: bool) -> None:
    found = curve(positives, negatives, strict=strict)
    counted = {
        (sum(p > t if strict else p >= t for p in positives), sum(n <= t if strict else n < t for n in negatives))
        for t in (n / 32 for n in range(-32, 33))
    }
    points = list(zip(found.hits.tolist(), found.rejections.tolist(), strict=True))
    assert set(points) == counted
    assert len(points) == len(counted)
    for t, share, tpr, fpr in zip(found.thresholds, found.accuracy, found.tpr, found.fpr, strict=True):
        total = len(positives) + len(negatives)
        assert round(share * total) == right(positives, negatives, t, strict)
        assert share * total == pytest.approx(tpr * len(positives) + (1 - fpr) * len(negatives))


def test_a_curve_may_have_one_side_only() -> None:
    found = curve([0.2, 0.4], [])
    assert found.tpr.tolist() == [1.0, 0.5, 0.0]
    assert np.isnan(found.fpr).all()


def test_every_rule_is_named() -> None:
    for rule in RULES:
        assert calibrate([0.5], [0.0], rule).value == 1.0
