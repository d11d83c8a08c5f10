"""Low-rank adaptation on the edit: PEFT adapters are trained, read out as changes of the weights, and taken away again."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kedit.artefacts import load_tensors, save_tensors
from kedit.backbone import HFBackbone
from kedit.editor import WeightEditor
from kedit.trunk import capture, replay
from kedit.types import Knowledge
from kedit.weights.adapters import write_adapter
from kedit.weights.descent import descend
from kedit.weights.lowrank import Factors, flipped, pack, unpack
from kedit.weights.modules import layer_indices, matrices, trainable

_ADAPTER = "default"
_FACTORS = "factors.safetensors"


class LoRA(WeightEditor):
    """Trains a low-rank adapter per edit and adds it to the weights (Hu et al. 2022, equation 3: W + alpha / rank * B A).

    ``layers`` are absolute or relative, None for all; ``modules`` of "attention" and "mlp" as matrices of those layers.
    A starts from ``seed`` and B at zero, both in fp32; AdamW without weight decay on the answer's tokens and the
    end-of-sequence token. The defaults of ``lr`` and ``steps`` are kedit's own: an adapter that is to learn one sentence in
    20 steps needs a higher rate than one that is trained on a corpus; at 5e-3 the loss of tiny random models falls by more
    than 90 %. ``stop_loss`` and ``plain`` are those of every editor here that trains: an early end (nats), and the whole
    model at every step.

    Every edit can be removed, since only its factors are kept. ``insert`` raises DivergedError, ValueError or FamilyError
    and leaves the model unchanged; no module of PEFT stays in the model, whatever happens.
    """

    factors_: dict[str, dict[str, Factors]]

    def __init__(
        self,
        *,
        rank: int = 8,
        alpha: float = 16.0,
        lr: float = 5e-3,
        steps: int = 20,
        layers: Sequence[int] | None = None,
        modules: Sequence[str] = ("attention", "mlp"),
        stop_loss: float | None = None,
        seed: int = 0,
        plain: bool = False,
    ) -> None:
        self.rank = rank
        self.alpha = alpha
        self.lr = lr
        self.steps = steps
        self.layers = layers
        self.modules = modules
        self.stop_loss = stop_loss
        self.seed = seed
        self.plain = plain

    def build(self) -> None:
        self.factors_ = {}

    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        """The trained adapter as changes of weights, fp32, by parameter name."""
        return self._dense(self._train(knowledge))

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        factors = self._train(knowledge)
        self.snapshot_.add(self._dense(factors))
        self.factors_[edit_id] = factors

    def unapply(self, edit_id: str) -> None:
        """Back to the original weights, then every other edit's change again in order."""
        self._put_back(self._dense(factors) for other, factors in self.factors_.items() if other != edit_id)
        del self.factors_[edit_id]

    def revert(self) -> None:
        super().revert()
        self.factors_.clear()

    # -- training --------------------------------------------------------------------------------------------------

    def _train(self, knowledge: Knowledge) -> dict[str, Factors]:
        """Factors by module name; the model is left as it was found, by an error too."""
        backbone = trainable(self.backbone_, type(self).__name__)
        names = [name.removesuffix(".weight") for name in matrices(backbone, self.layers, self.modules)]
        with _adapted(backbone, names, self.rank, self.alpha, self.seed) as layers:
            parameters = [weight for pair in map(_pair, layers.values()) for weight in pair]
            if self.plain:
                loss = lambda: backbone.loss(knowledge.request, knowledge.answer)  # noqa: E731
            else:
                lowest = layer_indices(backbone, self.layers)[0]
                captured = capture(backbone, knowledge.request, knowledge.answer, lowest)
                loss = lambda: replay(captured)  # noqa: E731
            descend(parameters, loss, lr=self.lr, steps=self.steps, stop_loss=self.stop_loss)
            return {name: _factors(layer) for name, layer in layers.items()}

    def _dense(self, factors: Mapping[str, Factors]) -> dict[str, Tensor]:
        model = self.backbone_.model
        return {f"{name}.weight": pair.dense(flipped(model.get_submodule(name), name)) for name, pair in factors.items()}

    # -- artefacts -------------------------------------------------------------------------------------------------

    def save_adapter(self, path: str | Path) -> None:
        """Write all inserted edits as one adapter that ``peft.PeftModel.from_pretrained(model, path)`` loads.

        Its rank is the sum of the edits' ranks, at most what a matrix can have, and its scale 1. Raises DataError when nothing
        is inserted.
        """
        self._require_attached()
        write_adapter(path, self.backbone_.model, list(self.factors_.values()), self.backbone_.id)

    def save_edits(self, path: str | Path) -> None:
        """As for every weight editor, plus the factors of each edit."""
        super().save_edits(path)
        save_tensors(Path(path) / _FACTORS, pack(self.factors_))

    def load_edits(self, path: str | Path) -> None:
        """As for every weight editor; the loaded edits can be removed one by one."""
        self._require_attached()
        known = set(self.edits_)
        file = Path(path) / _FACTORS
        tensors = load_tensors(file)
        factors = unpack(tensors, len({key.partition("/")[0] for key in tensors}), str(file))
        super().load_edits(path)
        device = self.backbone_.device
        for edit_id, pairs in zip((edit for edit in self.edits_ if edit not in known), factors, strict=True):
            self.factors_[edit_id] = {name: Factors(*(part.to(device) for part in pair)) for name, pair in pairs.items()}


@contextmanager
def _adapted(backbone: HFBackbone, names: Sequence[str], rank: int, alpha: float, seed: int) -> Iterator[dict[str, Any]]:
    """Inside the block the named modules carry a fresh adapter; PEFT's layer by module name."""
    from peft import LoraConfig
    from peft.tuners.lora import LoraModel

    model = backbone.model
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(names), lora_dropout=0.0, bias="none")
    required = {name: weight.requires_grad for name, weight in model.named_parameters()}
    devices = [backbone.device] if backbone.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        torch.manual_seed(seed)
        warnings.filterwarnings("ignore", message="fan_in_fan_out")  # PEFT sets it right by itself
        tuner = LoraModel(model, config, _ADAPTER)
    try:
        layers = {name: model.get_submodule(name) for name in names}
        for layer in layers.values():
            for weight in _pair(layer):
                weight.data = weight.data.float()
        yield layers
    finally:
        tuner.unload()
        for name, weight in model.named_parameters():
            weight.requires_grad_(required[name])


def _pair(layer: Any) -> tuple[nn.Parameter, nn.Parameter]:
    return layer.lora_A[_ADAPTER].weight, layer.lora_B[_ADAPTER].weight


def _factors(layer: Any) -> Factors:
    down, up = _pair(layer)
    return Factors(down.detach().clone(), up.detach() * layer.scaling[_ADAPTER])
