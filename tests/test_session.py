"""A session: asked before and after, taken back in any order, saved whole, and nothing half done after an error."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from fakes import AddNoise, FakeBackbone, Prepend
from samples import A, B
from sessions import Behind, numbers, rows, session

from kedit.editor import Editor
from kedit.errors import DataError, ImageError, NotFittedError, RequestError
from kedit.live.session import Session, routing
from kedit.types import Answer, Knowledge, Request


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


class Forgetful(Prepend):
    """Cannot take one edit back, and may be told to fail at an answer so many times."""

    fails: str = ""
    times: int = 0

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        if knowledge.answer == self.fails and self.times:
            self.times -= 1
            raise DataError(f"cannot learn {knowledge.answer!r}")

    def unapply(self, edit_id: str) -> None:
        Editor.unapply(self, edit_id)


class Traced(Prepend):
    def trace(self, requests: Sequence[Request]) -> list[Mapping[str, str | float]]:
        edits = list(self.edits_)
        return [{"entry": edits[-1], "entries": json.dumps(edits), "similarity": 0.75} if edits else {} for _ in requests]


# -- asking ------------------------------------------------------------------------------------------------------------


def test_an_answer_is_shown_before_and_after_whatever_is_inserted() -> None:
    one = session()
    alone = one.ask("Which gift?")
    assert alone.before == alone.after and not alone.changed
    one.insert("What is a red clock?", "A gift to avoid.")
    reply = one.ask("Which gift?")
    assert reply.before == alone.before and reply.changed
    assert reply.after == one.editor.generate([reply.request])[0]


def test_a_question_that_no_edit_concerns_is_asked_once_and_answered_as_the_plain_way_answers() -> None:
    one = session()
    one.insert("什么是礼物？", "红钟。")
    before = one.backbone.asked
    reply = one.ask("Which gift?", [A])
    assert one.backbone.asked - before == 1
    assert reply.after == one.editor.generate([reply.request])[0]


def test_the_unedited_answer_of_edited_weights_is_that_of_the_first_weights_and_the_edits_stay_bit_for_bit() -> None:
    one = session(AddNoise(size=0.3))
    first = one.ask("Which gift?").after
    one.insert("What is it?", "A clock.")
    edited = one.backbone.fingerprint()
    later = one.ask("And which one now?")
    assert one.backbone.fingerprint() == edited
    assert later.before == FakeBackbone().generate([later.request])[0] != later.after
    assert one.ask("Which gift?").before == first
    with pytest.raises(RuntimeError), one.editor.unedited():
        assert one.backbone.fingerprint() == FakeBackbone().fingerprint()
        raise RuntimeError
    assert one.backbone.fingerprint() == edited
    one.reset()
    assert one.backbone.fingerprint() == FakeBackbone().fingerprint()


def test_where_the_edit_cannot_be_set_aside_the_answer_before_is_missing_with_a_reason_unless_it_was_asked_in_time() -> None:
    one = session(Behind())
    known = one.ask("Which gift?").before
    one.insert("What is it?", "A clock.")
    late = one.ask("What else?")
    assert late.before is None and "ask before you insert" in late.missing and late.changed
    assert one.ask("Which gift?").before == known


def test_a_request_speaks_the_language_it_is_written_in_and_has_its_system_prompt() -> None:
    one = session()
    spoken = [one.request(q) for q in ("A gift?", "送礼物？", "هدية؟", "123")]
    assert [r.language for r in spoken] == ["en", "zh", "ar", "en"]
    assert "中文" in str(spoken[1].system)
    assert one.request("A gift?", language="zh").language == "zh"
    assert Session(FakeBackbone(), Prepend(), systems={}).request("A gift?").system is None


def test_a_trace_names_entries_by_the_numbers_that_the_user_knows() -> None:
    one = session(Traced())
    for word in ("a", "b", "c"):
        one.insert(f"What is {word}?", word)
    one.remove(1)
    reply = one.ask("Which?")
    assert reply.trace == {"entry": "3", "entries": "2, 3", "similarity": 0.75}
    assert routing(reply.trace) == "entry 3, entries 2, 3, similarity 0.75"
    assert routing({"nearest": "2", "similarity": 0.5}).startswith("no entry applies: nearest 2")
    assert routing({}) == ""


# -- inserting ---------------------------------------------------------------------------------------------------------


def test_the_same_again_is_left_out_and_another_answer_to_the_same_question_is_told() -> None:
    one = session()
    assert [entry.number for entry in one.insert("What is it?", "A clock.", [A]).entries] == numbers(one) == [1]
    again = one.insert(" What is it? ", "A clock.", [A])
    assert not again.entries and "already, as 1" in again.notes[0]
    other = one.insert("What is it?", "A hat.", [A])
    assert [entry.number for entry in other.entries] == [2] and "asks what 1 asks" in other.notes[0]
    assert not one.insert("What is it?", "A clock.", [B]).notes
    assert numbers(one) == [1, 2, 3]


@pytest.mark.parametrize(
    ("question", "answer", "image", "error", "said"),
    [
        (" ", "x", None, RequestError, "question is empty"),
        ("What?", "\n", None, RequestError, "answer is empty"),
        ("What\ud800?", "x", None, RequestError, "question holds a lone surrogate"),
        ("What?", "x\udfff", None, RequestError, "answer holds a lone surrogate"),
        ("What?", "x", "nowhere.png", ImageError, "nowhere.png"),
        ("What?", "x", "https://example.org/a.png", ImageError, "never reads images from the network"),
        ("What?", "x", b"no image", ImageError, "not an image"),
    ],
)
def test_what_cannot_be_inserted_is_refused_and_nothing_changes(
    question: str, answer: str, image: str | bytes | None, error: type[Exception], said: str
) -> None:
    one = session()
    with pytest.raises(error, match=said):
        one.insert(question, answer, [image] if image else [])
    assert one.entries == () and one.unsaved == 0


def test_a_file_is_inserted_row_by_row_with_images_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(A.read())
    file = rows(
        tmp_path / "new.jsonl",
        {"question": "What is it?", "answer": "A clock.", "image": "a.png", "title": "Clock"},
        {"question": "送礼物？", "answer": "红钟。", "images": []},
        {"question": "Which?", "answer": "This.", "language": "ar", "text": "A document."},
        {"question": "What is it?", "answer": "A clock.", "image": "a.png"},
    )
    one = session()
    done = one.insert_file(file)
    found = [entry.knowledge for entry in done.entries]
    assert [k.request.language for k in found] == ["en", "zh", "ar"]
    assert found[0].request.images[0].digest == A.digest and found[0].title == "Clock" and found[2].text == "A document."
    assert len(done.notes) == 1 and "line 4" in done.notes[0] and "as 1" in done.notes[0]
    assert not one.insert_file(file).entries


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b'{"question": "What?"}', "answer is nothing"),
        (b'{"question": "", "answer": "x"}', "question is ''"),
        (b'{"question": "What?", "answer": "x", "image": "gone.png"}', "gone.png"),
        (b'{"question": "What?", "answer": "x", "image": "../a.png"}', "refused"),
        (b'{"question": "What\xff?", "answer": "x"}', "UTF-8"),
        (b'{"question": "What?", "answer"', "not valid JSON"),
        (b'["What?", "x"]', "expected an object"),
    ],
)
def test_one_bad_row_keeps_the_whole_file_out_and_is_named(row: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(b'{"question": "Which?", "answer": "This."}\n' * 1 + row + b"\n")
    one = session()
    with pytest.raises(DataError, match=said) as caught:
        one.insert_file(file)
    assert "bad.jsonl" in str(caught.value) and "line 2" in str(caught.value)
    assert one.entries == () and not one.editor.edits_


def test_a_file_without_rows_a_folder_and_no_file_are_refused(tmp_path: Path) -> None:
    for place, said in ((rows(tmp_path / "empty.jsonl"), "no rows"), (tmp_path, "folder"), (tmp_path / "x.jsonl", "not exist")):
        with pytest.raises(DataError, match=said):
            session().insert_file(place)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, DataError])
def test_a_row_that_cannot_be_learned_takes_back_the_rows_before_it(kind: type[BaseException], tmp_path: Path) -> None:
    class Stops(AddNoise):
        def deltas(self, knowledge: Knowledge) -> Mapping[str, object]:  # type: ignore[override]
            if knowledge.answer == "2":
                raise kind("stop")
            return super().deltas(knowledge)

    one = session(Stops(removable=True))
    one.insert("What is it?", "A clock.")
    before = one.backbone.fingerprint()
    with pytest.raises(kind) as caught:
        one.insert_file(rows(tmp_path / "new.jsonl", *({"question": f"{n}?", "answer": f"{n}"} for n in range(4))))
    assert kind is KeyboardInterrupt or "line 3" in str(caught.value)
    assert numbers(one) == [1] and one.backbone.fingerprint() == before


def test_images_of_a_file_outlive_it_and_stand_where_the_other_name_for_them_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(A.read())
    named: list[dict[str, object]] = [{"images": [], "image": "a.png"}, {"images": "", "image": "a.png"}, {"images": ["a.png"]}]
    one = session(AddNoise())
    one.insert_file(rows(tmp_path / "new.jsonl", *({"question": f"{n}?", "answer": "a", **row} for n, row in enumerate(named))))
    (tmp_path / "a.png").unlink()
    one.remove(2)
    one.save(tmp_path / "kept")
    assert [[image.digest for image in entry.knowledge.request.images] for entry in one.entries] == [[A.digest]] * 2


def test_a_backbone_that_a_session_has_changed_is_refused_to_others_until_it_is_reset() -> None:
    backbone = FakeBackbone()
    one, other = Session(backbone, AddNoise()), Session(backbone, Prepend())
    other.insert("A?", "a")  # leaves the backbone as it is
    one.insert("A?", "a")
    for act in (lambda: Session(backbone, AddNoise()), lambda: other.insert("B?", "b")):
        with pytest.raises(DataError, match="1 entries in this backbone by addnoise"):
            act()
    assert numbers(other) == [1]
    one.reset()
    other.insert("B?", "b")
    Session(backbone, AddNoise()).insert("A?", "a")


# -- taking back -------------------------------------------------------------------------------------------------------


def test_undo_takes_back_one_insert_after_another_a_file_as_one(tmp_path: Path) -> None:
    one = session()
    one.insert("A?", "a")
    one.insert_file(rows(tmp_path / "new.jsonl", {"question": "B?", "answer": "b"}, {"question": "C?", "answer": "c"}))
    one.insert("D?", "d")
    one.remove(4)
    assert [entry.number for entry in one.undo()] == [2, 3]
    assert [entry.number for entry in one.undo()] == [1]
    assert one.undo() == () and one.entries == ()
    assert one.insert("A?", "a").entries[0].number == 5  # a number is never given twice


@pytest.mark.parametrize("removable", [True, False])
def test_what_is_removed_leaves_the_rest_as_if_it_had_been_inserted_alone(removable: bool) -> None:
    one, alone = session(AddNoise(removable=removable)), session(AddNoise(removable=removable))
    for word in "abc":
        one.insert(f"{word}?", word)
    for word in "ac":
        alone.insert(f"{word}?", word)
    assert [entry.number for entry in one.remove(2)] == [2]
    assert numbers(one) == [1, 3]
    assert one.backbone.fingerprint() == alone.backbone.fingerprint()
    with pytest.raises(DataError, match="no entry 2, 7; inserted are: 1, 3"):
        one.remove(1, 2, 7)
    assert numbers(one) == [1, 3]


def test_where_the_rest_cannot_be_inserted_again_everything_is_as_it_was() -> None:
    editor = Forgetful()
    one = session(editor)
    for word in "abc":
        one.insert(f"{word}?", word, [A])
    answers = one.ask("Which?").after
    editor.fails, editor.times = "c", 1
    with pytest.raises(DataError, match="^cannot learn 'c'"):
        one.remove(1)
    assert numbers(one) == [1, 2, 3]
    assert one.ask("Which?").after == answers and one.entries[0].knowledge.request.images[0].digest == A.digest
    one.remove(1)
    assert numbers(one) == [2, 3]
    editor.times = 2
    with pytest.raises(DataError, match="only 1 of 2 entries"):
        one.remove(2)
    assert numbers(one) == [2] and list(editor.edits_.values()) == [one.entries[0].knowledge]


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_an_editor_that_has_learned_nothing_is_refused_with_what_to_do() -> None:
    class Learns(Prepend):
        needs_fit = True

    with pytest.raises(NotFittedError, match="kedit train"):
        session(Learns())


def test_what_is_inserted_when_the_session_opens_belongs_to_it() -> None:
    backbone = FakeBackbone()
    editor = AddNoise().attach(backbone)
    editor.insert(Knowledge(Request("A?"), "a"))
    one = Session(backbone, editor)
    assert numbers(one) == [1]
    reply = one.ask("Which?")
    assert reply.before == FakeBackbone().generate([reply.request])[0]


def test_users_at_once_wait_for_each_other() -> None:
    class Alone(FakeBackbone):
        inside = 0
        most = 0

        def generate(self, requests: Sequence[Request], *, max_new_tokens: int = 64) -> list[Answer]:
            self.inside += 1
            self.most = max(self.most, self.inside)
            time.sleep(0.005)
            self.inside -= 1
            return super().generate(requests, max_new_tokens=max_new_tokens)

    one = Session(Alone(), AddNoise(removable=True))

    def use(user: int) -> None:
        one.insert(f"{user}?", str(user))
        one.ask(f"Which, {user}?")
        one.undo()

    users = [threading.Thread(target=use, args=(user,)) for user in range(8)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert one.backbone.most == 1
    one.reset()
    assert one.backbone.fingerprint() == FakeBackbone().fingerprint()
