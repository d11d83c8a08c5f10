from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from fakes import SEQUENTIAL, SINGLE

from kedit.bootstrap import Estimate, column_means, combined, harmonic
from kedit.forgetting import retention
from kedit.metrics import Thresholds, final_records, first_order, grouped, summarise
from kedit.scoring import Score, rouge_scorer
from kedit.types import Record

NAMES = [dimension.name for dimension in SINGLE]


def record(
    case: str, dimension: str, value: float | None, *, step: int = 1, after: int = 1, probe: int = 0, **extra: object
) -> Record:
    """A record whose output is its score; `number` reads it back, so that formulas are tested apart from ROUGE."""
    made = Record("t", case, probe, dimension, step, after, "en", "" if value is None else str(value), "r", False, 1, 0.0)
    return replace(made, **extra)  # type: ignore[arg-type]


def number(found: Record) -> Score:
    return Score(float(found.output)) if found.output else Score(None, "no number")


def case(name: str, values: Sequence[float | None], **extra: object) -> list[Record]:
    return [record(name, d, v, probe=i, **extra) for i, (d, v) in enumerate(zip(NAMES, values, strict=True))]


def mean(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.mean


CASES = case("a", [100, 40, 90, 80]) + case("b", [0, 20, 100, 60]) + case("c", [50, 90, 95, 85])


def test_a_dimension_is_the_mean_over_cases_and_overall_the_equal_mean_of_the_dimensions() -> None:
    scores = summarise(CASES, SINGLE, scorer=number)
    assert {d: mean(e) for d, e in scores.dimensions.items()} == pytest.approx(dict(zip(NAMES, [50, 50, 95, 75], strict=True)))
    assert mean(scores.overall) == pytest.approx((50 + 50 + 95 + 75) / 4)
    assert mean(scores.harmonic) == pytest.approx(4 / (1 / 50 + 1 / 50 + 1 / 95 + 1 / 75))
    assert (scores.cases, scores.records, scores.missing) == (3, 12, ())


def chain(name: str, order: str, values: dict[tuple[str, int, int], float]) -> list[Record]:
    """values: (dimension, step, asked after) -> score."""
    tags = {"order": order}
    return [record(name, d, v, step=s, after=t, probe=10 * s + i, tags=tags) for i, ((d, s, t), v) in enumerate(values.items())]


def two_chains() -> list[Record]:
    one = {("reliability", s, t): float(10 * s + t) for t in (1, 2, 3) for s in (1, 2, 3)}
    one |= {("generality", s, 3): 30.0 * s for s in (1, 2, 3)} | {("locality", s, 3): 100.0 for s in (1, 2, 3)}
    two = {key: value / 2 for key, value in one.items()}
    return chain("x", "en-zh-ar", one) + chain("y", "en-zh-ar", two)


def test_a_chain_is_scored_after_its_last_insert_as_the_mean_over_steps() -> None:
    scores = summarise(two_chains(), SEQUENTIAL, scorer=number)
    reliability = (13 + 23 + 33) / 3
    assert mean(scores.dimensions["reliability"]) == pytest.approx((reliability + reliability / 2) / 2)
    assert mean(scores.dimensions["generality"]) == pytest.approx((60 + 30) / 2)
    assert mean(scores.dimensions["locality"]) == pytest.approx((100 + 50) / 2)
    assert mean(scores.overall) == pytest.approx((reliability * 0.75 + 45 + 75) / 3)
    assert (scores.cases, scores.records) == (2, 18)


def test_two_orders_are_never_mixed() -> None:
    back = [replace(r, case="back-" + r.case, output="1", tags={"order": "ar-zh-en"}) for r in two_chains()]
    records = two_chains() + back
    assert summarise(records, SEQUENTIAL, scorer=number) == summarise(two_chains(), SEQUENTIAL, scorer=number)
    other = summarise(records, SEQUENTIAL, order="ar-zh-en", scorer=number)
    assert (other.order, mean(other.overall)) == ("ar-zh-en", 1.0)
    assert first_order(records) == "en-zh-ar"


def test_an_unscored_record_is_left_out_and_counted_with_its_reason_never_0() -> None:
    scores = summarise([*CASES, *case("d", [None, 70, 80, 90])], SINGLE, scorer=number)
    found = scores.dimensions["reliability"]
    assert found is not None
    assert (found.mean, found.n) == (50.0, 3)
    assert scores.unscored == {"no number": 1}
    generality = scores.dimensions["generality"]
    assert generality is not None and generality.n == 4


def test_without_any_value_of_a_dimension_there_is_no_overall_and_it_is_named() -> None:
    scores = summarise([replace(r, output="") if r.dimension == "generality" else r for r in CASES], SINGLE, scorer=number)
    assert scores.dimensions["generality"] is None
    assert (scores.overall, scores.harmonic, scores.missing) == (None, None, ("generality",))


def test_no_records_give_an_empty_row_instead_of_an_error() -> None:
    scores = summarise([], SINGLE, base=[], scorer=number)
    assert (scores.cases, scores.overall, set(scores.dimensions.values())) == (0, None, {None})
    assert retention([]).matrix == ()


def test_the_order_of_records_changes_nothing() -> None:
    base = [replace(r, output="3") for r in CASES]
    shuffled = random.Random(0).sample(CASES, len(CASES))
    assert summarise(shuffled, SINGLE, base=base, scorer=number) == summarise(CASES, SINGLE, base=base[::-1], scorer=number)
    chains = two_chains()
    mixed = random.Random(1).sample(chains, len(chains))
    assert retention(mixed, scorer=number) == retention(chains, scorer=number)


def test_gain_is_paired_with_the_editor_that_does_nothing() -> None:
    base = case("a", [10, 40, 100, 100]) + case("b", [0, 10, 100, 100]) + case("only-here", [1, 1, 1, 1])
    gain = summarise(CASES, SINGLE, base=base, scorer=number).gain
    assert gain is not None
    assert {d: mean(e) for d, e in gain.items()} == pytest.approx(
        {"reliability": 45, "generality": 5, "cross_language_locality": -5, "cross_scenario_locality": -30, "overall": 15 / 4}
    )
    assert all(e is not None and e.n == 2 for e in gain.values())


def test_joint_outcomes_count_whole_cases() -> None:
    cases = {
        "all": [50, 50, 80, 80],
        "under": [90, 49, 90, 90],
        "over": [90, 90, 100, 79],
        "both": [90, 10, 10, 90],
        "unreliable": [49, 90, 90, 90],
        "unscored": [90, None, 90, 90],
    }
    joint = summarise([r for n, v in cases.items() for r in case(n, v)], SINGLE, scorer=number).joint
    assert joint is not None
    assert (joint.n, joint.reliable, joint.joint, joint.under, joint.over, joint.both) == (5, 4, 1, 1, 1, 1)
    low = summarise(case("x", [30, 30, 30, 30]), SINGLE, scorer=number, thresholds=Thresholds(30, 30, 30)).joint
    assert low is not None and low.joint == 1
    assert summarise(CASES, SINGLE[:1], scorer=number).joint is None


def test_flags_are_counted_over_the_scored_questions() -> None:
    records = two_chains()
    records = [replace(r, flags=("empty", "truncated") if r.asked_at == 3 and r.step == 1 else ("empty",)) for r in records]
    flags = summarise(records, SEQUENTIAL, scorer=number).flags
    assert (flags["empty"], flags["truncated"], flags["collapsed"]) == (18, 6, 0)


def test_groups_hold_the_records_of_a_tag() -> None:
    records = case("a", [1, 2, 3, 4], tags={"partition": "zh"}) + case("b", [5, 6, 7, 8], tags={"partition": "ar"}) + CASES
    groups = grouped(records, "partition")
    assert list(groups) == ["ar", "zh"]
    assert mean(summarise(groups["zh"], SINGLE, scorer=number).overall) == 2.5


def test_the_retention_matrix_has_a_row_per_insert_and_a_column_per_step() -> None:
    found = retention(two_chains(), base=[replace(r, output="7") for r in two_chains()], scorer=number)
    assert [[mean(e) for e in row] for row in found.matrix] == [
        [pytest.approx(0.75 * (10 * s + t)) for s in (1, 2, 3)] for t in (1, 2, 3)
    ]
    assert [mean(e) for e in found.last] == pytest.approx([0.75 * 13, 0.75 * 23, 0.75 * 33])
    assert [mean(e) for e in found.forgetting] == pytest.approx([-0.75 * 2, -0.75 * 1, 0])
    assert mean(found.mean_forgetting) == pytest.approx(-0.75 * 1.5)
    assert found.base is not None and [mean(e) for e in found.base] == [7, 7, 7]
    assert (found.order, found.cases) == ("en-zh-ar", 2)


def test_retention_of_final_records_alone_has_no_earlier_rows() -> None:
    found = retention(final_records(two_chains()), scorer=number)
    assert (len(found.matrix), found.asked) == (1, (3,))
    assert None not in found.last
    assert found.forgetting[:2] == (None, None)


def test_a_case_that_stopped_before_its_last_insert_is_not_scored() -> None:
    started = [r for r in two_chains() if r.asked_at < 3]
    assert summarise(started, SEQUENTIAL, scorer=number).cases == 0


def test_rouge_is_the_default_and_names_why_something_is_unscored() -> None:
    score = rouge_scorer()
    assert score(record("a", "x", 1.0, output="红色的钟", reference="红色的钟")).value == 100.0
    assert score(record("a", "x", 1.0, output="钟", reference="!")) == Score(None, "no word in the reference")
    assert summarise([record("a", "reliability", 1.0, output="", reference="")], SINGLE).unscored == {
        "no word in output and reference": 1
    }


def test_base_locality_is_exactly_100() -> None:
    texts = ["红色的钟。", "ساعة حمراء", "A red clock."]
    records = [record(str(i), "reliability", 1.0, output=t, reference=t) for i, t in enumerate(texts)]
    assert summarise(records, SINGLE[:1]).dimensions["reliability"] == Estimate(100.0, 100.0, 100.0, 3)


def test_95_percent_intervals_cover_the_truth_about_95_percent_of_the_time() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(150):
        found = column_means(rng.normal(50, 20, (40, 1)))[0]
        assert found is not None
        covered += found.low <= 50 <= found.high
    assert 0.88 <= covered / 150 <= 0.99


def test_the_interval_equals_a_plain_loop_over_resampled_cases() -> None:
    values = np.array([[10.0, 1.0], [20.0, np.nan], [60.0, 5.0], [90.0, 9.0]])
    found = column_means(values)
    rng = np.random.default_rng(5)
    means = [[np.nanmean(values[pick, j]) for j in (0, 1)] for pick in rng.integers(0, 4, (4000, 4)) if not (pick == 1).all()]
    for j in (0, 1):
        estimate = found[j]
        assert estimate is not None
        low, high = np.percentile(np.array(means)[:, j], [2.5, 97.5])
        assert (estimate.low, estimate.high) == (pytest.approx(low, abs=6), pytest.approx(high, abs=6))
    assert [e.n for e in found if e] == [4, 3]


def test_a_large_table_is_resampled_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).uniform(0, 100, (30, 2))
    whole = column_means(values)
    monkeypatch.setattr("kedit.bootstrap._CELLS", 1000)
    assert column_means(values) == whole


def test_the_harmonic_mean_is_0_where_a_dimension_is_0() -> None:
    found = combined(np.array([[0.0, 100.0], [0.0, 80.0]]), harmonic)
    assert found == Estimate(0.0, 0.0, 0.0, 2)
