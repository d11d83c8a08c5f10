"""The weight matrices of decoder layers, found by structure: what an editor that trains may train."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from torch import nn

from kedit.errors import FamilyError, unknown_name

if TYPE_CHECKING:
    from kedit.backbone import Backbone, HFBackbone

PARTS = {
    "attention": re.compile(r"attn|attention|mixer|mamba|ssm|conv"),
    "mlp": re.compile(r"mlp|ffn|feed_?forward|moe|experts|^fc\d"),
}
"""What the children of a decoder layer are called; "attention" is whatever mixes tokens, linear attention included."""
_GATE = re.compile(r"^gate|^w1$|^wi_0$")
"""What the matrix of a gated MLP is called whose output is multiplied with another's of the same shape."""
_NORM = re.compile(r"norm|^ln_?\d")


def matrices(backbone: Backbone, layers: Sequence[int] | None, parts: Collection[str]) -> dict[str, nn.Parameter]:
    """Every 2-D weight of the named parts of some decoder layers, by parameter name in ``backbone.model``, lowest layer first.

    ``layers`` are absolute or relative (-1 is the last); None means all. ``parts`` are among ``PARTS``. Norms, biases and
    convolutions are left out. Raises UnknownNameError for a part, ValueError for a layer outside the model and FamilyError
    for a layer without such a part.
    """
    for part in parts:
        if part not in PARTS:
            raise unknown_name("part of a layer", part, PARTS)
    found: dict[str, nn.Parameter] = {}
    for index in layer_indices(backbone, layers):
        prefix = name_of(backbone.model, backbone.layers[index])
        for part in parts:
            found.update(_of_part(backbone.layers[index], prefix, part))
    return found


def projections(backbone: Backbone, layers: Sequence[int] | None) -> dict[str, nn.Module]:
    """The modules that lead into and out of the MLP of some decoder layers, by name in ``backbone.model``, lowest first.

    Where two of a layer lead into it, the one that is called a gate is left out. Raises as ``matrices`` does.
    """
    names = [name.removesuffix(".weight") for name in matrices(backbone, layers, ("mlp",)) if name.endswith(".weight")]
    found = {name: backbone.model.get_submodule(name) for name in names}
    shapes = {name: (name.rpartition(".")[0], module.weight.shape) for name, module in found.items()}
    gates = {name for name in found if _GATE.search(name.rpartition(".")[2])}
    twice = {name for name in gates if any(shapes[name] == shapes[other] for other in found if other not in gates)}
    return {name: module for name, module in found.items() if name not in twice}


def layer_indices(backbone: Backbone, layers: Sequence[int] | None) -> list[int]:
    """Absolute indices, ascending and without repetition; ValueError for a layer outside the model or for none at all."""
    wanted = range(len(backbone.layers)) if layers is None else layers
    found = sorted({backbone.layer_index(layer) for layer in wanted})
    if not found:
        raise ValueError("layers is empty; name at least one, such as layers=(-1,), or None for all")
    return found


def trainable(backbone: Backbone, who: str) -> HFBackbone:
    """The backbone, if its weights can be trained here; raises FamilyError otherwise (a remote model, a made-up one)."""
    from kedit.backbone import HFBackbone

    if not isinstance(backbone, HFBackbone):
        raise FamilyError(
            f"{who} trains weights and needs a model whose weights are here, loaded by load_backbone(a hub id or folder); "
            f"got {backbone.id!r}, a {type(backbone).__name__}"
        )
    return backbone


def _of_part(layer: nn.Module, prefix: str, part: str) -> dict[str, nn.Parameter]:
    children = [name for name, _ in layer.named_children()]
    chosen = [name for name in children if PARTS[part].search(name) and not _NORM.search(name)]
    found = {
        f"{prefix}.{child}.{name}": weight
        for child in chosen
        for name, weight in layer.get_submodule(child).named_parameters()
        if weight.dim() == 2
    }
    if not found:
        raise FamilyError(f"layer {prefix!r} has no weight matrix of the part {part!r}; its children are {', '.join(children)}")
    return found


def name_of(model: nn.Module, module: nn.Module) -> str:
    """The name under which a model has a module; StopIteration where it has it not."""
    return next(str(name) for name, candidate in model.named_modules() if candidate is module)
