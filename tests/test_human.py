from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from kedit.errors import DataError
from kedit.human import agreement, consensus, krippendorff, performance

pd = pytest.importorskip("pandas", reason="pandas is of the extra 'human'")
ROW = {"participant": "p", "item": 1, "condition": "textual", "response": "yes", "answer": "yes"}


def mean(estimate: object) -> float:
    assert estimate is not None
    return estimate.mean  # type: ignore[attr-defined, no-any-return]


def table(*rows: dict[str, object]) -> pd.DataFrame:
    """Rows that differ from ROW; each is of a participant of its own unless it names one."""
    return pd.DataFrame([ROW | {"participant": f"p{n}"} | row for n, row in enumerate(rows)])


def annotated(items: dict[str, list[str | None]]) -> pd.DataFrame:
    rows = [(f"a{n}", item, said) for item, all_said in items.items() for n, said in enumerate(all_said)]
    return pd.DataFrame(rows, columns=["participant", "item", "response"])


def answered(condition: str, yes_yes: int, no_yes: int, yes_no: int, no_no: int) -> list[dict[str, object]]:
    """Rows of a condition by the right answer and the response."""
    counts = {("yes", "yes"): yes_yes, ("no", "yes"): no_yes, ("yes", "no"): yes_no, ("no", "no"): no_no}
    pairs = [pair for pair, n in counts.items() for _ in range(n)]
    return [
        {"participant": f"{condition}{n // 10}", "item": f"{condition}{n}", "condition": condition, "answer": a, "response": r}
        for n, (a, r) in enumerate(pairs)
    ]


def test_people_are_scored_as_the_published_table_scores_them() -> None:
    # Only these counts of 350 responses per condition give the twelve numbers of CROPE's Table 3.
    rows = answered("textual", 155, 66, 26, 103) + answered("visual", 139, 50, 39, 122) + answered("multimodal", 171, 33, 32, 114)
    found = performance(table(*rows))
    printed = found[["f1", "precision", "recall", "yes_share"]].round(2).T.to_dict("list")
    assert printed == {
        "textual": [73.12, 74.99, 73.29, 63.14],
        "visual": [74.51, 74.66, 74.51, 54.00],
        "multimodal": [80.92, 80.95, 80.89, 58.29],
    }
    assert list(found["participants"]) == [35] * 3
    assert list(found["responses"]) == [350] * 3
    assert (found["f1_low"] < found["f1"]).all()
    assert (found["f1"] < found["f1_high"]).all()


def test_not_sure_is_a_wrong_answer_that_is_neither_yes_nor_no_and_nothing_is_no_answer() -> None:
    rows = [
        {"item": n, "response": said} for n, said in enumerate(["yes", "No", "not sure", "Not_Sure", None, float("nan"), " "])
    ]
    found = performance(table(*rows)).loc["textual"]
    assert (found["responses"], found["accuracy"], found["invalid"], found["yes_share"]) == (4, 25, 50, 25)
    assert np.isnan(found["f1"])  # no question whose answer is no


def test_performance_can_be_told_by_further_columns() -> None:
    rows = [{"item": n, "language": "sw" if n < 3 else "ta", "response": "yes" if n else "no"} for n in range(5)]
    found = performance(table(*rows), by=["language", "condition"])
    assert found.index.names == ["language", "condition"]
    assert found.loc[("sw", "textual"), "accuracy"] == pytest.approx(200 / 3)
    assert found.loc[("ta", "textual"), "accuracy"] == 100


def test_alpha_of_examples_worked_by_hand() -> None:
    # aa, ab: margins a 3, b 1; one of two pairs alike: 1 - 3 * (4 - 2) / (16 - 10) = 0
    assert mean(krippendorff([["a", "a"], ["a", "b"]])) == pytest.approx(0)
    # aa, bb: nothing differs
    assert mean(krippendorff([["a", "a"], ["b", "b"]])) == pytest.approx(1)
    # ab, ab: everything differs: 1 - 3 * 4 / (16 - 8) = -0.5
    assert mean(krippendorff([["a", "b"], ["a", "b"]])) == pytest.approx(-0.5)
    # aab, bb, and a lone c with no part: margins 2, 3; alike (2 * 1) / 2 + 2 = 3: 1 - 4 * (5 - 3) / (25 - 13) = 1/3
    assert mean(krippendorff([["a", "a", "b"], ["b", "b"], ["c"]])) == pytest.approx(1 / 3)


def by_definition(units: list[list[int]]) -> float:
    """From the whole coincidence matrix: each ordered pair within a unit of m values counts 1 / (m - 1)."""
    size = 1 + max(itertools.chain(*units))
    matrix = np.zeros((size, size))
    for unit in units:
        for i, j in itertools.permutations(range(len(unit)), 2):
            matrix[unit[i], unit[j]] += 1 / (len(unit) - 1)
    margin, off = matrix.sum(axis=0), ~np.eye(size, dtype=bool)
    expected = np.outer(margin, margin)[off].sum() / (margin.sum() - 1)
    return float(1 - matrix[off].sum() / expected)


