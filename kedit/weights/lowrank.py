"""Changes of weights kept as factors and added to what a module computes, so that the weights themselves never change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from kedit.errors import DataError, DivergedError, FamilyError, unknown_name
from kedit.trunk import tensor_digest


class Factors(NamedTuple):
    """One module's change: ``down`` (rank, inputs) and ``up`` (outputs, rank); the weight's change is ``up @ down``."""

    down: Tensor
    up: Tensor

    def dense(self, flipped: bool) -> Tensor:
        """The change of the weight, in the orientation in which a module that is ``flipped`` or not keeps it."""
        product = self.up @ self.down
        return product.T if flipped else product


def joined(parts: Sequence[Factors]) -> Factors:
    """One pair whose product is the sum of the products; its rank is the sum of the ranks."""
    return Factors(torch.cat([part.down for part in parts]), torch.cat([part.up for part in parts], dim=1))


class Correction:
    """A forward hook that makes a linear module compute as if its weight had changed: y + up (down x).

    Computed in the factors' dtype and rounded once, to the output's. When the summed rank exceeds d o / (d + o), from where
    on a matrix is cheaper than its factors, they are folded into one dense change.
    """

    changes_weight = True
    """Tells whoever looks through a model's hooks that this one is an edit."""

    def __init__(self, module: nn.Module, flipped: bool) -> None:
        self._device = module.weight.device
        self.flipped = flipped
        inputs, outputs = widths(module, flipped)
        self._limit = inputs * outputs / (inputs + outputs)
        self.factors: Factors | None = None
        self.delta: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the output is computed with: factors, or the dense change; none where nothing is added."""
        return (self.delta,) if self.delta is not None else tuple(self.factors or ())

    def add(self, more: Factors) -> None:
        """Put another change on top of those before it."""
        down, up = more.down.to(self._device), more.up.to(self._device)
        if self.delta is not None:
            self.delta = self.delta + up @ down
            return
        self.factors = joined([self.factors, Factors(down, up)]) if self.factors is not None else Factors(down, up)
        if self.factors.down.shape[0] > self._limit:
            self.delta, self.factors = self.factors.dense(flipped=False), None

    def dense(self) -> Tensor:
        """The change of the weight, in its orientation."""
        if self.delta is not None:
            return self.delta.T if self.flipped else self.delta
        if self.factors is None:
            raise DataError("nothing has been added to this module")
        return self.factors.dense(self.flipped)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        if not self.tensors:
            return output
        dtype = torch.promote_types(output.dtype, self.tensors[0].dtype)
        rows = args[0].to(dtype)
        for matrix in self.tensors:
            rows = nn.functional.linear(rows, matrix.to(dtype))
        return (output.to(dtype) + rows).to(output.dtype)


class Overlay:
    """Edits of the linear modules of a model by forward hooks; the model's weights are never touched.

    Edits add up in the order in which they came. Taking one out leaves exactly what the others alone would have made, bit
    for bit. While there is an edit, ``kedit.seal.overlaid(model)`` names the weights it stands for.
    """

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        """``names`` are modules of ``model``; raises FamilyError for one that is not linear."""
        self.modules = {name: model.get_submodule(name) for name in names}
        self.flipped = {name: flipped(module, name) for name, module in self.modules.items()}
        self.edits: dict[str, dict[str, Factors]] = {}
        self._active: dict[str, tuple[Correction, RemovableHandle]] = {}

    def add(self, edit_id: str, factors: Mapping[str, Factors]) -> None:
        """Let one more edit take effect.

        All or nothing: raises UnknownNameError for a module that is not one of these, DataError for a wrong shape or
        an id that is in use, and DivergedError for NaN or infinity, and has then changed nothing.
        """
        if edit_id in self.edits:
            raise DataError(f"there is an edit {edit_id!r} already; drop it first, or use another id")
        for name, pair in factors.items():
            self._check(name, pair)
        self.edits[edit_id] = dict(factors)
        try:
            self._apply(factors)
        except BaseException:  # out of memory, or Ctrl-C: some modules have it, others not
            self.drop(edit_id)
            raise

    def drop(self, edit_id: str) -> None:
        """Take one edit out; raises KeyError for an unknown id."""
        del self.edits[edit_id]
        self._remove_hooks()
        for factors in self.edits.values():
            self._apply(factors)

    def clear(self) -> None:
        """Take all edits out."""
        self.edits.clear()
        self._remove_hooks()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside the block the model computes without these edits."""
        self._remove_hooks()
        try:
            yield
        finally:
            for factors in self.edits.values():
                self._apply(factors)

    def dense(self) -> dict[str, Tensor]:
        """All edits together as changes of weights, by parameter name and in its orientation, such as to export them."""
        return {f"{name}.weight": correction.dense().detach().clone() for name, (correction, _) in self._active.items()}

    def digests(self) -> dict[str, str]:
        """``tensor_digest`` of the weights that the edits stand on, by parameter name."""
        return {f"{name}.weight": tensor_digest(module.weight) for name, module in self.modules.items()}

    def _check(self, name: str, pair: Factors) -> None:
        if name not in self.modules:
            raise unknown_name("module", name, self.modules, "Nothing was changed.")
        inputs, outputs = widths(self.modules[name], self.flipped[name])
        down, up = tuple(pair.down.shape), tuple(pair.up.shape)
        if down[1:] != (inputs,) or up[:1] != (outputs,) or down[0] != up[1]:
            raise DataError(
                f"the factors for {name!r} have shapes {down} and {up}; expected (rank, {inputs}) and ({outputs}, rank); "
                "nothing was changed"
            )
        if not all(bool(torch.isfinite(part).all()) for part in pair):
            raise DivergedError(f"the factors for {name!r} hold NaN or infinity; nothing was changed, try a lower rate")

    def _apply(self, factors: Mapping[str, Factors]) -> None:
        for name, pair in factors.items():
            if name not in self._active:
                correction = Correction(self.modules[name], self.flipped[name])
                self._active[name] = (correction, self.modules[name].register_forward_hook(correction))
            self._active[name][0].add(pair)

    def _remove_hooks(self) -> None:
        for _, handle in self._active.values():
            handle.remove()
        self._active.clear()


