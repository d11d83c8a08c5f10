"""Training MEND: the gradient is the exact one, whatever way it is found, and a stopped training goes on as if it had not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import samples
import torch
from teams import Alone, together
from torch import Tensor, nn

from kedit.backbone import HFBackbone
from kedit.errors import ContractError
from kedit.hypernet.learner import MetaLearner, chains, lessons
from kedit.methods.mend import MEND
from kedit.seal import overlaid
from kedit.testing import toy_cases
from kedit.types import Case, Knowledge, Probe
from kedit.weights.lowrank import Overlay
from kedit.weights.passes import Passes, divergence
from kedit.weights.taps import Signal

LAYERS = (-2, -1)


def cases(backbone: HFBackbone) -> list[Case]:
    return toy_cases(4, images=backbone.structure.image_token_id is not None)


def learner(backbone: HFBackbone, given: list[Case] | None = None, **options: object) -> MetaLearner:
    """A learner of a small network, with made-up answers to be kept, so that nothing need be generated."""
    editor = MEND(**{"rank": 8, "layers": LAYERS, "edit_lr": 1e-3, **options}).attach(backbone)  # type: ignore[arg-type]
    answers = _Made()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kedit.methods.mend.BaseAnswers", lambda backbone: answers)
        return editor.learner(cases(backbone) if given is None else given)


class _Made:
    def ask(self, requests: list[object]) -> list[object]:
        from kedit.types import Answer

        return [Answer(f"a gift, or {number}") for number, _ in enumerate(requests)]


def gradients(found: MetaLearner) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in found.network.named_parameters() if p.grad is not None}


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float) -> None:
    assert one.keys() == other.keys() and len(one) > 3
    total = torch.stack([value.square().sum() for value in other.values()]).sum().sqrt()
    for name, value in other.items():
        assert value.norm() > 0 or "scale" in name or "down" in name, f"{name} has no gradient, so comparing it shows nothing"
        assert (one[name] - value).norm() <= tolerance * (value.norm() + 1e-6 * total), name


@pytest.fixture
def double(backbone: HFBackbone) -> Iterator[HFBackbone]:
    """The shared backbone in float64 for a while."""
    before = backbone.fingerprint()
    backbone.model.double()
    yield backbone
    backbone.model.float()
    assert overlaid(backbone.model) == {}
    assert backbone.fingerprint() == before


# -- the gradient ------------------------------------------------------------------------------------------------------


def by_autograd(found: MetaLearner, item: int) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of one item of one insert by one graph from the network's parameters to the loss."""
    (lesson,) = found.items[item]
    passes, editing = found.editing.passes, found.editing
    signals = editing.signals(lesson.knowledge)
    found.network.observe([signals], Alone())
    kept = [passes.prompt(request, found.base[request]) for request in lesson.kept]
    old = [passes.logits(prompt, prompt.rows).detach() for prompt in kept]
    overlay = Overlay(passes.backbone.model, list(editing.modules))
    overlay.add("all in one graph", found.network(found.network.normalise(signals)))
    try:
        wanted = [passes.nll(passes.prompt(request, answer)) for request, answer in lesson.wanted]
        moved = [divergence(before, passes.logits(prompt, prompt.rows)) for before, prompt in zip(old, kept, strict=True)]
        loss = 0.1 * torch.stack(wanted).mean() + 1.0 * torch.stack(moved).mean()
        loss.backward()
    finally:
        overlay.clear()
    return loss.item(), gradients(found)


@pytest.mark.parametrize("backbone", ["internvl", "text_base"], indirect=True)
@pytest.mark.parametrize("rows", ["answer", "all"])
def test_the_gradient_in_two_stages_is_the_one_of_a_single_graph(double: HFBackbone, rows: str) -> None:
    one, other = learner(double, rows=rows), learner(double, rows=rows)
    one.network.double()
    other.network.double()
    values = one.step([1], [1], Alone(), 0)
    loss, expected = by_autograd(other, 1)
    assert values["loss"] == pytest.approx(loss, rel=1e-10)
    same(gradients(one), expected, 1e-8)


