from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kedit.benchmark import Dimension
from kedit.bootstrap import Estimate
from kedit.errors import DataError
from kedit.metrics import measures
from kedit.scoring import scoring
from kedit.scoring.choice import meant, strict
from kedit.scoring.letters import letter
from kedit.types import Record

VITAMINS = ("Vitamin A", "Vitamin C", "Vitamin E", "Vitamin D")
DISHES = ("Gat", "Gatjib", "Office", "Officetel")
THROWS = ("Do", "Mo", "Geol", "Yut")
FOOD = ("Soup", "Fried rice", "Dumplings", "Ice cream")
CHINESE = ("红灯", "红灯笼", "钟", "帽子")
ARABIC = ("شاي", "قهوة", "ماء", "عصير")
DIMENSIONS = (Dimension("accuracy", "Acc.", scoring="choice"),)


def record(
    case: str, output: str, reference: str, *, options: tuple[str, ...] = FOOD, rotation: int = 0, from_base: bool = False
) -> Record:
    tags = {"options": json.dumps(options, ensure_ascii=False), "rotation": str(rotation)}
    return Record("t", case, rotation, "accuracy", 1, 1, "en", output, reference, from_base, 1, 0.0, tags=tags)


def points(found: dict[str, Estimate | None], name: str) -> float:
    estimate = found[name]
    assert estimate is not None
    return estimate.mean


@pytest.mark.parametrize("text", ["B", "b", "B.", "(B)", "(b)", "**B**", " B\n", '"B"', "B)", "Ｂ", "（B）", "[B]"])
def test_a_letter_alone_is_that_option_whatever_is_around_it(text: str) -> None:
    assert letter(text, FOOD) == "B"


@pytest.mark.parametrize(
    "text",
    [
        "The answer is B",
        "The answer is B.",
        "the answer is b",
        "The correct answer is **B. Fried rice**",
        "Answer: B",
        "B. Fried rice",
        "B) Fried rice, because of the grains",
        "(B) Fried rice",
        "B\nThe grains are fried.",
        "I would choose option B here",
        "B is correct",
        "Not A but B",
        "Option A is wrong, it is B",
        "我认为是B。",
        "答案是B，因为有米饭",
        "选B",
        "الإجابة الصحيحة هي B",
        "أظن أن الجواب (B) هنا",
        "정답은 B입니다",
        "Fried rice",
        "fried  rice!",
        "It is fried rice.",
        "答案是Fried rice。",
    ],
)
def test_an_option_is_found_in_a_sentence_by_its_letter_or_its_text(text: str) -> None:
    assert letter(text, FOOD) == "B"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "E",
        "A or B",
        "A, B",
        "(A) and (B)",
        "The answer is A or maybe the answer is B",
        "Soup and dumplings",
        "B. Soup",
        "It is soup (B)",
        "The answer is not B.",
        "A bowl stands on the table",
        "The answer is a bowl",
        "I cannot tell",
        "U.S.A.",
    ],
)
def test_what_means_no_option_or_several_is_none_and_never_a_guess(text: str) -> None:
    assert letter(text, FOOD) is None


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("Vitamin A", VITAMINS, "A"),
        ("Vitamin C", VITAMINS, "B"),
        ("It has a lot of vitamin C.", VITAMINS, "B"),
        ("The answer is Vitamin D.", VITAMINS, "D"),
        ("C", VITAMINS, "C"),
        ("B. Vitamin C", VITAMINS, "B"),
        ("C. Vitamin C", VITAMINS, None),
        ("Gatjib", DISHES, "B"),
        ("This is a gatjib, a small box", DISHES, "B"),
        ("Gat", DISHES, "A"),
        ("An officetel", DISHES, "D"),
        ("I do not know", THROWS, None),
        ("Do", THROWS, "A"),
        ("do", THROWS, "A"),
        ("They threw Do", THROWS, "A"),
        ("这是红灯笼。", CHINESE, "B"),
        ("这是红灯。", CHINESE, "A"),
        ("هذه قهوة ساخنة", ARABIC, "B"),
    ],
)
def test_options_that_look_like_letters_or_hold_each_other_are_told_apart(
    text: str, options: tuple[str, ...], expected: str | None
) -> None:
    assert letter(text, options) == expected


@pytest.mark.parametrize("text", ["B.", "(B)", "b", "The answer is B", "B\nC", "", "E", "AB"])
def test_the_strict_reading_takes_nothing_but_one_capital_letter(text: str) -> None:
    assert strict(record("a", text, "B")) is None
    assert scoring("choice-official").scorer(record("a", text, "B")).value == 0.0


