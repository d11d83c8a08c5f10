"""One tiny model per family: the real classes, randomly initialised and widened, with a real tokenizer and processor.

Everything is made offline and saved as a folder, so that what is tested is what a user loads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 600
TEXT = [
    "What is shown in this picture? Answer in one short sentence. A red clock and a green hat on the table.",
    "A gift for a guest is a friendly thing to bring, but which one would you choose, and why would it matter?",
    "这张图片里有什么?请用一句话回答。桌子上有一个红色的钟和一顶绿色的帽子。送礼物给客人是一件友好的事情。",
    "ماذا يظهر في هذه الصورة؟ أجب بجملة واحدة قصيرة. على الطاولة ساعة حمراء وقبعة خضراء. الهدية للضيف أمر لطيف.",
]
TEXT_SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 2048, "vocab_size": VOCABULARY, "tie_word_embeddings": False,
}  # fmt: skip
IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
VIT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
MEAN_STD = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}

_BODY = "{%- for p in m.content %}{% if p.type == 'image' %}IMAGE{% else %}{{ p.text }}{% endif %}{% endfor -%}"
_TURNS = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}BODY{{ '<|im_end|>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TEXT_TURNS = _TURNS.replace("BODY", "{{ m.content }}")
# has no place for a system prompt and leaves it out
_USER = (
    "{%- for m in messages if m.role != 'system' %}{{ m.role.upper() + ': ' }}BODY"
    "{{ ' ' if m.role == 'user' else '</s>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
_UTTERANCE = (
    "{{ '<|im_start|>' }}{%- for m in messages %}{{ m.role.capitalize() + ': ' }}BODY{{ '<end_of_utterance>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
# trims texts, calls the assistant "model", and fails when a turn's role is not one that it knows
_TRIMMED = (
    "{{ bos_token }}{%- for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
    "{%- for p in m.content %}{% if p.type == 'image' %}IMAGE{% else %}{{ p.text | trim }}{% endif %}{% endfor %}"
    "{{ '<end_of_turn>\n' }}{% endfor %}{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)


def _template(turns: str, image: str = "") -> str:
    return turns.replace("BODY", _BODY).replace("IMAGE", image)


def _tokenizer(special: list[str], named: dict[str, str] | None = None, adds_bos: bool = False, **tokens: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    everything = list(dict.fromkeys([*tokens.values(), *special, *(named or {}).values()]))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    size = VOCABULARY - 40  # some families add tokens of their own
    inner.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=size, special_tokens=everything, initial_alphabet=alphabet))
    if adds_bos:
        bos = tokens["bos_token"]
        inner.post_processor = processors.TemplateProcessing(f"{bos} $A", special_tokens=[(bos, inner.token_to_id(bos))])
    extra = {"extra_special_tokens": named} if named else {}
    made = PreTrainedTokenizerFast(tokenizer_object=inner, **tokens, **extra)
    made.add_special_tokens({"additional_special_tokens": [t for t in special if t not in (named or {}).values()]})
    return made


def widen(model: torch.nn.Module, std: float = 0.15) -> torch.nn.Module:
    """Spread the weights, so that different prompts get different answers."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
            else:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model


