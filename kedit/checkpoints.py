"""Finding and reading a model and its processor; weights are read from safetensors only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kedit.errors import CheckpointError, KeditError, unknown_name


def read_checkpoint(
    name: str,
    *,
    revision: str | None,
    dtype: str | torch.dtype,
    device: str | torch.device | None,
    remote: bool,
    options: Mapping[str, Any],
) -> tuple[Any, Any]:
    """The model, on its device, and the processor (a tokenizer for text-only models); raises OSError when not found.

    See ``kedit.backbone.load_backbone`` for the arguments; ``remote`` allows code that comes with the checkpoint.
    """
    from transformers import AutoConfig, AutoProcessor

    source = _source(name)
    where = _device(device)
    _known_dtype(dtype)
    common: dict[str, Any] = {"revision": revision, "trust_remote_code": remote}
    try:
        config = AutoConfig.from_pretrained(source, **common)
    except (OSError, ValueError) as error:
        raise _unreadable(name, source, error) from error
    with quiet(source):
        model = _model_class(config).from_pretrained(source, dtype=_dtype(dtype, config, where), use_safetensors=True, **common)
    processor = AutoProcessor.from_pretrained(source, **common, **options)  # type: ignore[no-untyped-call]
    return model.to(where), processor


def _unreadable(name: str, source: str, error: Exception) -> KeditError:
    """What to say of a name that gives no model: the nearest embedded one, or what the hub's library said."""
    from kedit.zoo.catalogue import PRESETS

    if "trust_remote_code" in str(error):
        return CheckpointError(f"{name!r} comes with code of its own, which kedit runs only when asked: --trust-remote-code")
    if name in PRESETS:
        return CheckpointError(f"the weights of {name!r} are not in {source}; make them with: kedit zoo train {name}")
    if "/" not in name and not Path(source).exists():
        return unknown_name("backbone", name, PRESETS, "Others are a hub id (owner/name) or a local folder.")
    return CheckpointError(f"no model could be read from {name!r}; give a hub id or a folder with config.json. {error}")


def _source(name: str) -> str:
    """A folder for an embedded backbone; anything else is a folder or a hub id already."""
    if not str(name).startswith("tiny-"):
        return str(name)
    from kedit.zoo.catalogue import resolve

    found = resolve(name)
    return str(found) if found is not None else str(name)


def _device(device: str | torch.device | None) -> torch.device:
    """The device asked for, else the GPU where there is one; CheckpointError for one that is not there."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:  # AssertionError: a build of torch without that device
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"device {str(device)!r} cannot be used here; use cpu, or leave it out. {reason}") from error
    return where


def _known_dtype(dtype: str | torch.dtype) -> None:
    found = dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype, None)
    if dtype != "auto" and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise unknown_name("dtype", str(dtype), ("auto", "float32", "bfloat16", "float16"))


def _dtype(dtype: str | torch.dtype, config: Any, device: torch.device) -> str | torch.dtype:
    if dtype != "auto":
        return getattr(torch, dtype) if isinstance(dtype, str) else dtype
    half_on_cpu = device.type == "cpu" and getattr(config, "dtype", None) == torch.float16  # slow there, and not exact
    return torch.float32 if half_on_cpu else "auto"


def _model_class(config: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    remote = "AutoModelForImageTextToText" in (getattr(config, "auto_map", None) or {})
    return AutoModelForImageTextToText if remote or type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING else AutoModelForCausalLM


@contextmanager
def quiet(source: str) -> Iterator[None]:
    """No progress bar for a local folder, which loads at once; a download shows one."""
    from transformers.utils import logging

    shown = Path(source).is_dir() and logging.is_progress_bar_enabled()
    if shown:
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
