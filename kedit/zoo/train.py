"""Train an embedded backbone from nothing to the shipped file: tokenizer, eyes, then language; saves as it goes.

Every step's samples come from (seed, step) alone, so a stopped training resumes where it was with the same result.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor, nn
from torch.nn import functional as F

from kedit.backbone import load_backbone
from kedit.benchmarks import scene
from kedit.weights.modules import trainable
from kedit.zoo.catalogue import PRESETS, recipe_of
from kedit.zoo.catalogue import folder as folder_of
from kedit.zoo.encode import Batch, Encoded, Encoder, Pixels, Scrambler, bucketed, collate, from_bytes
from kedit.zoo.measure import abilities, card
from kedit.zoo.plan import Plan
from kedit.zoo.recipe import Recipe
from kedit.zoo.samples import Maker, corpus, draw_spec, scenarios
from kedit.zoo.transplant import copy_decoder, imitate_eyes, imitate_mixer, keep_layers

log = logging.getLogger(__name__)
LANGUAGE = "language.pt"


def train(name: str, out: Path, plan: Plan | None = None, workers: int = 1, measure: int = 48) -> Path:
    """Make an embedded backbone in ``out`` (resuming what is there) and return the folder of the finished weights.

    ``plan`` is the recipe's own where it is None. ``workers`` processes of one thread each share the batches of a step; any
    number gives the same steps up to rounding.
    ``measure`` is the number of held-out samples per ability on the card.
    """
    recipe = recipe_of(name)
    plan = plan or recipe.plan
    out.mkdir(parents=True, exist_ok=True)
    processor = _processor(recipe, out, plan)
    torch.manual_seed(plan.seed)
    model = recipe.make_model(processor.tokenizer).train()
    pixels = Pixels(processor, recipe)
    images = pictures(plan)
    _fill(pixels, images, out)
    if not recipe.kept:
        _eyes(recipe, model, pixels, images, plan, out)
    if not (out / LANGUAGE).exists():
        if parent := PRESETS[name].parent:
            _inherit(recipe, model, parent, processor, pixels, images, plan)
        save_checkpoint(out / LANGUAGE, model, make_optimiser(model, plan.rate), 0)
    if workers == 1:
        _language(0, 1, name, out, plan)
    else:
        (out / "rendezvous").unlink(missing_ok=True)
        torch.multiprocessing.spawn(_language, (workers, name, out, plan), nprocs=workers)
    model.load_state_dict(torch.load(out / LANGUAGE, weights_only=True)["model"])
    recipe.save(model.eval(), processor, out / name)
    _write_card(name, out / name, plan, measure)
    return out / name


def _write_card(name: str, folder: Path, plan: Plan, n: int) -> None:
    """Measure the saved weights, as anybody loads them, and write what they can do beside them."""
    backbone = trainable(load_backbone(str(folder), device="cpu"), "kedit zoo train")
    size = (folder / "model.safetensors").stat().st_size / 1e6
    seen = plan.steps * plan.batches * plan.budget / 1e6
    phases = ", then ".join(f"{phase.steps} steps of {phase.mix!r} at {phase.rate:g}" for phase in plan.phases)
    begins = _begins(name, plan)
    facts = {
        "Parameters": f"{sum(p.numel() for p in backbone.model.parameters()) / 1e6:.2f} M, {size:.1f} MB in fp16",
        "Made by": f"`kedit zoo train {name}` with seed {plan.seed}",
        "Training": f"{begins}; {phases}; at most {seen:.1f} M padded tokens",
        "Pictures": f"{plan.images} for each of {len(scenarios())} scenarios",
    }
    found = abilities(backbone, backbone.processor.tokenizer, n=n)
    (folder / "README.md").write_text(card(name, found, facts), encoding="utf-8")
    (folder / "plan.json").write_text(json.dumps(asdict(plan), indent=1) + "\n", encoding="utf-8")


def _begins(name: str, plan: Plan) -> str:
    """What came before the language training."""
    parent, recipe = PRESETS[name].parent, recipe_of(name)
    if recipe.kept:
        return f"layers {', '.join(map(str, recipe.kept))} and everything else of {parent}"
    if parent is None:
        return f"eyes {plan.vision_steps} steps"
    return (
        f"eyes {plan.vision_steps} steps, and {plan.eyes_imitate} to see as {parent} does; its decoder copied, "
        f"but for linear attention, which learned to imitate the parent's in {plan.layer_imitate} steps"
    )


def _processor(recipe: Recipe, out: Path, plan: Plan) -> Any:
    from transformers import AutoProcessor

    folder = out / "processor"
    if not folder.exists():
        if parent := PRESETS[recipe.name].parent:
            given = AutoProcessor.from_pretrained(folder_of(parent)).tokenizer
            tokenizer = recipe.adopt_tokenizer(recipe_of(parent), given)
        else:
            tokenizer = recipe.train_tokenizer(corpus(random.Random(f"{plan.seed}|tokenizer"), plan.corpus))
        recipe.make_processor(tokenizer).save_pretrained(folder)
    return AutoProcessor.from_pretrained(folder)


def pictures(plan: Plan) -> dict[str, list[scene.SceneSpec]]:
    """What is shown in training, by scenario: drawn by the plan's seed, other jitter than any benchmark's."""
    rng = random.Random(f"{plan.seed}|pictures")
    return {name: [draw_spec(rng, name) for _ in range(plan.images)] for name in sorted(scenarios())}


def _fill(pixels: Pixels, images: dict[str, list[scene.SceneSpec]], out: Path) -> None:
    """Render every picture once and keep the pixels beside the checkpoints."""
    specs = [spec for group in images.values() for spec in group]
    file = out / "pixels.pt"
    if file.exists():
        pixels.store = dict(zip(specs, torch.load(file, weights_only=True), strict=True))
        return
    for spec in specs:
        pixels[spec]
    torch.save(torch.stack([pixels.store[spec] for spec in specs]), file)


def schedule(step: int, total: int, rate: float, warmup: int = 40) -> float:
    """The rate at a step: a linear rise, then a cosine down to a twentieth."""
    if step < warmup:
        return rate * (step + 1) / warmup
    return rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup))))


def make_optimiser(module: nn.Module, rate: float) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices alone."""
    matrices = [p for p in module.parameters() if p.requires_grad and p.ndim >= 2]
    vectors = [p for p in module.parameters() if p.requires_grad and p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))


