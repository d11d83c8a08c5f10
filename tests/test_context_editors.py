"""Knowledge in view: what each condition shows, word for word and image for image, and what it leaves alone."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import samples
from fakes import FakeBackbone

from kedit.editor import ContextEditor
from kedit.errors import DataError, UnknownNameError
from kedit.methods import (
    EDITORS,
    MultimodalContext,
    OneShot,
    OracleDocument,
    TextualContext,
    VisualContext,
    ZeroShot,
    editor,
)
from kedit.methods.context.visual import permuted
from kedit.prompts import Prompts
from kedit.testing import check_editor, toy_cases
from kedit.types import ImageRef, Knowledge, Request

A, B, C = samples.A, samples.B, samples.C
D = samples.picture(3)
ASKED = Request("Is there a lute here?", (D,), system="Be brief.")
LUTE = Knowledge(
    Request("What is a lute?"), "a lute", "Lute", "A lute has strings and a round back.", ((A, "A lute."), (B, "Two."), (C, ""))
)
DRUM = Knowledge(Request("What is a drum?"), "a drum", "Drum", "A drum has a skin.", ((C, "A drum."),))
PAIR = Knowledge(Request("What is shown?", (B,)), "A gift.")
BLANK = Knowledge(Request("What is this?"), "")
CONDITIONS: list[ContextEditor] = [TextualContext(), VisualContext(), MultimodalContext(), OneShot(), OracleDocument()]


def with_(given: ContextEditor, *items: Knowledge) -> ContextEditor:
    made = given.attach(FakeBackbone())
    for item in items:
        made.insert(item)
    return made


def context(given: ContextEditor, *items: Knowledge, asked: Request = ASKED) -> tuple[str | ImageRef, ...]:
    """What is put before a request, of which nothing else may change."""
    found = with_(given, *items).rewrite(asked)
    assert (found.question, found.images, found.language, found.system) == (
        asked.question,
        asked.images,
        asked.language,
        asked.system,
    )
    assert found.context[len(found.context) - len(asked.context) :] == asked.context
    return found.context[: len(found.context) - len(asked.context)]


# -- what each condition shows -----------------------------------------------------------------------------------------


def test_zero_shot_shows_nothing_and_is_the_row_that_does_nothing() -> None:
    made = with_(ZeroShot(), LUTE)
    assert made.rewrite(ASKED) is ASKED
    assert made.does_nothing


def test_textual_is_the_summary_a_line_break_and_the_question_after_the_image() -> None:
    found = with_(TextualContext(), LUTE).rewrite(ASKED)
    assert found == Request("A lute has strings and a round back.\nIs there a lute here?", (D,), system="Be brief.")


def test_textual_can_stand_before_the_images_instead() -> None:
    assert context(TextualContext(place="before"), LUTE) == ("A lute has strings and a round back.",)


def test_visual_is_the_first_image_and_its_caption() -> None:
    assert context(VisualContext(), LUTE) == (A, "A lute.")
    assert context(VisualContext(captions=False), LUTE) == (A,)


def test_multimodal_is_the_image_and_the_summary() -> None:
    assert context(MultimodalContext(), LUTE) == (A, "A lute has strings and a round back.")
    assert context(MultimodalContext(captions=True, images=2), LUTE) == (
        A,
        "A lute.",
        B,
        "Two.\nA lute has strings and a round back.",
    )


def test_one_shot_is_image_question_and_answer_of_the_pair() -> None:
    assert context(OneShot(), PAIR) == (B, "Question: What is shown?\nAnswer: A gift.")


def test_an_image_that_the_request_shows_itself_need_not_be_repeated() -> None:
    asked = Request("And who brought it?", (B,))
    assert context(OneShot(), PAIR, asked=asked) == (B, "Question: What is shown?\nAnswer: A gift.")
    assert context(OneShot(repeat=False), PAIR, asked=asked) == ("Question: What is shown?\nAnswer: A gift.",)
    assert context(OneShot(repeat=False), PAIR)[0] == B


def test_oracle_is_the_document_with_its_title_behind_a_line_that_says_what_it_is() -> None:
    (text,) = context(OracleDocument(), LUTE)
    introduced, title, body = str(text).split("\n")
    assert "help with the question" in introduced
    assert (title, body) == ("Lute", "A lute has strings and a round back.")
    assert context(OracleDocument(frame="plain"), LUTE) == ("Lute\nA lute has strings and a round back.",)
    assert context(OracleDocument(frame={"en": "Read: {documents} {title}"}, max_chars=7), LUTE) == (
        "Read: Lute\nA lute {title}",
    )


def test_what_a_request_brings_itself_stays_behind_what_is_put_in_view() -> None:
    asked = Request("Which?", (D,), context=("As before.", C))
    for given in CONDITIONS[1:]:
        assert len(context(type(given)(), LUTE, asked=asked)) >= 1
    assert with_(TextualContext(), LUTE).rewrite(asked).context == asked.context


def test_the_words_around_it_are_in_the_language_of_the_request() -> None:
    seen = {}
    for language in ("en", "zh", "ar", "fr"):
        asked = Request("?", (D,), language)
        for given in (OneShot(), TextualContext(place="before"), OracleDocument()):
            seen[given.name, language] = context(given, PAIR if given.name != "oracle" else LUTE, asked=asked)[-1]
    for name in ("one-shot", "textual", "oracle"):
        texts = [seen[name, language] for language in ("en", "zh", "ar")]
        assert len(set(texts)) == 3
        assert seen[name, "fr"] == texts[0]
    assert "问题" in str(seen["one-shot", "zh"]) and "السؤال" in str(seen["one-shot", "ar"])


# -- which images --------------------------------------------------------------------------------------------------------


def test_k_images_are_the_first_k_and_as_many_as_there_are_when_k_is_more() -> None:
    shown = {k: context(VisualContext(images=k, captions=False), LUTE) for k in (1, 2, 3, 9, None)}
    assert shown == {1: (A,), 2: (A, B), 3: (A, B, C), 9: (A, B, C), None: (A, B, C)}
    assert context(VisualContext(images=2), LUTE) == (A, "A lute.", B, "Two.")
    assert context(VisualContext(images=3), LUTE)[-1] == C, "an image without a caption has none"


def test_images_can_be_chosen_by_their_places_as_far_as_they_are_there() -> None:
    assert context(VisualContext(images=None, which=(2, 7, 0), captions=False), LUTE) == (C, A)
    assert context(VisualContext(which=(-1,), captions=False), LUTE) == (C,)
    made = with_(VisualContext(which=(7,)), LUTE)
    assert made.rewrite(ASKED) is ASKED


def test_permutations_are_counted_as_itertools_does_and_begin_again() -> None:
    orders = [context(VisualContext(images=3, permutation=n, captions=False), LUTE) for n in range(7)]
    assert orders[:6] == list(itertools.permutations((A, B, C)))
    assert orders[6] == orders[0]
    assert context(VisualContext(images=2, permutation=1), LUTE) == (B, "Two.", A, "A lute."), "captions move with their images"
    assert context(MultimodalContext(images=2, permutation=1), LUTE)[:2] == (B, A)
    assert [permuted("abcd", n) for n in range(24)] == [list(one) for one in itertools.permutations("abcd")]
    assert permuted([], 3) == []


# -- items that lack something -------------------------------------------------------------------------------------------


def test_an_item_without_a_document_is_told_by_its_question_and_answer() -> None:
    told = 'On the question "What is shown?" the following is known: A gift.'
    assert with_(TextualContext(), PAIR).rewrite(ASKED).question == f"{told}\nIs there a lute here?"
    assert context(VisualContext(), PAIR) == (B, "A gift.")
    assert context(MultimodalContext(), PAIR) == (B, told)
    assert context(OracleDocument(), PAIR) == (told,)


def test_a_document_without_images_shows_no_image_of_its_question() -> None:
    page = Knowledge(Request("What is shown?", (B,)), "A gift.", "Gift", "A gift is given.")
    assert with_(VisualContext(), page).rewrite(ASKED) is ASKED
    assert context(MultimodalContext(), page) == ("A gift is given.",)


@pytest.mark.parametrize("given", CONDITIONS, ids=lambda one: one.name)
def test_a_request_comes_back_itself_when_there_is_nothing_to_show(given: ContextEditor) -> None:
    made = with_(given)
    assert made.rewrite(ASKED) is ASKED, "nothing is inserted"
    made.insert(BLANK)
    assert made.rewrite(ASKED) is ASKED, "nothing to show"
    assert made.trace([ASKED]) == [{}]
    made.insert(LUTE)
    assert made.rewrite(ASKED) is not ASKED
    made.reset()
    assert made.rewrite(ASKED) is ASKED


# -- several items -------------------------------------------------------------------------------------------------------


def test_several_items_stand_in_the_order_in_which_they_were_inserted() -> None:
    assert context(VisualContext(), LUTE, DRUM) == (A, "A lute.", C, "A drum.")
    assert context(MultimodalContext(), LUTE, PAIR)[::2] == (A, B)
    question = with_(TextualContext(), LUTE, DRUM).rewrite(ASKED).question
    assert question == "A lute has strings and a round back.\nA drum has a skin.\nIs there a lute here?"
    assert context(OracleDocument(frame="plain"), LUTE, DRUM) == (
        "Lute\nA lute has strings and a round back.\n\nDrum\nA drum has a skin.",
    )


def test_of_more_than_the_limit_the_newest_are_in_view_and_a_note_says_how_many_are_not() -> None:
    made = with_(VisualContext(limit=1), LUTE, DRUM)
    assert made.rewrite(ASKED).context == (C, "A drum.")
    assert list(made.notes().values()) == [1]
    made.remove("edit-2")
    assert made.rewrite(ASKED).context == (A, "A lute.")
    many = [Knowledge(Request(f"What is {n}?"), f"Number {n}.") for n in range(9)]
    assert str(with_(TextualContext(), *many).rewrite(ASKED).question).count("is known") == 8
    whole = with_(TextualContext(limit=None), *many)
    assert whole.rewrite(ASKED).question.count("is known") == 9
    assert whole.notes() == {}


def test_facts_open_the_query_once_and_at_the_end() -> None:
    other = Knowledge(Request("Who brought it?"), "The guest.")
    facts = "New Fact: What is shown? A gift.\nNew Fact: Who brought it? The guest.\nPrompt:"
    assert context(TextualContext(place="before", wrap="fact"), PAIR, other) == (facts,)
    assert context(OracleDocument(wrap="fact"), PAIR, other) == (facts,)
    assert context(MultimodalContext(wrap="fact"), other, PAIR) == (
        "New Fact: Who brought it? The guest.\n",
        B,
        "New Fact: What is shown? A gift.\nPrompt:",
    )


# -- what records say ----------------------------------------------------------------------------------------------------


def test_a_trace_names_what_was_in_view() -> None:
    made = with_(TextualContext(), LUTE)
    assert made.trace([ASKED, ASKED]) == [{"entry": "edit-1", "title": "Lute"}] * 2
    made.insert(BLANK)
    made.insert(DRUM)
    (row,) = made.trace([ASKED])
    assert (row["entry"], row["title"]) == ("edit-3", "Drum")
    assert json.loads(str(row["entries"])) == ["edit-3", "edit-1"]
    assert json.loads(str(row["titles"])) == ["Drum", "Lute"]
    assert with_(OneShot(), PAIR).trace([ASKED]) == [{"entry": "edit-1"}]


# -- as editors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        ZeroShot(),
        *CONDITIONS,
        TextualContext(place="before", wrap="fact", limit=1),
        VisualContext(images=None, which=(1, 0), permutation=2),
    ],
    ids=repr,
)
def test_every_condition_keeps_the_contract(given: ContextEditor) -> None:
    assert len(check_editor(given, FakeBackbone(), toy_cases()).kept) == 21


def test_each_has_a_short_name_which_is_also_its_name_in_tables() -> None:
    for name in ("zero-shot", "textual", "visual", "multimodal", "one-shot", "retrieved", "oracle"):
        assert editor(name).name == name
        assert name in EDITORS
    assert editor("visual:images=3,which=(0,2)").get_params()["which"] == (0, 2)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"images": 0}, DataError, "images=0"),
        ({"images": True}, DataError, "images=True"),
        ({"permutation": -1}, DataError, "permutation=-1"),
        ({"which": "last"}, DataError, "which='last'"),
        ({"which": ()}, DataError, "which"),
        ({"limit": 0}, DataError, "limit=0"),
    ],
)
def test_a_choice_of_images_that_is_none_is_refused_when_it_is_attached(
    params: dict[str, Any], error: type[Exception], match: str
) -> None:
    for kind in (VisualContext, MultimodalContext):
        with pytest.raises(error, match=match):
            kind(**params).attach(FakeBackbone())


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (TextualContext(place="after"), "unknown place 'after'"),
        (TextualContext(wrap="facts"), "unknown wrap 'facts'"),
        (OneShot(wrap="facts"), "unknown wrap 'facts'"),
        (OracleDocument(frame="none"), "unknown frame 'none'"),
    ],
)
def test_a_word_that_stands_for_nothing_is_refused_when_it_is_attached(given: ContextEditor, match: str) -> None:
    with pytest.raises(UnknownNameError, match=match):
        given.attach(FakeBackbone())


def test_inserted_definitions_come_back_from_files_with_their_images_and_captions(tmp_path: Path) -> None:
    made = with_(VisualContext(images=2), LUTE, PAIR)
    made.save_edits(tmp_path)
    other = VisualContext(images=2).attach(FakeBackbone())
    other.load_edits(tmp_path)
    assert other.rewrite(ASKED).key == made.rewrite(ASKED).key


# -- on a real prompt ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["internvl", "qwen2_5_vl"], indirect=True)
def test_the_prompt_of_a_model_holds_exemplar_caption_image_and_question_in_this_order(backbone: Any) -> None:
    prompts: Prompts = backbone.prompts
    image = str(prompts.image_token)
    asked = Request("Is there a lute here?", (D,))
    visual = prompts.text(with_(VisualContext(images=2), LUTE).rewrite(asked))
    parts = [visual.index(text) for text in ("A lute.", "Two.", "Is there a lute here?")]
    assert parts == sorted(parts)
    assert visual.count(image) == 3
    textual = prompts.text(with_(TextualContext(), LUTE).rewrite(asked))
    assert "A lute has strings and a round back.\nIs there a lute here?" in textual
    assert textual.index(image) < textual.index("A lute has")
    assert backbone.generate([with_(MultimodalContext(images=3), LUTE, DRUM).rewrite(asked)], max_new_tokens=2)