@pytest.mark.parametrize("seed", range(5))
def test_alpha_is_what_the_coincidence_matrix_says_whatever_is_missing(seed: int) -> None:
    generator = np.random.default_rng(seed)
    units = [list(generator.integers(0, 4, size=generator.integers(0, 6))) for _ in range(12)]
    found = krippendorff(units)
    assert mean(found) == pytest.approx(by_definition(units))
    assert found is not None
    assert found.n == sum(len(unit) > 1 for unit in units)
    assert found.low < found.mean < found.high


def test_alpha_of_four_observers_with_gaps() -> None:
    gap = None
    observers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, gap, gap, gap],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, gap, 3],
        [gap, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, gap],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, gap],
    ]
    assert mean(krippendorff(zip(*observers, strict=True))) == pytest.approx(0.743, abs=5e-4)


def test_agreement_without_two_labels_has_no_value() -> None:
    assert agreement(annotated({"x": ["yes", "yes"], "y": ["yes", "yes"]})) is None
    assert agreement(annotated({"x": ["yes"], "y": ["no"]})) is None


def test_not_sure_is_a_label_of_agreement_unless_it_is_dropped() -> None:
    items: dict[str, list[str | None]] = {
        "x": ["yes", "yes", "not sure"],
        "y": ["no", "no", None],
        "z": ["yes", "not sure", "yes"],
    }
    assert mean(agreement(annotated(items))) < 1
    assert mean(agreement(annotated(items), drop_not_sure=True)) == pytest.approx(1)


def test_the_consensus_of_three_is_a_majority_with_at_most_one_not_sure() -> None:
    kinds = ("yes", "no", "not sure")
    items = {" ".join(said): list(said) for said in itertools.product(kinds, repeat=3)}
    found = consensus(annotated(items))
    assert list(found.index) == list(items)
    for name, said in items.items():
        label = next((k for k in ("yes", "no") if said.count(k) >= 2), None)
        assert found.loc[name, "label"] == label
        assert list(found.loc[name, list(kinds)]) == [said.count(k) for k in kinds]
        expected = "responses are not sure" if said.count("not sure") >= 2 else "" if label else "no majority"
        assert found.loc[name, "reason"].endswith(expected)
        assert bool(found.loc[name, "reason"]) == (label is None)
    assert found["label"].value_counts().to_dict() == {"yes": 7, "no": 7}  # of 27; 7 have two not sure, 6 one of each


def test_an_item_without_three_annotations_has_no_consensus() -> None:
    found = consensus(annotated({"x": ["yes", "yes", None], "y": ["no", "no", "no", "no"], "z": ["no", "no", "yes"]}))
    assert list(found["label"]) == [None, None, "no"]
    assert list(found["reason"]) == ["2 responses, expected 3", "4 responses, expected 3", ""]


def test_five_annotations_need_three() -> None:
    found = consensus(
        annotated({"x": ["yes", "yes", "no", "no", "not sure"], "y": ["no", "no", "no", "yes", "yes"]}), annotations=5
    )
    assert list(found["label"]) == [None, "no"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{}, {"response": "maybe"}], "column 'response', row 1: is 'maybe', expected 'yes', 'no', 'not sure'"),
        ([{}, {"response": True}], "column 'response', row 1: is True, expected"),
        ([{}, {"answer": "not sure"}], "column 'answer', row 1: is 'not sure', expected 'yes', 'no'"),
        ([{}, {"answer": None}], "column 'answer', row 1: is empty"),
        ([{"participant": float("nan")}], "column 'participant', row 0: is empty"),
        ([{"item": [1, 2]}], r"column 'item', row 0: is \[1, 2\], expected one value"),
        ([{}, {"answer": "no"}], "column 'answer', row 1: is 'no', but row 0 has the other answer of item 1"),
        (
            [{}, {}, {"participant": "p1"}],
            "column 'participant', row 2: repeats row 1: participant 'p1', item 1, condition 'textual'",
        ),
        ([{"response": ""}, {"response": None}], "column 'response': no row has a response, of 2 rows"),
    ],
)
def test_a_bad_table_is_told_by_column_and_row(rows: list[dict[str, object]], message: str) -> None:
    bad = table(*rows).set_axis([f"label {n}" for n in range(len(rows))])
    with pytest.raises(DataError, match=message):
        performance(bad)


def test_a_table_of_another_form_is_told_with_what_is_expected() -> None:
    with pytest.raises(DataError, match="no column 'answer', expected participant, .*; columns here: participant, item"):
        performance(table({}).drop(columns="answer"))
    with pytest.raises(DataError, match="type list, expected a pandas DataFrame"):
        consensus([ROW])
    with pytest.raises(DataError, match="more than one column 'item'"):
        consensus(table({}).rename(columns={"answer": "item"}))


def test_the_table_given_is_left_as_it_is() -> None:
    given = table({"response": " YES "}, {"response": "No"})
    before = given.copy(deep=True)
    performance(given)
    pd.testing.assert_frame_equal(given, before)


def test_without_the_packages_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'kedit\[human\]'"):
        consensus(None)
