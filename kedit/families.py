"""What differs between model families, as a table. The only file that knows a family's name.

Most of a model is found by structure (``get_decoder``, ``config.image_token_id``, the processor's ``image_token``), so that a
family that is not listed works when it is built in the usual way; the table holds what structure does not tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from kedit.errors import FamilyError

# Images, system prompt and texts of models that were never taught a chat format, each on a line of its own.
PLAIN_TEMPLATE = (
    "{% for m in messages if m.role != 'system' and m.content is not string %}"
    "{% for part in m.content if part.type == 'image' %}{{ image_token }}{% endfor %}{% endfor %}"
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
    "{% else %}{{ m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\n') }}{% endif %}"
    "{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}"
)


def _newline(text: str, image_token: str | None, bos: str) -> str:
    return text + "\n"


def _prefix_then_newline(text: str, image_token: str | None, bos: str) -> str:
    """Beginning-of-sequence after the last image and a newline at the end: where the prefix ends for these models."""
    cut = text.rfind(image_token) + len(image_token) if image_token and image_token in text else 0
    return text[:cut] + bos + text[cut:] + "\n"


@dataclass(frozen=True)
class Family:
    """What kedit must know about a family beyond its structure."""

    model_types: tuple[str, ...]
    plain_end: Callable[[str, str | None, str], str] = _newline
    """Completes a text rendered by ``PLAIN_TEMPLATE``: (text, image token, bos token) -> the prompt."""
    processor_completes: bool = False
    """The processor itself does what ``plain_end`` does; it then accepts no request without an image."""
    answer_type_id: int = 0
    """The ``token_type_ids`` value of answer tokens."""


OTHER = Family(model_types=())
FAMILIES = (
    # attends in both directions over its prefix (type 0), causally over the answer (type 1)
    Family(("paligemma",), plain_end=_prefix_then_newline, processor_completes=True, answer_type_id=1),
)
"""InternVL, Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5, LLaVA, LLaVA-OneVision, SmolVLM, Idefics3, Gemma3 and text-only causal
models need no row: tests/models.py builds one of each."""


@dataclass(frozen=True)
class Structure:
    """Where the parts of a model are."""

    decoder: nn.Module
    layers: nn.ModuleList
    vision: nn.Module | None
    image_token_id: int | None
    counts_positions_itself: bool
    """The model computes positions that cannot be derived from the attention mask alone (multimodal rotary embedding)."""


_LAYERS = ("layers", "h", "blocks")


def family_of(model: Any) -> Family:
    """The table's row for a model, or the row of families that need none."""
    kind = getattr(getattr(model, "config", None), "model_type", "")
    return next((family for family in FAMILIES if kind in family.model_types), OTHER)


def read_structure(model: Any) -> Structure:
    """Find decoder, layers, vision encoder and image token of a model; raises FamilyError saying what was looked for."""
    if not hasattr(model, "get_decoder"):
        raise FamilyError(f"{type(model).__name__} has no get_decoder(); kedit reads transformers' generative models")
    decoder = model.get_decoder()
    layers = next((found for name in _LAYERS if isinstance(found := getattr(decoder, name, None), nn.ModuleList)), None)
    if layers is None or len(layers) == 0:
        looked = ", ".join(f"{type(decoder).__name__}.{name}" for name in _LAYERS)
        raise FamilyError(f"no decoder layers in {type(model).__name__}: looked for a ModuleList at {looked}")
    return Structure(decoder, layers, _vision(model, decoder), _image_token_id(model), _mrope(model))


def _vision(model: Any, decoder: nn.Module) -> nn.Module | None:
    if _image_token_id(model) is None or not hasattr(model, "get_encoder"):
        return None
    found = model.get_encoder(modality="image")
    return found if isinstance(found, nn.Module) and found is not model and found is not decoder else None


def _image_token_id(model: Any) -> int | None:
    config = getattr(model, "config", None)
    for name in ("image_token_id", "image_token_index"):
        if isinstance(value := getattr(config, name, None), int):
            return value
    return None


def _mrope(model: Any) -> bool:
    return any(hasattr(module, "get_rope_index") for module in (model, getattr(model, "model", None)))