def test_the_strict_reading_strips_blanks_and_nothing_else() -> None:
    assert [strict(record("a", text, "B")) for text in ("B", " B\n", "D")] == ["B", "B", "D"]
    assert scoring("choice-official").scorer(record("a", "\tB ", "B")).value == 100.0


def test_a_question_without_a_known_right_option_is_unscored_with_a_reason() -> None:
    for name in ("choice", "choice-official"):
        assert scoring(name).scorer(record("a", "B", ""))[0] is None
        assert "not known" in scoring(name).scorer(record("a", "B", "")).reason
        assert "names no option" in scoring(name).scorer(record("a", "B", "well", from_base=True)).reason
    assert scoring("choice").scorer(record("a", "the answer is B", "(B)", from_base=True)).value == 100.0


def test_both_accuracies_are_reported_whichever_one_scores_the_dimension() -> None:
    records = [record("a", "B", "B"), record("b", "(B)", "B"), record("c", "it is soup", "A"), record("d", "A or B", "B")]
    for name in ("choice", "choice-official"):
        found = measures(records, [Dimension("accuracy", "Acc.", scoring=name)])
        assert points(found, "accuracy") == 75.0
        assert points(found, "official_accuracy") == 25.0
        assert points(found, "invalid") == 25.0


def rotated(case: str, right: int, say: str | None, *, turns: int = 4) -> list[Record]:
    """A question in every rotation; ``say`` is always the same letter, or by None always the right option."""
    found = []
    for i in range(turns):
        options = FOOD[i:] + FOOD[:i]
        reference = "ABCD"[(right - i) % 4]
        found.append(record(case, say or reference, reference, options=options, rotation=i))
    return found


def test_circular_accuracy_takes_every_rotation_to_be_right_and_accuracy_only_the_first() -> None:
    always_b = [r for n in range(4) for r in rotated(f"{n}", n, "B")]
    found = measures(always_b, DIMENSIONS)
    assert (points(found, "accuracy"), points(found, "circular")) == (25.0, 0.0)
    knows = measures([r for n in range(4) for r in rotated(f"{n}", n, None)], DIMENSIONS)
    assert (points(knows, "accuracy"), points(knows, "circular"), points(knows, "position_bias")) == (100.0, 100.0, 0.0)


def test_a_wrong_but_consistent_answer_is_0_in_circular_accuracy() -> None:
    consistent = [record("a", FOOD[2], "ABCD"[-i % 4], options=FOOD[i:] + FOOD[:i], rotation=i) for i in range(4)]
    assert {meant(r) for r in consistent} == set("ABCD")
    found = measures(consistent, DIMENSIONS)
    assert (points(found, "accuracy"), points(found, "circular")) == (0.0, 0.0)


def test_a_question_that_cannot_be_rotated_counts_by_its_only_order_and_none_rotated_is_no_circular_accuracy() -> None:
    mixed = [*rotated("a", 1, "B"), *rotated("b", 1, "B", turns=1)]
    assert points(measures(mixed, DIMENSIONS), "circular") == 50.0
    assert measures(rotated("b", 1, "B", turns=1), DIMENSIONS)["circular"] is None


def test_a_habit_of_one_position_is_exposed_letter_by_letter() -> None:
    found = measures([r for n in range(4) for r in rotated(f"{n}", n, "B")], DIMENSIONS)
    assert points(found, "position_bias") == 75.0
    assert [points(found, f"letter_{x}") for x in "abcd"] == [-25.0, 75.0, -25.0, -25.0]
    assert found["letter_e"] is None  # no question has five options


def test_options_that_are_no_list_are_an_error_that_names_the_case() -> None:
    broken = Record("t", "q7", 0, "accuracy", 1, 1, "en", "B", "B", False, 1, 0.0, tags={"options": "Soup, rice"})
    with pytest.raises(DataError, match=r"case q7: tag 'options' is 'Soup, rice', expected a JSON list"):
        meant(broken)


DATA = Path(os.environ.get("KEDIT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "k-viscuit" / "annotations.jsonl"


@pytest.mark.skipif(not DATA.is_file(), reason="takes the published questions: set KEDIT_DATA to the folder that holds them")
def test_every_published_option_is_read_rightly_from_its_letter_its_text_and_sentences_of_them() -> None:
    forms = [
        "{L}",
        "({L})",
        "{L}. {t}",
        "The answer is {L}.",
        "{t}",
        "It is {t}.",
        "The answer is {t}.",
        "我认为是{t}。",
        "答案是{L}",
    ]
    read = 0
    for line in DATA.read_text(encoding="utf-8").splitlines():
        options = tuple(json.loads(line)["options"])
        for label, option in zip("ABCD", options, strict=True):
            for form in forms:
                assert letter(form.format(L=label, t=option), options) == label, (form, options)
                read += 1
    assert read == 2628 * len(forms)