def flipped(module: nn.Module, name: str) -> bool:
    """Whether a linear module keeps its weight as (inputs, outputs); raises FamilyError for one that is not linear."""
    from transformers.pytorch_utils import Conv1D

    if not isinstance(module, nn.Linear | Conv1D):
        raise FamilyError(f"{name!r} is {type(module).__name__}; only nn.Linear and Conv1D can be edited by factors")
    return isinstance(module, Conv1D)


def widths(module: Any, is_flipped: bool) -> tuple[int, int]:
    """Width of what goes into a linear module and of what comes out."""
    inputs, outputs = module.weight.shape if is_flipped else (module.in_features, module.out_features)
    return int(inputs), int(outputs)


def pack(edits: Mapping[str, Mapping[str, Factors]]) -> dict[str, Tensor]:
    """Edits as named tensors for a safetensors file; ids are given up for the order."""
    tensors: dict[str, Tensor] = {}
    for number, factors in enumerate(edits.values()):
        for name, pair in factors.items():
            tensors |= {f"{number}/{name}/{part}": tensor for part, tensor in pair._asdict().items()}
    return tensors


def unpack(tensors: Mapping[str, Tensor], count: int, where: str) -> list[dict[str, Factors]]:
    """What ``pack`` made of ``count`` edits, in order; raises DataError where a part is missing."""
    found: list[dict[str, Factors]] = [{} for _ in range(count)]
    try:
        for key in tensors:
            number, name, part = key.split("/")
            if part == "down":
                found[int(number)][name] = Factors(tensors[key], tensors[f"{number}/{name}/up"])
    except (ValueError, IndexError, KeyError) as error:
        raise DataError(f"{where} does not hold the factors of {count} edit(s): {error}; save the edits again") from error
    if not all(found):
        raise DataError(f"{where} holds no factors of edit {found.index({}) + 1} of {count}; save the edits again")
    return found
