"""The embedded ``tiny-clip``: a CLIP of open_clip's own class that knows the drawn scenes, small enough to ship.

The folder of its weights is what open_clip calls ``local-dir:``; model, preprocessing and tokenizer load without code of kedit.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kedit.errors import CheckpointError
from kedit.zoo.recipe import IMAGE_SIZE, MEAN_STD, PAD, PATCH, VOCABULARY

NAME = "tiny-clip"
END = "<|end|>"
ELDER = "tiny-internvl"
"""The embedded backbone whose tokenizer the text tower reads with, and whose eyes the image tower starts from."""
CONTEXT = 77
"""Tokens of a text that are read, the end included."""
WIDTH = 128


def config(pad: int, end: int) -> dict[str, Any]:
    """What open_clip reads from ``open_clip_config.json``; ``pad`` and ``end`` are ids of the tokenizer."""
    vision = {
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH,
        "layers": 2,
        "width": WIDTH,
        "head_width": 32,
        "mlp_ratio": 3.0,
        "no_ln_pre": True,  # this and the next two as in the elder's eyes
        "norm_kwargs": {"eps": 1e-6},
        "pool_type": "avg",
    }
    text = {
        "context_length": CONTEXT,
        "vocab_size": VOCABULARY,
        "hf_tokenizer_name": NAME,  # any name will do: a local folder's own tokenizer is taken
        "width": WIDTH,
        "heads": 4,
        "layers": 3,
        "mlp_ratio": 3.0,
        "pool_type": "eos",
        "eos_id": end,
        "pad_id": pad,
    }
    preprocess = {
        "size": IMAGE_SIZE,
        "mean": MEAN_STD["image_mean"],
        "std": MEAN_STD["image_std"],
        "interpolation": "bicubic",
        "resize_mode": "squash",
    }
    model = {"embed_dim": WIDTH, "vision_cfg": vision, "text_cfg": text}
    return {"model_cfg": model, "preprocess_cfg": preprocess}


def write_empty(folder: Path) -> None:
    """Write configuration and tokenizer to a folder; raises CheckpointError where the tokenizer's source is missing."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    source = _elders("tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(source), pad_token=PAD, eos_token=END, padding_side="right", model_max_length=CONTEXT
    )
    pad, end = tokenizer.convert_tokens_to_ids([PAD, END])
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"$A {END}", special_tokens=[(END, end)])
    tokenizer.save_pretrained(folder)
    text = json.dumps(config(pad, end), indent=2)
    (folder / "open_clip_config.json").write_text(text + "\n", encoding="utf-8")


def _elders(file: str) -> Path:
    from kedit.zoo import catalogue

    found = catalogue.folder(ELDER) / file
    if not found.is_file():
        raise CheckpointError(
            f"{NAME} starts from {ELDER}, whose {file} is not in {found.parent}; make it: kedit zoo train {ELDER}"
        )
    return found


def load(folder: Path, *, weights: bool = True) -> tuple[Any, Any, Any]:
    """Model (fp32, evaluation mode), preprocessing of PIL images, and tokenizer of texts, all from open_clip.

    Without ``weights`` the model is as torch's generator draws it.
    """
    import open_clip

    source = f"local-dir:{folder.resolve()}"
    model, preprocess = open_clip.create_model_from_pretrained(source) if weights else _untrained(source)
    return model.eval(), preprocess, open_clip.get_tokenizer(source)


def _untrained(source: str) -> tuple[Any, Any]:
    import open_clip

    model, _, preprocess = open_clip.create_model_and_transforms(source, load_weights=False)
    return model, preprocess


def open_eyes(model: Any) -> None:
    """Start the image tower from the elder's vision tower: before ``proj``, it then gives the mean of that tower's tokens.

    Raises CheckpointError where the elder's weights are missing.
    """
    from safetensors.torch import load_file

    start = "vision_tower."
    state = {name.removeprefix(start): tensor.float() for name, tensor in load_file(_elders("model.safetensors")).items()}
    visual = model.visual
    with torch.no_grad():
        visual.conv1.weight.copy_(state["embeddings.patch_embeddings.projection.weight"])
        visual.class_embedding.copy_(state["embeddings.cls_token"].view(-1))
        visual.positional_embedding.copy_(state["embeddings.position_embeddings"][0])
        visual.positional_embedding[1:] += state["embeddings.patch_embeddings.projection.bias"]  # the convolution has none
        for at, block in enumerate(visual.transformer.resblocks):
            layer = f"encoder.layer.{at}."
            part = {name.removeprefix(layer): tensor for name, tensor in state.items() if name.startswith(layer)}
            block.load_state_dict(_block(part))
        visual.ln_post.load_state_dict({"weight": state["layernorm.weight"], "bias": state["layernorm.bias"]})


def _block(part: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One layer under open_clip's names; the scale of each branch goes into the branch's last matrix."""
    queries = torch.cat([part[f"attention.{name}_proj.weight"] for name in "qkv"])
    found = {"attn.in_proj_weight": queries, "attn.in_proj_bias": torch.zeros(len(queries))}
    branches = (("attn.out_proj", "attention.projection_layer", "lambda_1"), ("mlp.c_proj", "mlp.fc2", "lambda_2"))
    for to, source, scale in branches:
        found[f"{to}.weight"] = part[scale][:, None] * part[f"{source}.weight"]
        found[f"{to}.bias"] = part[scale] * part[f"{source}.bias"]
    for to, source in (("ln_1", "layernorm_before"), ("ln_2", "layernorm_after"), ("mlp.c_fc", "mlp.fc1")):
        found[f"{to}.weight"], found[f"{to}.bias"] = part[f"{source}.weight"], part[f"{source}.bias"]
    return found


def save(model: Any, folder: Path) -> None:
    """Write the weights, in fp16 safetensors, into a folder that ``write_empty`` has prepared."""
    from safetensors.torch import save as packed

    state = copy.deepcopy(model).to(torch.float16).state_dict()
    data = packed({name: tensor.contiguous() for name, tensor in state.items()})
    (folder / "open_clip_model.safetensors").write_bytes(data)


def encode_ids(model: Any, rows: Sequence[Sequence[int]]) -> Tensor:
    """Unit text features (n, width) of token ids that end in END, equal to ``encode_text`` of the rows padded to CONTEXT.

    Computes only as many positions as the longest row has: attention is causal, so what pads a row cannot be seen from its end.
    """
    length = max(map(len, rows))
    ends = torch.tensor([len(row) - 1 for row in rows])
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    hidden = model.token_embedding(ids) + model.positional_embedding[:length]
    hidden = model.ln_final(model.transformer(hidden, attn_mask=model.attn_mask[:length, :length]))
    found: Tensor = F.normalize(hidden[torch.arange(len(rows)), ends] @ model.text_projection, dim=-1)
    return found
