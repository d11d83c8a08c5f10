"""What the recipe of an embedded backbone says of its model, and what all recipes share: tokenizer, chat template, saving."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kedit.zoo.plan import Plan

IMAGE_SIZE = 64
PATCH = 8
VISUAL_TOKENS = 16
"""Per picture: 8 x 8 patches, of which two by two become one."""
VOCABULARY = 6144
TURNS = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
PAD = "<|pad|>"
HAN = r"\p{Han}"
DECODER: Mapping[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 576,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 48,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
    "bos_token_id": None,
}
"""The decoder's sizes, under the names that text configurations have in common."""
MEAN_STD: Mapping[str, list[float]] = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}

_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}LEAD{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ 'IMAGE' }}{% elif part['type'] == 'text' %}LEAD{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


class Recipe(ABC):
    """An embedded backbone before it has weights; one instance per model, holding no state."""

    name: str
    image_tokens: tuple[str, str, str]
    """What opens a picture in the prompt, what stands for each of its visual tokens, and what closes it."""
    video_token: str
    """Asked for by the processor; the model has seen no video."""
    plan: Plan
    """How the shipped weights were made."""
    lead: str = ""
    """What the chat template puts before every text of a prompt (never before an answer)."""
    kept: tuple[int, ...] = ()
    """For a model that is its parent with fewer layers: which of them, lowest first."""

    # -- what differs ------------------------------------------------------------------------------------------------

    @abstractmethod
    def token_names(self) -> dict[str, str]:
        """Attributes of the tokenizer under which the processor looks for the tokens of pictures and videos."""

    @abstractmethod
    def make_processor(self, tokenizer: Any) -> Any:
        """The processor: square pictures scaled to 64 x 64, ``VISUAL_TOKENS`` each."""

    @abstractmethod
    def make_model(self, tokenizer: Any) -> Any:
        """An untrained model, fp32, whose special ids are the tokenizer's."""

    @abstractmethod
    def eyes(self, model: Any) -> nn.ModuleList:
        """The modules between pixels and the decoder's input."""

    @abstractmethod
    def features(self, model: Any, pixels: Tensor) -> Tensor:
        """What the decoder gets to see of pixels (images, 3, 64, 64): (images, VISUAL_TOKENS, hidden size)."""

    @abstractmethod
    def pixels(self, processor: Any, picture: Any) -> Tensor:
        """A picture as the image processor sees it: (3, 64, 64), between -1 and 1."""

    @abstractmethod
    def inputs(self, model: Any, ids: Tensor, pixels: Tensor | None) -> dict[str, Any]:
        """What the model's forward pass takes beside ids (B, T) and mask: pixels (images, 3, 64, 64) in its own layout."""

    def while_training(self) -> AbstractContextManager[None]:
        """Settings of the library that make training faster and leave its result as it is."""
        return nullcontext()

    # -- what is shared ----------------------------------------------------------------------------------------------

    @property
    def special(self) -> tuple[str, ...]:
        """Tokens that are no text, by id from 0 on."""
        opens, pad, closes = self.image_tokens
        return (PAD, *TURNS, opens, closes, pad, self.video_token)

    def chat_template(self, image: str) -> str:
        """The Jinja template of a dialogue; ``image`` is what the processor expands to a picture's tokens."""
        lead = f"{{{{ '{self.lead}' if message['role'] != 'assistant' else '' }}}}" if self.lead else ""
        return _TEMPLATE.replace("IMAGE", image).replace("LEAD", lead)

    def train_tokenizer(self, texts: Iterable[str]) -> Any:
        """A byte-level BPE tokenizer of ``VOCABULARY`` entries in which every Han character stands alone.

        A sentence has the same tokens wherever it begins, so that copying an answer out of a prompt is copying tokens.
        """
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer, tokenizer.pre_tokenizer = self.cutting()
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=list(self.special),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return self.finished(tokenizer)

    def adopt_tokenizer(self, parent: Recipe, tokenizer: Any) -> Any:
        """A parent's tokenizer with the same ids, under this recipe's names of what is no text, cutting as this class cuts."""
        from tokenizers import Tokenizer

        state = json.loads(tokenizer.backend_tokenizer.to_str())
        names = dict(zip(parent.special, self.special, strict=True))
        state["model"]["vocab"] = {names.get(piece, piece): at for piece, at in state["model"]["vocab"].items()}
        for token in state["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        return self.finished(Tokenizer.from_str(json.dumps(state)))

    def finished(self, tokenizer: Any) -> Any:
        """A trained tokenizer with its special tokens named, in the class as which ``from_pretrained`` brings it back."""
        return self.wrap(
            tokenizer,
            pad_token=PAD,
            eos_token="<|end|>",
            extra_special_tokens=self.token_names(),
            padding_side="left",
            model_max_length=4096,
        )

    def cutting(self) -> tuple[Any, Any]:
        """The normaliser and the pre-tokeniser that a tokenizer is trained with.

        These put a blank before every piece of text between special tokens, which is then where any other word has one.
        """
        from tokenizers import Regex, normalizers, pre_tokenizers

        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        return (
            normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(" ")]),
            pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(HAN), "isolated"), whole]),
        )

    def wrap(self, tokenizer: Any, **options: Any) -> Any:
        """A trained tokenizer in the class as which ``from_pretrained`` brings it back."""
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)

    def finish(self, model: Any) -> Any:
        """The model with its ends of generation set from its text configuration."""
        text = model.config.text_config
        model.generation_config.eos_token_id = text.eos_token_id
        model.generation_config.pad_token_id = text.pad_token_id
        model.generation_config.bos_token_id = None
        return model

    def save(self, model: Any, processor: Any, folder: Path) -> None:
        """Weights in fp16 safetensors, configuration, tokenizer and processor, readable by plain ``from_pretrained``."""
        folder.mkdir(parents=True, exist_ok=True)
        copy.deepcopy(model).to(torch.float16).save_pretrained(folder)
        processor.save_pretrained(folder)


def decoder_sizes(tokenizer: Any, kept: tuple[int, ...] = ()) -> dict[str, Any]:
    """``DECODER`` with vocabulary and ends of the tokenizer, and as many layers as are kept of a parent's (none: all)."""
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    layers = {"num_hidden_layers": len(kept)} if kept else {}
    return {**DECODER, **layers, "vocab_size": len(tokenizer), **ends}
