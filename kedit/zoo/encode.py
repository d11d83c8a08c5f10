"""From samples to tensors: token ids, pixels and loss weights, laid out exactly as the processor lays out a prompt."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kedit.benchmarks import scene
from kedit.zoo.recipe import TURNS, VISUAL_TOKENS, Recipe
from kedit.zoo.samples import Sample


@dataclass
class Encoded:
    """One sample as ids (T), loss weight of predicting each id (T, 0 where none), and its images."""

    ids: list[int]
    weights: list[float]
    images: list[scene.SceneSpec]


@dataclass
class Batch:
    """Right-padded: ids and mask (B, T), weights (B, T), pixels (images, 3, 64, 64) in order of appearance or None."""

    ids: Tensor
    mask: Tensor
    weights: Tensor
    pixels: Tensor | None


def to_bytes(pixels: Tensor) -> Tensor:
    """Pixels between -1 and 1 as uint8, in which they are kept."""
    return ((pixels * 0.5 + 0.5) * 255).round().clamp(0, 255).to(torch.uint8)


def from_bytes(kept: Tensor) -> Tensor:
    """What ``to_bytes`` made, between -1 and 1 again."""
    return kept.float() / 127.5 - 1.0


class Pixels:
    """Scenes as the image processor sees them, rendered once each: uint8 (3, 64, 64), normalised on reading."""

    def __init__(self, processor: Any, recipe: Recipe, render_size: int = 256) -> None:
        self.processor = processor
        self.recipe = recipe
        self.render_size = render_size
        self.store: dict[scene.SceneSpec, Tensor] = {}

    def __getitem__(self, spec: scene.SceneSpec) -> Tensor:
        if spec not in self.store:
            from PIL import Image

            picture = Image.open(io.BytesIO(scene.render(spec, self.render_size))).convert("RGB")
            self.store[spec] = to_bytes(self.recipe.pixels(self.processor, picture))
        return from_bytes(self.store[spec])


class Encoder:
    """Turns samples into ids with the tokenizer of a processor that a recipe made."""

    def __init__(self, processor: Any, recipe: Recipe) -> None:
        self.tokenizer = processor.tokenizer
        self.special = {token: self.tokenizer.convert_tokens_to_ids(token) for token in TURNS}
        opens, pad, closes = (self.tokenizer.convert_tokens_to_ids(token) for token in recipe.image_tokens)
        self.image = [opens, *[pad] * VISUAL_TOKENS, closes]
        self.lead = recipe.lead

    def text(self, text: str, spans: Sequence[tuple[int, int, float]] = ()) -> tuple[list[int], list[float]]:
        """Ids of one text between special tokens, and per id the weight of the span that holds it."""
        found = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=bool(spans))
        ids = list(found["input_ids"])
        weights = [0.0] * len(ids)
        for start, end, weight in spans:
            for at, (left, right) in enumerate(found["offset_mapping"]):
                if left >= start - 1 and right <= end and right > start:
                    weights[at] = weight
        return ids, weights

    def prompt(self, text: str, spans: Sequence[tuple[int, int, float]] = ()) -> tuple[list[int], list[float]]:
        """``text`` as the chat template writes it into a prompt."""
        by = len(self.lead)
        return self.text(self.lead + text, [(start + by, end + by, weight) for start, end, weight in spans])

    def __call__(self, sample: Sample) -> Encoded:
        ids: list[int] = []
        weights: list[float] = []

        def add(more: list[int], weight: list[float] | None = None) -> None:
            ids.extend(more)
            weights.extend(weight or [0.0] * len(more))

        if sample.system is not None:
            add([self.special["<|system|>"]])
            add(*self.prompt(sample.system))
        add([self.special["<|user|>"]])
        for piece in sample.pieces:
            add(self.image) if piece.image else add(*self.prompt(piece.text, piece.spans))
        add([self.special["<|assistant|>"]])
        at = sample.answer.lower().find(sample.seen.lower()) if sample.seen else -1
        answer, emphasis = self.text(sample.answer, [(at, at + len(sample.seen), 3.0)] if at >= 0 else [])
        weights_ = [max(weight, 1.0) for weight in emphasis] + [1.0]
        weights_[0] = max(weights_[0], sample.first_weight)
        add([*answer, self.special["<|end|>"]], weights_)
        return Encoded(ids, weights, [piece.image for piece in sample.pieces if piece.image])


def collate(rows: Sequence[Encoded], pixels: Pixels, pad: int) -> Batch:
    """Pad to the longest row, rounded up to a multiple of 16."""
    length = -(-max(len(row.ids) for row in rows) // 16) * 16
    ids = torch.full((len(rows), length), pad)
    mask = torch.zeros(len(rows), length, dtype=torch.long)
    weights = torch.zeros(len(rows), length)
    for at, row in enumerate(rows):
        ids[at, : len(row.ids)] = torch.tensor(row.ids)
        mask[at, : len(row.ids)] = 1
        weights[at, : len(row.ids)] = torch.tensor(row.weights)
    specs = [spec for row in rows for spec in row.images]
    return Batch(ids, mask, weights, torch.stack([pixels[spec] for spec in specs]) if specs else None)


class Scrambler:
    """Made-up words of one script: one or two random pieces of the vocabulary."""

    def __init__(self, tokenizer: Any) -> None:
        pieces = [tokenizer.decode([at]) for at in range(len(tokenizer))]
        self.starts: dict[str, list[str]] = {
            "en": [p.strip() for p in pieces if p[:1] == " " and p.strip().isascii() and p.strip().isalpha()],
            "ar": [
                p.strip() for p in pieces if p[:1] == " " and len(p) > 2 and all("\u0621" <= c <= "\u064a" for c in p.strip())
            ],
        }
        self.ends: dict[str, list[str]] = {
            "en": [p for p in pieces if p.isascii() and p.isalpha()],
            "ar": [p for p in pieces if p and all("\u0621" <= c <= "\u064a" for c in p)],
        }
        self.han: list[str] = [p for p in pieces if len(p) == 1 and "\u4e00" <= p <= "\u9fff"]

        for language, found in self.starts.items():  # a tokenizer may keep blanks apart from the words of a script
            self.starts[language] = found or [p for p in self.ends[language] if len(p) > 1]

    def __call__(self, rng: random.Random, language: str) -> str:
        if language == "zh":
            return rng.choice(self.han)
        return rng.choice(self.starts[language]) + (rng.choice(self.ends[language]) if rng.random() < 0.5 else "")


def bucketed(rows: list[Encoded], budget: int) -> list[list[Encoded]]:
    """Rows sorted by length and cut into batches of at most ``budget`` padded tokens."""
    batches: list[list[Encoded]] = [[]]
    for row in sorted(rows, key=lambda r: len(r.ids)):
        if batches[-1] and (len(batches[-1]) + 1) * (-(-len(row.ids) // 16) * 16) > budget:
            batches.append([])
        batches[-1].append(row)
    return batches
