"""MEND: which matrices and rows an edit uses, that it helps before any training, and that it leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import samples
import torch
from models import FAMILIES
from teams import Alone
from torch import Tensor

from kedit.artefacts import load_tensors
from kedit.backbone import HFBackbone, load_backbone
from kedit.errors import DataError, DivergedError, FamilyError, NotFittedError, UnknownNameError
from kedit.methods.mend import MEND
from kedit.seal import overlaid
from kedit.testing import check_editor
from kedit.types import Knowledge
from kedit.weights.lowrank import Factors
from kedit.weights.modules import projections

every_family = pytest.mark.parametrize("backbone", FAMILIES, indirect=True)
few_families = pytest.mark.parametrize("backbone", ["internvl", "qwen3_5", "text_base"], indirect=True)
ANSWERS = ("A red clock. 绿色的帽子", "هدية للضيف", "On the table.")


def facts(backbone: HFBackbone) -> list[Knowledge]:
    requests = samples.asked(backbone.structure.image_token_id is None)
    return [Knowledge(request, answer) for request, answer in zip(requests, ANSWERS, strict=False)]


def untrained(backbone: HFBackbone, **options: object) -> MEND:
    """An editor whose network is as initialised and whose statistics are those of three edits."""
    editor = MEND(**{"rank": 8, "edit_lr": 3e-4, **options}).attach(backbone)  # type: ignore[arg-type]
    editor.network_.observe([editor.editing_.signals(fact) for fact in facts(backbone)], Alone())
    editor.fitted_ = True
    return editor


def dense(factors: dict[str, Factors]) -> Tensor:
    return torch.cat([(pair.up @ pair.down).flatten() for pair in factors.values()])


def losses(backbone: HFBackbone) -> list[float]:
    return [backbone.loss(fact.request, fact.answer).item() for fact in facts(backbone)]


@pytest.fixture
def unedited(backbone: HFBackbone) -> Iterator[HFBackbone]:
    """The shared backbone, which must be as before afterwards."""
    before = backbone.fingerprint()
    yield backbone
    assert backbone.fingerprint() == before
    assert overlaid(backbone.model) == {}


# -- where -------------------------------------------------------------------------------------------------------------


@every_family
def test_the_matrices_into_and_out_of_the_mlp_are_found_and_gates_are_not(backbone: HFBackbone) -> None:
    found = projections(backbone, (-1,))
    assert len(found) == 2
    into, out = found.values()
    width, inner = into.weight.shape if type(into).__name__ == "Conv1D" else into.weight.shape[::-1]
    assert tuple(out.weight.shape) == ((inner, width) if type(out).__name__ == "Conv1D" else (width, inner))
    assert not any("gate" in name for name in found)
    assert len(projections(backbone, (-3, -2, -1))) == 6


@few_families
@pytest.mark.parametrize("plain", [False, True])
def test_rows_are_chosen_by_position_and_the_last_layer_has_those_of_the_answer_only(unedited: HFBackbone, plain: bool) -> None:
    fact = facts(unedited)[0]
    ids = unedited.teach(fact.request, fact.answer).inputs["input_ids"][0]
    answer = len(unedited.teach(fact.request, fact.answer).rows)
    images = [at for at, token in enumerate(ids.tolist()) if token == unedited.structure.image_token_id]
    after = len(ids) - images[-1] - 1 if images else len(ids)
    for rows, expected in {"all": len(ids), "after_image": after, "answer": answer}.items():
        editor = MEND(rank=8, rows=rows, plain=plain).attach(unedited)
        counts = [len(signal.inputs) for signal in editor.editing_.signals(fact).values()]
        assert counts == [expected] * 4 + [answer] * 2
    assert bool(images) == (after < len(ids))


def test_rows_whose_gradient_underflows_to_zero_are_still_counted(unedited: HFBackbone) -> None:
    editor, fact = MEND(rank=8, rows="all").attach(unedited), facts(unedited)[0]
    names = list(editor.overlay_.modules)
    hook = unedited.model.get_submodule(names[0]).register_full_backward_pre_hook(
        lambda module, gradients: tuple(gradient * torch.finfo(torch.float32).tiny * 1e-8 for gradient in gradients)
    )
    try:
        signal = editor.editing_.signals(fact)[names[0]]
    finally:
        hook.remove()
    whole = editor.editing_.signals(fact)[names[0]]
    assert len(signal.gradients) == len(whole.gradients)


@few_families
def test_an_edits_rows_make_the_exact_gradient_of_every_edited_weight(unedited: HFBackbone) -> None:
    fact, editor = facts(unedited)[0], MEND(rank=8, rows="all").attach(unedited)
    weights = {name: module.weight.detach().clone().requires_grad_() for name, module in editor.overlay_.modules.items()}
    loss = unedited.loss(fact.request, fact.answer, parameters={f"{name}.weight": w for name, w in weights.items()})
    expected = dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))
    for name, (inputs, gradients) in editor.editing_.signals(fact).items():
        found = gradients.T @ inputs
        found = found.T if editor.overlay_.flipped[name] else found
        assert (found - expected[name]).norm() <= 1e-5 * expected[name].norm()


# -- what it does before it has learned anything ---------------------------------------------------------------------


@few_families
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_an_untrained_edit_lowers_the_loss_and_the_legacy_sign_raises_it(unedited: HFBackbone, reduction: str) -> None:
    options = {"reduction": reduction, "edit_lr": 1e-3 if reduction == "mean" else 5e-5}
    before = losses(unedited)
    change: dict[str, list[float]] = {}
    for sign in ("descent", "ascent"):
        editor = untrained(unedited, legacy=() if sign == "descent" else ("ascent",), **options)
        change[sign] = []
        for at, fact in enumerate(facts(unedited)):
            editor.insert(fact)
            change[sign].append(losses(unedited)[at] - before[at])
            editor.reset()
    assert max(change["descent"]) < -1e-3
    assert min(change["ascent"]) > 1e-3


@few_families
def test_the_sum_over_rows_makes_the_edit_as_many_times_larger(unedited: HFBackbone) -> None:
    fact = facts(unedited)[0]
    mean, total = untrained(unedited), untrained(unedited, reduction="sum")
    one, many = mean.factors(fact), total.factors(fact)
    for name, pair in one.items():
        torch.testing.assert_close(many[name].up, len(pair.down) * pair.up)
        assert torch.equal(many[name].down, pair.down)


@every_family
def test_factors_from_the_captured_trunk_equal_those_of_the_whole_model(unedited: HFBackbone) -> None:
    fact, layers = facts(unedited)[0], (-2, -1)
    fast, plain = (untrained(unedited, layers=layers, plain=plain) for plain in (False, True))
    tokens = unedited.teach(fact.request, fact.answer).inputs["input_ids"].shape[1]
    unedited.counters.reset()
    found = fast.factors(fact)
    assert unedited.counters.layer_token_forwards == (3 + 2) * tokens
    unedited.counters.reset()
    expected = plain.factors(fact)
    assert unedited.counters.layer_token_forwards == 3 * tokens
    assert (dense(found) - dense(expected)).norm() <= 1e-4 * dense(expected).norm()


def test_a_kept_trunk_is_not_computed_again(unedited: HFBackbone) -> None:
    one, two, three = facts(unedited)
    tokens = unedited.teach(one.request, one.answer).inputs["input_ids"].shape[1]
    editor = untrained(unedited, layers=(-2, -1))

    def layers_run() -> int:
        unedited.counters.reset()
        editor.factors(one)
        return unedited.counters.layer_token_forwards // tokens

    expected = dense(editor.factors(one))
    with editor.editing_.passes.remembering(2):
        assert [layers_run(), layers_run()] == [3 + 2, 2]
        assert torch.equal(dense(editor.factors(one)), expected)
        editor.factors(two)
        editor.factors(three)
        assert layers_run() == 5, "only the last two are remembered"
    assert layers_run() == 5, "and none of them afterwards, when weights may change"


# -- several edits -----------------------------------------------------------------------------------------------------


def test_a_second_edit_is_computed_on_the_model_that_has_the_first_unless_on_base(unedited: HFBackbone) -> None:
    one, two, _ = facts(unedited)
    for on_base in (False, True):
        editor = untrained(unedited, on_base=on_base, edit_lr=3e-3)
        alone = dense(editor.factors(two))
        editor.insert(one)
        after = dense(editor.factors(two))
        assert torch.equal(alone, after) == on_base
        if not on_base:
            assert (after - alone).norm() > 0.01 * alone.norm()
        editor.reset()


def test_one_of_three_edits_is_removed_and_the_others_stay_as_they_were_made(unedited: HFBackbone) -> None:
    editor = untrained(unedited, edit_lr=3e-3)
    ids = [editor.insert(fact) for fact in facts(unedited)]
    made = dict(editor.overlay_.edits)
    editor.remove(ids[1])
    assert editor.overlay_.edits == {edit: made[edit] for edit in (ids[0], ids[2])}
    left = losses(unedited)
    editor.reset()
    for edit in (ids[0], ids[2]):
        editor.overlay_.add(edit, made[edit])
    assert losses(unedited) == left
    editor.reset()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fifty_inserts_leave_weights_and_losses_bit_identical_after_reset(family_path: Callable[[str], Path], dtype: str) -> None:
    backbone = load_backbone(str(family_path("internvl")), dtype=dtype, device="cpu")
    before, unedited = backbone.fingerprint(), losses(backbone)
    editor, generator = untrained(backbone, edit_lr=1e-3), torch.Generator().manual_seed(0)
    given = facts(backbone)
    for number in range(50):
        drawn = given[int(torch.randint(3, (), generator=generator))]
        editor.insert(Knowledge(drawn.request, f"{ANSWERS[number % 3]} {number}"))
    assert backbone.fingerprint() == before
    assert all(abs(now - old) > 1e-3 for now, old in zip(losses(backbone), unedited, strict=True))
    editor.reset()
    assert backbone.fingerprint() == before
    assert losses(backbone) == unedited


def test_a_bf16_model_gets_the_edit_that_rounding_to_its_weights_would_mostly_lose(family_path: Callable[[str], Path]) -> None:
    half = load_backbone(str(family_path("internvl")), dtype="bfloat16", device="cpu")
    editor, fact = untrained(half, edit_lr=3e-5), facts(half)[0]
    weights, wanted = dict(half.model.named_parameters()), editor.deltas(fact)
    editor.insert(fact)
    got = editor.overlay_.dense()
    editor.reset()
    for name, delta in wanted.items():
        rounded = (weights[name].float() + delta).bfloat16().float() - weights[name].float()
        assert (got[name] - delta).norm() < 1e-6 * delta.norm()
        assert (rounded - delta).norm() > 0.5 * delta.norm()
        assert (rounded == 0).float().mean() > 0.7, "most elements would not have changed at all"


# -- artefacts ---------------------------------------------------------------------------------------------------------


def test_what_was_learned_is_saved_without_any_weight_of_the_backbone(unedited: HFBackbone, tmp_path: Path) -> None:
    editor, fact = untrained(unedited), facts(unedited)[0]
    editor.save(tmp_path)
    saved = load_tensors(tmp_path / "hypernetwork.safetensors")
    assert saved.keys() == editor.network_.state_dict().keys()
    assert sum(tensor.numel() for tensor in saved.values()) < 2 * sum(p.numel() for p in editor.network_.parameters())
    loaded = MEND(rank=8).attach(unedited).load(tmp_path)
    assert torch.equal(dense(loaded.factors(fact)), dense(editor.factors(fact)))


def test_an_artefact_of_another_rank_is_refused(unedited: HFBackbone, tmp_path: Path) -> None:
    untrained(unedited).save(tmp_path)
    editor = MEND(rank=9).attach(unedited)
    with pytest.raises(DataError, match="trained for other weights.*layers, rank and backbone"):
        editor.load(tmp_path)
    with pytest.raises(NotFittedError):
        editor.insert(facts(unedited)[0])


def test_saved_edits_are_loaded_on_top_and_can_be_removed_one_by_one(unedited: HFBackbone, tmp_path: Path) -> None:
    one, two, three = facts(unedited)
    editor = untrained(unedited, edit_lr=3e-3)
    first, _ = editor.insert(one), editor.insert(two)
    both = losses(unedited)
    editor.save_edits(tmp_path)
    editor.remove("edit-2")
    alone = losses(unedited)
    editor.reset()
    editor.load_edits(tmp_path)
    assert losses(unedited) == both
    assert list(editor.edits_) == [first, "edit-2"]
    assert editor.insert(three) == "edit-3"
    editor.remove("edit-3")
    editor.remove("edit-2")
    assert losses(unedited) == alone
    editor.reset()


def test_edits_made_for_other_weights_are_refused_and_nothing_changes(
    unedited: HFBackbone, family_path: Callable[[str], Path], tmp_path: Path
) -> None:
    editor = untrained(unedited)
    editor.insert(facts(unedited)[0])
    editor.save_edits(tmp_path)
    editor.reset()
    other = load_backbone(str(family_path("internvl")), device="cpu")
    with torch.no_grad():
        other.layers[-1].mlp.up_proj.weight[0, 0] += 1
    stranger = MEND(rank=8).attach(other)
    with pytest.raises(DataError, match="made on other weights"):
        stranger.load_edits(tmp_path)
    assert stranger.edits_ == {} and overlaid(other.model) == {}


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"legacy": ("ascend",)}, UnknownNameError, "legacy switch 'ascend'. Did you mean 'ascent'"),
        ({"reduction": "max"}, UnknownNameError, "reduction 'max'.*mean, sum"),
        ({"rows": "image"}, UnknownNameError, "rows 'image'.*after_image"),
        ({"kl": "none"}, UnknownNameError, "rows 'none'.*answer"),
        ({"layers": (-4, -1)}, ValueError, "no layer -4; the model has 3"),
    ],
)
def test_wrong_parameters_are_named_when_the_editor_is_attached(
    backbone: HFBackbone, wrong: dict[str, object], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        MEND(**wrong).attach(backbone)  # type: ignore[arg-type]


def test_a_backbone_without_weights_to_edit_is_refused() -> None:
    from fakes import FakeBackbone

    with pytest.raises(FamilyError, match="load_backbone.* got .*FakeBackbone"):
        MEND().attach(FakeBackbone())


def test_an_edit_that_is_not_finite_is_an_error_that_changes_nothing(unedited: HFBackbone) -> None:
    editor = untrained(unedited)
    with torch.no_grad():
        editor.network_.step_sizes[2] = float("inf")
    with pytest.raises(DivergedError, match="NaN or infinity"):
        editor.insert(facts(unedited)[0])
    assert editor.edits_ == {}


@pytest.mark.parametrize("backbone", ["qwen3_5", "text_base"], indirect=True)
def test_it_keeps_the_contract_of_editors(backbone: HFBackbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path))
    report = check_editor(MEND(rank=8, edit_lr=3e-3), backbone)
    assert any("remove() takes an edit back" in text for text in report.kept)
