"""What a model is besides its architecture, remembered, compared and put back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from kedit.backbone import Backbone
from kedit.seal import overlaid


class ModelState:
    """All that an editor must not leave changed in a model: weights, gradients, flags, hooks and modules."""

    def __init__(self, backbone: Backbone) -> None:
        self.model = backbone.model
        self.weights = self.copy_weights()
        self.flags = {name: (p.requires_grad, p.grad) for name, p in self.model.named_parameters()}
        self.modules = dict(self.model.named_modules())
        self.children = {name: dict(module._modules) for name, module in self.modules.items()}
        self.training = {name: module.training for name, module in self.modules.items()}
        self.hooks = {name: _hooks(module) for name, module in self.modules.items()}
        self.others = {name: _hooks(module, edits=False) for name, module in self.modules.items()}

    def copy_weights(self) -> dict[str, Tensor]:
        """Every parameter and buffer as it is now, and what hooks add to weights."""
        return {name: tensor.detach().clone() for name, tensor in _tensors(self.model)}

    def changed_weights(self, weights: dict[str, Tensor] | None = None) -> list[str]:
        """Names of parameters and buffers whose bits differ from ``weights`` (default: those at construction)."""
        before, now = self.weights if weights is None else weights, dict(_tensors(self.model))
        return sorted(n for n in before.keys() | now.keys() if n not in before or n not in now or not _same(before[n], now[n]))

    def changed_rest(self) -> list[str]:
        """What differs besides weights, in words."""
        found = []
        now = dict(self.model.named_modules())
        if now.keys() != self.modules.keys() or any(now[name] is not module for name, module in self.modules.items()):
            names = sorted(n for n in now.keys() | self.modules.keys() if now.get(n) is not self.modules.get(n))
            found.append(f"modules were added, removed or replaced ({', '.join(names[:3])})")
        for name, parameter in self.model.named_parameters():
            required, grad = self.flags.get(name, (parameter.requires_grad, None))
            if parameter.requires_grad != required:
                found.append(f"requires_grad of {name} is {parameter.requires_grad}")
            if parameter.grad is not grad:
                found.append(f"{name} has a gradient: the backbone was trained, not a copy")
        found += [
            f"{n or 'the model'} has another training mode" for n, m in self.modules.items() if m.training != self.training[n]
        ]
        return found + [
            f"{n or 'the model'} has other hooks" for n, m in self.modules.items() if _hooks(m, edits=False) != self.others[n]
        ]

    def restore(self) -> None:
        """Undo what an editor left in modules, weights, gradients, flags and hooks."""
        for name, module in self.modules.items():
            if module._modules != self.children[name]:
                module._modules.clear()
                module._modules.update(self.children[name])
        with torch.no_grad():
            for name, tensor in _tensors(self.model):
                if name in self.weights and not _same(self.weights[name], tensor):
                    tensor.copy_(self.weights[name])
        for name, parameter in self.model.named_parameters():
            if name in self.flags:
                parameter.requires_grad_(self.flags[name][0])
                parameter.grad = self.flags[name][1]
        for name, module in self.modules.items():
            module.training = self.training[name]
            for store, known in zip(_hook_stores(module), self.hooks[name], strict=True):
                for key in [key for key in store if key not in known]:
                    del store[key]


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()
    for name, tensors in overlaid(model).items():  # an edit by hook counts as a change of the weight
        yield from ((f"{name} (hook, part {part})", tensor) for part, tensor in enumerate(tensors, 1))


def _same(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(torch.equal(_bits(one), _bits(other)))


def _hook_stores(module: nn.Module) -> list[dict[int, Any]]:
    stores = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [getattr(module, store) for store in stores]


def _hooks(module: nn.Module, edits: bool = True) -> list[list[int]]:
    """Ids of a module's hooks by kind; those that stand for an edit of its weight only where ``edits``."""
    stores = _hook_stores(module)
    return [[key for key, hook in store.items() if edits or not getattr(hook, "changes_weight", False)] for store in stores]


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
