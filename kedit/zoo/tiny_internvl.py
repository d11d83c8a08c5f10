"""The embedded backbone ``tiny-internvl``: the real InternVL class with a Qwen3 decoder, small enough to ship.

Everything about its shape stands here: configuration, tokenizer, processor, chat template.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

NAME = "tiny-internvl"
IMAGE_SIZE = 64
PATCH = 8
VISUAL_TOKENS = 16
VOCABULARY = 6144
SPECIAL = ("<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<IMG_CONTEXT>' }}{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str]) -> Any:
    """A byte-level BPE tokenizer of ``VOCABULARY`` entries in which every Han character stands alone.

    A blank is put before every piece of text between special tokens, so that a sentence has the same tokens wherever it
    begins: copying an answer out of a prompt is then copying tokens.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\p{Han}"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        extra_special_tokens={
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
        padding_side="left",
        model_max_length=4096,
    )


def make_processor(tokenizer: Any) -> Any:
    """The InternVL processor: images scaled to 64 x 64, one tile, 16 visual tokens."""
    from transformers import GotOcr2ImageProcessor, InternVLProcessor, InternVLVideoProcessor

    images = GotOcr2ImageProcessor(
        size={"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        min_patches=1,
        max_patches=1,  # the processor asks for tiles whatever is set here, so one tile is all there may be
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        do_convert_rgb=True,
    )
    return InternVLProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(),
        image_seq_length=VISUAL_TOKENS,
        chat_template=CHAT_TEMPLATE,
    )


def make_model(tokenizer: Any) -> Any:
    """An untrained model of about 3.4 M parameters, fp32, whose special ids are the tokenizer's."""
    from transformers import InternVLConfig, InternVLForConditionalGeneration

    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    config = InternVLConfig(
        vision_config={
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": [IMAGE_SIZE, IMAGE_SIZE],
            "patch_size": [PATCH, PATCH],
            "layer_scale_init_value": 1.0,
            "use_absolute_position_embeddings": True,
            "use_mean_pooling": False,
        },
        text_config={
            "model_type": "qwen3",
            "vocab_size": len(tokenizer),
            "hidden_size": 192,
            "intermediate_size": 576,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 48,
            "tie_word_embeddings": True,
            "max_position_embeddings": 4096,
            "eos_token_id": ids["<|end|>"],
            "pad_token_id": ids["<|pad|>"],
            "bos_token_id": None,
        },
        image_token_id=ids["<IMG_CONTEXT>"],
        image_seq_length=VISUAL_TOKENS,
        downsample_ratio=0.5,
        tie_word_embeddings=True,
    )
    model = InternVLForConditionalGeneration(config)
    model.generation_config.eos_token_id = ids["<|end|>"]
    model.generation_config.pad_token_id = ids["<|pad|>"]
    model.generation_config.bos_token_id = None
    return model


def save(model: Any, processor: Any, folder: Path) -> None:
    """Weights in fp16 safetensors, configuration, tokenizer and processor, readable by plain ``from_pretrained``."""
    import copy

    import torch

    folder.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to(torch.float16).save_pretrained(folder)
    processor.save_pretrained(folder)
