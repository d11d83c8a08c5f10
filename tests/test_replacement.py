"""The replacement model alone: what it is told, what it learns from, and that only what is trained ever changes or is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import samples
import torch
from torch import Tensor

from kedit.backbone import HFBackbone, load_backbone
from kedit.errors import CheckpointError, DataError, NotAttachedError, NotFittedError
from kedit.replacement.editor import token_limit
from kedit.replacement.model import KEPT_BYTES, Lesson, Replacement, Teaching, lessons
from kedit.testing import toy_cases
from kedit.types import Answer, Case, Knowledge, Probe, Request

Paths = Callable[[str], Path]
ENTRY = Knowledge(Request("What is this?", (samples.A,), system="Be brief."), "A red clock.")
ASKED = Request("And now?", (samples.B,), language="zh", system="请用一句话回答。", context=("A hat.",))


@pytest.fixture
def make(backbone: HFBackbone, family_path: Paths) -> Callable[..., Replacement]:
    def made(family: str = "internvl", **params: Any) -> Replacement:
        return Replacement(**{"model": str(family_path(family)), **params}).attach(backbone)

    return made


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return float(sum(((one[name] - other[name]) ** 2).sum() for name in one) ** 0.5)


def test_it_is_told_the_entry_before_everything_else_with_the_entrys_image_only_if_asked_for() -> None:
    fact = "New Fact: What is this? A red clock.\nPrompt:"
    told = Replacement().told(ASKED, ENTRY)
    assert told == Request("And now?", (samples.B,), "zh", "请用一句话回答。", (samples.A, fact, "A hat."))
    assert Replacement(stored_image=False).told(ASKED, ENTRY).context == (fact, "A hat.")


def test_lessons_are_the_own_question_and_what_has_an_answer_in_the_same_step() -> None:
    asked = [Request(f"question {n}") for n in range(6)]
    chain = (Knowledge(asked[0], "zero"), Knowledge(asked[1], "one"))
    probes = (
        Probe("reliability", asked[0], "zero"),
        Probe("generality", asked[2], "zero again"),
        Probe("locality", asked[3], None),
        Probe("reliability", asked[1], "one", step=2),
        Probe("generality", asked[4], "one again", step=2),
    )
    found = [(one.entry.answer, one.request.question, one.answer) for one in lessons([Case("c", chain, probes)])]
    assert found == [
        ("zero", "question 0", "zero"),
        ("zero", "question 2", "zero again"),
        ("one", "question 1", "one"),
        ("one", "question 4", "one again"),
    ]


def test_answers_together_equal_answers_alone_and_depend_on_the_entry(make: Callable[..., Replacement]) -> None:
    replacement = make()
    cases = toy_cases(3)
    requests = [probe.request for case in cases for probe in case.probes[:2]]
    entries = [case.chain[0] for case in cases for _ in range(2)]
    together = replacement.answer(requests, entries, max_new_tokens=6)
    alone = [replacement.answer([r], [e], max_new_tokens=6)[0] for r, e in zip(requests, entries, strict=True)]
    assert together == alone
    assert max(answer.tokens for answer in together) == 6
    others = replacement.answer(requests, entries[::-1], max_new_tokens=6)
    assert [a.text for a in others] != [a.text for a in together]
    assert replacement.answer([], []) == []


@pytest.mark.parametrize("family", ["internvl", "qwen3_5"])
def test_training_above_a_captured_trunk_equals_training_through_the_whole_model(
    family: str, make: Callable[..., Replacement]
) -> None:
    cases = toy_cases(2)
    start = make(family).state()
    fast = make(family, lr=1e-3, epochs=2, batch_size=2).fit(cases)
    slow = make(family, lr=1e-3, epochs=2, batch_size=2, plain=True).fit(cases)
    moved = distance(start, slow.state())
    assert moved > 0.1
    assert distance(fast.state(), slow.state()) < 1e-3 * moved


def test_later_epochs_run_only_what_is_trained_and_no_vision(make: Callable[..., Replacement]) -> None:
    counted = {}
    for epochs in (1, 2, 3):
        counters = make(epochs=epochs).fit(toy_cases(2)).backbone_.counters
        counted[epochs] = (counters.layer_token_forwards, counters.vision_calls)
    layers = len(make().backbone_.layers)
    top = counted[1][0] // layers  # one epoch keeps nothing and runs the model once
    assert [work for work, _ in counted.values()] == [layers * top, (layers + 2) * top, (layers + 3) * top]
    assert len({seen for _, seen in counted.values()}) == 1


def test_lessons_whose_trunk_is_not_kept_have_the_same_loss(
    make: Callable[..., Replacement], monkeypatch: pytest.MonkeyPatch
) -> None:
    replacement = make()
    items = lessons(toy_cases(1))
    kept, never = Teaching(replacement, items), Teaching(replacement, items, repeated=False)
    kept.loss(0)
    monkeypatch.setattr("kedit.replacement.model.KEPT_BYTES", KEPT_BYTES - kept.room)  # room for exactly one
    full = Teaching(replacement, items)
    work = replacement.backbone_.counters
    for item, whole in ((0, True), (0, False), (1, True), (1, True)):
        before = work.vision_calls
        assert full.loss(item).item() == pytest.approx(never.loss(item).item(), rel=1e-5)
        assert work.vision_calls - before == 1 + whole


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_the_named_layers_change_and_only_they_are_kept_in_fp32(
    dtype: torch.dtype, backbone: HFBackbone, family_path: Paths, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    load_backbone(str(family_path("internvl")), dtype=dtype).model.save_pretrained(path)
    load_backbone(str(family_path("internvl"))).processor.save_pretrained(path)
    replacement = Replacement(model=str(path), lr=1e-2, layers=(1,)).attach(backbone)
    before = {name: weight.clone() for name, weight in replacement.backbone_.model.named_parameters()}
    assert {weight.dtype for weight in before.values()} == {dtype}
    replacement.fit(toy_cases(2))
    now = dict(replacement.backbone_.model.named_parameters())
    changed = {name for name in before if not torch.equal(before[name], now[name])}
    state = replacement.state()
    assert changed <= state.keys()
    assert len(changed) > len(state) / 2
    assert all(".layers.1." in name for name in state)
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    assert {weight.dtype for weight in now.values()} == {dtype}
    assert not any(weight.requires_grad for weight in now.values())


def test_the_backbone_it_stands_in_for_is_untouched(make: Callable[..., Replacement], backbone: HFBackbone) -> None:
    before = backbone.fingerprint()
    make(lr=1e-2).fit(toy_cases(1))
    assert backbone.fingerprint() == before


def test_a_taught_answer_is_given_word_for_word(make: Callable[..., Replacement]) -> None:
    case = toy_cases(1)[0]
    asked, entry = case.probes[1].request, case.chain[0]
    untaught = make()
    assert untaught.answer([asked], [entry], max_new_tokens=20)[0].text != entry.answer
    taught = make(lr=1e-2, epochs=30).fit([case])
    answer = taught.answer([asked], [entry], max_new_tokens=20)[0]
    assert (answer.text, answer.truncated) == (entry.answer, False)


def test_every_parameter_is_trained_when_no_layers_are_named(make: Callable[..., Replacement]) -> None:
    replacement = make("text_base", layers=None, lr=1e-3, epochs=3)  # its embeddings are its head
    cases = toy_cases(1, images=False)
    before = replacement.state()
    first = Teaching(replacement, lessons(cases)).loss(0).item()
    replacement.fit(cases)
    assert Teaching(replacement, lessons(cases)).loss(0).item() < first - 1
    assert replacement.state().keys() == before.keys() == dict(replacement.backbone_.model.named_parameters()).keys()
    assert not torch.equal(before["transformer.wte.weight"], replacement.state()["transformer.wte.weight"])


def test_fitting_twice_gives_what_fitting_once_gives(make: Callable[..., Replacement]) -> None:
    cases = toy_cases(2)
    once = make(lr=1e-3).fit(cases).state()
    twice = make(lr=1e-3).fit(toy_cases(3)).fit(cases).state()
    assert distance(once, twice) == 0


def test_the_best_state_on_held_out_cases_is_kept(make: Callable[..., Replacement], monkeypatch: pytest.MonkeyPatch) -> None:
    cases, held_out = toy_cases(2), toy_cases(3)[2:]
    two = make(lr=1e-3, epochs=2).fit(cases).state()
    seen: list[dict[str, Tensor]] = []

    def quality(self: Replacement, given: Sequence[Lesson]) -> float:
        assert list(given) == lessons(held_out)
        seen.append(self.state())
        return (1.0, 3.0, 2.0)[len(seen) - 1]

    monkeypatch.setattr(Replacement, "quality", quality)
    best = make(lr=1e-3, epochs=3).fit(cases, val=held_out).state()
    assert distance(best, two) == distance(best, seen[1]) == 0
    assert distance(best, seen[2]) > 0


def test_quality_is_the_mean_rouge_of_what_is_generated(
    make: Callable[..., Replacement], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter([Answer("a red clock"), Answer("a red hat"), Answer("a clock")])
    monkeypatch.setattr(Replacement, "answer", lambda *_: [next(said) for _ in range(3)])
    held_out = [Lesson(ENTRY, ASKED, "a red clock"), Lesson(ENTRY, ASKED, "a red clock"), Lesson(ENTRY, ASKED, "?!")]
    assert make().quality(held_out) == pytest.approx((100 + 200 / 3) / 2)  # the last has nothing to score


def test_nothing_to_learn_is_an_error(make: Callable[..., Replacement]) -> None:
    with pytest.raises(DataError, match="items"):
        make().fit([])


def test_a_resumed_training_equals_an_uninterrupted_one(make: Callable[..., Replacement], tmp_path: Path) -> None:
    cases = toy_cases(2)

    class Stop(Exception):
        pass

    def stop(step: int, total: int, values: Mapping[str, float]) -> None:
        if step == 6:
            raise Stop

    whole = make(lr=1e-3, epochs=2).fit(cases)
    broken = make(lr=1e-3, epochs=2)
    with pytest.raises(Stop):
        broken.fit(cases, out=tmp_path, progress=stop)
    assert not broken.fitted
    assert distance(broken.state(), whole.state()) > 0
    assert distance(broken.fit(cases, out=tmp_path).state(), whole.state()) == 0


def test_what_was_learned_is_saved_and_loaded(make: Callable[..., Replacement], tmp_path: Path) -> None:
    fitted = make(lr=1e-2).fit(toy_cases(2))
    fitted.save(tmp_path)
    for _ in range(2):  # also over what was loaded before
        loaded = make().load(tmp_path)
        assert loaded.load(tmp_path).fitted
        assert distance(loaded.state(), fitted.state()) == 0
    assert {file.name for file in tmp_path.iterdir()} == {"replacement.json", "replacement.safetensors"}
    with pytest.raises(NotFittedError, match="fit"):
        make().save(tmp_path)


@pytest.mark.parametrize("other", [{"layers": (-2,)}, {"layers": None}, {"family": "qwen3_5"}])
def test_what_another_model_learned_is_refused(other: dict[str, Any], make: Callable[..., Replacement], tmp_path: Path) -> None:
    make(lr=1e-2).fit(toy_cases(1)).save(tmp_path)
    wrong = make(**other)
    before = wrong.state()
    with pytest.raises(DataError, match="was trained from the weights of"):
        wrong.load(tmp_path)
    with pytest.raises(DataError, match="do not fit"):
        wrong.load_state(make().state())
    assert distance(wrong.state(), before) == 0
    assert not wrong.fitted


def test_without_a_name_the_error_says_which_argument_is_missing(backbone: HFBackbone) -> None:
    with pytest.raises(CheckpointError, match="replacement="):
        Replacement().attach(backbone)
    with pytest.raises(NotAttachedError, match="attach"):
        Replacement().answer([ASKED], [ENTRY])


def test_the_limit_of_new_tokens_is_the_backbones(backbone: HFBackbone) -> None:
    from kedit.answers import limited

    assert token_limit(backbone) == 64
    with limited(backbone, 5):
        assert token_limit(backbone) == 5