def take_step(model: nn.Module, optimiser: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    """One step of the optimiser along a loss, at a rate, with the gradient's norm clipped."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    _apply(model, optimiser)


def _apply(model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


# -- eyes ----------------------------------------------------------------------------------------------------------------


def _labels(spec: scene.SceneSpec, names: list[str]) -> tuple[int, int, int, int]:
    colours = list(scene.palette()["colours"])
    return names.index(spec.scenario), colours.index(spec.colour), scene.COUNTS.index(spec.count), scene.PLACES.index(spec.place)


def _eyes(recipe: Recipe, model: Any, pixels: Pixels, images: dict[str, list[scene.SceneSpec]], plan: Plan, out: Path) -> None:
    """Teach tower and projector to tell scene, colour, count and place before any language (LM loss alone is far slower)."""
    file = out / "eyes.pt"
    tower = recipe.eyes(model)
    if file.exists():
        tower.load_state_dict(torch.load(file, weights_only=True))
        return
    names = sorted(images)
    specs = [spec for group in images.values() for spec in group]
    labels = torch.tensor([_labels(spec, names) for spec in specs])
    sizes = (len(names), len(scene.palette()["colours"]), len(scene.COUNTS), len(scene.PLACES))
    head = nn.Linear(model.config.text_config.hidden_size, sum(sizes))
    both = nn.ModuleList([tower, head])
    optimiser = make_optimiser(both, plan.rate)
    for step in range(plan.vision_steps):
        rows = torch.tensor(random.Random(f"{plan.seed}|eyes|{step}").sample(range(len(specs)), plan.vision_batch))
        # The mean over tokens, because attention averages too: what only one position says, language cannot read.
        pooled = recipe.features(model, torch.stack([pixels[specs[i]] for i in rows.tolist()])).mean(1)
        logits = head(F.normalize(pooled, dim=-1) * 16).split(sizes, dim=-1)
        loss = torch.stack([F.cross_entropy(part, labels[rows, at]) for at, part in enumerate(logits)]).sum()
        take_step(both, optimiser, loss, schedule(step, plan.vision_steps, plan.rate))
        if step % 50 == 0 or step == plan.vision_steps - 1:
            right = [float((part.argmax(-1) == labels[rows, at]).float().mean()) for at, part in enumerate(logits)]
            log.info(
                "eyes %d loss %.3f scene/colour/count/place %s", step, float(loss.detach()), " ".join(f"{r:.2f}" for r in right)
            )
    torch.save(tower.state_dict(), file)


def _inherit(
    recipe: Recipe, model: Any, name: str, processor: Any, pixels: Pixels, images: dict[str, list[scene.SceneSpec]], plan: Plan
) -> None:
    """Start from the parent: copy what both have, and let the rest learn to do as the parent does."""
    teacher_recipe, parent = recipe_of(name), load_backbone(name, device="cpu").model
    if recipe.kept:
        keep_layers(model, parent, recipe.kept)
        return
    missing = copy_decoder(model, parent)
    specs = [spec for group in images.values() for spec in group]
    everything = torch.stack([pixels.store[spec] for spec in specs])

    def draws() -> Iterator[Tensor]:
        for step in itertools.count():
            rows = random.Random(f"{plan.seed}|imitate|{step}").sample(range(len(specs)), plan.vision_batch)
            yield from_bytes(everything[rows])

    imitate_eyes(
        recipe.eyes(model), lambda p: recipe.features(model, p), lambda p: teacher_recipe.features(parent, p), draws(),
        plan.eyes_imitate, plan.rate, take_step,
    )  # fmt: skip
    source = _Source(recipe, Maker(images, Scrambler(processor.tokenizer)), Encoder(processor, recipe), pixels, plan)
    with recipe.while_training():
        for at in missing:
            batches = (source.batch(step, 0) for step in itertools.count())
            imitate_mixer(model, parent, at, batches, plan.layer_imitate, plan.rate, take_step)


# -- language ------------------------------------------------------------------------------------------------------------


def weighted_loss(recipe: Recipe, model: Any, batch: Batch) -> Tensor:
    """Cross-entropy (nats) over the positions that carry weight, logits made only there."""
    inputs = recipe.inputs(model, batch.ids, batch.pixels)
    output = model.model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False, **inputs)
    wanted = batch.weights[:, 1:] > 0
    logits = model.lm_head(output.last_hidden_state[:, :-1][wanted])
    losses = F.cross_entropy(logits, batch.ids[:, 1:][wanted], reduction="none")
    weights = batch.weights[:, 1:][wanted]
    return (losses * weights).sum() / weights.sum()


def save_checkpoint(file: Path, model: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> None:
    """Write everything that the next step needs; the file is whole or not there."""
    partial = file.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}, partial)
    partial.replace(file)


def _language(rank: int, world: int, name: str, out: Path, plan: Plan) -> None:
    """Everything after the eyes, from the last checkpoint on; one of ``world`` processes."""
    if world > 1:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{(out / 'rendezvous').resolve()}", rank=rank, world_size=world)
    recipe = recipe_of(name)
    processor = _processor(recipe, out, plan)
    model = recipe.make_model(processor.tokenizer).train()
    optimiser = make_optimiser(model, plan.rate)
    saved = torch.load(out / LANGUAGE, weights_only=True)
    model.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimiser"])
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # a batch without pictures leaves the eyes' gradients as they are
    pixels, images = Pixels(processor, recipe), pictures(plan)
    _fill(pixels, images, out)
    source = _Source(recipe, Maker(images, Scrambler(processor.tokenizer)), Encoder(processor, recipe), pixels, plan)
    began, seen, smooth = time.perf_counter(), 0, 0.0
    for step in range(saved["step"], plan.steps):
        phase, at = plan.phase(step)
        rate = schedule(at, phase.horizon, phase.rate)
        with recipe.while_training():
            loss, tokens = _shared_step(model, optimiser, source, rate, step, rank, world)
        seen, smooth = seen + tokens, loss if not smooth else 0.95 * smooth + 0.05 * loss
        if rank == 0 and step % 20 == 0:
            log.info("language %d loss %.3f, %.0f tokens/s", step, smooth, seen * world / (time.perf_counter() - began))
        if rank == 0 and ((step + 1) % plan.save_every == 0 or step + 1 == plan.steps):
            save_checkpoint(out / LANGUAGE, model, optimiser, step + 1)
    if world > 1:
        dist.destroy_process_group()


def _shared_step(
    model: nn.Module, optimiser: torch.optim.Optimizer, source: _Source, rate: float, step: int, rank: int, world: int
) -> tuple[float, int]:
    """One step over all its batches, this process's share computed here, gradients summed over processes."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad(set_to_none=False)
    total, tokens = 0.0, 0
    for index in range(rank, source.plan.batches, world):
        batch = source.batch(step, index)
        loss = weighted_loss(source.recipe, model, batch) / source.plan.batches
        loss.backward()
        total, tokens = total + float(loss.detach()), tokens + int(batch.mask.sum())
    if world > 1:
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat)
        for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(part.view_as(grad))
    _apply(model, optimiser)
    return total * world, tokens


@dataclass
class _Source:
    """Batches by (step, index) alone; eight steps share one draw of samples, sorted by length so that rows are alike."""

    recipe: Recipe
    maker: Maker
    encoder: Encoder
    pixels: Pixels
    plan: Plan
    group: int = -1
    batches: list[list[Encoded]] = field(default_factory=list)

    def batch(self, step: int, index: int) -> Batch:
        if step // 8 != self.group:
            self._draw(step // 8)
        at = step % 8 * self.plan.batches + index
        return collate(self.batches[at % len(self.batches)], self.pixels, self.encoder.tokenizer.pad_token_id)

    def _draw(self, group: int) -> None:
        rng = random.Random(f"{self.plan.seed}|language|{group}")
        phase, at = self.plan.phase(group * 8)
        rows: list[Encoded] = []
        total, wanted = 0, 8 * self.plan.batches * self.plan.budget
        while total < wanted * 0.93:
            rows.append(self.encoder(self.maker.draw(rng, phase.mix, at / phase.horizon)))
            total += len(rows[-1].ids)
        self.group, self.batches = group, bucketed(rows, self.plan.budget)
        rng.shuffle(self.batches)
