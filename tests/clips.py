"""A random open_clip model, small enough for tests, as the folder that its users load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

WORDS = ["red", "green", "blue", "hat", "clock", "is", "this", "a", "the", "gift", "what", "when", "do", "i", "bring", "it"]
LENGTH, WIDTH = 8, 24


def config() -> dict[str, Any]:
    text = {
        "context_length": LENGTH, "vocab_size": len(WORDS) + 3, "hf_tokenizer_name": "own", "width": 16, "heads": 2, "layers": 1,
        "pool_type": "eos", "pad_id": 0, "eos_id": 1,
    }  # fmt: skip
    vision = {"image_size": 16, "patch_size": 8, "layers": 1, "width": 16, "head_width": 8, "pool_type": "avg"}
    model = {"embed_dim": WIDTH, "vision_cfg": vision, "text_cfg": text}
    return {"model_cfg": model, "preprocess_cfg": {"size": 16, "resize_mode": "squash"}}


def write(folder: Path, *, seed: int = 0, weights: str = "open_clip_model.safetensors") -> Path:
    """Configuration, word tokenizer (padding, end, unknown, then WORDS) and random weights."""
    import open_clip
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps(config()))
    vocabulary = {word: at for at, word in enumerate(["<pad>", "<end>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>", unk_token="<unk>", padding_side="right"
    ).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = open_clip.create_model(f"local-dir:{folder.resolve()}", load_weights=False)
    state = model.state_dict()
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / weights)
    return folder
