from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from kedit.benchmark import Dimension
from kedit.bootstrap import Estimate
from kedit.metrics import measure_gain, measures
from kedit.scoring import scoring
from kedit.scoring.verdict import verdict
from kedit.scoring.yes_no import either_word, exact, first_sentence
from kedit.types import Record

ROBUST, OFFICIAL, LMMS, VLMEVAL = (
    (Dimension("answer", "Answer", scoring=name),) for name in ("yes-no", "yes-no-official", "yes-no-lmms", "yes-no-vlmeval")
)


def record(case: int | str, output: str, reference: str, **tags: str) -> Record:
    return Record("t", str(case), 0, "answer", 1, 0, "en", output, reference, False, 1, 0.0, tags=tags)


def asked(yes: int, no: int, say: str) -> list[Record]:
    """So many questions of either answer, all answered alike."""
    return [record(i, say, "yes" if i < yes else "no") for i in range(yes + no)]


def points(found: dict[str, Estimate | None], *names: str) -> list[float]:
    return [math.nan if (estimate := found[name]) is None else round(estimate.mean, 2) for name in names]


# -- what an answer says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "Yes.",
        "YES!",
        "**Yes**",
        "yes, not a dog",
        "Yes. There is no cat.",
        "Answer: yes",
        "The answer is yes",
        "I would say yes, there is no dog",
        "Yeah it is",
        "Not sure, but I think yes",
        "No doubt, it is.",
        "Correct.",
        "It is.",
        "是的",
        "是",
        "有。",
        "没错",
        "是的图中有一只猫",
        "图中有没有钟？有。",
        "答案是：是",
        "نعم",
        "نَعَمْ، هناك قطة",
        "الجواب: نعم",
        "أجل",
    ],
)
def test_an_answer_that_affirms_is_yes_in_every_language(text: str) -> None:
    assert verdict(text) == "yes"


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "NO",
        "no\n",
        '"No"',
        "**No**",
        "No! Yes would be wrong.",
        "Answer: No",
        "I see no cat",
        "There isn't a cat.",
        "It’s not a cat but a dog",
        "Definitely not",
        "Not a dog",
        "That is incorrect. ",
        "The room is empty. There isn't a cat.",
        "不是",
        "没有",
        "图中没有钟。",
        "否",
        "不对，图里是猫",
        "答案是：否",
        "لا",
        "لا يوجد",
        "كلا، هذا كلب",
        "ليس كذلك",
    ],
)
def test_an_answer_that_denies_is_no_in_every_language(text: str) -> None:
    assert verdict(text) == "no"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?!",
        "None",
        "yes or no",
        "Yes/No",
        "Yes and no",
        "Not sure",
        "I am not sure",
        "No idea",
        "It is not possible to tell.",
        "I'm sorry, but I cannot see images.",
        "There is a cat",
        "It is a cat, not a dog",
        "a notable yesterday",
        "不知道",
        "无法确定",
        "是猫，不是狗",
        "لا أعرف",
        "لا يمكن تحديد ذلك",
        "هذه قطة، وليست كلبا",
    ],
)
def test_an_answer_that_says_neither_or_cannot_tell_is_no_verdict(text: str) -> None:
    assert verdict(text) is None


# -- the three published ways --------------------------------------------------------------------------------------------

VECTORS = {
    # answer: (official, lmms-eval, VLMEvalKit); x is neither
    "NO": "yes no no",
    "": "yes x x",
    "Not sure": "yes x x",
    "I am not sure": "no x x",
    "no\n": "yes no no",
    "**No**": "yes x x",
    "No!": "yes x no",
    '"No"': "yes x no",
    "None": "yes x x",
    "Yes. There is no cat.": "yes x x",
    "yes, not a dog": "no x yes",
    "Answer: No": "no x no",
    "没有": "yes x x",
    "لا": "yes x x",
    "yes": "yes yes yes",
    "no": "no no no",
    "yes.": "yes x yes",
    " Yes ": "yes yes yes",
    "No, 1,000 of them": "no x no",
    "no-one": "yes x no",
}


@pytest.mark.parametrize("text", VECTORS)
def test_the_published_ways_read_an_answer_as_their_code_does(text: str) -> None:
    assert " ".join(str(parse(text) or "x") for parse in (first_sentence, exact, either_word)) == VECTORS[text]


