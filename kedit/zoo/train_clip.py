"""Train ``tiny-clip`` from nothing: pictures of drawn scenes against texts in three languages; saves as it goes.

Every step's samples come from (seed, step) alone, so a stopped training resumes where it was with the same result.
"""

from __future__ import annotations

import io
import json
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kedit.benchmarks import scene
from kedit.zoo import tiny_clip
from kedit.zoo.captions import Caption, caption, languages, maker_of
from kedit.zoo.encode import from_bytes, to_bytes
from kedit.zoo.measure_clip import write_card
from kedit.zoo.plan import Plan
from kedit.zoo.samples import Maker, scenarios
from kedit.zoo.train import make_optimiser, pictures, save_checkpoint, schedule, take_step

log = logging.getLogger(__name__)
CHECKPOINT = "clip.pt"
LARGEST_SCALE = 100.0
"""Of the logits, as CLIP bounds it (Radford et al. 2021, section 2.5)."""


@dataclass(frozen=True)
class ClipPlan:
    """How long the embedded CLIP is trained, and on what."""

    seed: int = 0
    images: int = 160
    """Pictures per scenario."""
    steps: int = 400
    scenarios: int = 16
    """Per batch."""
    pictures: int = 4
    """Of each scenario in a batch, so that colour, count and place matter as well."""
    texts: int = 2
    """Of each picture in a batch, in different languages."""
    rate: float = 2e-3
    text_weight: float = 0.3
    """Of the loss between texts, which keeps languages apart."""
    text_scale: float = 10.0
    """Of the cosines in the loss between texts."""
    save_every: int = 50


@dataclass
class Batch:
    """Pictures (n) with their pixels (n, 3, 64, 64) between -1 and 1, and texts (m) with their token ids."""

    specs: list[scene.SceneSpec]
    pixels: Tensor
    captions: list[Caption]
    ids: list[list[int]]


def train(out: Path, plan: ClipPlan | None = None, measure: int = 6) -> Path:
    """Make the embedded CLIP in ``out`` (resuming what is there) and return the folder of the finished weights.

    ``measure`` is the number of held-out pictures per scenario on the card; 0 writes none. Raises CheckpointError where the
    tokenizer that it reads with is missing.
    """

    plan = plan or ClipPlan()
    folder = out / tiny_clip.NAME
    folder.mkdir(parents=True, exist_ok=True)
    tiny_clip.write_empty(folder)
    torch.manual_seed(plan.seed)
    model, preprocess, tokenizer = tiny_clip.load(folder, weights=False)
    tiny_clip.open_eyes(model)
    source = Source(plan, preprocess, tokenizer, out / "pixels.pt")
    optimise(model.train(), source, plan, out / CHECKPOINT)
    tiny_clip.save(model, folder)
    (folder / "plan.json").write_text(json.dumps(asdict(plan), indent=1) + "\n", encoding="utf-8")
    if measure:
        batch = f"{plan.scenarios * plan.pictures} pictures and {plan.scenarios * plan.pictures * plan.texts} texts each"
        made = f"seed {plan.seed}, {plan.steps} steps of {batch}, {plan.images} pictures for each of {len(scenarios())} scenarios"
        write_card(folder, made, measure)
    return folder


def optimise(model: Any, source: Source, plan: ClipPlan, file: Path) -> None:
    """All steps from the last checkpoint in ``file`` on."""
    optimiser = make_optimiser(model, plan.rate)
    start = 0
    if file.exists():
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        start = saved["step"]
    began = time.process_time()
    for step in range(start, plan.steps):
        loss = loss_of(model, source.batch(step), plan)
        take_step(model, optimiser, loss, schedule(step, plan.steps, plan.rate))
        with torch.no_grad():
            model.logit_scale.clamp_(max=torch.tensor(LARGEST_SCALE).log())
        if step % 20 == 0:
            taken = (time.process_time() - began) / (step - start + 1)
            log.info("clip %d loss %.3f, %.2f s/step", step, float(loss.detach()), taken)
        if (step + 1) % plan.save_every == 0 or step + 1 == plan.steps:
            save_checkpoint(file, model, optimiser, step + 1)


