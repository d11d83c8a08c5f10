"""Which embedded backbones exist and where their weights are; resolving a name loads nothing."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kedit.errors import unknown_name
from kedit.zoo.words import NAME_QUESTIONS

if TYPE_CHECKING:
    from kedit.zoo.recipe import Recipe

_SHIPPED = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Preset:
    """An embedded model: its name, one line about it, and the module of its recipe, with the recipe's name in it."""

    name: str
    summary: str
    module: str
    recipe: str = "RECIPE"
    parent: str | None = None
    """The preset whose language it starts from."""
    replacement: str | None = None
    """The smaller preset that answers in its place for editors with a replacement model; None for those smaller ones."""
    editor_params: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By editor's short name: parameters that differ from the paper's because the model is so small."""


_ROUTED: Mapping[str, object] = {
    "router_train": "head",
    "router_epochs": 10,
    "router_lr": 1e-3,
    "stored_image": False,
    "replacement_lr": 1e-4,
}
_SMALL: Mapping[str, Mapping[str, object]] = {
    "ike": {"demos": 1, "pool": 580},
    "lora": {"layers": (-2, -1)},
    "mend": {
        "rank": 64,
        "lr": 1e-4,
        "layers": (-1,),
        "edit_lr": 0.04,
        "step_size_lr": 1e-3,
        "accumulate": 2,
        "edit_weight": 1.0,
        "steps": 10,
        "epochs": 4,
        "keep_trunks": 3000,
    },
    "serac": _ROUTED,
    "mscke": {**_ROUTED, "encoder": "tiny-clip"},
    "mcki": {"wrap": "fact", "stored_image": False, "dim": 256, "epochs": 3},
    "textual": {"place": "before", "wrap": "fact"},
    "multimodal": {"wrap": "fact"},
    "one-shot": {"repeat": False, "wrap": "fact"},
    "oracle": {"wrap": "fact"},
    "retrieved": {"wrap": "fact", "caption_prompt": {language: asked[0] for language, asked in NAME_QUESTIONS.items()}},
}
"""These models take one image, were taught one wording, and are too small for the paper's learning rates."""
FITTED_ON: Mapping[str, tuple[int, float]] = {
    "mend": (145, 0.05),
    "serac": (145, 0.05),
    "mscke": (145, 0.05),
    "mcki": (580, 0.02),
}
"""By editor's short name: raw train cases behind what ships for embedded backbones, and the share held out to validate."""


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="tiny-internvl",
            summary="InternVL with a Qwen3 decoder, 3.5 M parameters, trained on drawn scenes in English, Chinese and Arabic",
            module="kedit.zoo.tiny_internvl",
            replacement="tiny-internvl-small",
            editor_params=_SMALL,
        ),
        Preset(
            name="tiny-internvl-small",
            summary="three layers of tiny-internvl, practised in answering with one reference in view",
            module="kedit.zoo.tiny_internvl",
            recipe="SMALL",
            parent="tiny-internvl",
        ),
        Preset(
            name="tiny-qwen3.5",
            summary="Qwen3.5, one layer of linear and three of full attention, 3.7 M parameters, taught by tiny-internvl",
            module="kedit.zoo.tiny_qwen3_5",
            parent="tiny-internvl",
            replacement="tiny-qwen3.5-small",
            editor_params=_SMALL,
        ),
        Preset(
            name="tiny-qwen3.5-small",
            summary="three layers of tiny-qwen3.5, practised in answering with one reference in view",
            module="kedit.zoo.tiny_qwen3_5",
            recipe="SMALL",
            parent="tiny-qwen3.5",
        ),
    )
}


PARTS: Mapping[str, str] = {"tiny-clip": "open_clip model of 1.7 M parameters for pictures and texts in three languages"}
"""Embedded models that are no backbones."""


def folder(name: str) -> Path:
    """Where an embedded model's weights are or would be: under KEDIT_ZOO if set and there, else with the package."""
    if name not in PRESETS and name not in PARTS:
        raise unknown_name("embedded model", name, [*PRESETS, *PARTS])
    own = os.environ.get("KEDIT_ZOO")
    if own and _weights(Path(own) / name):
        return Path(own) / name
    return _SHIPPED / name


def _weights(place: Path) -> bool:
    return any((place / file).exists() for file in ("model.safetensors", "open_clip_model.safetensors"))


def recipe_of(name: str) -> Recipe:
    """What a preset is made of (imports torch); raises UnknownNameError."""
    folder(name)  # a misspelt name is found here
    found: Recipe = getattr(importlib.import_module(PRESETS[name].module), PRESETS[name].recipe)
    return found


def available(name: str) -> bool:
    """Whether the weights of an embedded model are on this machine."""
    return _weights(folder(name))


def resolve(name: str) -> Path | None:
    """The folder of an embedded backbone's weights, or None where ``name`` is none of them."""
    return folder(name) if name in PRESETS else None


def editor_params(backbone: str, editor: str) -> dict[str, object]:
    """Parameters that an embedded backbone asks of an editor; empty for every other model."""
    preset = PRESETS.get(backbone)
    return dict(preset.editor_params.get(editor, {})) if preset else {}


def replacement(backbone: str) -> str | None:
    """The smaller embedded model that stands in for an embedded backbone; None where there is none."""
    preset = PRESETS.get(backbone)
    return preset.replacement if preset else None


def artefact(backbone: str, editor: str) -> Path | None:
    """The folder of what an editor (by short name) learned for an embedded backbone; None where nothing ships."""
    if backbone not in PRESETS:
        return None
    found = folder(backbone) / "editors" / editor
    return found if (found / "editor.json").is_file() else None
