"""An edited model as a plain transformers checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kedit.checkpoints import quiet
from kedit.editor import Editor, WeightEditor
from kedit.errors import ExportError
from kedit.exporting.common import Export, finish, require_edits, set_dtype
from kedit.exporting.folder import fresh_folder

_DTYPES = ("float32", "bfloat16", "float16")


def export_model(editor: Editor, path: str | Path, *, dtype: str | None = None, overwrite: bool = False) -> Export:
    """Write the edited model as safetensors with its processor, for ``from_pretrained`` without kedit.

    What hooks add (edits that are kept as factors) is summed with the weights in fp32 and rounded once to the model's type;
    ``notes["lost to rounding"]`` is the norm of what the rounding took, as a share of that of the change. Where that is not
    small, as in bfloat16 with small changes, ``dtype`` "float32" writes the whole model in fp32. The model in memory stays
    as it is. Raises ExportError for an editor whose answers do not come from changed weights, for a model that is not
    transformers', and where nothing is inserted; StoreError as ``fresh_folder`` does.
    """
    if dtype is not None and dtype not in _DTYPES:
        raise ExportError(f"dtype {dtype!r} is unknown; use {', '.join(_DTYPES)}, or leave it out for the model's own")
    require_edits(editor)
    require_weights(editor)
    backbone: Any = editor.backbone_
    model = saveable(backbone.model, editor)
    with fresh_folder(path, overwrite=overwrite) as folder:
        state, lost = merged(model, getattr(torch, dtype) if dtype else None)
        with quiet(str(folder)):
            model.save_pretrained(str(folder), state_dict=state)
        if dtype is not None:
            set_dtype(folder / "config.json", dtype)
        backbone.processor.save_pretrained(str(folder))
        notes: dict[str, str | int | float] = {"dtype": dtype or str(backbone.dtype)[6:], "lost to rounding": round(lost, 6)}
        finish(folder, editor, "model", notes)
    return Export(Path(path), "model", len(editor.edits_), notes)


def require_weights(editor: Editor) -> None:
    """Raise ExportError for an editor that does not answer by changed weights alone."""
    if not isinstance(editor, WeightEditor):
        raise ExportError(
            f"{editor.name} leaves the weights as they are: it rewrites requests or has others answer them, which no plain "
            "model and no adapter can hold; use export_memory (--as memory)"
        )
    if type(editor).generate is not WeightEditor.generate:
        raise ExportError(f"{editor.name} does more than to change weights (it has a generate() of its own); use export_memory")


def saveable(model: Any, editor: Editor) -> Any:
    """The model, if transformers can save it."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise ExportError(
            f"{editor.name} edits a {type(model).__name__}; only a transformers model that runs here can be exported as weights"
        )
    return model


def merged(model: nn.Module, dtype: torch.dtype | None = None) -> tuple[dict[str, Tensor], float]:
    """All weights with what hooks add to them, and the share of that change that rounding took (0 without hooks).

    Tied weights stay tied. Floating-point weights come in ``dtype``, by default each in its own. Raises ExportError for
    weights that are quantised or not in memory.
    """
    state: dict[str, Tensor] = model.state_dict()
    if away := [name for name, weight in state.items() if weight.device.type == "meta"]:
        raise ExportError(
            f"{len(away)} weights are not in memory ({away[0]!r}): load the model whole, on one device, to export it"
        )
    done: dict[tuple[int, torch.Size], Tensor] = {}
    taken = whole = 0.0
    for name, change in overlays(model).items():
        weight = state[name]
        if not weight.is_floating_point() or weight.shape != change.shape:
            raise ExportError(
                f"{name!r} is {weight.dtype} of shape {tuple(weight.shape)}, to which a change of shape {tuple(change.shape)} "
                "cannot be added: load the model without quantisation, or export an adapter"
            )
        exact = weight.cpu().double() + change.cpu().double()  # on the CPU: not every accelerator has float64
        result = exact.float().to(dtype or weight.dtype)
        done[weight.data_ptr(), weight.shape] = result
        taken += float((result.double() - exact).square().sum())
        whole += float(change.cpu().double().square().sum())
    found = {name: done.get((weight.data_ptr(), weight.shape), weight) for name, weight in state.items()}
    if dtype is not None:
        found = _cast(found, dtype)
    return found, (taken / whole) ** 0.5 if whole else 0.0


def _cast(state: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    done: dict[tuple[int, torch.Size], Tensor] = {}  # tied weights are one tensor under two names
    for weight in state.values():
        if weight.is_floating_point():
            done.setdefault((weight.data_ptr(), weight.shape), weight.to(dtype))
    return {name: done.get((weight.data_ptr(), weight.shape), weight) for name, weight in state.items()}


def overlays(model: nn.Module) -> dict[str, Tensor]:
    """By the name of a weight: the change that edits by forward hooks stand for, in the weight's orientation, fp32.

    Such a hook has an attribute ``changes_weight`` that is true and a method ``dense()``; raises ExportError without the latter.
    """
    found: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        for hook in module._forward_hooks.values():
            if not getattr(hook, "changes_weight", False) or not hook.tensors:
                continue
            dense: Callable[[], Tensor] | None = getattr(hook, "dense", None)
            if dense is None:
                raise ExportError(f"{type(hook).__name__} on {name!r} says that it changes weights, but has no dense() to merge")
            change = dense().detach().float()
            found[f"{name}.weight"] = found[f"{name}.weight"] + change if f"{name}.weight" in found else change
    return found