def loss_of(model: Any, batch: Batch, plan: ClipPlan) -> Tensor:
    """The contrastive loss of a batch (nats): texts to pictures, pictures to texts, and texts to texts of their language."""
    seen = F.normalize(model.encode_image(batch.pixels), dim=-1)
    read = tiny_clip.encode_ids(model, batch.ids)
    fits = torch.tensor([[c.told.fits(spec) for spec in batch.specs] for c in batch.captions])
    telling = torch.tensor([c.told.scenario is not None for c in batch.captions])
    logits = model.logit_scale.exp() * read @ seen.T
    # A text that fits every picture is no answer to which text belongs to a picture.
    across = (contrast(logits, fits) + contrast(logits[telling].T, fits[telling].T)) / 2
    kinds = [(c.language, c.told.scenario) for c in batch.captions]
    same = torch.tensor([[a == b for b in kinds] for a in kinds])
    among = plan.text_scale * read @ read.T
    own = torch.eye(len(read), dtype=torch.bool)
    return across + plan.text_weight * contrast(among.masked_fill(own, -torch.inf), same & ~own)


def contrast(logits: Tensor, positive: Tensor) -> Tensor:
    """Cross-entropy (nats) of rows of ``logits`` (n, m) to a target spread evenly over each row's ``positive`` (n, m).

    With several pairs of a kind in a batch, none is the other's negative (UniCL, Yang et al. 2022, equation 3). Rows without
    a positive count nothing.
    """
    logs = logits.log_softmax(-1).masked_fill(~positive, 0.0).sum(-1)
    size = positive.sum(-1)
    return -(logs / size.clamp(min=1)).sum() / (size > 0).sum().clamp(min=1)


class Source:
    """Batches by step alone; the pictures, those of the embedded backbones, are rendered once and kept in ``file``."""

    def __init__(self, plan: ClipPlan, preprocess: Any, tokenizer: Any, file: Path) -> None:
        self.plan = plan
        self.tokenizer = tokenizer
        self.images = pictures(Plan((), seed=plan.seed, images=plan.images))
        self.maker: Maker = maker_of(self.images, tokenizer.tokenizer)
        specs = [spec for group in self.images.values() for spec in group]
        if not file.exists():
            torch.save(rendered(specs, preprocess), file)
        self.pixels = dict(zip(specs, torch.load(file, weights_only=True), strict=True))

    def batch(self, step: int) -> Batch:
        """The pictures and texts of a step."""
        rng = random.Random(f"{self.plan.seed}|clip|{step}")
        names = rng.sample(sorted(self.images), min(self.plan.scenarios, len(self.images)))
        specs = [spec for name in names for spec in self._alike(rng, self.images[name])]
        found = [caption(self.maker, rng, spec, language) for spec in specs for language in languages(rng, self.plan.texts)]
        pixels = from_bytes(torch.stack([self.pixels[spec] for spec in specs]))
        return Batch(specs, pixels, found, self.ids([c.text for c in found]))

    def _alike(self, rng: random.Random, group: Sequence[scene.SceneSpec]) -> list[scene.SceneSpec]:
        """Pictures of a scenario; half the time of one colour as far as possible, so that count and place matter."""
        found = rng.sample(group, len(group))
        if rng.random() < 0.5:
            colour = found[0].colour
            found = sorted(found, key=lambda spec: spec.colour != colour)
        return found[: self.plan.pictures]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids, cut at the context length, as open_clip's tokenizer gives them but not padded."""
        cleaned = [self.tokenizer.clean_fn(text) for text in texts]
        found: list[list[int]] = self.tokenizer.tokenizer(cleaned, truncation=True, max_length=tiny_clip.CONTEXT).input_ids
        return found


def rendered(specs: Sequence[scene.SceneSpec], preprocess: Any) -> Tensor:
    """Pictures as the preprocessing sees them, uint8 (n, 3, 64, 64)."""
    from PIL import Image

    found = []
    for spec in specs:
        picture = Image.open(io.BytesIO(scene.render(spec))).convert("RGB")
        found.append(to_bytes(preprocess(picture)))
    return torch.stack(found)
