"""Snapshots restore bit for bit; a replay above the captured trunk equals the whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import samples
import torch
from fakes import AddNoise, FakeBackbone, delta
from models import FAMILIES
from torch import Tensor, nn

from kedit.backbone import HFBackbone
from kedit.errors import DataError, UnknownNameError
from kedit.trunk import Snapshot, capture, replay, tensor_digest
from kedit.types import Knowledge, Request

every_family = pytest.mark.parametrize("backbone", FAMILIES, indirect=True)
ANSWER = "A red clock. 绿色的帽子"


def question(backbone: HFBackbone) -> Request:
    return samples.asked(backbone.structure.image_token_id is None)[0]


@contextmanager
def trainable(backbone: HFBackbone, lowest: int) -> Iterator[list[nn.Parameter]]:
    """The parameters of the layers from ``lowest`` on require a gradient; afterwards all is as before."""
    parameters = [p for layer in backbone.layers[backbone.layer_index(lowest) :] for p in layer.parameters()]
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.requires_grad_(True)
        yield parameters
    finally:
        for parameter, value in zip(parameters, before, strict=True):
            parameter.requires_grad_(False)
            parameter.grad = None
            parameter.copy_(value)


@every_family
@pytest.mark.parametrize("lowest", [-1, -2, 0])
def test_replayed_loss_and_gradients_equal_the_whole_models(backbone: HFBackbone, lowest: int) -> None:
    request = question(backbone)
    with trainable(backbone, lowest) as parameters:
        whole = backbone.loss(request, ANSWER)
        expected = torch.autograd.grad(whole, parameters, allow_unused=True)
        replayed = replay(capture(backbone, request, ANSWER, lowest))
        found = torch.autograd.grad(replayed, parameters, allow_unused=True)
    assert replayed.item() == pytest.approx(whole.item(), rel=1e-6)
    used = [(a, b) for a, b in zip(expected, found, strict=True) if a is not None]
    assert len(used) > 5
    for a, b in used:
        assert b is not None
        assert (a - b).norm() <= 1e-5 * a.norm() + 1e-9


@every_family
def test_a_capture_stays_right_while_the_layers_above_it_are_trained(backbone: HFBackbone) -> None:
    request = question(backbone)

    def train(loss: Callable[[], Tensor]) -> list[Tensor]:
        with trainable(backbone, -1) as parameters:
            before = [p.detach().clone() for p in parameters]
            optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.0)
            for _ in range(20):
                optimiser.zero_grad()
                loss().backward()
                optimiser.step()
            return [p.detach() - b for p, b in zip(parameters, before, strict=True)]

    plain = train(lambda: backbone.loss(request, ANSWER))
    captured = capture(backbone, request, ANSWER, -1)
    fast = train(lambda: replay(captured))
    update = torch.cat([p.flatten() for p in plain])
    assert update.norm() > 0.01
    assert (update - torch.cat([f.flatten() for f in fast])).norm() <= 1e-4 * update.norm()


@every_family
def test_replaying_runs_only_the_layers_above_and_never_the_vision_encoder(backbone: HFBackbone) -> None:
    request, layers = question(backbone), len(backbone.layers)
    tokens = backbone.teach(request, ANSWER).inputs["input_ids"].shape[1]
    backbone.counters.reset()
    captured = capture(backbone, request, ANSWER, -2)
    assert backbone.counters.layer_token_forwards == layers * tokens
    for _ in range(3):
        replay(captured)
    assert backbone.counters.layer_token_forwards == layers * tokens + 3 * 2 * tokens
    assert backbone.counters.vision_calls == (1 if request.images else 0)


@every_family
def test_a_replay_leaves_the_model_as_it_was_even_when_it_fails(backbone: HFBackbone, monkeypatch: pytest.MonkeyPatch) -> None:
    request = question(backbone)
    before, layers = backbone.loss(request, ANSWER), list(backbone.layers)
    captured = capture(backbone, request, ANSWER, -1)
    monkeypatch.setattr(backbone, "nll", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        replay(captured)
    monkeypatch.undo()

    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("inside the layer")

    monkeypatch.setattr(backbone.layers[-1], "forward", broken)
    with pytest.raises(RuntimeError, match="inside the layer"):
        replay(captured)
    monkeypatch.undo()
    assert list(backbone.layers) == layers
    assert torch.equal(backbone.loss(request, ANSWER), before)


def test_a_replay_can_be_differentiated_by_copies_of_the_weights(backbone: HFBackbone) -> None:
    captured = capture(backbone, question(backbone), ANSWER, -1)
    name = next(n for n, p in backbone.model.named_parameters() if p is backbone.layers[-1].mlp.down_proj.weight)
    copy = backbone.layers[-1].mlp.down_proj.weight.detach().double().requires_grad_()
    loss = replay(captured, {name: copy.float()})
    (gradient,) = torch.autograd.grad(loss, copy)
    assert gradient.dtype == torch.float64
    assert gradient.abs().sum() > 0
    assert loss.item() == pytest.approx(replay(captured).item(), rel=1e-6)


def test_a_layer_outside_the_model_cannot_be_captured(backbone: HFBackbone) -> None:
    with pytest.raises(ValueError, match="no layer 3"):
        capture(backbone, question(backbone), ANSWER, 3)


# -- snapshots ---------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, dtype=torch.bfloat16)
        self.second = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.second.weight


@pytest.fixture
def small() -> Tied:
    torch.manual_seed(0)
    return Tied()


def state(model: nn.Module) -> dict[str, str]:
    return {name: tensor_digest(value) for name, value in model.state_dict().items()}


def test_restore_brings_every_bit_back_and_then_forgets(small: Tied) -> None:
    before, snapshot = state(small), Snapshot(small)
    small_values = {"first.weight": torch.full((4, 4), 1e-3), "second.bias": torch.randn(4)}
    for _ in range(3):
        snapshot.add(small_values)
    assert snapshot.touched == ("first.weight", "second.bias")
    assert snapshot.digests() == {name: before[name] for name in snapshot.touched}
    assert state(small) != before
    snapshot.restore()
    assert state(small) == before
    assert snapshot.touched == ()
    assert snapshot.difference() == {}
    small.second.bias.data.add_(1.0)  # no longer the snapshot's business
    changed = state(small)
    snapshot.restore()
    assert state(small) == changed


def test_a_delta_is_added_in_fp32_and_rounded_once(small: Tied) -> None:
    before = small.first.weight.detach().clone()
    delta = torch.randn(4, 4) * 1e-2
    snapshot = Snapshot(small)
    snapshot.add({"first.weight": delta})
    assert torch.equal(small.first.weight, (before.float() + delta).bfloat16())
    assert torch.equal(snapshot.difference()["first.weight"], small.first.weight.float() - before.float())
    assert snapshot.difference()["first.weight"].dtype == torch.float32


@pytest.mark.parametrize(
    "bad, error, message",
    [
        ({"frist.weight": torch.zeros(4, 4)}, UnknownNameError, "first.weight"),
        ({"second.bias": torch.zeros(5)}, DataError, r"\(5,\).*\(4,\)"),
        ({"second.bias": torch.tensor([0.0, float("nan"), 0.0, 0.0])}, DataError, "NaN"),
        ({"second.bias": torch.tensor([0.0, float("inf"), 0.0, 0.0])}, DataError, "infinity"),
        ({"second.weight": torch.ones(4, 4), "head.weight": torch.ones(4, 4)}, DataError, "tied"),
    ],
)
def test_a_bad_delta_changes_nothing_at_all(small: Tied, bad: dict[str, Tensor], error: type[Exception], message: str) -> None:
    before, snapshot = state(small), Snapshot(small)
    with pytest.raises(error, match=message):
        snapshot.add({"first.weight": torch.ones(4, 4), **bad})
    assert state(small) == before
    assert snapshot.touched == ()


def test_a_tied_weight_is_restored_under_whichever_name_it_was_changed(small: Tied) -> None:
    before, snapshot = state(small), Snapshot(small)
    snapshot.add({"head.weight": torch.ones(4, 4)})
    snapshot.add({"second.weight": torch.ones(4, 4)})
    assert len(snapshot.touched) == 1
    torch.testing.assert_close(snapshot.difference()[snapshot.touched[0]], torch.full((4, 4), 2.0))
    snapshot.restore()
    assert state(small) == before


def test_a_digest_tells_dtype_shape_and_bits_apart() -> None:
    zeros = torch.zeros(4)
    others = [zeros.view(2, 2), zeros.to(torch.int32), -zeros, zeros.double(), torch.zeros(5)]
    assert len({tensor_digest(tensor) for tensor in [zeros, *others]}) == 6
    assert tensor_digest(zeros) == tensor_digest(torch.zeros(8)[::2])


@pytest.mark.parametrize("act", ["insert", "remove", "look"])
def test_ctrl_c_between_two_weights_leaves_no_half_of_an_edit(act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Both(AddNoise):
        def deltas(self, knowledge: Knowledge) -> dict[str, Tensor]:
            return {f"{at}.weight": delta(f"{knowledge.answer}{at}") for at in (0, 1)}

    backbone = FakeBackbone()
    editor = Both(removable=True).attach(backbone)  # type: ignore[arg-type]
    for word in "ab":
        editor.insert(Knowledge(Request("What?"), word))

    def look() -> None:
        with editor.unedited():
            pass

    acts = {
        "insert": lambda: editor.insert(Knowledge(Request("What?"), "c")),
        "remove": lambda: editor.remove("edit-1"),
        "look": look,
    }
    before, copy = backbone.fingerprint(), Snapshot._copy
    for stopped in range(1, 20):
        calls = iter(range(1, 100))

        def stops(self: Snapshot, values: dict[str, Tensor], calls: Any = calls, stopped: int = stopped) -> None:
            if next(calls) == stopped:
                copy(self, dict(list(values.items())[:1]))
                raise KeyboardInterrupt
            copy(self, values)

        with monkeypatch.context() as broken:
            broken.setattr(Snapshot, "_copy", stops)
            try:
                acts[act]()
            except KeyboardInterrupt:
                assert backbone.fingerprint() == before and list(editor.edits_) == ["edit-1", "edit-2"]
            else:
                break
    assert stopped > 1
    editor.reset()
    assert backbone.fingerprint() == FakeBackbone().fingerprint()
