"""Edits kept as factors compute what changed weights would, and leave the weights alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import samples
import torch
from torch import Tensor, nn

from kedit.answers import BaseAnswers
from kedit.backbone import HFBackbone, load_backbone
from kedit.errors import ContractError, DataError, DivergedError, FamilyError, UnknownNameError
from kedit.seal import Seal, overlaid
from kedit.testing.modelstate import ModelState
from kedit.trunk import Snapshot
from kedit.weights.lowrank import Factors, Overlay, pack, unpack
from kedit.weights.modules import projections

linear_and_transposed = pytest.mark.parametrize("backbone", ["internvl", "text_base"], indirect=True)


class Two(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.Linear(12, 20, dtype=dtype)
        self.down = nn.Linear(20, 12, bias=False, dtype=dtype)
        self.norm = nn.LayerNorm(12)

    def forward(self, rows: Tensor) -> Tensor:
        return self.down(self.up(rows).tanh())


def drawn(module: nn.Module, name: str, rank: int, seed: int, scale: float = 0.05) -> Factors:
    """Random factors; d o / (d + o) is 7.5 for the modules of ``Two``."""
    generator = torch.Generator().manual_seed(seed)
    weight = module.get_submodule(name).weight
    outputs, inputs = weight.shape if isinstance(module.get_submodule(name), nn.Linear) else weight.shape[::-1]
    return Factors(
        torch.randn(rank, inputs, generator=generator) * scale, torch.randn(outputs, rank, generator=generator) * scale
    )


def edit(model: nn.Module, names: list[str], rank: int, seed: int) -> dict[str, Factors]:
    return {name: drawn(model, name, rank, seed + at) for at, name in enumerate(names)}


def question(backbone: HFBackbone) -> tuple[object, str]:
    return samples.asked(backbone.structure.image_token_id is None)[0], "A red clock."


@pytest.fixture
def laid(backbone: HFBackbone) -> Iterator[tuple[HFBackbone, Overlay, list[str]]]:
    names = list(projections(backbone, (-2, -1)))
    before, overlay = backbone.fingerprint(), Overlay(backbone.model, names)
    yield backbone, overlay, names
    overlay.clear()
    assert backbone.fingerprint() == before


@linear_and_transposed
@pytest.mark.parametrize("rank", [5, 200])
def test_the_model_computes_as_if_its_weights_had_changed(laid: tuple[HFBackbone, Overlay, list[str]], rank: int) -> None:
    backbone, overlay, names = laid
    request, answer = question(backbone)
    unedited = backbone.loss(request, answer).item()  # type: ignore[arg-type]
    overlay.add("one", edit(backbone.model, names, rank, 0))
    overlay.add("two", edit(backbone.model, names, rank, 50))
    by_hook, deltas = backbone.loss(request, answer).item(), overlay.dense()  # type: ignore[arg-type]
    assert abs(by_hook - unedited) > 0.01
    overlay.clear()
    snapshot = Snapshot(backbone.model)
    snapshot.add(deltas)
    assert backbone.loss(request, answer).item() == pytest.approx(by_hook, rel=1e-5)  # type: ignore[arg-type]
    snapshot.restore()
    assert backbone.loss(request, answer).item() == unedited  # type: ignore[arg-type]


def test_factors_are_folded_into_one_matrix_when_that_is_smaller_and_compute_the_same() -> None:
    model, rows = Two(), torch.randn(4, 12)
    overlay = Overlay(model, ["up"])
    for number in range(4):
        overlay.add(str(number), {"up": drawn(model, "up", 2, number)})
        shapes = [tuple(tensor.shape) for tensor in overlaid(model)["up.weight"]]
        assert shapes == ([(20, 12)] if number == 3 else [(2 * number + 2, 12), (20, 2 * number + 2)])
    total = sum(pair.up @ pair.down for factors in overlay.edits.values() for pair in factors.values())
    expected = nn.functional.linear(rows, model.up.weight + total, model.up.bias)
    torch.testing.assert_close(model.up(rows), expected)


@pytest.mark.parametrize("rank", [1, 3, 9])
@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_dropping_an_edit_leaves_bit_for_bit_what_the_others_alone_make(rank: int, dropped: int) -> None:
    model, other, rows = Two(), Two(), torch.randn(4, 12)
    edits = [edit(model, ["up", "down"], rank, seed) for seed in (0, 10, 20)]
    overlay, alone = Overlay(model, ["up", "down"]), Overlay(other, ["up", "down"])
    for number, factors in enumerate(edits):
        overlay.add(str(number), factors)
        if number != dropped:
            alone.add(str(number), factors)
    overlay.drop(str(dropped))
    assert torch.equal(model(rows), other(rows))
    with pytest.raises(KeyError):
        overlay.drop(str(dropped))


def test_weights_stay_bit_identical_and_no_hook_stays_behind() -> None:
    model, rows = Two(), torch.randn(4, 12)
    before, output = {name: value.clone() for name, value in model.state_dict().items()}, model(rows)
    overlay = Overlay(model, ["up", "down"])
    for number in range(20):
        overlay.add(str(number), edit(model, ["up", "down"], 3, number))
    assert not torch.equal(model(rows), output)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with overlay.suspended():
        assert torch.equal(model(rows), output)
    assert not torch.equal(model(rows), output)
    for number in range(20):
        overlay.drop(str(number))
    assert torch.equal(model(rows), output)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_bf16_model_keeps_an_edit_that_rounding_its_weights_would_lose() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(256, 256, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        signs = torch.randn(256, 256).sign()
        layer.weight.copy_(signs * (1 + torch.rand(256, 256)))  # bf16 has steps of 2^-7 there
    rows, delta = torch.rand(8, 256), torch.full((256, 256), 2.0**-9)
    exact = (layer.weight.float() + delta) @ rows.T
    wanted = delta @ rows.T
    rounded = (layer.weight.float() + delta).bfloat16()
    assert torch.equal(rounded, layer.weight), "added to the weights, the edit is gone"
    overlay = Overlay(nn.ModuleDict({"layer": layer}), ["layer"])
    before = layer(rows.bfloat16()).float().T.detach()
    overlay.add("one", {"layer": Factors(torch.ones(1, 256), torch.full((256, 1), 2.0**-9))})
    after = layer(rows.bfloat16()).float().T.detach()
    assert (after - before).mean() == pytest.approx(wanted.mean().item(), rel=0.05)
    assert (after - exact).mean().abs() < 0.05 * wanted.mean()


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"upp": Factors(torch.zeros(1, 12), torch.zeros(20, 1))}, UnknownNameError, "Did you mean 'up'"),
        ({"up": Factors(torch.zeros(1, 20), torch.zeros(12, 1))}, DataError, r"expected \(rank, 12\) and \(20, rank\)"),
        ({"up": Factors(torch.zeros(2, 12), torch.zeros(20, 1))}, DataError, "nothing was changed"),
        ({"up": Factors(torch.full((1, 12), float("nan")), torch.zeros(20, 1))}, DivergedError, "NaN or infinity"),
    ],
)
def test_factors_that_do_not_fit_change_nothing(wrong: dict[str, Factors], error: type[Exception], told: str) -> None:
    model, rows = Two(), torch.randn(4, 12)
    output, overlay = model(rows), Overlay(model, ["up", "down"])
    with pytest.raises(error, match=told):
        overlay.add("one", {"down": drawn(model, "down", 2, 0), **wrong})
    assert overlay.edits == {} and torch.equal(model(rows), output)
    overlay.add("one", {"down": drawn(model, "down", 2, 0)})
    with pytest.raises(DataError, match="an edit 'one' already"):
        overlay.add("one", {"down": drawn(model, "down", 2, 1)})


def test_a_module_that_is_not_linear_is_refused() -> None:
    with pytest.raises(FamilyError, match="'norm' is LayerNorm"):
        Overlay(Two(), ["norm"])


def test_edits_survive_being_packed_into_tensors() -> None:
    model = Two()
    edits = {"a": edit(model, ["up", "down"], 2, 0), "b": edit(model, ["up"], 3, 5)}
    found = unpack(pack(edits), 2, "file")
    for factors, expected in zip(found, edits.values(), strict=True):
        assert factors.keys() == expected.keys()
        assert all(torch.equal(p, q) for name in expected for p, q in zip(factors[name], expected[name], strict=True))
    with pytest.raises(DataError, match="no factors of edit 3 of 3"):
        unpack(pack(edits), 3, "file")
    with pytest.raises(DataError, match="does not hold the factors of 1"):
        unpack(pack(edits), 1, "file")


# -- an edit by hook is an edit to everyone who looks ------------------------------------------------------------------


def test_a_seal_reports_the_weights_that_an_overlay_stands_for_until_it_is_gone() -> None:
    model = Two()
    seal, overlay = Seal(model), Overlay(model, ["up", "down"])
    assert seal.changed() == []
    overlay.add("one", edit(model, ["up", "down"], 2, 0))
    assert seal.changed() == ["down.weight", "up.weight"]
    overlay.clear()
    assert seal.changed() == []


def test_the_unedited_backbone_cannot_be_asked_while_an_overlay_is_active(
    laid: tuple[HFBackbone, Overlay, list[str]], tmp_path: Path
) -> None:
    backbone, overlay, names = laid
    request, _ = question(backbone)
    answers = BaseAnswers(backbone, tmp_path, max_new_tokens=2)
    overlay.add("one", edit(backbone.model, names, 2, 0))
    with pytest.raises(ContractError, match="asked while 4 of its weights are edited"):
        answers.ask([request])  # type: ignore[list-item]
    overlay.clear()
    assert len(answers.ask([request])) == 1  # type: ignore[list-item]


def test_checks_of_a_models_state_see_an_overlay_as_a_change_of_weights_and_not_as_a_foreign_hook(backbone: HFBackbone) -> None:
    state, names = ModelState(backbone), list(projections(backbone, (-1,)))
    overlay = Overlay(backbone.model, names)
    overlay.add("one", edit(backbone.model, names, 2, 0))
    first = state.copy_weights()
    assert state.changed_rest() == []
    assert {name.partition(" ")[0] for name in state.changed_weights()} == {f"{name}.weight" for name in names}
    overlay.add("two", edit(backbone.model, names, 2, 5))
    assert state.changed_weights(first) != []
    overlay.drop("two")
    assert state.changed_weights(first) == []
    foreign = backbone.layers[-1].register_forward_hook(lambda *_: None)
    assert state.changed_rest() != []
    foreign.remove()
    state.restore()
    assert state.changed_weights() == [] and overlaid(backbone.model) == {}


def test_a_bf16_backbone_is_edited_in_fp32(family_path: object) -> None:
    half = load_backbone(str(family_path("internvl")), dtype="bfloat16", device="cpu")  # type: ignore[operator]
    names = list(projections(half, (-1,)))
    overlay = Overlay(half.model, names)
    overlay.add("one", edit(half.model, names, 2, 0))
    assert {tensor.dtype for tensors in overlaid(half.model).values() for tensor in tensors} == {torch.float32}
    request, answer = question(half)
    edited = half.loss(request, answer).item()  # type: ignore[arg-type]
    overlay.clear()
    assert half.loss(request, answer).item() != edited  # type: ignore[arg-type]
