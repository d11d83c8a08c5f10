"""What a session saves is whole at any moment, and loads where it belongs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from fakes import AddNoise, FakeBackbone, Lookup, Prepend
from samples import picture
from sessions import Behind, numbers, session

from kedit.editor import Editor
from kedit.errors import DataError, StoreError
from kedit.live.saved import edits_in
from kedit.live.session import Session


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", [Prepend, AddNoise, Lookup])
def test_what_is_saved_is_there_another_day_with_its_numbers(kind: type[Editor], tmp_path: Path) -> None:
    one = session(kind())
    for word in "abc":
        one.insert(f"{word}?", word, [picture(ord(word))])
    one.remove(2)
    assert one.unsaved == 4
    one.save(tmp_path / "kept")
    assert one.unsaved == 0
    two = session(kind())
    assert two.load(tmp_path / "kept") == ()
    assert [(e.number, e.knowledge.answer) for e in two.entries] == [(1, "a"), (3, "c")]
    for mine, theirs in zip(one.backbone.model.parameters(), two.backbone.model.parameters(), strict=True):
        assert torch.allclose(mine, theirs)
    if kind is not AddNoise:
        assert two.ask("a?", [picture(ord("a"))]).after == one.ask("a?", [picture(ord("a"))]).after
    two.insert("d?", "d")
    two.save(tmp_path / "kept")
    shutil.rmtree(tmp_path / "kept")
    two.save(tmp_path / "kept")  # what was loaded needs the folder no more
    three = session(kind())
    three.load(tmp_path / "kept")
    assert numbers(three) == [1, 3, 4]
    three.remove(3)  # also where a weight editor has no deltas of what was loaded
    assert numbers(three) == [1, 4]


def test_a_save_that_fails_leaves_what_was_saved_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = session()
    one.insert("A?", "a")
    one.save(tmp_path / "kept")
    one.insert("B?", "b")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("kedit.live.saved.write_json", full)
        with pytest.raises(StoreError, match="No space left"):
            one.save(tmp_path / "kept")
    assert one.unsaved == 1
    two = session()
    two.load(tmp_path / "kept")
    assert [entry.knowledge.answer for entry in two.entries] == ["a"]
    assert len(list((tmp_path / "kept").glob("edits-*"))) == 1


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match="something else"):
        session().save(tmp_path)
    assert [file.name for file in tmp_path.iterdir() if file.name != "cache"] == ["thesis.tex"]


@pytest.mark.parametrize("head", [None, '{"user": "me"}', "not JSON", "[]"])
def test_folders_and_files_that_only_sound_like_ours_are_left_alone(head: str | None, tmp_path: Path) -> None:
    theirs = tmp_path / "kept" / "edits-march"
    theirs.mkdir(parents=True)
    (theirs / "photo.jpg").write_text("of the day")
    if head is not None:
        (tmp_path / "kept" / "session.json").write_text(head)
    with pytest.raises(StoreError, match="something else"):
        session().save(tmp_path / "kept")
    assert (theirs / "photo.jpg").exists()
    assert head is None or (tmp_path / "kept" / "session.json").read_text() == head


def test_what_a_killed_save_left_is_no_obstacle_and_goes_and_what_others_put_there_stays(tmp_path: Path) -> None:
    one = session()
    one.insert("A?", "a")
    for _ in range(2):  # the first save, and one over another
        (tmp_path / "kept" / "edits-0123456789ab").mkdir(parents=True)
        (tmp_path / "kept" / ".session.json.abc.part").write_text("{")
        one.save(tmp_path / "kept")
        assert sorted(f.name[:6] for f in (tmp_path / "kept").iterdir() if f.name != ".lock") == ["edits-", "sessio"]
    (tmp_path / "kept" / "edits-mine").mkdir()
    one.save(tmp_path / "kept")
    assert (tmp_path / "kept" / "edits-mine").exists()
    assert edits_in(tmp_path / "kept").parent == tmp_path / "kept" and edits_in(tmp_path) == tmp_path


def test_undo_does_not_take_back_what_was_loaded(tmp_path: Path) -> None:
    one = session()
    one.insert("A?", "a")
    one.save(tmp_path / "kept")
    one.remove(1)
    one.load(tmp_path / "kept")
    assert one.undo() == () and [entry.number for entry in one.entries] == [1]


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b"{}", b"null", b'{"digests": []}', b"\xff\xfe"])
def test_a_damaged_file_of_edits_is_told_by_name_and_nothing_is_inserted(content: bytes, tmp_path: Path) -> None:
    one = session(AddNoise())
    one.insert("A?", "a")
    folder = edits_in(one.save(tmp_path / "kept"))
    for name in ("editor.json", "base.json", "edits.jsonl", "deltas.safetensors"):
        before = (folder / name).read_bytes()
        if name == "edits.jsonl" and not content:
            continue  # an empty file holds no edits
        (folder / name).write_bytes(content)
        two = session(AddNoise())
        with pytest.raises(DataError, match=name.replace(".", r"\.")):
            two.load(tmp_path / "kept")
        assert two.entries == () and two.backbone.fingerprint() == FakeBackbone().fingerprint()
        (folder / name).write_bytes(before)


def test_what_an_editor_changes_by_itself_is_saved_with_the_unedited_backbones_name(tmp_path: Path) -> None:
    one = session(Behind())
    one.insert("A?", "a")
    one.save(tmp_path / "kept")
    two = session(Behind())
    assert two.load(tmp_path / "kept") == ()
    assert two.backbone.fingerprint() == one.backbone.fingerprint() != FakeBackbone().fingerprint()


def test_what_was_saved_elsewhere_is_refused_or_told(tmp_path: Path) -> None:
    one = session(AddNoise(size=0.2))
    one.insert("A?", "a")
    one.save(tmp_path / "kept")
    other = FakeBackbone()
    other.model[0].weight += 1
    with pytest.raises(DataError, match="saved with 'fake'"):
        Session(other, AddNoise()).load(tmp_path / "kept")
    with pytest.raises(DataError, match="belongs to 'AddNoise'"):
        session(Prepend()).load(tmp_path / "kept")
    with pytest.raises(DataError, match="1 entries are inserted already"):
        one.load(tmp_path / "kept")
    with pytest.raises(DataError, match="no saved session"):
        session().load(tmp_path / "nowhere")
    assert session(AddNoise(size=0.1)).load(tmp_path / "kept") == ("not as when it was saved: size: 0.2 -> 0.1",)


@pytest.mark.parametrize(
    "change",
    [{"edits": "../kept"}, {"edits": "gone"}, {"numbers": [1, 1]}, {"numbers": ["x"]}, {"numbers": [1, 2]}, {"params": 0}],
)
def test_a_saved_session_that_was_tampered_with_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    one = session()
    one.insert("A?", "a")
    one.save(tmp_path / "kept")
    file = tmp_path / "kept" / "session.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    two = session()
    with pytest.raises(DataError):
        two.load(tmp_path / "kept")
    assert two.entries == () and not two.editor.edits_
