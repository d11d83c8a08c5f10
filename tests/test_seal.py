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


def test_buffers_and_weights_that_come_or_go_are_seen() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3))
    seal = Seal(model)
    model[0].num_batches_tracked += 1
    assert seal.changed() == ["0.num_batches_tracked"]
    model[0].num_batches_tracked -= 1
    model.add_module("adapter", nn.Linear(1, 1, bias=False))
    assert seal.changed() == ["adapter.weight"]


def test_large_weights_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(33, 7)
    whole = Seal(model).sums
    monkeypatch.setattr("kedit.seal._CHUNK", 10)
    assert Seal(model).sums == whole


def test_a_model_without_weights_has_nothing_to_compare() -> None:
    assert Seal(None).changed() == []