def test_the_ways_disagree_on_the_same_answers_and_only_the_robust_one_reads_all_of_these() -> None:
    right = {"NO": "no", "No!": "no", "Yes. There is no cat.": "yes", "yes, not a dog": "yes", "没有": "no", "yes.": "yes"}
    records = [record(i, text, reference) for i, (text, reference) in enumerate(right.items())]
    found = {
        dimensions[0].scoring: [scoring(dimensions[0].scoring).scorer(r).value == 100 for r in records]
        for dimensions in (ROBUST, OFFICIAL, LMMS, VLMEVAL)
    }
    assert found == {
        "yes-no": [True] * 6,
        "yes-no-official": [False, False, True, False, False, True],
        "yes-no-lmms": [True, False, False, False, False, False],
        "yes-no-vlmeval": [True, True, False, True, False, True],
    }


def test_official_measures_are_those_of_yes_and_undefined_ones_are_none_instead_of_an_error() -> None:
    said = ["yes", "yes", "yes", "no", "no", "yes"]
    records = [record(i, s, r) for i, (s, r) in enumerate(zip(said, ["yes", "yes", "no", "yes", "no", "no"], strict=True))]
    names = [f"official_{name}" for name in ("accuracy", "precision", "recall", "f1", "yes_share")]
    assert points(measures(records, OFFICIAL), *names) == [50.0, 50.0, 66.67, 57.14, 66.67]
    never = measures(asked(3, 3, "No"), OFFICIAL)
    assert never["official_precision"] is None and never["official_f1"] is None
    assert points(never, "official_accuracy", "official_recall", "official_yes_share") == [50.0, 0.0, 0.0]
    always_wrong = measures(asked(0, 2, "yes"), OFFICIAL)
    assert always_wrong["official_recall"] is None and always_wrong["official_f1"] is None


def test_macro_measures_stand_beside_the_official_ones() -> None:
    found = measures(asked(50, 50, "yes"), OFFICIAL)
    assert points(found, "official_f1", "f1") == [66.67, 33.33]


def test_lmms_leaves_other_words_out_of_recall_and_calls_the_references_share_that_of_yes() -> None:
    records = [record(0, "yes", "yes"), record(1, "yes.", "yes"), record(2, "no", "yes"), record(3, "no", "no")]
    names = [f"lmms_{name}" for name in ("accuracy", "precision", "recall", "f1", "yes_share")]
    assert points(measures(records, LMMS), *names) == [50.0, 100.0, 50.0, 66.67, 75.0]
    assert points(measures(asked(2, 2, "No"), LMMS), "lmms_precision", "lmms_f1") == [0.0, 0.0]


def test_vlmeval_counts_neither_as_no_for_recall_and_as_wrong_for_accuracy() -> None:
    records = [record(0, "Yes", "yes"), record(1, "unclear", "yes"), record(2, "unclear", "no"), record(3, "No.", "no")]
    names = [f"vlmeval_{name}" for name in ("accuracy", "precision", "recall", "f1")]
    assert points(measures(records, VLMEVAL), *names) == [50.0, 100.0, 50.0, 66.67]


# -- the macro-averaged measures -----------------------------------------------------------------------------------------


def test_always_no_on_684_and_376_gives_the_published_majority_row_under_its_right_names() -> None:
    found = measures(asked(376, 684, "No"), ROBUST)
    assert points(found, "precision", "recall", "f1") == [32.26, 50.0, 39.22]
    assert points(found, "yes_share", "invalid") == [0.0, 0.0]


def test_always_no_on_balanced_questions_has_a_macro_f1_of_a_third() -> None:
    assert points(measures(asked(150, 150, "no"), ROBUST), "f1") == [33.33]


def test_macro_measures_equal_a_plain_count_by_class_and_invalid_answers_miss_their_class() -> None:
    generator = np.random.default_rng(0)
    references = generator.choice(["yes", "no"], 200, p=[0.4, 0.6])
    said = generator.choice(["yes", "no", "who knows"], 200, p=[0.4, 0.4, 0.2])
    found = measures([record(i, str(s), str(r)) for i, (s, r) in enumerate(zip(said, references, strict=True))], ROBUST)
    precision, recall, f1 = [], [], []
    for c in ("yes", "no"):
        hits = int(((said == c) & (references == c)).sum())
        precision.append(hits / int((said == c).sum()))
        recall.append(hits / int((references == c).sum()))
        f1.append(2 * precision[-1] * recall[-1] / (precision[-1] + recall[-1]))
    expected = [100 * float(np.mean(v)) for v in (precision, recall, f1, said == references, said == "yes", said == "who knows")]
    names = ("precision", "recall", "f1", "accuracy", "yes_share", "invalid")
    assert points(found, *names) == [round(v, 2) for v in expected]


