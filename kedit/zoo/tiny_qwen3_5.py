"""The embedded backbone ``tiny-qwen3.5``: the real Qwen3.5 class, linear and full attention in turn, small enough to ship."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kedit.zoo.plan import FOLLOW, Phase, Plan
from kedit.zoo.recipe import IMAGE_SIZE, MEAN_STD, PAD, PATCH, VISUAL_TOKENS, Recipe, decoder_sizes

MERGE = 2
"""Patches per side that become one visual token."""
FRAMES = 2
"""A patch is cut through so many frames; a picture is all of them."""
CHUNK = 16
"""Tokens that the linear layers' delta rule takes at once in training; the library's 64 is slower on a CPU at this size."""
GRID = IMAGE_SIZE // PATCH
_KINDS = ("linear_attention", "full_attention", "full_attention", "full_attention")


class TinyQwen35(Recipe):
    """One layer of linear and three of full attention; 3.8 M parameters.

    The library's tokenizer for this model knows no normaliser or pre-tokeniser but its own, whatever the file says, so that
    the blank which makes a sentence's tokens the same wherever it stands comes from the chat template.
    """

    name = "tiny-qwen3.5"
    image_tokens = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
    video_token = "<|video_pad|>"
    plan = Plan((Phase("read", 320, 1e-3, 320),), eyes_imitate=300, layer_imitate=160)
    lead = " "

    def token_names(self) -> dict[str, str]:
        opens, pad, closes = self.image_tokens
        return {"vision_start_token": opens, "vision_end_token": closes, "image_token": pad, "video_token": self.video_token}

    def wrap(self, tokenizer: Any, **options: Any) -> Any:
        from tokenizers import AddedToken
        from transformers import Qwen3_5Tokenizer

        learnt = json.loads(tokenizer.to_str())["model"]
        merges = [tuple(merge) for merge in learnt["merges"]]
        made = Qwen3_5Tokenizer(learnt["vocab"], merges, unk_token=PAD, **options)
        made.add_tokens([AddedToken(token, special=True, normalized=False) for token in self.special])
        return made

    def make_processor(self, tokenizer: Any) -> Any:
        from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

        size = {"shortest_edge": IMAGE_SIZE**2, "longest_edge": IMAGE_SIZE**2}  # counts of pixels, whatever the names say
        cut = {"patch_size": PATCH, "merge_size": MERGE, "temporal_patch_size": FRAMES}
        return Qwen3VLProcessor(
            image_processor=Qwen2VLImageProcessor(size=size, do_convert_rgb=True, **cut, **MEAN_STD),
            tokenizer=tokenizer,
            video_processor=Qwen3VLVideoProcessor(**cut, **MEAN_STD),
            chat_template=self.chat_template("".join(self.image_tokens)),
        )

    def make_model(self, tokenizer: Any) -> Any:
        from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

        opens, pad, closes = (tokenizer.convert_tokens_to_ids(token) for token in self.image_tokens)
        sizes = decoder_sizes(tokenizer, self.kept)
        config = Qwen3_5Config(
            vision_config={
                "hidden_size": 128,
                "intermediate_size": 384,
                "depth": 2,
                "num_heads": 4,
                "patch_size": PATCH,
                "spatial_merge_size": MERGE,
                "temporal_patch_size": FRAMES,
                "num_position_embeddings": GRID**2,
                "out_hidden_size": sizes["hidden_size"],
            },
            text_config={
                **sizes,
                "layer_types": [_KINDS[at] for at in self.kept or range(len(_KINDS))],
                "linear_num_key_heads": 4,
                "linear_key_head_dim": 32,
                "linear_num_value_heads": 4,
                "linear_value_head_dim": 48,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 10_000.0,
                    "partial_rotary_factor": 1.0,
                    "mrope_section": [8, 8, 8],
                    "mrope_interleaved": True,
                },
            },
            image_token_id=pad,
            video_token_id=tokenizer.convert_tokens_to_ids(self.video_token),
            vision_start_token_id=opens,
            vision_end_token_id=closes,
            tie_word_embeddings=True,
        )
        return self.finish(Qwen3_5ForConditionalGeneration(config))

    def eyes(self, model: Any) -> nn.ModuleList:
        return nn.ModuleList([model.model.visual])

    def features(self, model: Any, pixels: Tensor) -> Tensor:
        found = model.model.get_image_features(pack(pixels), grids(len(pixels)), return_dict=True).pooler_output
        return torch.cat(found).reshape(len(pixels), VISUAL_TOKENS, -1)

    def pixels(self, processor: Any, picture: Any) -> Tensor:
        return unpack(processor.image_processor(picture, return_tensors="pt")["pixel_values"])

    def inputs(self, model: Any, ids: Tensor, pixels: Tensor | None) -> dict[str, Any]:
        if pixels is None:
            return {}
        kinds = (ids == model.config.image_token_id).long()
        return {"pixel_values": pack(pixels), "image_grid_thw": grids(len(pixels)), "mm_token_type_ids": kinds}

    @contextmanager
    def while_training(self) -> Iterator[None]:
        from transformers.models.qwen3_5 import modeling_qwen3_5 as library

        before = library.torch_chunk_gated_delta_rule
        library.torch_chunk_gated_delta_rule = functools.partial(before, chunk_size=CHUNK)
        try:
            yield
        finally:
            library.torch_chunk_gated_delta_rule = before


def grids(images: int) -> Tensor:
    """Frames, rows and columns of patches of each picture: (images, 3)."""
    return torch.tensor([[1, GRID, GRID]]).expand(images, 3).contiguous()


def pack(pixels: Tensor) -> Tensor:
    """Pictures (images, 3, 64, 64) as the image processor lays them out: a row per patch, neighbours to be merged in a row."""
    side = GRID // MERGE
    cut = pixels.reshape(-1, 3, side, MERGE, PATCH, side, MERGE, PATCH).permute(0, 2, 5, 3, 6, 1, 4, 7)
    return cut.unsqueeze(6).expand(*cut.shape[:6], FRAMES, PATCH, PATCH).reshape(-1, 3 * FRAMES * PATCH**2)


def unpack(patches: Tensor) -> Tensor:
    """One picture (3, 64, 64) out of the image processor's rows."""
    side = GRID // MERGE
    cut = patches.reshape(side, side, MERGE, MERGE, 3, FRAMES, PATCH, PATCH)[:, :, :, :, :, 0]
    return cut.permute(4, 0, 2, 5, 1, 3, 6).reshape(3, IMAGE_SIZE, IMAGE_SIZE)


class TinyQwen35Small(TinyQwen35):
    """The lower three of the four layers; 3.4 M parameters."""

    name = "tiny-qwen3.5-small"
    plan = FOLLOW
    kept = (0, 1, 2)


RECIPE = TinyQwen35()
SMALL = TinyQwen35Small()
