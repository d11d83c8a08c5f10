from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from fakes import AddNoise, DoNothing, FakeBackbone, FakeBenchmark, Lookup, Prepend, delta
from torch import Tensor

from kedit.editor import Editor, WeightEditor
from kedit.errors import DataError, NotAttachedError, NotFittedError, NotRemovableError
from kedit.types import ImageRef, Knowledge, Request

KINDS: list[Callable[[], Editor]] = [AddNoise, Prepend, Lookup, DoNothing]
ZH, EN, AR = (case.chain[i] for case in FakeBenchmark(1).cases("sequential")[:1] for i in (1, 0, 2))
QUESTIONS = [k.request for k in (ZH, EN, AR)] + [Request("something else?")]


class Fixed(WeightEditor):
    """Adds a change to two weights that the answer alone decides."""

    def __init__(self, *, removable: bool = True) -> None:
        self.removable = removable

    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        return {"0.weight": delta(knowledge.answer), "1.bias": delta(knowledge.answer)[0]}


def texts(editor: Editor) -> list[str]:
    return [answer.text for answer in editor.generate(QUESTIONS)]


@pytest.mark.parametrize("make", KINDS)
def test_reset_brings_back_the_first_answers_and_weights(make: Callable[[], Editor]) -> None:
    backbone = FakeBackbone()
    editor = make().attach(backbone)
    before, answers = backbone.fingerprint(), texts(editor)
    for _ in range(2):
        assert [editor.insert(k) for k in (ZH, EN, AR)] == ["edit-1", "edit-2", "edit-3"]
        assert list(editor.edits_.values()) == [ZH, EN, AR]
        editor.reset()
        assert (backbone.fingerprint(), texts(editor), editor.edits_) == (before, answers, {})
    editor.reset()
    assert backbone.fingerprint() == before


@pytest.mark.parametrize("make", [AddNoise, Prepend, Lookup])
def test_an_insert_changes_an_answer(make: Callable[[], Editor]) -> None:
    editor = make().attach(FakeBackbone())
    before = texts(editor)
    editor.insert(ZH)
    assert texts(editor)[0] != before[0]


@pytest.mark.parametrize("make", KINDS)
def test_answers_keep_length_and_order(make: Callable[[], Editor]) -> None:
    editor = make().attach(FakeBackbone())
    editor.insert(ZH)
    together = editor.generate(QUESTIONS)
    assert [editor.generate([q])[0] for q in QUESTIONS] == together
    assert editor.generate(QUESTIONS[::-1]) == together[::-1]
    assert editor.generate([]) == []


@pytest.mark.parametrize("make", KINDS)
def test_before_attach_every_use_says_so(make: Callable[[], Editor], tmp_path: Path) -> None:
    uses: list[Callable[[Editor], object]] = [
        lambda e: e.insert(ZH),
        lambda e: e.generate(QUESTIONS),
        lambda e: e.reset(),
        lambda e: e.remove("edit-1"),
        lambda e: e.save_edits(tmp_path),
    ]
    for use in uses:
        with pytest.raises(NotAttachedError, match="attach"):
            use(make())


def test_an_editor_that_learns_refuses_to_insert_before_it_has() -> None:
    class Learns(Prepend):
        needs_fit = True

    editor = Learns().attach(FakeBackbone())
    assert not editor.fitted
    with pytest.raises(NotFittedError, match="fit"):
        editor.insert(ZH)
    editor.fitted_ = True
    assert editor.insert(ZH) == "edit-1"


@pytest.mark.parametrize("make", [Fixed, Prepend, Lookup])
def test_removing_one_of_three_leaves_the_other_two(make: Callable[[], Editor]) -> None:
    removed, direct = make().attach(FakeBackbone()), make().attach(FakeBackbone())
    ids = [removed.insert(k) for k in (ZH, EN, AR)]
    removed.remove(ids[1])
    for knowledge in (ZH, AR):
        direct.insert(knowledge)
    assert texts(removed) == texts(direct)
    assert list(removed.edits_.values()) == [ZH, AR]
    assert removed.insert(EN) == "edit-4"


def test_removing_all_edits_gives_the_original_weights() -> None:
    backbone = FakeBackbone()
    before = backbone.fingerprint()
    editor = Fixed().attach(backbone)
    for edit in [editor.insert(k) for k in (ZH, EN)]:
        editor.remove(edit)
    assert backbone.fingerprint() == before


def test_an_edit_that_cannot_be_removed_alone_is_refused_and_stays() -> None:
    backbone = FakeBackbone()
    editor = AddNoise().attach(backbone)
    edit, before = editor.insert(ZH), backbone.fingerprint()
    with pytest.raises(NotRemovableError, match="removable=True"):
        editor.remove(edit)
    assert (backbone.fingerprint(), list(editor.edits_)) == (before, [edit])


def test_an_unknown_edit_is_named_with_those_that_are_there() -> None:
    editor = Fixed().attach(FakeBackbone())
    editor.insert(ZH)
    with pytest.raises(KeyError, match=r"edit-7.*edit-1"):
        editor.remove("edit-7")


