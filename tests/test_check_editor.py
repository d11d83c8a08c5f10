"""Every editor that ships keeps the contract, and the checker names the promise that a broken one breaks."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from fakes import AddNoise, DoNothing, FakeBackbone, Lookup, Prepend, delta
from torch import Tensor

from kedit.backbone import HFBackbone
from kedit.editor import ContextEditor, Editor, WeightEditor
from kedit.errors import ContractError, KeditError, UnknownNameError
from kedit.methods import EDITORS, editor
from kedit.testing import check_editor, toy_backbone, toy_cases
from kedit.types import Answer, Case, Knowledge, Request


class Backbone(FakeBackbone):
    """Answers differently when weights differ by more than rounding, as a language model does."""

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for weight in self.model.state_dict().values():
            digest.update((weight * 1e4).round().int().numpy().tobytes())
        return digest.hexdigest()


SMALL: Mapping[str, Any] = {
    "steps": 3,
    "rank": 4,
    "dim": 16,
    "router_train": "head",
    "encoder": "tiny-clip",
    "accumulate": 1,
}
"""Values that make an editor quick, by parameter: promises do not depend on how well it learns."""
TEXT_ENCODERS = ("ike", "serac", "retrieved")


def small(name: str, backbone: HFBackbone, **params: Any) -> Editor:
    """An editor of that name that learns little and fast; the backbone is its own replacement."""
    takes = inspect.signature(type(editor(name))).parameters
    quick = {key: value for key, value in SMALL.items() if key in takes and not (key == "encoder" and name in TEXT_ENCODERS)}
    return editor(name, quick | ({"replacement": backbone.id} if "replacement" in takes else {}), **params)


@pytest.mark.parametrize("name", EDITORS)
def test_every_editor_that_ships_keeps_the_contract(name: str, backbone: HFBackbone) -> None:
    before = backbone.fingerprint()
    report = check_editor(small(name, backbone), backbone)
    assert len(report.kept) >= 19
    assert backbone.fingerprint() == before


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("finetune", {"removable": True, "layers": (-2, -1)}),
        ("lora", {"layers": (-1,), "modules": ("mlp",)}),
        ("ike", {"demos": 2, "demo_images": True}),
        ("ike", {"demos": 0}),
    ],
)
def test_other_settings_keep_the_contract(name: str, params: Mapping[str, Any], backbone: HFBackbone) -> None:
    check_editor(small(name, backbone, **params), backbone)


@pytest.mark.parametrize("backbone", ["text_chat"], indirect=True)
def test_a_backbone_that_cannot_see_is_asked_without_images(backbone: HFBackbone) -> None:
    check_editor(editor("base"), backbone)


@pytest.mark.parametrize("sound", [DoNothing(), Prepend(), Lookup(), AddNoise(), AddNoise(removable=True)])
def test_sound_editors_of_each_base_pass_and_the_report_lists_what_was_checked(sound: Editor) -> None:
    report = check_editor(sound, Backbone())
    assert "reset() undoes every insert, weights bit for bit" in repr(report)
    concerns = any("rewrite() is pure" in text for text in report.kept)
    assert concerns == isinstance(sound, ContextEditor)


# -- editors that break a promise --------------------------------------------------------------------------------------


class Positional(DoNothing):
    def __init__(self, size: int = 1) -> None:
        self.size = size

    def get_params(self) -> dict[str, Any]:
        return {"size": self.size}


class WorksInItsConstructor(DoNothing):
    def __init__(self, *, size: int = 1) -> None:
        self.size = size
        self.table = list(range(size))


class ConvertsItsArgument(DoNothing):
    def __init__(self, *, sizes: Sequence[int] = (1, 2)) -> None:
        self.sizes = list(sizes)


class HidesAParameter(DoNothing):
    def __init__(self, *, size: int = 1) -> None:
        self.size = size

    def get_params(self) -> dict[str, Any]:
        return {}


class AnswersUnattached(DoNothing):
    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        return self.backbone_.generate(requests) if hasattr(self, "backbone_") else [Answer("")] * len(requests)


class AttachReturnsNone(DoNothing):
    def attach(self, backbone: Any) -> Any:
        super().attach(backbone)


class InsertsUnfitted(DoNothing):
    needs_fit: ClassVar[bool] = True

    def insert(self, knowledge: Knowledge) -> str:
        self.fitted_ = True
        return super().insert(knowledge)


class FitReturnsNone(DoNothing):
    def fit(self, cases: Sequence[Case]) -> Any:
        self.seen_ = len(cases)


class TrainsTheBackbone(DoNothing):
    def fit(self, cases: Sequence[Case]) -> Any:
        self.backbone_.model[0].weight.add_(0.01)
        return self


class LeavesGradients(DoNothing):
    def fit(self, cases: Sequence[Case]) -> Any:
        for parameter in self.backbone_.model.parameters():
            parameter.requires_grad_(True)
        self.backbone_.loss(cases[0].chain[0].request, "answer").backward()
        for parameter in self.backbone_.model.parameters():
            parameter.requires_grad_(False)
        return self


class Unfreezes(DoNothing):
    def build(self) -> None:
        self.backbone_.model.requires_grad_(True)


class SwitchesToTraining(Prepend):
    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.backbone_.model.train(not self.backbone_.model.training)


class LeavesAHook(Prepend):
    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.backbone_.model[0].register_forward_hook(lambda *_: None)


class ReplacesAModule(Prepend):
    def build(self) -> None:
        self.backbone_.model[0] = torch.nn.Linear(8, 8)


class AlwaysAddsAHint(DoNothing):
    def rewrite(self, request: Request) -> Request:
        return replace(request, context=("Think.", *request.context))


class SameIdAgain(DoNothing):
    def insert(self, knowledge: Knowledge) -> str:
        super().insert(knowledge)
        return "edit"


class NumbersItsEdits(DoNothing):
    def insert(self, knowledge: Knowledge) -> Any:
        return int(super().insert(knowledge).removeprefix("edit-"))


class ForgetsToNoteTheEdit(DoNothing):
    def insert(self, knowledge: Knowledge) -> str:
        self._require_attached()
        return f"edit-{knowledge.answer}"


class ContextEditorThatEdits(Prepend):
    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.backbone_.model[1].weight.add_(0.01)

    def revert(self) -> None:
        self.backbone_.model[1].weight.sub_(0.01)


class BadNames(Prepend):
    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.latest = knowledge


class AnswersTooFew(Prepend):
    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        answers = super().generate(requests)
        return answers[:-1] if self.edits_ else answers


class ReordersAnswers(Prepend):
    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        answers = super().generate(requests)
        return sorted(answers, key=lambda answer: answer.text) if self.edits_ else answers


class AnswersNumbers(Prepend):
    def generate(self, requests: Sequence[Request]) -> Any:
        answers = super().generate(requests)
        return [0 for _ in answers] if self.edits_ else answers


class DropsRepetitions(Prepend):
    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        return super().generate(list(dict.fromkeys(requests)))


class ChokesOnNothing(Prepend):
    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        return [requests[0] and answer for answer in super().generate(requests)] if requests else [Answer("")]


class EditsWhileAnswering(AddNoise):
    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        answers = super().generate(requests)
        if self.edits_:
            self.snapshot_.add({"1.weight": delta("again") * 0.01})
        return answers


class ImpureRewrite(Prepend):
    def rewrite(self, request: Request) -> Request:
        if not self.edits_:
            return request
        self.asked_ = getattr(self, "asked_", 0) + 1
        return replace(request, context=(f"Question {self.asked_}.",))

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        self._require_attached()
        return [Answer(request.question) if self.edits_ else self.backbone_.generate([request])[0] for request in requests]


class LeaksAfterReset(Prepend):
    def rewrite(self, request: Request) -> Request:
        return replace(request, context=tuple(self.texts_)) if self.texts_ else request

    def build(self) -> None:
        self.texts_: list[str] = []

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.texts_.append(knowledge.answer)

    def unapply(self, edit_id: str) -> None:
        self.texts_.clear()


class LeavesWeightsAfterReset(AddNoise):
    def revert(self) -> None:
        self.deltas_.clear()


class KeepsTheListAfterReset(AddNoise):
    def reset(self) -> None:
        self._require_attached()
        self.snapshot_.restore()


class RemembersAfterReset(AddNoise):
    """Each edit depends on those before it, those before a reset included."""

    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        self.inserts_ = getattr(self, "inserts_", 0) + 1
        return {"1.weight": delta(knowledge.answer) * 0.1 * self.inserts_}


class ForgetsWhatItLearned(DoNothing):
    needs_fit: ClassVar[bool] = True

    def fit(self, cases: Sequence[Case]) -> Any:
        self.fitted_ = True
        return self

    def revert(self) -> None:
        self.fitted_ = len(self.edits_) == 0


class TrainsInPlace(AddNoise):
    """Undoes its steps at the end, but not when one of them fails."""

    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        weight = self.backbone_.model[1].weight
        before = weight.clone()
        for _ in range(2):
            self.backbone_.loss(knowledge.request, knowledge.answer)
            weight.add_(delta(knowledge.answer), alpha=0.1)
        found = weight - before
        weight.copy_(before)
        return {"1.weight": found}


class RemovesNothing(Prepend):
    def remove(self, edit_id: str) -> None:
        self._require_attached()


class RemovesTooMuch(AddNoise):
    def unapply(self, edit_id: str) -> None:
        self.snapshot_.restore()


class UsesIdsAgain(Prepend):
    def unapply(self, edit_id: str) -> None:
        self._serial -= 1


class LosesWhatItLearned(Prepend):
    needs_fit: ClassVar[bool] = True

    def fit(self, cases: Sequence[Case]) -> Any:
        self.fitted_ = True
        return self


class WritesAPickle(Prepend):
    def save(self, path: str | Path) -> None:
        super().save(path)
        (Path(path) / "learned.dat").write_bytes(pickle.dumps({"a": 1}))


class WritesATorchFile(Prepend):
    def save_edits(self, path: str | Path) -> None:
        super().save_edits(path)
        torch.save({"a": torch.ones(2)}, Path(path) / "edits.bin")


class LoadsHalf(Prepend):
    def load_edits(self, path: str | Path) -> None:
        super().load_edits(path)
        del self.edits_[next(iter(self.edits_))]


class ReplacesAParameter(Prepend):
    def __init__(self, *, size: int | None = None) -> None:
        self.size = size

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.size = 3


class MutatesAParameter(Prepend):
    def __init__(self, *, seen: list[str] | None = None) -> None:
        self.seen = seen

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        if self.seen is not None:
            self.seen.append(knowledge.answer)


BROKEN: list[tuple[Editor, str, str]] = [
    (Positional(), "keyword-only", "def __init__(self, *, size)"),
    (WorksInItsConstructor(), "the constructor stores", "table"),
    (ConvertsItsArgument(), "the constructor stores", "sizes"),
    (HidesAParameter(), "get_params()", "size"),
    (AnswersUnattached(), "before attach() raises NotAttachedError", "generate() before attach()"),
    (AttachReturnsNone(), "attach() returns self", "return self"),
    (Unfreezes(), "attach() returns self and leaves the backbone", "requires_grad"),
    (ReplacesAModule(), "attach() returns self and leaves the backbone", "weights differ"),
    (InsertsUnfitted(), "before fit() raises NotFittedError", "raised nothing"),
    (FitReturnsNone(), "fit() returns self", "return self"),
    (TrainsTheBackbone(), "fit() returns self and leaves the backbone", "0.weight"),
    (LeavesGradients(), "fit() returns self and leaves the backbone", "gradient"),
    (AlwaysAddsAHint(), "answers as the unedited backbone", "expected"),
    (SwitchesToTraining(), "nothing else in the backbone", "training mode"),
    (LeavesAHook(), "nothing else in the backbone", "hooks"),
    (ContextEditorThatEdits(), "changes weights only in a WeightEditor", "1.weight"),
    (AnswersTooFew(), "one answer for each request", "5 answers to 6 requests"),
    (ReordersAnswers(), "one answer for each request", "reverse order"),
    (AnswersNumbers(), "one answer for each request", "int"),
    (DropsRepetitions(), "one answer for each request", "6 answers to 12 requests"),
    (ChokesOnNothing(), "one answer for each request", "1 answers to 0 requests"),
    (EditsWhileAnswering(), "one answer for each request", "differ"),
    (ImpureRewrite(), "rewrite() is pure", "second call"),
    (SameIdAgain(), "new id", "use each once"),
    (NumbersItsEdits(), "new id", "string"),
    (ForgetsToNoteTheEdit(), "new id", "use each once"),
    (BadNames(), "ends in an underscore", "latest_"),
    (LeaksAfterReset(), "reset() undoes every insert", "answers after reset()"),
    (LeavesWeightsAfterReset(), "reset() undoes every insert", "after reset() weights differ"),
    (KeepsTheListAfterReset(), "reset() undoes every insert", "edits_ is not empty"),
    (ForgetsWhatItLearned(), "keeps what fit() learned", "fitted is False after reset()"),
    (RemembersAfterReset(), "inserting again after reset()", "1.weight"),
    (TrainsInPlace(), "an error inside insert()", "pass 2"),
    (RemovesNothing(), "KeyError for an unknown id", "raised nothing"),
    (RemovesTooMuch(), "remove() takes an edit back", "of the second edit"),
    (UsesIdsAgain(), "remove() takes an edit back", "was used again"),
    (LosesWhatItLearned(), "save() and load()", "fitted is False after load()"),
    (WritesAPickle(), "save() and load()", "learned.dat is a pickle"),
    (WritesATorchFile(), "save_edits() and load_edits()", "edits.bin is a pickle"),
    (LoadsHalf(), "save_edits() and load_edits()", "holds 1 edits"),
    (ReplacesAParameter(), "parameters are the same", "size"),
    (MutatesAParameter(seen=[]), "parameters are the same", "copy a list"),
]


@pytest.mark.parametrize(
    ("broken", "promise", "detail"), BROKEN, ids=lambda value: type(value).__name__ if isinstance(value, Editor) else ""
)
def test_a_broken_editor_is_told_which_promise_it_breaks_and_how(broken: Editor, promise: str, detail: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_editor(broken, Backbone())
    told = str(caught.value)
    assert told.startswith(f"{type(broken).__name__} breaks the promise")
    assert promise in told
    assert detail in told.split(": ", 1)[1]


@pytest.mark.parametrize(
    "broken", [TrainsTheBackbone(), LeavesWeightsAfterReset(), LeavesAHook(), LeavesGradients(), Unfreezes(), ReplacesAModule()]
)
def test_the_backbone_is_left_as_it_was_whatever_the_editor_does(broken: Editor) -> None:
    backbone = Backbone()
    before = backbone.fingerprint()
    with pytest.raises(ContractError):
        check_editor(broken, backbone)
    assert backbone.fingerprint() == before
    assert not any(module._forward_hooks for module in backbone.model.modules())
    assert all(not p.requires_grad and p.grad is None for p in backbone.model.parameters())


def test_what_is_no_editor_is_refused() -> None:
    with pytest.raises(ContractError, match="MyEditor"):
        check_editor(Prepend, Backbone())  # type: ignore[arg-type]


def test_an_error_of_the_editors_own_is_shown_with_the_promise_that_it_broke() -> None:
    class Fails(WeightEditor):
        def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
            raise ZeroDivisionError("by nothing")

    with pytest.raises(ContractError, match=r"Fails breaks the promise 'insert\(\) changes .*ZeroDivisionError: by nothing"):
        check_editor(Fails(), Backbone())


def test_one_item_of_knowledge_is_too_little_to_check_with() -> None:
    with pytest.raises(ValueError, match="at least two"):
        check_editor(DoNothing(), Backbone(), toy_cases(1))


def test_toy_cases_differ_and_need_no_files() -> None:
    cases = toy_cases(7)
    images = [case.chain[0].request.images[0] for case in cases]
    assert len({image.digest for image in images}) == 7
    assert {image.path for image in images} == {None}
    assert {case.chain[0].request.language for case in cases} == {"en", "zh", "ar"}
    assert random.Random(0).choice(cases).probes[2].reference is None


def test_without_embedded_weights_the_toy_backbone_says_where_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    from kedit.zoo import catalogue

    monkeypatch.setattr(catalogue, "available", lambda name: False)
    with pytest.raises(KeditError, match="weights at .*pass a small one"):
        toy_backbone()


def test_a_file_that_is_not_python_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("a = 1\ndef (\n")
    with pytest.raises(UnknownNameError, match=r"bad\.py, line 2 is not valid Python"):
        editor(f"{tmp_path}/bad.py:Mine")


def test_an_editor_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import kedit\n"
        "class Open(kedit.WeightEditor): pass\n"
        "class Needs(kedit.ContextEditor):\n"
        "    def __init__(self, x): self.x = x\n"
        "    def rewrite(self, request): return request\n"
    )
    with pytest.raises(ContractError, match="Open does not implement deltas"):
        editor(f"{tmp_path}/mine.py:Open")
    with pytest.raises(ContractError, match="Needs cannot be made .*'x'.*keyword-only"):
        editor(f"{tmp_path}/mine.py:Needs")