@pytest.mark.parametrize("backbone", ["internvl", "qwen3_5"], indirect=True)
def test_values_and_gradients_from_captured_trunks_equal_those_of_the_whole_model(backbone: HFBackbone) -> None:
    fast, plain = learner(backbone), learner(backbone, plain=True)
    values = fast.step([0, 2], [0, 2], Alone(), 0)
    expected = plain.step([0, 2], [0, 2], Alone(), 0)
    assert values == pytest.approx(expected, rel=1e-4, abs=1e-6)
    same(gradients(fast), gradients(plain), 2e-3)


def test_a_step_runs_the_lower_layers_once_per_prompt_and_the_vision_encoder_too(backbone: HFBackbone) -> None:
    found = learner(backbone)
    (lesson,) = found.items[0]
    answers = [*lesson.wanted, *((request, found.base[request]) for request in lesson.kept)]
    tokens = [backbone.teach(request, answer).inputs["input_ids"].shape[1] for request, answer in answers]
    backbone.counters.reset()
    with found.editing.passes.remembering(8):
        found.step([0], [0], Alone(), 0)
    # the insert's own prompt is also run for its gradient, and those to be kept also on the unedited model
    passes = [2, 1, 2, 2]
    expected = sum(length * (3 + 2 * times) for length, times in zip(tokens, passes, strict=True))
    assert backbone.counters.layer_token_forwards == expected
    assert backbone.counters.vision_calls == sum(bool(request.images) for request, _ in answers)


def test_step_sizes_get_the_gradient_of_the_loss_by_the_weights_along_minus_the_direction(double: HFBackbone) -> None:
    found = learner(double, keep_weight=0.0)
    found.items = [[replace(found.items[0][0], wanted=found.items[0][0].wanted[:1], kept=())]]
    found.network.double()
    found.step([0], [0], Alone(), 0)
    assert found.network.step_sizes.grad is not None
    knowledge = found.items[0][0].knowledge
    with torch.no_grad():
        factors = found.network(found.network.normalise(found.editing.signals(knowledge)))
    weights = {
        name: (module.weight + factors[name].up @ factors[name].down).detach().requires_grad_()
        for name, module in found.editing.modules.items()
    }
    loss = double.loss(knowledge.request, knowledge.answer, parameters={f"{n}.weight": w for n, w in weights.items()})
    slopes = torch.autograd.grad(0.1 * loss, list(weights.values()))
    for at, (name, slope) in enumerate(zip(weights, slopes, strict=True)):
        direction = -(factors[name].up @ factors[name].down) / found.network.step_sizes[at].detach()
        assert found.network.step_sizes.grad[at].item() == pytest.approx(-(slope * direction).sum().item(), rel=1e-8)
        assert found.network.step_sizes.grad[at].abs() > 1e-4


def test_two_processes_have_the_statistics_and_the_gradient_of_one(double: HFBackbone) -> None:
    batch = [0, 1, 3]
    whole = learner(double)
    whole.network.double()
    expected = whole.step(batch, batch, Alone(), 0)
    parts = [learner(double) for _ in range(2)]
    for part in parts:
        part.network.double()
    turn = _Turns(parts)
    found = together(2, lambda team: parts[team.rank].step(batch, turn.own(batch, team.rank), team, 0))
    assert {name: sum(values[name] for values in found) for name in expected} == pytest.approx(expected, rel=1e-8)
    states = [part.network.state_dict() for part in (*parts, whole)]
    for name, value in states[2].items():
        if "inputs." in name or "gradients." in name:
            torch.testing.assert_close(states[0][name], value, rtol=1e-9, atol=1e-15)
            assert torch.equal(states[0][name], states[1][name])
    one, two = (gradients(part) for part in parts)
    same({name: one[name] + two[name] for name in one}, gradients(whole), 1e-6)


