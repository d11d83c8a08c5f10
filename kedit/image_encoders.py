"""Image-text encoders: open_clip models as functions from texts and images to vectors of one space."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kedit.errors import CheckpointError, unknown_name
from kedit.images import open_image
from kedit.types import ImageRef
from kedit.zoo.catalogue import PARTS, available, folder

ARCHITECTURE, PRETRAINED = "ViT-L-14", "openai"
"""The encoder of CrossCult-KIBench, as open_clip names its shape and its weights."""
CONFIG = "open_clip_config.json"
HUB = "hf-hub:"
_WEIGHTS = ("open_clip_model.safetensors", "model.safetensors")


class PairEncoder:
    """An open_clip model with its preprocessing and its tokenizer; features are as the model gives them, not normalised.

    A text of more tokens than the model reads is cut, the end token kept; ``texts_`` and ``truncated_`` count the texts
    read so far and those that were cut. The model is in evaluation mode, frozen and shared by all encoders of the same
    name: take a ``copy`` before training it.
    """

    def __init__(self, name: str, model: Any, preprocess: Any, tokenizer: Any) -> None:
        self.name = name
        self.model = model
        self.preprocess = preprocess
        self.tokenizer = tokenizer
        self.texts_ = 0
        self.truncated_ = 0

    def __repr__(self) -> str:
        return f"PairEncoder({self.name!r})"

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        found: torch.device = next(self.model.parameters()).device
        return found

    @property
    def length(self) -> int:
        """Tokens of a text that are read, start and end included."""
        return int(self.tokenizer.context_length)

    @cached_property
    def width(self) -> int:
        """Numbers per text and per image."""
        with torch.no_grad():
            return int(self.model.encode_text(self.tokenizer([""]).to(self.device)).shape[-1])

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, list[bool]]:
        """Token ids (n, length) on the CPU, and which of the texts were cut."""
        ids = self.tokenizer(["", *texts])
        longer = self.tokenizer(["", *texts], context_length=self.length + 1)
        # one more token of room changes nothing for a text that fits; columns where it does even for an empty text tell nothing
        steady = ids[0] == longer[0, :-1]
        cut = ((ids != longer[:, :-1]) & steady).any(1) | (longer[:, -1] != longer[0, -1])
        return ids[1:], [bool(one) for one in cut[1:]]

    def text_features(self, texts: Sequence[str]) -> Tensor:
        """One row per text, (n, width); differentiable where the model's parameters are."""
        ids, cut = self.tokens(texts)
        self.texts_ += len(cut)
        self.truncated_ += sum(cut)
        found: Tensor = self.model.encode_text(ids.to(self.device))
        return found.float()

    def image_features(self, images: Sequence[ImageRef]) -> Tensor:
        """One row per image, (n, width), each at the model's own size and normalisation; raises ImageError."""
        pixels = torch.stack([self.preprocess(open_image(image)) for image in images])
        found: Tensor = self.model.encode_image(pixels.to(self.device))
        return found.float()

    def blank_feature(self) -> Tensor:
        """What the model makes of pixels that are all zero after normalisation, (width,)."""
        size = self.model.visual.image_size
        height, width = (size, size) if isinstance(size, int) else size
        found: Tensor = self.model.encode_image(torch.zeros(1, 3, height, width, device=self.device))
        return found.float()[0]

    def copy(self) -> PairEncoder:
        """The same encoder with a model of its own and fresh counters."""
        return PairEncoder(self.name, copy.deepcopy(self.model), self.preprocess, self.tokenizer)


def load_clip(name: str = ARCHITECTURE, pretrained: str | None = PRETRAINED, *, device: str = "cpu") -> PairEncoder:
    """An encoder in fp32 by the name of an embedded one, a folder, ``hf-hub:owner/name`` or an open_clip architecture.

    A folder is what open_clip calls ``local-dir:``: ``open_clip_config.json`` (``model_cfg``, ``preprocess_cfg``), weights
    as safetensors, and the tokenizer's files where it has one of its own. ``pretrained`` is for architectures: a tag that
    open_clip knows for it, or a ``.safetensors`` file. Multilingual ones are among them, such as
    ``load_clip("xlm-roberta-base-ViT-B-32", "laion5b_s13b_b90k")``.

    Raises UnknownNameError for a name or tag that is not known and CheckpointError where weights are missing, do not fit
    or are a pickle, which could run code when opened.
    """
    place = _folder(name)
    weights = None if place is None else _weights_in(place, name)
    source = name if place is None else f"local-dir:{place.resolve()}"
    stamp = "" if weights is None else f"{weights}|{weights.stat().st_mtime_ns}"
    return PairEncoder(name, *_loaded(source, pretrained if place is None else None, device, stamp))


