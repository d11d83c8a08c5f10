"""Fine-tuning: the fast path gives the plain loop's weights, the work is counted, and an error changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import samples
import torch
from models import FAMILIES
from torch import Tensor

from kedit.backbone import HFBackbone, load_backbone
from kedit.errors import DivergedError, FamilyError, NotRemovableError, UnknownNameError
from kedit.methods import FineTune
from kedit.types import Knowledge
from kedit.weights.modules import matrices

every_family = pytest.mark.parametrize("backbone", FAMILIES, indirect=True)
ANSWERS = ("A red clock. 绿色的帽子", "هدية للضيف", "On the table.")


def facts(backbone: HFBackbone) -> list[Knowledge]:
    requests = samples.asked(backbone.structure.image_token_id is None)
    return [Knowledge(request, answer) for request, answer in zip(requests, ANSWERS, strict=False)]


def norm(deltas: Mapping[str, Tensor]) -> float:
    return float(torch.stack([delta.square().sum() for delta in deltas.values()]).sum().sqrt())


@pytest.fixture
def unedited(backbone: HFBackbone) -> Iterator[HFBackbone]:
    """The shared backbone, whose weights must be the same bits afterwards."""
    before = backbone.fingerprint()
    yield backbone
    assert backbone.fingerprint() == before


@every_family
@pytest.mark.parametrize("layers", [(-1,), (-2, -1)])
def test_twenty_steps_from_the_captured_trunk_give_the_plain_loops_weights(unedited: HFBackbone, layers: tuple[int, ...]) -> None:
    fact = facts(unedited)[0]
    fast = FineTune(layers=layers).attach(unedited).deltas(fact)
    plain = FineTune(layers=layers, plain=True).attach(unedited).deltas(fact)
    assert fast.keys() == plain.keys()
    assert norm(plain) > 0.1
    assert norm({name: fast[name] - plain[name] for name in plain}) <= 1e-4 * norm(plain)


def test_the_weights_are_those_of_adam_by_hand_on_the_models_own_loss_of_answer_and_end(unedited: HFBackbone) -> None:
    fact = facts(unedited)[0]
    found = FineTune(steps=3).attach(unedited).deltas(fact)
    inputs = unedited.prompts.encode(fact.request)
    prompt = inputs["input_ids"][0].tolist()
    answer = [*unedited.prompts.tokenizer(fact.answer, add_special_tokens=False)["input_ids"], unedited.prompts.end_ids[0]]
    tokens, labels = torch.tensor([prompt + answer]), torch.tensor([[-100] * len(prompt) + answer])
    given = {**inputs, "input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}
    weights = {
        name: weight.detach().clone().requires_grad_() for name, weight in matrices(unedited, (-1,), ("attention", "mlp")).items()
    }
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    first, second = ({name: torch.zeros_like(weight) for name, weight in weights.items()} for _ in range(2))
    for step in (1, 2, 3):
        loss = torch.func.functional_call(unedited.model, weights, args=(), kwargs=given).loss
        for name, slope in zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True):
            first[name] = 0.9 * first[name] + 0.1 * slope
            second[name] = 0.999 * second[name] + 0.001 * slope**2
            move = (first[name] / (1 - 0.9**step)) / ((second[name] / (1 - 0.999**step)).sqrt() + 1e-8)
            weights[name] = (weights[name] - 1e-3 * move).detach().requires_grad_()
    expected = {name: (weights[name] - start[name]).detach() for name in weights}
    assert found.keys() == expected.keys()
    assert norm({name: found[name] - expected[name] for name in expected}) <= 1e-3 * norm(expected)


@every_family
def test_layers_below_the_edit_run_once_and_not_at_every_step(unedited: HFBackbone) -> None:
    fact = facts(unedited)[0]
    count, tokens = len(unedited.layers), unedited.teach(fact.request, fact.answer).inputs["input_ids"].shape[1]
    unedited.counters.reset()
    FineTune().attach(unedited).deltas(fact)
    assert unedited.counters.layer_token_forwards == count * tokens + 20 * 1 * tokens
    unedited.counters.reset()
    FineTune(plain=True).attach(unedited).deltas(fact)
    assert unedited.counters.layer_token_forwards == 20 * count * tokens


@every_family
def test_an_insert_lowers_the_loss_of_its_answer_and_reset_takes_it_back(unedited: HFBackbone) -> None:
    fact = facts(unedited)[0]
    before = unedited.loss(fact.request, fact.answer).item()
    editor = FineTune().attach(unedited)
    editor.insert(fact)
    assert unedited.loss(fact.request, fact.answer).item() < 0.6 * before
    editor.reset()
    assert unedited.loss(fact.request, fact.answer).item() == before


@pytest.mark.parametrize("backbone", ["qwen3_5"], indirect=True)
def test_linear_attention_layers_train_every_matrix_of_their_token_mixer(unedited: HFBackbone) -> None:
    names = {name.split(".layers.")[1] for name in matrices(unedited, (-1,), ("attention",))}
    mixer = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
    assert names == {f"2.linear_attn.{name}.weight" for name in mixer}


@every_family
def test_only_the_chosen_modules_of_the_chosen_layers_are_trained_and_no_norm_or_bias(unedited: HFBackbone) -> None:
    trained = matrices(unedited, None, ("attention", "mlp"))
    inside = {name for name, _ in unedited.model.named_parameters() if any(weight is _ for weight in trained.values())}
    assert inside == trained.keys()
    layer_weights = [p for layer in unedited.layers for name, p in layer.named_parameters() if p.dim() == 2]
    assert len(trained) == len(layer_weights)
    assert matrices(unedited, (-1,), ("attention",)).keys().isdisjoint(matrices(unedited, (-1,), ("mlp",)))
    assert not any("norm" in name.split(".")[-2] or name.endswith("bias") for name in trained)


def test_three_inserts_build_on_each_other_and_reset_undoes_all(unedited: HFBackbone) -> None:
    editor = FineTune(steps=40).attach(unedited)
    prints = [unedited.fingerprint()]
    for fact in facts(unedited):
        before = unedited.loss(fact.request, fact.answer).item()
        editor.insert(fact)
        assert unedited.loss(fact.request, fact.answer).item() < 0.5 * before
        prints.append(unedited.fingerprint())
    assert len(set(prints)) == 4
    editor.reset()
    assert unedited.fingerprint() == prints[0]


def test_bf16_weights_are_trained_through_fp32_copies(backbone: HFBackbone, family_path: object, tmp_path: Path) -> None:
    half = load_backbone(str(family_path("internvl")), dtype="bfloat16", device="cpu")  # type: ignore[operator]
    fact = facts(half)[0]
    editor = FineTune(lr=1e-4).attach(half)
    found = editor.deltas(fact)
    assert {delta.dtype for delta in found.values()} == {torch.float32}
    weights = dict(half.model.named_parameters())
    step = 1e-4 * 20
    finer = [name for name, delta in found.items() if not torch.equal(delta, delta.bfloat16().float())]
    assert len(finer) == len(found), "updates of fp32 copies are not multiples of what bf16 can hold"
    assert all(delta.abs().max() <= 2 * step for delta in found.values())
    before = half.loss(fact.request, fact.answer).item()
    expected = {name: (weights[name].float() + delta).bfloat16() for name, delta in found.items()}
    editor.insert(fact)
    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    assert half.loss(fact.request, fact.answer).item() < before


def test_deltas_leave_the_model_as_it_is_also_when_an_error_is_raised_midway(unedited: HFBackbone) -> None:
    fact, editor = facts(unedited)[0], FineTune().attach(unedited)
    before = unedited.fingerprint()
    assert editor.deltas(fact)
    assert unedited.fingerprint() == before
    calls = 0

    def fail(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise RuntimeError("out of luck")

    hook = unedited.layers[-1].register_forward_pre_hook(fail)
    try:
        with pytest.raises(RuntimeError, match="out of luck"):
            editor.insert(fact)
    finally:
        hook.remove()
    assert unedited.fingerprint() == before
    assert editor.edits_ == {}
    assert all(p.grad is None and not p.requires_grad for p in unedited.model.parameters())


def test_training_ends_before_the_step_whose_loss_is_low_enough(unedited: HFBackbone) -> None:
    fact = facts(unedited)[0]
    tokens = unedited.teach(fact.request, fact.answer).inputs["input_ids"].shape[1]
    unedited.counters.reset()
    editor = FineTune(steps=200, stop_loss=1.0).attach(unedited)
    editor.insert(fact)
    replays = unedited.counters.layer_token_forwards // tokens - len(unedited.layers)
    assert 2 < replays < 200
    assert 0.5 < unedited.loss(fact.request, fact.answer).item() <= 1.0
    editor.reset()
    never = FineTune(stop_loss=100.0).attach(unedited).deltas(fact)
    assert norm(never) == 0


def test_divergence_is_an_error_that_names_the_rate_and_changes_nothing(unedited: HFBackbone) -> None:
    editor = FineTune(lr=1e30).attach(unedited)
    before = unedited.fingerprint()
    with pytest.raises(DivergedError, match=r"step \d+ of 20 .* lower lr than 1e\+30"):
        editor.insert(facts(unedited)[0])
    assert unedited.fingerprint() == before
    assert editor.edits_ == {}


def test_weight_decay_pulls_the_trained_weights_towards_zero(unedited: HFBackbone) -> None:
    fact = facts(unedited)[0]
    weights = matrices(unedited, (-1,), ("mlp",))
    plain = FineTune(modules=("mlp",)).attach(unedited).deltas(fact)
    decayed = FineTune(modules=("mlp",), weight_decay=10.0).attach(unedited).deltas(fact)
    for name, weight in weights.items():
        assert (weight + decayed[name]).norm() < (weight + plain[name]).norm()


def test_one_of_two_edits_can_be_taken_back_when_deltas_are_kept(unedited: HFBackbone) -> None:
    one, two, _ = facts(unedited)
    editor = FineTune(removable=True).attach(unedited)
    editor.insert(one)
    alone = unedited.fingerprint()
    second = editor.insert(two)
    editor.remove(second)
    assert unedited.fingerprint() == alone
    editor.reset()


def test_loaded_edits_are_never_lost_by_removing_another(unedited: HFBackbone, tmp_path: Path) -> None:
    one, two, _ = facts(unedited)
    editor = FineTune(removable=True, steps=3).attach(unedited)
    editor.insert(one)
    editor.save_edits(tmp_path)
    editor.reset()
    editor.load_edits(tmp_path)
    second = editor.insert(two)
    both = unedited.fingerprint()
    with pytest.raises(NotRemovableError, match="edit-1"):
        editor.remove(second)
    assert unedited.fingerprint() == both
    assert list(editor.edits_) == ["edit-1", "edit-2"]
    editor.reset()


def test_saved_edits_give_the_same_answers_on_the_same_weights(unedited: HFBackbone, tmp_path: Path) -> None:
    editor = FineTune(steps=40).attach(unedited)
    for fact in facts(unedited)[:2]:
        editor.insert(fact)
    requests = [fact.request for fact in facts(unedited)]
    expected = editor.generate(requests)
    editor.save_edits(tmp_path)
    editor.reset()
    assert editor.generate(requests) != expected
    editor.load_edits(tmp_path)
    assert editor.generate(requests) == expected
    editor.reset()


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"layers": (7,)}, ValueError, "no layer 7; the model has 3"),
        ({"layers": ()}, ValueError, "layers is empty"),
        ({"modules": ("attn",)}, UnknownNameError, "Did you mean 'attention'"),
    ],
)
def test_layers_and_modules_that_are_not_there_are_named(
    unedited: HFBackbone, wrong: dict[str, object], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        FineTune(**wrong).attach(unedited).insert(facts(unedited)[0])  # type: ignore[arg-type]


def test_a_backbone_whose_weights_cannot_be_trained_is_refused() -> None:
    from fakes import FakeBackbone

    with pytest.raises(FamilyError, match="load_backbone.* got .*FakeBackbone"):
        FineTune().attach(FakeBackbone()).insert(Knowledge(samples.TEXT[0], "answer"))