class _Turns:
    """Both learners share one model here, so that only one of them may work on it at a time: the other has no items."""

    def __init__(self, parts: list[MetaLearner]) -> None:
        import threading

        lock = threading.RLock()
        for part in parts:
            part._signals, part._judge = (_guarded(lock, work) for work in (part._signals, part._judge))  # type: ignore[method-assign]

    def own(self, batch: list[int], rank: int) -> list[int]:
        return batch[rank::2]


def _guarded(lock: object, work: object) -> object:
    def run(*args: object) -> object:
        with lock:  # type: ignore[attr-defined]
            return work(*args)  # type: ignore[operator]

    return run


def test_a_process_without_items_takes_part_and_adds_nothing(backbone: HFBackbone) -> None:
    found = learner(backbone)
    values = found.step([0], [], Alone(), 0)
    assert set(values.values()) == {0.0}
    assert gradients(found) == {}


# -- the loss ----------------------------------------------------------------------------------------------------------


def test_lessons_hold_the_answers_of_generality_and_leave_out_what_has_none() -> None:
    case = toy_cases(1)[0]
    (lesson,) = lessons(case)
    own, general, *kept = case.probes
    assert lesson.wanted == ((own.request, case.chain[0].answer), (general.request, general.reference))
    assert lesson.kept == tuple(probe.request for probe in kept)


def test_the_kept_behaviour_is_compared_with_the_unedited_model_and_is_free_without_an_edit(backbone: HFBackbone) -> None:
    found = learner(backbone, edit_lr=0.0)
    assert found.step([0], [0], Alone(), 0)["kl"] == pytest.approx(0.0, abs=1e-6)
    assert learner(backbone, edit_lr=1e-2).step([0], [0], Alone(), 0)["kl"] > 1e-4
    base, edited = torch.randn(5, 30), torch.randn(5, 30)
    expected = nn.functional.kl_div(edited.log_softmax(-1), base.softmax(-1), reduction="batchmean")
    torch.testing.assert_close(divergence(base, edited), expected)


def test_the_kl_is_taken_where_it_is_asked_for(backbone: HFBackbone) -> None:
    values = {kl: learner(backbone, kl=kl).step([0], [0], Alone(), 0)["kl"] for kl in ("answer", "all")}
    assert values["answer"] != pytest.approx(values["all"], rel=0.01)
    request = samples.WITH_IMAGES[0]
    passes = Passes(backbone, 1)
    prompt = passes.prompt(request, "A red clock.")
    assert len(passes.logits(prompt, passes.positions(prompt, "all"))) == prompt.inputs["input_ids"].shape[1]
    whole = backbone.forward(backbone.teach(request, "A red clock.").inputs).logits[0]
    torch.testing.assert_close(passes.logits(prompt, passes.positions(prompt, "all")), whole, rtol=1e-4, atol=1e-4)


def test_an_insert_of_several_steps_sees_what_came_of_the_first_and_all_of_them_learn(double: HFBackbone) -> None:
    found, editor = learner(double, steps=3), MEND(rank=8, layers=LAYERS, edit_lr=1e-3, steps=3).attach(double)
    found.network.double()
    one = found.step([1], [1], Alone(), 0)
    assert one["nll"] < learner(double).step([1], [1], Alone(), 0)["nll"]
    editor.network_, editor.fitted_ = found.network, True
    (lesson,) = found.items[1]
    editor.insert(lesson.knowledge)
    (factors,) = editor.overlay_.edits.values()
    counts = [len(signal.inputs) for signal in editor.editing_.signals(lesson.knowledge).values()]
    assert [len(pair.down) for pair in factors.values()] == [3 * count for count in counts]
    repeated = MEND(rank=8, layers=LAYERS, edit_lr=1e-3).attach(double)
    repeated.network_, repeated.fitted_ = found.network, True
    loss = double.loss(lesson.knowledge.request, lesson.knowledge.answer).item()
    editor.reset()
    for _ in range(3):
        repeated.insert(lesson.knowledge)
    assert double.loss(lesson.knowledge.request, lesson.knowledge.answer).item() == pytest.approx(loss, rel=1e-9)
    repeated.reset()