@lru_cache(maxsize=2)
def _loaded(source: str, pretrained: str | None, device: str, stamp: str) -> tuple[Any, Any, Any]:
    """Model, preprocessing and tokenizer; ``stamp`` names a folder's weights and their time, so that new ones are read."""
    import open_clip
    from open_clip.transform import PreprocessCfg, image_transform_v2

    options = {"load_weights": False, "weights": stamp.partition("|")[0]} if stamp else _remote(source, pretrained)
    weights = options.pop("weights")
    try:
        with _no_warning_of_random_weights():
            model = open_clip.create_model(source, device=device, pretrained_text=False, **options)
            if weights is not None:
                open_clip.load_checkpoint(model, str(weights))
            tokenizer = open_clip.get_tokenizer(source)
    except (RuntimeError, ValueError, OSError, KeyError) as error:
        raise CheckpointError(f"the image-text encoder {source!r} cannot be read: {error}") from error
    preprocess = image_transform_v2(PreprocessCfg(**model.visual.preprocess_cfg), is_train=False)
    return model.eval().requires_grad_(False), preprocess, tokenizer


def _remote(name: str, pretrained: str | None) -> dict[str, Any]:
    """Options for open_clip; ``weights`` is a file to load afterwards, or None."""
    if name.startswith(HUB):
        return {"load_weights": False, "weights": _weights_on_hub(name)}
    import open_clip

    if name.replace("/", "-") not in open_clip.list_models():
        hint = f"Others are a folder with {CONFIG}, or {HUB}owner/name."
        raise unknown_name("image-text encoder", name, [*PARTS, *open_clip.list_models()], hint)
    return _of_architecture(name.replace("/", "-"), pretrained)


def _of_architecture(name: str, pretrained: str | None) -> dict[str, Any]:
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    tags = open_clip.list_pretrained_tags_by_model(name)
    if pretrained is not None and (tag := get_pretrained_cfg(name, pretrained)):
        # open_clip only warns where weights were trained with another activation than the architecture has by default
        return {"pretrained": pretrained, "force_quick_gelu": bool(tag.get("quick_gelu", False)), "weights": None}
    if pretrained is not None and Path(pretrained).suffix == ".safetensors" and Path(pretrained).is_file():
        return {"load_weights": False, "weights": Path(pretrained)}
    if pretrained is not None and Path(pretrained).exists():
        raise _pickle(pretrained)
    raise unknown_name(f"pretrained tag of {name}", str(pretrained), tags, "A .safetensors file of its weights works as well.")


def _folder(name: str) -> Path | None:
    """The folder of an embedded encoder (under KEDIT_ZOO if it is there, else with the package) or the one named."""
    if name not in PARTS:
        return Path(name) if (Path(name) / CONFIG).is_file() else None
    if not available(name):
        raise CheckpointError(f"the weights of {name!r} are not on this machine; make them with: kedit zoo train {name}")
    return folder(name)


def _weights_in(folder: Path, name: str) -> Path:
    known = [folder / file for file in _WEIGHTS if (folder / file).is_file()]
    found = known or sorted(folder.glob("*.safetensors"))
    if not found:
        raise _pickle(name)
    return found[0]


def _weights_on_hub(name: str) -> str:
    from open_clip.pretrained import download_pretrained_from_hf

    try:
        found: str = download_pretrained_from_hf(name.removeprefix(HUB), filename=_WEIGHTS[0])
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{name} gives no {_WEIGHTS[0]}, the only form of weights that is read: {error}") from error
    return found


def _pickle(name: str) -> CheckpointError:
    return CheckpointError(
        f"{name!r} holds no .safetensors weights, the only form that is read, because a pickle can run code when opened; "
        "convert it with safetensors.torch.save_file"
    )


@contextmanager
def _no_warning_of_random_weights() -> Iterator[None]:
    """open_clip warns that weights are random where they are loaded in a second step."""

    def keep(record: logging.LogRecord) -> bool:
        return "No pretrained weights loaded" not in record.getMessage()

    root = logging.getLogger()
    root.addFilter(keep)
    try:
        yield
    finally:
        root.removeFilter(keep)