def _chatml(image: str, video: str | None = None, **named: str) -> Any:
    special = ["<|im_start|>", image, *([video] if video else [])]
    return _tokenizer(special, named, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def _ids(tokenizer: Any) -> dict[str, Any]:
    return {k: getattr(tokenizer, k) for k in IDS}


def internvl() -> tuple[Any, Any]:
    from transformers import GotOcr2ImageProcessor, InternVLConfig, InternVLForConditionalGeneration, InternVLProcessor
    from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor

    image = "<IMG_CONTEXT>"
    names = {"start_image_token": "<img>", "end_image_token": "</img>"}
    tokenizer = _chatml(image, context_image_token=image, video_token="<video>", **names)
    size = {"height": 32, "width": 32}
    config = InternVLConfig(
        vision_config={**VIT, "image_size": [32, 32], "patch_size": [8, 8]},
        text_config={"model_type": "qwen3", **TEXT_SIZES, **_ids(tokenizer)},
        image_token_id=tokenizer.convert_tokens_to_ids(image), image_seq_length=4, downsample_ratio=0.5,
    )  # fmt: skip
    processor = InternVLProcessor(
        GotOcr2ImageProcessor(size=size, crop_to_patches=True, min_patches=1, max_patches=4, **MEAN_STD), tokenizer,
        InternVLVideoProcessor(size=size), image_seq_length=4, chat_template=_template(_TURNS, image + "\\n"),
    )  # fmt: skip
    return InternVLForConditionalGeneration(config), processor


def _qwen(
    config_class: Any, model_class: Any, processor_class: Any, text: dict[str, Any], vision: dict[str, Any]
) -> tuple[Any, Any]:
    from transformers import Qwen2VLImageProcessor
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    names = {"vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>"}
    tokenizer = _chatml("<|image_pad|>", "<|video_pad|>", image_token="<|image_pad|>", video_token="<|video_pad|>", **names)
    of = tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    config = config_class(
        text_config={**TEXT_SIZES, "rope_parameters": rope, **_ids(tokenizer), **text},
        vision_config={"depth": 2, "num_heads": 2, "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2, **vision},
        image_token_id=of("<|image_pad|>"), video_token_id=of("<|video_pad|>"),
        vision_start_token_id=of("<|vision_start|>"), vision_end_token_id=of("<|vision_end|>"), tie_word_embeddings=False,
    )  # fmt: skip
    size = {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}
    video = Qwen3VLVideoProcessor if processor_class.__name__.startswith("Qwen3") else Qwen2VLVideoProcessor
    processor = processor_class(
        image_processor=Qwen2VLImageProcessor(patch_size=8, merge_size=2, temporal_patch_size=2, size=size, **MEAN_STD),
        tokenizer=tokenizer, video_processor=video(patch_size=8, merge_size=2, temporal_patch_size=2),
        chat_template=_template(_TURNS, "<|vision_start|><|image_pad|><|vision_end|>"),
    )  # fmt: skip
    return model_class(config), processor


def qwen3_5() -> tuple[Any, Any]:
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3VLProcessor

    linear = {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2], "mrope_interleaved": True}
    text = {**linear, "layer_types": kinds, "rope_parameters": {**rope, "partial_rotary_factor": 0.5}}
    vision = {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64, "num_position_embeddings": 16}
    return _qwen(Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3VLProcessor, text, vision)


def qwen3_vl() -> tuple[Any, Any]:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor

    vision = {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64, "num_position_embeddings": 16}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3], "mrope_interleaved": True}
    deep = {**vision, "deepstack_visual_indexes": [0, 1]}
    return _qwen(Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor, {"rope_parameters": rope}, deep)


def qwen2_5_vl() -> tuple[Any, Any]:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor

    vision = {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64, "window_size": 32, "fullatt_block_indexes": [1]}
    return _qwen(Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor, {}, vision)


def qwen2_vl() -> tuple[Any, Any]:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLProcessor

    vision = {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}
    return _qwen(Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLProcessor, {}, vision)


def llava() -> tuple[Any, Any]:
    from transformers import CLIPImageProcessor, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    tokenizer = _tokenizer(["<image>"], adds_bos=True, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    config = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **VIT, "projection_dim": 32},
        text_config={"model_type": "llama", **TEXT_SIZES, **_ids(tokenizer)},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"), image_seq_length=16, vision_feature_layer=-2,
    )  # fmt: skip
    images = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor = LlavaProcessor(
        images, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=_template(_USER, "<image>\\n"),
    )  # fmt: skip
    return LlavaForConditionalGeneration(config), processor


def llava_onevision() -> tuple[Any, Any]:
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionForConditionalGeneration,
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
    )
    from transformers.models.llava_onevision.video_processing_llava_onevision import LlavaOnevisionVideoProcessor

    tokenizer = _chatml("<image>", "<video>")
    pinpoints = [[32, 32], [32, 64], [64, 32], [64, 64]]
    config = LlavaOnevisionConfig(
        vision_config={"model_type": "siglip_vision_model", **VIT, "vision_use_head": False},
        text_config={"model_type": "qwen2", **TEXT_SIZES, **_ids(tokenizer)}, image_grid_pinpoints=pinpoints,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
    )  # fmt: skip
    size = {"height": 32, "width": 32}
    processor = LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=pinpoints, **MEAN_STD), tokenizer,
        LlavaOnevisionVideoProcessor(size=size), num_image_tokens=16, vision_feature_select_strategy="full",
        chat_template=_template(_TURNS, "<image>\\n"),
    )  # fmt: skip
    return LlavaOnevisionForConditionalGeneration(config), processor


def _idefics_tokenizer(**named: str) -> Any:
    rows = [f"<row_{i}_col_{j}>" for i in range(1, 3) for j in range(1, 3)]
    special = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *rows]
    return _tokenizer(special, named, bos_token="<|im_start|>", eos_token="<|endoftext|>", pad_token="<pad>")


