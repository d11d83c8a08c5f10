"""Measures over whole tasks, and what of a question and of an editor reaches the records that they are computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import DoNothing, FakeBackbone, FakeBenchmark, Lookup

from kedit.benchmark import Dimension
from kedit.bootstrap import Array, of_sums
from kedit.editor import Editor
from kedit.errors import ContractError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.metrics import measure, measures, summarise
from kedit.scoring import Measure, Score, Scoring, scoring
from kedit.types import Case, Probe, Record, Request


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


def _length(record: Record) -> Score:
    return Score(float(len(record.output)))


def _letters(records: Sequence[Record]) -> Mapping[str, float]:
    return {"long": max(len(r.output) for r in records), "all": sum(len(r.output) for r in records)}


def _of(columns: Mapping[str, Array]) -> Array:
    return columns["long"] / columns["all"]


def lengths() -> Scoring:
    """A way of scoring of one's own: how much of what is said is said in a case's longest answer."""
    own = (Measure("longest", "Longest", _letters, _of), Measure("by_scene", "By scene", _letters, _of, unit="scenario"))
    return Scoring("lengths/1", "number of letters", _length, own)


OWN = (Dimension("a", "A", scoring=f"{__name__}:lengths"), Dimension("b", "B", scoring=f"{__name__}:lengths"))


def record(case: str, dimension: str, output: str, **more: object) -> Record:
    made = Record("t", case, 0, dimension, 1, 1, "en", output, "r", False, 1, 0.0)
    return replace(made, **more)  # type: ignore[arg-type]


RECORDS = [
    record("x", "a", "four", tags={"scenario": "s"}),
    record("x", "b", "two", tags={"scenario": "s"}),
    record("y", "a", "eleven more", tags={"scenario": "s"}),
    record("z", "a", "one"),
    record("z", "other", "not of a dimension that is scored so"),
]


def test_a_measure_is_a_function_of_sums_over_cases_of_the_records_of_its_dimensions() -> None:
    found = measures(RECORDS, OWN)["longest"]
    assert found is not None
    assert (found.mean, found.n) == (pytest.approx((4 + 11 + 3) / (7 + 11 + 3)), 3)
    assert found.low < found.mean < found.high
    assert measure(RECORDS, OWN, "longest") == found


def test_a_measure_with_a_unit_puts_records_together_by_a_tag_and_leaves_out_those_without() -> None:
    found = measures(RECORDS, OWN)["by_scene"]
    assert found is not None and (found.mean, found.n) == (pytest.approx(11 / 18), 1)


def test_only_what_was_asked_after_the_whole_chain_counts_in_a_measure() -> None:
    early = [replace(r, output=r.output * 9, asked_at=1) for r in RECORDS]
    late = [replace(r, asked_at=2) for r in RECORDS]
    assert measures([*early, *late], OWN) == measures(RECORDS, OWN)


def test_answers_of_a_case_without_anything_to_insert_are_scored() -> None:
    plain = [replace(r, asked_at=0) for r in RECORDS]
    assert measures(plain, OWN) == measures(RECORDS, OWN)
    assert summarise(plain, OWN).cases == 3


def test_an_unknown_measure_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="longest"):
        measure(RECORDS, OWN, "longst")


def test_an_unknown_way_of_scoring_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="yes-no"):
        scoring("yes-or-no")


def _ratio(sums: Mapping[str, Array]) -> Array:
    return np.divide(sums["right"], sums["n"], out=np.full_like(sums["n"], np.nan), where=sums["n"] > 0)


def test_the_interval_of_a_function_of_sums_equals_a_plain_loop_over_resampled_cases() -> None:
    rng = np.random.default_rng(3)
    rows = [{"right": float(rng.integers(0, n + 1)), "n": float(n)} for n in rng.integers(1, 6, 40)]
    found = of_sums(rows, _ratio)
    assert found is not None
    table = np.array([[row["right"], row["n"]] for row in rows])
    drawn = [table[pick].sum(axis=0) for pick in rng.integers(0, 40, (4000, 40))]
    low, high = np.percentile([right / n for right, n in drawn], [2.5, 97.5])
    assert found.mean == pytest.approx(table[:, 0].sum() / table[:, 1].sum())
    assert (found.low, found.high) == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.02))
    assert found.n == 40


def test_a_name_that_a_case_lacks_counts_0_and_an_undefined_value_is_none() -> None:
    found = of_sums([{"right": 1.0, "n": 1.0}, {"n": 1.0}], _ratio)
    assert found is not None and found.mean == 0.5
    assert of_sums([{"right": 0.0, "n": 0.0}], _ratio) is None
    assert of_sums([], _ratio) is None
    assert of_sums([{}], _ratio) is None


def test_resamples_without_a_value_are_left_out_of_the_interval() -> None:
    found = of_sums([{"right": 1.0, "n": 1.0}, *[{"right": 0.0, "n": 0.0}] * 5], _ratio)
    assert found is not None and (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)
    assert not math.isnan(found.low)


# -- what reaches the records --------------------------------------------------------------------------------------------


class Tagged(FakeBenchmark):
    """Its probes have tags of their own, one of them with the name of a tag of the case."""

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        found = super().cases(task, limit=limit)
        return [replace(c, probes=tuple(self._tag(i, p) for i, p in enumerate(c.probes))) for c in found]

    def _tag(self, index: int, probe: Probe) -> Probe:
        return replace(probe, tags={"prompt": str(index), "scenario": "of the probe"})


def test_tags_of_a_probe_are_added_to_the_cases_own_in_its_record() -> None:
    run = evaluate(DoNothing(), FakeBackbone(), Tagged(1), tasks="single")
    assert [r.tags["prompt"] for r in run.records()] == ["0", "1", "2", "3"]
    assert {(r.tags["raw"], r.tags["scenario"]) for r in run.records()} == {("0", "of the probe")}


class Traced(Lookup):
    """Says what it found for each request."""

    def trace(self, requests: Sequence[Request]) -> list[Mapping[str, str | float]]:
        return [
            {"entry": r.question, "similarity": 0.5 if k else 0.0} for r, k in zip(requests, self.route(requests), strict=True)
        ]


def test_what_an_editor_says_it_did_stands_in_the_record_of_the_request_batched_or_plain() -> None:
    for plain in (False, True):
        run = evaluate(Traced(), FakeBackbone(), FakeBenchmark(1), tasks="single", plain=plain)
        found = [(r.trace["entry"], r.trace["similarity"]) for r in run.records()]
        assert found == [("q 0 zh?", 0.5), ("other 0 zh?", 0.0), ("q 0 en?", 0.0), ("far 0 zh?", 0.0)]


def test_an_editor_that_says_nothing_has_empty_traces() -> None:
    assert {len(r.trace) for r in evaluate(DoNothing(), FakeBackbone(), FakeBenchmark(1)).records()} == {0}


@pytest.mark.parametrize("number", [0, 2, 5])
def test_traces_of_another_number_than_requests_are_a_broken_promise(number: int) -> None:
    class Careless(Lookup):
        def trace(self, requests: Sequence[Request]) -> list[Mapping[str, str | float]]:
            return [{}] * number

    editors: list[Editor] = [Careless()]
    with pytest.raises(ContractError, match=rf"trace\(\) gave {number} results for 4 requests"):
        evaluate(editors, FakeBackbone(), FakeBenchmark(1), tasks="single")


def test_a_benchmark_of_questions_without_anything_to_insert_is_scored_for_every_editor() -> None:
    class Empty(FakeBenchmark):
        def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
            return [replace(c, chain=()) for c in super().cases(task, limit=limit)]

    run = evaluate({"nothing": DoNothing(), "lookup": Lookup()}, FakeBackbone(), Empty(3), tasks="single")
    assert {r.asked_at for r in run.records()} == {0}
    assert [(s.cases, s.records) for s in run.scores()] == [(3, 12), (3, 12)]