def test_a_class_that_is_never_asked_leaves_the_macro_measures_undefined_but_not_accuracy() -> None:
    found = measures(asked(0, 5, "no"), ROBUST)
    assert (found["f1"], found["precision"], found["recall"]) == (None, None, None)
    assert points(found, "accuracy") == [100.0]


def worded(case: int, reference: str, said: Sequence[str], **tags: str) -> list[Record]:
    return [replace(record(case, s, reference, prompt=str(p), **tags), probe=p) for p, s in enumerate(said, 1)]


PROMPTS = [
    *worded(0, "yes", ["yes", "yes", "no"]),
    *worded(1, "no", ["no", "yes", "no"]),
    *worded(2, "yes", ["yes", "yes", "no"]),
    *worded(3, "no", ["no", "no", "no"]),
]


def test_measures_are_the_mean_over_prompts_of_each_prompts_own_value() -> None:
    found = measures(PROMPTS, ROBUST)
    alone = [
        points(measures([r for r in PROMPTS if r.tags["prompt"] == p], ROBUST), "f1", "accuracy", "recall")
        for p in ("1", "2", "3")
    ]
    assert points(found, "f1", "accuracy", "recall") == pytest.approx(np.mean(alone, axis=0).tolist(), abs=0.01)
    assert found["f1"] is not None and found["f1"].n == 4  # cases, not answers


def test_prompt_sensitivity_is_the_sample_standard_deviation_over_prompts() -> None:
    f1 = [points(measures([r for r in PROMPTS if r.tags["prompt"] == p], ROBUST), "f1")[0] for p in ("1", "2", "3")]
    assert points(measures(PROMPTS, ROBUST), "f1_sd") == [pytest.approx(np.std(f1, ddof=1), abs=0.01)]
    assert measures(PROMPTS[::3], ROBUST)["f1_sd"] is None  # one prompt has no spread


def test_a_group_is_consistent_when_all_its_yes_and_no_questions_are_right() -> None:
    records = [
        *worded(0, "yes", ["yes"], consistency_group="right"),
        *worded(1, "no", ["no"], consistency_group="right"),
        *worded(2, "yes", ["yes"], consistency_group="half"),
        *worded(3, "no", ["yes"], consistency_group="half"),
        *worded(4, "yes", ["yes"], consistency_group="unsaid"),
        *worded(5, "no", ["cannot tell"], consistency_group="unsaid"),
        *worded(6, "no", ["no"], consistency_group="only-no"),
        *worded(7, "no", ["no"]),
    ]
    found = measures(records, ROBUST)["consistency"]
    assert found is not None
    assert (round(found.mean, 2), found.n) == (33.33, 3)
    assert measures(asked(2, 2, "no"), ROBUST)["consistency"] is None


def test_consistency_is_the_mean_over_prompts_and_always_no_has_none_of_it() -> None:
    group = {"consistency_group": "image"}
    records = [*worded(0, "yes", ["yes", "no"], **group), *worded(1, "no", ["no", "no"], **group)]
    assert points(measures(records, ROBUST), "consistency") == [50.0]
    never = [replace(r, output="no") for r in records]
    assert points(measures(never, ROBUST), "consistency") == [0.0]


def test_a_reference_that_is_neither_is_unscored_and_in_no_measure() -> None:
    records = [*asked(1, 1, "no"), record("odd", "no", "maybe")]
    assert scoring("yes-no").scorer(records[-1]).value is None
    assert "neither yes nor no" in scoring("yes-no").scorer(records[-1]).reason
    found = measures(records, ROBUST)["accuracy"]
    assert found is not None and (found.mean, found.n) == (50.0, 2)


def test_gains_in_a_measure_are_paired_by_case() -> None:
    base = asked(20, 20, "no")
    better = [replace(r, output=r.reference) for r in base if r.case != "0"]
    gain = measure_gain(better, base, ROBUST, "f1")
    assert gain is not None
    own, floor = measures(better, ROBUST)["f1"], measures([r for r in base if r.case != "0"], ROBUST)["f1"]
    assert own is not None and floor is not None
    assert (gain.n, gain.mean) == (39, pytest.approx(own.mean - floor.mean))
    assert measure_gain(base, base, ROBUST, "f1") == Estimate(0.0, 0.0, 0.0, 40)
