"""How much faster trunk capture fine-tunes the last layer of a 30-layer model than whole forward passes do.

python tests/perf/trunk_ratio.py [--layers 30] [--width 256] [--tokens 300] [--steps 20] [--rounds 3]

Both ways train the same weights with the same optimiser from the same start: the plain way runs the whole model at every step
with gradients for the edited weights only, the other captures the trunk once. They are timed in turns; the least of each counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

import models
import samples

from kedit.backbone import HFBackbone, load_backbone
from kedit.trunk import capture, replay
from kedit.types import Request

ANSWER = "A red clock and a green hat on the table, which one would you choose, and why would it matter?"


def long_request(backbone: HFBackbone, tokens: int) -> Request:
    """A question about three images after enough context to fill at least ``tokens`` tokens together with the answer."""
    context: tuple[str, ...] = ()
    while True:
        request = Request("What is shown in this picture?", (samples.A, samples.B, samples.C), context=context)
        if backbone.teach(request, ANSWER).inputs["input_ids"].shape[1] >= tokens:
            return request
        context += (models.TEXT[len(context) % len(models.TEXT)],)


def deep_backbone(layers: int, width: int) -> HFBackbone:
    models.TEXT_SIZES.update(num_hidden_layers=layers, hidden_size=width, intermediate_size=3 * width, head_dim=width // 4)
    model, processor = models.internvl()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        return load_backbone(folder, device="cpu")


def train(backbone: HFBackbone, steps: int, make_loss: Callable[[], Callable[[], Tensor]]) -> tuple[float, Tensor]:
    """Seconds of ``steps`` AdamW steps on the last layer, and the update; the weights are put back."""
    parameters = list(backbone.layers[-1].parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    start = time.perf_counter()
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.0)
    loss = make_loss()
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
    seconds = time.perf_counter() - start
    update = torch.cat([(p.detach() - b).flatten() for p, b in zip(parameters, before, strict=True)])
    for parameter, value in zip(parameters, before, strict=True):
        parameter.requires_grad_(False).copy_(value)
    return seconds, update


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"layers": 30, "width": 256, "tokens": 300, "steps": 20, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    backbone = deep_backbone(options.layers, options.width)
    request = long_request(backbone, options.tokens)
    tokens = backbone.teach(request, ANSWER).inputs["input_ids"].shape[1]

    def whole() -> Callable[[], Tensor]:
        return lambda: backbone.loss(request, ANSWER)

    def captured() -> Callable[[], Tensor]:
        state = capture(backbone, request, ANSWER, -1)
        return lambda: replay(state)

    seconds: dict[str, list[float]] = {"plain": [], "capture": []}
    updates: dict[str, Tensor] = {}
    for _ in range(options.rounds):
        for name, way in (("plain", whole), ("capture", captured)):
            backbone.counters.reset()
            spent, updates[name] = train(backbone, options.steps, way)
            seconds[name].append(spent)
            print(f"{name:8} {spent:7.3f} s  {asdict(backbone.counters)}")
    difference = (updates["plain"] - updates["capture"]).abs().max() / updates["plain"].norm()
    print(f"{options.layers} layers, width {options.width}, {tokens} tokens, {options.steps} steps")
    print(f"wall ratio plain / capture: {min(seconds['plain']) / min(seconds['capture']):.1f}")
    print(f"largest weight difference / norm of the update: {difference:.1e}")


if __name__ == "__main__":
    main()
