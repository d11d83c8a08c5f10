"""Low-rank edits as one adapter in the format of PEFT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from kedit.artefacts import save_tensors
from kedit.errors import DataError
from kedit.weights.lowrank import Factors, flipped, joined


def write_adapter(path: str | Path, model: nn.Module, edits: Sequence[Mapping[str, Factors]], base: str) -> int:
    """Write edits (factors by module name) as one adapter that ``peft.PeftModel.from_pretrained(model, path)`` loads.

    Returns its rank: the sum of the edits' ranks, at most what a matrix can have; its scale is 1. Modules of a lower rank
    are filled up with zeros, which change nothing. ``base`` names the model that it is for. Raises DataError without edits.
    """
    from peft import LoraConfig

    names = list(dict.fromkeys(name for factors in edits for name in factors))
    if not names:
        raise DataError("there is no edit to save as an adapter; insert knowledge first")
    whole = {name: _bounded(joined([factors[name] for factors in edits if name in factors])) for name in names}
    rank = max(int(pair.down.shape[0]) for pair in whole.values())
    config = LoraConfig(
        r=rank,
        lora_alpha=rank,
        target_modules=names,
        fan_in_fan_out=flipped(model.get_submodule(names[0]), names[0]),
        base_model_name_or_path=base,
        inference_mode=True,
    )
    tensors: dict[str, Tensor] = {}
    for name, pair in whole.items():
        missing = rank - pair.down.shape[0]
        tensors[f"base_model.model.{name}.lora_A.weight"] = nn.functional.pad(pair.down, (0, 0, 0, missing))
        tensors[f"base_model.model.{name}.lora_B.weight"] = nn.functional.pad(pair.up, (0, missing))
    save_tensors(Path(path) / "adapter_model.safetensors", tensors)
    config.save_pretrained(str(path))
    return rank


def _bounded(pair: Factors) -> Factors:
    """The same product with a rank of at most the smaller side of the matrix."""
    inputs, outputs = pair.down.shape[1], pair.up.shape[0]
    if pair.down.shape[0] <= min(inputs, outputs):
        return pair
    product = pair.dense(flipped=False)
    one = torch.eye(min(inputs, outputs), dtype=product.dtype, device=product.device)
    return Factors(one, product) if inputs <= outputs else Factors(product, one)