@pytest.mark.parametrize(
    "bad", [{"9.weight": torch.zeros(8, 8)}, {"0.weight": torch.zeros(3)}, {"0.weight": torch.full((8, 8), float("nan"))}]
)
def test_an_insert_that_fails_changes_nothing(bad: dict[str, Tensor]) -> None:
    class Broken(Fixed):
        def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
            return {"1.weight": torch.ones(8, 8), **bad} if knowledge is EN else super().deltas(knowledge)

    backbone = FakeBackbone()
    editor = Broken().attach(backbone)
    editor.insert(ZH)
    before = backbone.fingerprint()
    with pytest.raises((ValueError, KeyError)):
        editor.insert(EN)
    assert (backbone.fingerprint(), list(editor.edits_)) == (before, ["edit-1"])
    assert editor.insert(AR) == "edit-2"


WITH_IMAGE = Knowledge(
    Request("ما هذا؟", (ImageRef(data=b"\x89PNG one"),), "ar", "أجب.", ("سياق", ImageRef(data=b"\x89PNG two"))),
    "ساعة",
    "title",
    "a summary",
    ((ImageRef(data=b"\xff\xd8\xff three"), "caption"),),
)


@pytest.mark.parametrize("make", [Fixed, AddNoise, Prepend, Lookup])
def test_saved_edits_do_the_same_in_another_editor(make: Callable[[], Editor], tmp_path: Path) -> None:
    first = make().attach(FakeBackbone())
    for knowledge in (ZH, WITH_IMAGE):
        first.insert(knowledge)
    first.save_edits(tmp_path)
    second = make().attach(FakeBackbone())
    second.load_edits(tmp_path)
    if isinstance(first, WeightEditor):  # original plus difference, rounded once more
        for name, weight in first.backbone_.model.state_dict().items():
            torch.testing.assert_close(second.backbone_.model.state_dict()[name], weight, rtol=1e-6, atol=1e-6)
    else:
        assert texts(second) == texts(first)
    assert [(k.request.key, k.answer, k.title, k.text) for k in second.edits_.values()] == [
        (k.request.key, k.answer, k.title, k.text) for k in first.edits_.values()
    ]
    base = FakeBackbone().fingerprint()
    second.reset()
    assert second.backbone_.fingerprint() == base


def test_saved_weights_are_refused_on_another_model(tmp_path: Path) -> None:
    first = Fixed().attach(FakeBackbone())
    first.insert(ZH)
    first.save_edits(tmp_path)
    other = FakeBackbone()
    other.model[0].weight.data[0, 0] += 1
    before = other.fingerprint()
    with pytest.raises(DataError, match=r"0\.weight"):
        Fixed().attach(other).load_edits(tmp_path)
    assert other.fingerprint() == before


def test_edits_that_cannot_be_read_change_no_weight(tmp_path: Path) -> None:
    first = Fixed().attach(FakeBackbone())
    first.insert(ZH)
    first.save_edits(tmp_path)
    (tmp_path / "edits.jsonl").write_text("{}\n")
    other = FakeBackbone()
    before = other.fingerprint()
    with pytest.raises(NotAttachedError, match="attach"):
        Fixed().load_edits(tmp_path)
    with pytest.raises(DataError, match=r"edits\.jsonl, line 1"):
        Fixed().attach(other).load_edits(tmp_path)
    assert other.fingerprint() == before


def test_the_artefact_of_another_editor_is_refused(tmp_path: Path) -> None:
    Prepend().save(tmp_path)
    with pytest.raises(DataError, match="'Prepend', not to 'Lookup'"):
        Lookup().load(tmp_path)
    assert isinstance(Prepend().load(tmp_path), Prepend)


def test_attaching_again_undoes_what_was_inserted() -> None:
    backbone = FakeBackbone()
    before = backbone.fingerprint()
    editor = AddNoise().attach(backbone)
    editor.insert(ZH)
    other = FakeBackbone()
    assert editor.attach(other) is editor
    assert backbone.fingerprint() == before
    assert (editor.backbone_, editor.edits_) == (other, {})


def test_parameters_and_name_come_from_the_class() -> None:
    editor = AddNoise(size=0.5)
    assert editor.get_params() == {"size": 0.5, "removable": False}
    assert (editor.name, repr(editor)) == ("addnoise", "AddNoise(size=0.5, removable=False)")


def test_a_request_that_edits_do_not_concern_comes_back_as_the_same_object() -> None:
    editor = Prepend().attach(FakeBackbone())
    editor.insert(ZH)
    english = Request("q?", language="en")
    assert editor.rewrite(english) is english


def test_what_is_not_routed_gets_the_unedited_answer() -> None:
    backbone = FakeBackbone()
    editor = Lookup().attach(backbone)
    editor.insert(ZH)
    assert texts(editor) == [ZH.answer, *(a.text for a in backbone.generate(QUESTIONS[1:]))]
