"""Fine-tuning on the edit: a few optimiser steps on the matrices of the last decoder layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from kedit.backbone import HFBackbone
from kedit.editor import WeightEditor
from kedit.trunk import capture, replay
from kedit.types import Knowledge
from kedit.weights.descent import Loss, descend
from kedit.weights.modules import layer_indices, matrices, trainable


class FineTune(WeightEditor):
    """Trains chosen matrices on the answer's tokens and the end-of-sequence token, everything else frozen.

    Defaults are those of the CrossCult-KIBench paper (Table 5: 20 steps, learning rate 1e-3, attention and MLP of the last
    layer); the paper does not name the optimiser, here AdamW on fp32 copies of the weights. Each insert starts a new
    optimiser on the model as edited so far.

    ``layers`` are absolute or relative (-1 is the last), ``modules`` of "attention" (whatever mixes tokens) and "mlp";
    norms and biases are never trained. ``stop_loss`` (nats) ends training before the step whose loss is not above it.
    ``removable`` keeps each edit's deltas in host memory. What lies below the lowest layer is computed once per insert;
    ``plain`` runs the whole model at every step instead, with the same result.

    ``insert`` raises DivergedError when a loss or a weight becomes NaN or infinite, and ValueError or FamilyError for layers
    or modules that the model does not have; the model is then unchanged.
    """

    def __init__(
        self,
        *,
        lr: float = 1e-3,
        steps: int = 20,
        layers: Sequence[int] = (-1,),
        modules: Sequence[str] = ("attention", "mlp"),
        weight_decay: float = 0.0,
        stop_loss: float | None = None,
        removable: bool = False,
        plain: bool = False,
    ) -> None:
        self.lr = lr
        self.steps = steps
        self.layers = layers
        self.modules = modules
        self.weight_decay = weight_decay
        self.stop_loss = stop_loss
        self.removable = removable
        self.plain = plain

    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        """Trained minus present weights, fp32, by parameter name."""
        backbone = trainable(self.backbone_, type(self).__name__)
        weights = matrices(backbone, self.layers, self.modules)
        masters = {name: weight.detach().float().clone().requires_grad_() for name, weight in weights.items()}
        descend(
            list(masters.values()),
            self._loss(backbone, knowledge, masters),
            lr=self.lr,
            steps=self.steps,
            weight_decay=self.weight_decay,
            stop_loss=self.stop_loss,
        )
        return {name: (master - weights[name].float()).detach() for name, master in masters.items()}

    def _loss(self, backbone: HFBackbone, knowledge: Knowledge, masters: Mapping[str, Tensor]) -> Loss:
        """The edit's loss as a function of the masters, rounded to the model's dtype where they enter it."""

        def rounded() -> dict[str, Tensor]:
            return {name: master.to(backbone.dtype) for name, master in masters.items()}

        if self.plain:
            return lambda: backbone.loss(knowledge.request, knowledge.answer, parameters=rounded())
        lowest = layer_indices(backbone, self.layers)[0]
        captured = capture(backbone, knowledge.request, knowledge.answer, lowest)
        return lambda: replay(captured, rounded())
