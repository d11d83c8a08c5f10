"""A memory on disk: knowledge as JSON lines, keys as safetensors, and a manifest that says which of them belong together.

The manifest ``memory.json`` is written last and names the other files, which have a new name at every save, with their
SHA-256. A kill at any moment therefore leaves the memory saved before or the new one. Images lie under ``images`` by their
content and are never deleted, because knowledge that was loaded reads them late.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedit.artefacts import load_knowledge, load_tensors, read_json, save_knowledge, save_tensors, write_json
from kedit.errors import DataError
from kedit.types import Knowledge

MANIFEST = "memory.json"
_FORMAT = 1
_KINDS = {"entries": "jsonl", "keys": "safetensors"}


class Saved(NamedTuple):
    """What a memory's folder holds."""

    ids: list[str]
    knowledge: list[Knowledge]
    keys: NDArray[np.float32]
    encoder: str | None


def write(
    folder: Path, ids: Sequence[str], knowledge: Sequence[Knowledge], keys: NDArray[np.float32], encoder: str | None
) -> None:
    """Write a memory to a folder in place of the one that it may hold; raises ImageError, OSError."""
    import torch

    version = secrets.token_hex(4)
    names = {kind: f"{kind}-{version}.{suffix}" for kind, suffix in _KINDS.items()}
    save_knowledge(folder, knowledge, name=names["entries"])
    save_tensors(folder / names["keys"], {"keys": torch.from_numpy(keys)})
    files = {kind: {"name": name, "sha256": _digest(folder / name)} for kind, name in names.items()}
    about = {"format": _FORMAT, "count": len(ids), "width": keys.shape[1], "encoder": encoder, "files": files, "ids": list(ids)}
    write_json(folder / MANIFEST, about)
    for kind, suffix in _KINDS.items():
        for file in folder.glob(f"{kind}-*.{suffix}"):
            if file.name not in names.values():
                file.unlink(missing_ok=True)


def read(folder: Path) -> Saved:
    """The memory in a folder; raises DataError where a file is missing, foreign, changed, or does not fit the others."""
    manifest = folder / MANIFEST
    about = read_json(manifest)
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise DataError(f"{manifest} is not a memory's manifest of format {_FORMAT}; load a folder that Memory.save wrote")
    paths = {kind: _checked(folder, about, kind) for kind in _KINDS}
    tensors = load_tensors(paths["keys"])
    keys = tensors["keys"].numpy() if "keys" in tensors else np.empty(0)
    knowledge = load_knowledge(folder, name=paths["entries"].name)
    ids, encoder = about.get("ids"), about.get("encoder")
    wanted = (about.get("count"), about.get("width"))
    if not isinstance(ids, list) or len(ids) != len(knowledge) or keys.shape != wanted or wanted[0] != len(ids):
        raise DataError(
            f"{manifest} says {wanted[0]} entries with keys of width {wanted[1]}, but there are "
            f"{len(ids) if isinstance(ids, list) else 'no'} ids, {len(knowledge)} entries and keys {keys.shape}; save it again"
        )
    if keys.dtype != np.float32 or not (encoder is None or isinstance(encoder, str)):
        raise DataError(f"{folder} holds keys of type {keys.dtype}, encoder {encoder!r}; expected float32 and a text or null")
    return Saved(ids, knowledge, keys, encoder)


def _checked(folder: Path, about: dict[str, Any], kind: str) -> Path:
    """The file of a kind, if it lies in the folder and is what the manifest was written for."""
    try:
        name, digest = str(about["files"][kind]["name"]), about["files"][kind]["sha256"]
    except (KeyError, TypeError) as error:
        raise DataError(f"{folder / MANIFEST} does not name its file of {kind} ({error}); save the memory again") from error
    if not name.startswith(f"{kind}-") or Path(name).name != name:
        raise DataError(f"{folder / MANIFEST} names {name!r} as its file of {kind}, which is none that Memory.save writes")
    try:
        found = _digest(folder / name)
    except OSError as error:
        raise DataError(f"{folder / name} cannot be read: {error}; the memory is incomplete") from error
    if found != digest:
        raise DataError(f"{folder / name} is not what was saved: SHA-256 {found[:12]}..., expected {str(digest)[:12]}...")
    return folder / name


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