# -- chains ------------------------------------------------------------------------------------------------------------


def test_a_chain_looks_back_and_no_longer_keeps_what_it_has_answered(double: HFBackbone) -> None:
    shared = cases(double)[:2]
    first, second = shared[0].chain[0], shared[1].chain[0]
    also = Probe("locality", second.request, None)  # kept by the first insert, answered by the second
    given = [
        replace(shared[0], probes=(*shared[0].probes, also)),
        replace(shared[1], probes=(*shared[1].probes, Probe("locality", first.request, None))),
    ]
    found = learner(double, given, sequence_training=1, decay=0.5)
    found.network.double()
    assert [len(chain) for chain in found.items] == [2]
    one, two = found.items[0]
    assert second.request in one.kept and first.request in two.kept

    values = found.step([0], [0], Alone(), 0)
    expected = _judged_by_hand(learner(double, given, sequence_training=1, decay=0.5), 0.5)
    assert values == pytest.approx(expected, rel=1e-8)


def _judged_by_hand(found: MetaLearner, decay: float) -> dict[str, float]:
    """The losses of a chain of two, written out."""
    found.network.double()
    one, two = found.items[0]
    network, editing, passes = found.network, found.editing, found.editing.passes

    def nll(lesson: object) -> float:
        return sum(passes.nll(passes.prompt(r, a)).item() for r, a in lesson.wanted) / len(lesson.wanted)  # type: ignore[attr-defined]

    def logits(requests: list[object]) -> list[Tensor]:
        return [passes.logits(p, p.rows) for p in (passes.prompt(r, found.base[r]) for r in requests)]  # type: ignore[index, arg-type]

    def insert(edit: str, signals: dict[str, Signal]) -> None:
        network.observe([signals], Alone())
        found.overlay.add(edit, network(network.normalise(signals)))

    with torch.no_grad():
        kept = [list(one.kept), [request for request in two.kept if request != one.knowledge.request]]
        assert len(kept[1]) == len(two.kept) - 1
        base = [logits(requests) for requests in kept]
        insert("1", editing.signals(one.knowledge))
        nlls = [nll(one)]
        kls = [sum(divergence(a, b).item() for a, b in zip(base[0], logits(kept[0]), strict=True)) / len(kept[0])]
        insert("2", editing.signals(two.knowledge))
        nlls += [nll(two), nll(one)]
        kls += [sum(divergence(a, b).item() for a, b in zip(base[1], logits(kept[1]), strict=True)) / len(kept[1])]
        found.overlay.clear()
    loss = 0.1 * (nlls[0] + nlls[1] + decay * nlls[2]) + sum(kls)
    return {"loss": loss / 2, "nll": sum(nlls) / 2, "kl": sum(kls) / 2}


def test_single_cases_become_runs_and_longer_cases_stay_whole() -> None:
    singles = toy_cases(5)
    long = Case("long", tuple(Knowledge(c.chain[0].request, str(n)) for n, c in enumerate(singles[:3])), ())
    lengths = [[len(chain) for chain in chains([*singles, long], length)] for length in (1, 2, 4)]
    assert lengths == [[1] * 8, [3, 2, 2, 1], [3, 4, 1]]


# -- training as a whole -----------------------------------------------------------------------------------------------


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("kedit.methods.mend.BaseAnswers", lambda backbone: _Made())
    return tmp_path


SMALL = {"rank": 8, "layers": LAYERS, "edit_lr": 1e-3, "accumulate": 2, "lr": 1e-4, "keep_trunks": 100}


