from __future__ import annotations

import pytest
import torch
from torch import nn

from kedit.seal import Seal


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_one_flipped_bit_of_one_weight_is_seen_and_its_return_too(dtype: torch.dtype) -> None:
    model = nn.Linear(40, 40)
    model.weight = nn.Parameter(model.weight.detach().to(dtype), requires_grad=False)
    seal = Seal(model)
    raw = model.weight.data.view(torch.uint8)
    raw[7, 3] ^= 1
    assert seal.changed() == ["weight"]
    raw[7, 3] ^= 1
    assert seal.changed() == []


def test_a_change_through_data_is_seen_although_no_version_counter_moves() -> None:
    model = nn.Linear(4, 4)
    seal = Seal(model)
    model.bias.data.add_(1e-3)
    assert seal.changed() == ["bias"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_that_cancel_out_in_a_plain_sum_are_seen(dtype: torch.dtype) -> None:
    model = nn.Linear(1, 4, bias=False, dtype=dtype)
    model.weight.data = torch.tensor([[1.0], [1.5], [-1.25], [-1.75]], dtype=dtype)
    seal = Seal(model)
    model.weight.data.add_(2.0**-6)  # two bit patterns go up, two go down, all by as much
    assert seal.changed() == ["weight"]
    model.weight.data.sub_(2.0**-6)
    assert seal.changed() == []
    model.weight.data = model.weight.data.flip(0)
    assert seal.changed() == ["weight"]


def test_a_change_is_seen_wherever_it_is_in_a_large_tensor() -> None:
    model = nn.Linear(3000, 7, bias=False)
    seal = Seal(model)
    for place in (0, 1023, 1024, 20_479, 20_480, 20_999):  # in whole rows of weights and in the rest
        before = model.weight.data.view(-1)[place].clone()
        model.weight.data.view(-1)[place] = before + 1e-3
        assert seal.changed() == ["weight"], place
        model.weight.data.view(-1)[place] = before
    assert seal.changed() == []


def test_buffers_and_weights_that_come_or_go_are_seen() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3))
    seal = Seal(model)
    model[0].num_batches_tracked += 1
    assert seal.changed() == ["0.num_batches_tracked"]
    model[0].num_batches_tracked -= 1
    model.add_module("adapter", nn.Linear(1, 1, bias=False))
    assert seal.changed() == ["adapter.weight"]


def test_large_weights_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(1025, 7)
    whole = Seal(model).sums
    monkeypatch.setattr("kedit.seal._CHUNK", 2048)
    assert Seal(model).sums == whole


def test_a_model_without_weights_has_nothing_to_compare() -> None:
    assert Seal(None).changed() == []
