"""Which embedded backbones exist and where their weights are; resolving a name loads nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kedit.errors import unknown_name

_SHIPPED = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Preset:
    """An embedded backbone: its name, one line about it, the module that trains it, and settings of editors that suit it."""

    name: str
    summary: str
    module: str
    editor_params: Mapping[str, Mapping[str, object]]
    """By editor's short name: parameters that differ from the paper's because the model is so small."""


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="tiny-internvl",
            summary="InternVL with a Qwen3 decoder, 3.5 M parameters, trained on drawn scenes in English, Chinese and Arabic",
            module="kedit.zoo.train",
            editor_params={"ike": {"demos": 1, "pool": 580}, "lora": {"layers": (-2, -1)}},
        ),
    )
}


def folder(name: str) -> Path:
    """Where a preset's weights are or would be: under KEDIT_ZOO if set and there, else with the package."""
    if name not in PRESETS:
        raise unknown_name("embedded backbone", name, PRESETS)
    own = os.environ.get("KEDIT_ZOO")
    if own and (Path(own) / name / "config.json").exists():
        return Path(own) / name
    return _SHIPPED / name


def available(name: str) -> bool:
    """Whether the weights of a preset are on this machine."""
    return (folder(name) / "model.safetensors").exists()


def resolve(name: str) -> Path | None:
    """The folder of an embedded backbone's weights, or None where ``name`` is none of them."""
    return folder(name) if name in PRESETS else None


def editor_params(backbone: str, editor: str) -> dict[str, object]:
    """Parameters that an embedded backbone asks of an editor; empty for every other model."""
    preset = PRESETS.get(backbone)
    return dict(preset.editor_params.get(editor, {})) if preset else {}