def test_step_sizes_move_at_their_own_rate_and_at_the_networks_with_the_legacy_switch(backbone: HFBackbone, cached: Path) -> None:
    moved = {}
    for legacy in ((), ("inert_step_sizes",)):
        editor = MEND(rank=8, layers=LAYERS, edit_lr=1e-3, accumulate=4, legacy=legacy).attach(backbone)
        editor.fit(cases(backbone))  # one step of the optimiser
        moved[legacy] = (editor.network_.step_sizes.detach() - 1e-3).abs()
    torch.testing.assert_close(moved[()], torch.full((4,), 1e-4), rtol=1e-3, atol=0)
    torch.testing.assert_close(moved[("inert_step_sizes",)], torch.full((4,), 1e-6), rtol=1e-3, atol=0)


def test_training_lowers_the_loss_it_trains_on(backbone: HFBackbone, cached: Path) -> None:
    seen: list[float] = []
    editor = MEND(**{**SMALL, "epochs": 8, "lr": 3e-3, "edit_lr": 1e-2, "step_size_lr": 5e-3, "accumulate": 4}).attach(backbone)  # type: ignore[arg-type]
    editor.fit(cases(backbone), progress=lambda step, total, values: seen.append(values["loss"]))
    assert len(seen) == 8
    assert seen[-1] < 0.9 * seen[0]


def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(backbone: HFBackbone, cached: Path) -> None:
    given = cases(backbone)
    whole = MEND(**SMALL, epochs=3).attach(backbone).fit(given)  # type: ignore[arg-type]

    def stop(step: int, total: int, values: Mapping[str, float]) -> None:
        if step == 4:
            raise KeyboardInterrupt

    stopped = MEND(**SMALL, epochs=3).attach(backbone)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(given, out=cached / "run", progress=stop)
    assert not stopped.fitted
    resumed = MEND(**SMALL, epochs=3).attach(backbone).fit(given, out=cached / "run")  # type: ignore[arg-type]
    expected = whole.network_.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.network_.state_dict().items())


def test_editing_changes_nothing_of_what_was_learned(backbone: HFBackbone, cached: Path) -> None:
    editor = MEND(**SMALL).attach(backbone).fit(cases(backbone))  # type: ignore[arg-type]
    before = {name: value.clone() for name, value in editor.network_.state_dict().items()}
    for case in cases(backbone):
        editor.insert(case.chain[0])
    editor.reset()
    assert all(torch.equal(value, before[name]) for name, value in editor.network_.state_dict().items())
    assert any(name.endswith("inputs.count") and value > 2 for name, value in before.items())


def test_training_is_refused_while_something_is_inserted(
    backbone: HFBackbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path))
    editor = MEND(**SMALL).attach(backbone)  # type: ignore[arg-type]
    editor.network_.observe([editor.editing_.signals(case.chain[0]) for case in cases(backbone)], Alone())
    editor.fitted_ = True
    editor.insert(cases(backbone)[0].chain[0])
    with pytest.raises(ContractError, match="reset the editor first"):
        editor.fit(cases(backbone))
    editor.reset()


def test_the_state_that_answers_validation_cases_best_is_kept(
    backbone: HFBackbone, cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, states, given = iter([1.0, 3.0, 2.0]), [], cases(backbone)
    editor = MEND(**SMALL, epochs=3, validate_every=2).attach(backbone)  # type: ignore[arg-type]

    class Scored:
        def __init__(self, judged: MEND, val: list[Case]) -> None:
            assert judged is editor and val == given[3:]

        def __call__(self) -> float:
            states.append({name: value.clone() for name, value in editor.network_.state_dict().items()})
            return next(scores)

    monkeypatch.setattr("kedit.methods.mend.Validation", Scored)
    editor.fit(given[:3], val=given[3:])
    assert len(states) == 3
    best, last = ([torch.equal(v, state[n]) for n, v in editor.network_.state_dict().items()] for state in states[1:])
    assert all(best) and not all(last)