def _idefics_parts(tokenizer: Any) -> dict[str, Any]:
    return {
        "vision_config": VIT, "text_config": {"model_type": "llama", **TEXT_SIZES, **_ids(tokenizer)}, "scale_factor": 2,
        "image_token_id": tokenizer.convert_tokens_to_ids("<image>"), "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip


def smolvlm() -> tuple[Any, Any]:
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration, SmolVLMImageProcessor, SmolVLMProcessor
    from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor

    tokenizer = _idefics_tokenizer()
    sizes = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}
    processor = SmolVLMProcessor(
        SmolVLMImageProcessor(**sizes, do_image_splitting=True, **MEAN_STD), tokenizer,
        SmolVLMVideoProcessor(**sizes, num_frames=2, fps=1), image_seq_len=4, chat_template=_template(_UTTERANCE, "<image>"),
    )  # fmt: skip
    return SmolVLMForConditionalGeneration(SmolVLMConfig(**_idefics_parts(tokenizer))), processor


def idefics3() -> tuple[Any, Any]:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3ImageProcessor, Idefics3Processor

    tokenizer = _idefics_tokenizer()
    sizes = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}
    images = Idefics3ImageProcessor(**sizes, do_image_splitting=True, **MEAN_STD)
    processor = Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=_template(_UTTERANCE, "<image>"))
    return Idefics3ForConditionalGeneration(Idefics3Config(**_idefics_parts(tokenizer))), processor


def gemma3() -> tuple[Any, Any]:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3ImageProcessor, Gemma3Processor

    named = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    turns = ["<start_of_turn>", "<end_of_turn>"]
    tokenizer = _tokenizer(turns, named, True, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")
    of = tokenizer.convert_tokens_to_ids
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    text = {**TEXT_SIZES, "sliding_window": 12, "layer_types": kinds, "query_pre_attn_scalar": 16, **_ids(tokenizer)}
    config = Gemma3Config(
        text_config=text, vision_config={"model_type": "siglip_vision_model", **VIT, "vision_use_head": False},
        mm_tokens_per_image=4, image_token_index=of("<image_soft_token>"), boi_token_index=of("<start_of_image>"),
        eoi_token_index=of("<end_of_image>"), tie_word_embeddings=False,  # tied and widened, it would repeat its last token
    )  # fmt: skip
    images = Gemma3ImageProcessor(size={"height": 32, "width": 32}, **MEAN_STD)
    processor = Gemma3Processor(images, tokenizer, _template(_TRIMMED, "<start_of_image>"), image_seq_length=4)
    return Gemma3ForConditionalGeneration(config), processor


def paligemma() -> tuple[Any, Any]:
    from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration, PaliGemmaProcessor, SiglipImageProcessor

    tokenizer = _tokenizer([], {"image_token": "<image>"}, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")
    images = SiglipImageProcessor(size={"height": 32, "width": 32}, **MEAN_STD)
    images.image_seq_length = 16
    processor = PaliGemmaProcessor(images, tokenizer)
    text = {"model_type": "gemma", **TEXT_SIZES, "vocab_size": VOCABULARY + 1200, "tie_word_embeddings": True, **_ids(tokenizer)}
    config = PaliGemmaConfig(
        text_config=text, vision_config={"model_type": "siglip_vision_model", **VIT, "vision_use_head": False},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"), projection_dim=64, hidden_size=64,
    )  # fmt: skip
    return PaliGemmaForConditionalGeneration(config), processor


def text_chat() -> tuple[Any, Any]:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = _tokenizer(["<|im_start|>"], eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = _TEXT_TURNS
    return Qwen3ForCausalLM(Qwen3Config(**TEXT_SIZES, **_ids(tokenizer))), tokenizer


def text_base() -> tuple[Any, Any]:
    """A base model: no chat template, no padding token, learned positions."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = _tokenizer([], eos_token="<|endoftext|>")
    sizes = {"vocab_size": VOCABULARY, "n_positions": 512, "n_embd": 64, "n_layer": 3, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**sizes, eos_token_id=tokenizer.eos_token_id, bos_token_id=None)), tokenizer


MAKERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    maker.__name__: maker
    for maker in (
        internvl, qwen3_5, qwen3_vl, qwen2_5_vl, qwen2_vl, llava, llava_onevision, smolvlm, idefics3, gemma3, paligemma,
        text_chat, text_base,
    )
}  # fmt: skip
FAMILIES = list(MAKERS)
TEXT_ONLY = ["text_chat", "text_base"]


def build(family: str, folder: Path) -> Path:
    """Make a family's tiny model and save model and processor to ``folder``."""
    torch.manual_seed(0)
    model, processor = MAKERS[family]()
    widen(model).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
