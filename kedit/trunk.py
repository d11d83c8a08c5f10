"""Work on weights: snapshots of what an edit touches, and the forward pass below an edit run once instead of at every step."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kedit.errors import DataError, FamilyError, unknown_name
from kedit.types import Request

if TYPE_CHECKING:
    from kedit.backbone import HFBackbone


def tensor_digest(tensor: Tensor) -> str:
    """SHA-256 (64 hex digits) over a tensor's dtype, shape and bytes."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tensors_digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 (64 hex digits) over names and ``tensor_digest`` of tensors, in the order given."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tensor_digest(tensor)}\n".encode())
    return digest.hexdigest()


class Snapshot:
    """The original values of the weights that edits have touched, and only of those.

    After ``restore`` every weight is bit-identical to what it was before the first ``add``.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._originals: dict[str, Tensor] = {}

    @cached_property
    def _parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.model.named_parameters(remove_duplicate=False))

    @property
    def touched(self) -> tuple[str, ...]:
        """Names of the changed parameters, in the order of their first change."""
        return tuple(self._originals)

    def add(self, deltas: Mapping[str, Tensor]) -> None:
        """Add a delta to each named parameter: summed in fp32, rounded once to the parameter's dtype.

        All or nothing: raises UnknownNameError for an unknown name and DataError for a wrong shape, NaN or infinity, or two
        names of one tied parameter, and has then changed nothing.
        """
        with torch.no_grad():
            changed = {name: self._sum(name, delta) for name, delta in deltas.items()}
            if len({id(self._parameters[name]) for name in deltas}) < len(deltas):
                raise DataError(f"two of the deltas are for one tied parameter: {', '.join(deltas)}; add them up under one name")
            fresh = {self._canonical(name): self._parameters[name].detach().clone() for name in deltas}
            new = [name for name in fresh if name not in self._originals]
            try:
                self._originals.update({name: fresh[name] for name in new})
                self._put(changed)
            except BaseException:  # Ctrl-C: half of an edit must not stay
                self._put(fresh)
                for name in new:
                    self._originals.pop(name, None)
                raise

    def restore(self) -> None:
        """Put every touched weight back, bit for bit, and forget it; does nothing when none is touched."""
        self._put(self._originals)
        self._originals.clear()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside the block every touched weight has its original value; afterwards its edited one again, bit for bit."""
        edited = self._now()
        try:
            self._put(self._originals)
            yield
        finally:
            self._put(edited)

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        """An error in the block, Ctrl-C too, leaves every weight and what is known of it as they were before it."""
        edited, originals = self._now(), dict(self._originals)
        try:
            yield
        except BaseException:
            self._put(self._originals | originals)  # also of weights that were touched inside for the first time
            self._put(edited)
            self._originals = originals
            raise

    def _now(self) -> dict[str, Tensor]:
        """Copies of the touched weights."""
        return {name: self._parameters[name].detach().clone() for name in self._originals}

    def _put(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            try:
                self._copy(values)
            except BaseException:  # Ctrl-C: some have their value and others not; it goes on when all have
                self._copy(values)
                raise

    def _copy(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._parameters[name].copy_(value)

    def difference(self) -> dict[str, Tensor]:
        """Edited minus original value of every touched parameter, fp32."""
        with torch.no_grad():
            return {name: self._parameters[name].float() - original.float() for name, original in self._originals.items()}

    def digests(self) -> dict[str, str]:
        """``tensor_digest`` of the original value of every touched parameter."""
        return {name: tensor_digest(original) for name, original in self._originals.items()}

    def _sum(self, name: str, delta: Tensor) -> Tensor:
        if name not in self._parameters:
            raise unknown_name("parameter", name, self._parameters, "Nothing was changed.")
        weight = self._parameters[name]
        if delta.shape != weight.shape:
            expected, got = tuple(weight.shape), tuple(delta.shape)
            raise DataError(f"the delta for {name!r} has shape {got}, its parameter {expected}; nothing was changed")
        if not torch.isfinite(delta).all():
            raise DataError(f"the delta for {name!r} holds NaN or infinity (diverged?); nothing was changed, try a lower rate")
        return (weight.float() + delta.to(weight.device, torch.float32)).to(weight.dtype)

    def _canonical(self, name: str) -> str:
        parameter = self._parameters[name]
        return next(other for other, value in self._parameters.items() if value is parameter)


@dataclass(frozen=True)
class Captured:
    """Everything that a replay above ``lowest`` needs; all tensors are constants.

    ``hidden`` is what enters layer ``lowest``, (1, tokens, width). ``rows`` are the positions whose logits predict
    ``targets``, the answer's tokens and the end-of-sequence token.
    """

    backbone: HFBackbone
    lowest: int
    inputs: Mapping[str, Any]
    hidden: Tensor
    rows: Tensor
    targets: Tensor


def capture(backbone: HFBackbone, request: Request, answer: str, lowest: int) -> Captured:
    """Run the model once without gradient and keep what enters decoder layer ``lowest`` (absolute, or relative as -1, -2, ...).

    Valid until a weight below that layer, an embedding or the vision encoder changes. Raises ValueError for a layer outside
    the model. (Exact speed-up for editors that train the top layers only: everything below is the same at every step.)
    """
    lowest = backbone.layer_index(lowest)
    taught = backbone.teach(request, answer)
    seen: list[Tensor] = []
    layer = backbone.layers[lowest]
    hook = layer.register_forward_pre_hook(lambda _, args, kwargs: seen.append(_first(args, kwargs)), with_kwargs=True)
    try:
        with torch.no_grad():
            output = backbone.forward(taught.inputs, rows=taught.rows)
    finally:
        hook.remove()
    if len(seen) != 1:
        raise FamilyError(f"decoder layer {lowest} ran {len(seen)} times in one forward pass; capture needs exactly one")
    inputs = _without_pixels(backbone, taught.inputs, getattr(output, "image_outputs", None))
    return Captured(backbone, lowest, inputs, seen[0].detach(), taught.rows, taught.targets)


def replay(captured: Captured, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
    """The loss of ``backbone.loss`` recomputed from the captured state: only layers >= lowest and the head run.

    In the last layer, whose other positions nobody reads, what works token by token runs on the rows of the loss alone; hooks
    on those modules see these rows only.
    ``parameters`` (name in ``backbone.model`` -> tensor) stand in for the model's own, so that a method can differentiate with
    respect to copies, such as fp32 masters. Gradients of weights above the cut equal those of the whole model; weights
    below it, tied embeddings included, get none from there.
    """
    return captured.backbone.nll(_replayed(captured, parameters), captured.rows, captured.targets)


def replay_logits(captured: Captured, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
    """The logits (rows, vocabulary; fp32) at ``captured.rows``, recomputed as in ``replay``."""
    return captured.backbone.logits(_replayed(captured, parameters), captured.rows)


def _replayed(captured: Captured, parameters: Mapping[str, Tensor] | None) -> Any:
    backbone = captured.backbone
    tokens = captured.hidden.shape[1]
    with _above(backbone.layers, captured.lowest, captured.hidden), _on_rows(backbone.layers[-1], captured.rows, tokens):
        return backbone.forward(captured.inputs, rows=captured.rows, parameters=parameters)


class _Passed(nn.Module):  # type: ignore[misc]
    """Stands in for a layer below the cut: gives back its input, and the layer's attributes to code that asks."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "_layer", layer)  # not a submodule: its parameters must not seem to be here

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_layer"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return _first(args, kwargs)


@contextmanager
def _above(layers: nn.ModuleList, lowest: int, hidden: Tensor) -> Iterator[None]:
    """Layers below ``lowest`` pass their input through and layer ``lowest`` receives ``hidden``; restores the model always."""
    below = [layers[index] for index in range(lowest)]
    cut = layers[lowest]
    hook = cut.register_forward_pre_hook(lambda _, args, kwargs: _replace_first(args, kwargs, hidden), with_kwargs=True)
    try:
        for index, layer in enumerate(below):
            layers[index] = _Passed(layer)
        yield
    finally:
        hook.remove()
        for index, layer in enumerate(below):
            layers[index] = layer


_TOKENWISE = ("mlp", "q_proj", "o_proj", "out_proj", "c_proj")
"""Parts of a decoder layer that treat every position by itself, by their usual names; keys and values are needed everywhere."""


@contextmanager
def _on_rows(layer: nn.Module, rows: Tensor, tokens: int) -> Iterator[None]:
    """The token-wise parts of a layer compute ``rows`` only and give zeros elsewhere; a part inside another is left alone."""
    names = [name for name, _ in layer.named_modules() if name.rpartition(".")[2] in _TOKENWISE]
    outer = [name for name in names if not any(name.startswith(f"{other}.") for other in names)]
    narrowed: set[nn.Module] = set()

    def narrow(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not args or args[0].dim() != 3 or args[0].shape[1] != tokens:
            return None
        narrowed.add(module)
        return (args[0][:, rows], *args[1:])

    def spread(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if module not in narrowed:
            return output
        narrowed.discard(module)
        few = output if isinstance(output, Tensor) else output[0]
        full = few.new_zeros(few.shape[0], tokens, few.shape[2]).index_copy(1, rows, few)
        return full if isinstance(output, Tensor) else (full, *output[1:])

    parts = [layer.get_submodule(name) for name in outer]
    hooks = [hook for part in parts for hook in (part.register_forward_pre_hook(narrow), part.register_forward_hook(spread))]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _first(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return args[0] if args else kwargs["hidden_states"]


def _replace_first(args: tuple[Any, ...], kwargs: dict[str, Any], hidden: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((hidden, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": hidden})


def _without_pixels(backbone: HFBackbone, inputs: Mapping[str, Any], image_outputs: Any) -> dict[str, Any]:
    """Model inputs in which encoded images stand for pixels, where the model takes them, so that no replay encodes again."""
    takes = "mm_encoder_outputs" in inspect.signature(backbone.model.forward).parameters
    if image_outputs is None or not takes:
        return dict(inputs)
    kept = {name: value for name, value in inputs.items() if name != "pixel_values"}
    return {**kept, "mm_encoder_outputs": {"image": image_outputs}}
