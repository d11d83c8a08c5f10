"""Questions with options: how they are put and rotated, what files may call the right one, documents and translations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedit.benchmarks.choices import abnormal, index_of, put, rotations
from kedit.benchmarks.noise import Noise
from kedit.benchmarks.translations import Name, Translations
from kedit.errors import DataError, UnknownNameError
from kedit.files.documents import Documents
from kedit.images import open_image
from kedit.types import ImageRef

FOUR = ("Bread", "Rice cake", "Noodles", "Soup")


def test_the_official_prompt_keeps_the_blanks_of_the_published_code() -> None:
    assert put("What is it?", FOUR, "official") == (
        "What is it?\n    A. Bread\n    B. Rice cake\n    C. Noodles\n    D. Soup\n"
        "    Answer with the option's letter from the given choices directly."
    )


def test_a_question_that_holds_the_word_options_in_braces_is_put_as_it_is() -> None:
    assert put("Is {options} a word, or {letter}?", ("{question}", "no"), "{question}|{options}") == (
        "Is {options} a word, or {letter}?|A. {question}\nB. no"
    )


def test_an_unknown_prompt_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(UnknownNameError, match="offical.*official"):
        put("Q?", FOUR, "offical")


@given(st.lists(st.text(min_size=1), min_size=2, max_size=8, unique=True), st.data())
def test_every_rotation_holds_all_options_and_points_at_the_right_one(options: list[str], data: st.DataObject) -> None:
    answer = data.draw(st.integers(0, len(options) - 1))
    found = list(rotations(options, answer, circular=True))
    assert len(found) == (1 if abnormal(options) else len(options))
    for number, shown, at in found:
        assert shown == (*options[number:], *options[:number])
        assert at is not None
        assert shown[at] == options[answer]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (FOUR, False),
        (("Vitamin A", "Vitamin C", "Vitamin E", "Vitamin D"), False),
        (("Do", "Mo", "Geol", "Yut"), False),
        (("A", "red", "blue", "B"), True),
        (("(B)", "red", "blue", "green"), True),
        (("A and B", "only C", "D", "none"), True),
        (("E", "F", "G", "H"), False),
    ],
)
def test_options_that_are_labels_or_name_several_are_not_rotated(options: tuple[str, ...], expected: bool) -> None:
    assert abnormal(options) is expected
    assert len(list(rotations(options, 0, circular=True))) == (1 if expected else 4)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2, 2), (2.0, 2), ("2", 2), (" b ", 1), ("D", 3), ("Soup", 3), ("soup", None), (4, None), (-1, None), ("-1", None),
        (True, None), (None, None), (2.5, None), (float("nan"), None), ("E", None), ([0], None), ("99999", None), ("²", None),
    ],
)  # fmt: skip
def test_the_right_option_is_read_from_a_position_a_letter_or_its_text(value: object, expected: int | None) -> None:
    assert index_of(value, FOUR) == expected


def test_digits_that_are_an_option_are_that_option() -> None:
    assert index_of("2", ("0", "2", "4", "6")) == 1


def test_noise_is_the_same_for_the_same_image_and_another_for_another() -> None:
    assert Noise("a")() == Noise("a")()
    assert Noise("a")() != Noise("b")()
    assert open_image(ImageRef(draw=Noise("a"))).size == (224, 224)


# -- documents -----------------------------------------------------------------------------------------------------------


def test_documents_are_found_by_image_concept_or_title_whatever_they_are_kept_in(tmp_path: Path) -> None:
    rows = [{"image": "1.png", "title": "One", "text": "first"}, {"concepts": ["Rice-Cake", "Mochi"], "text": "second"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "map.json").write_text(json.dumps({"Soup": "third", "2.png": {"title": "Two", "text": "fourth"}}))
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "noodles.txt").write_text("fifth")
    (pages / "bread.md").write_text("# Baker's bread\n\nsixth\n")
    assert Documents(tmp_path / "rows.jsonl").about("x", "1.png").text == "first"
    assert Documents(tmp_path / "rows.jsonl").about("", "rice cake").text == "second"
    assert [d.title for d in Documents(tmp_path / "map.json")] == ["Soup", "Two"]
    assert Documents(tmp_path / "map.json").about("2.png").text == "fourth"
    folder = Documents(pages)
    assert [(d.title, d.text) for d in folder] == [("Baker's bread", "sixth"), ("noodles", "fifth")]
    assert folder.about("Bread") is folder[0]
    assert folder.about("Noodles") is folder[1]
    assert folder.about("fish", "") is None
    assert Documents({"Soup": "third"}).about("soup").text == "third"


def test_what_says_whom_it_is_about_goes_before_a_title_that_fits() -> None:
    found = Documents({"1.png": {"title": "Soup", "text": "about the image"}, "Soup": {"title": "Any", "text": "about soup"}})
    assert found.about("Soup").text == "about soup"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"title": "a", "text": ""}', r"rows.jsonl.*text is ''"),
        ('{"text": "no name"}', r"rows.jsonl, \w+ 1.*needs a title"),
        ('{"title": "a", "text": "b"}\n{"title": 3, "text": "b"}', r"rows.jsonl, line 2.*title"),
        ('{"title": "a", "text": "b"}\n"words"', r"rows.jsonl, line 2"),
        ("", r"no document found"),
    ],
)
def test_a_broken_document_is_named_by_file_and_row(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(DataError, match=match):
        Documents(tmp_path / "rows.jsonl")


# -- translations --------------------------------------------------------------------------------------------------------


def test_repeated_ids_are_translated_in_their_order_and_refused_where_that_is_not_known(tmp_path: Path) -> None:
    names = [Name("a/1", "x.0"), Name("a/2", "x.2"), Name("a/3", "x.2"), Name("a/4", "y.0")]
    file = tmp_path / "ko.jsonl"
    file.write_text("".join(json.dumps({"id_": i, "question": q}) + "\n" for i, q in (("x.2", "two"), ("x.2", "three"))))
    found = Translations(file).rows(names)
    assert [row and row.text("question") for row in found] == [None, "two", "three", None]
    file.write_text(json.dumps({"id_": "x.2", "question": "which?"}) + "\n")
    with pytest.raises(DataError, match=r"ko.jsonl.*'x.2' comes 1 times here and 2 times.*uid.*'a/2'"):
        Translations(file).rows(names)
    by_uid = Translations({"a/3": {"question": "three"}}).rows(names)
    assert [row and row.text("question") for row in by_uid] == [None, None, "three", None]
