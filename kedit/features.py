"""Pooled hidden states of requests, computed once per backbone and kept: what routers on frozen features read and learn from."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from kedit.answers import conditions
from kedit.artefacts import load_tensors, read_json, save_tensors, write_json
from kedit.backbone import Backbone
from kedit.errors import ContractError, DataError, StoreError
from kedit.locks import cache_folder
from kedit.seal import Seal
from kedit.trunk import tensors_digest
from kedit.types import Request

log = logging.getLogger(__name__)

_ABOUT = "about.json"
_CHUNK = 128
"""Requests per pass: a killed extraction loses at most these."""
_UNSAVED = 64
"""Features that were seen in passing and are not on the disk yet."""
_SMALL, _MANY = 256, 64
"""Files with fewer rows than the first are put together when there are more of them than the second."""


class Features(NamedTuple):
    """Mean states over the question's tokens and over the visual tokens, (n, width) each, fp32 on the CPU."""

    question: Tensor
    visual: Tensor


class PooledFeatures:
    """Hidden states of the unedited backbone, averaged over question tokens and over visual tokens of each request.

    ``layer`` is that of ``Backbone.hidden`` (-1: after the final norm). A request without images has a visual half of zeros.
    Each request is read once: features are kept in memory and below ``cache_dir`` (default: KEDIT_CACHE, else
    ``~/.cache/kedit``) in ``features/<weights>-<dtype, device, library, processor>-layer<layer>``, shared by routers, runs and
    processes; a damaged file is dropped and its rows are made again. ``extracted`` counts requests read by a pass of their
    own, ``taken`` those whose states came from a pass that was needed anyway, ``reused`` those found.

    Seals the weights at construction: make it before anything edits the backbone. Raises ContractError when features are
    wanted of edited weights, StoreError when the folder cannot be written, ImageError and RequestError as the backbone does.
    """

    def __init__(self, backbone: Backbone, *, layer: int = -1, cache_dir: str | Path | None = None) -> None:
        self.backbone = backbone
        self.layer = layer
        self.cache_dir = cache_dir
        self.seal = Seal(backbone.model)  # not lazily: by the first request the weights may be edited
        self.extracted = self.taken = self.reused = 0
        self._known: dict[str, Features] = {}
        self._unsaved: dict[str, Features] = {}

    def __call__(self, requests: Sequence[Request]) -> Features:
        """Features of requests, in their order; reads those that nobody has read before."""
        wanted = {request.key: request for request in requests}
        missing = self._missing(wanted)
        done = 0
        while missing:
            chunk = list(missing)[:_CHUNK]
            self._check_seal()
            states = self.backbone.hidden([wanted[key] for key in chunk], layer=self.layer)
            self._keep({key: self._pooled(wanted[key], state) for key, state in zip(chunk, states, strict=True)})
            self.flush()
            done += len(chunk)
            missing = self._missing(missing)  # another process may have read some of them meanwhile
        self.extracted += done
        self.reused += len(requests) - done
        rows = [self._known[request.key] for request in requests]
        if not rows:
            return Features(torch.zeros(0, 0), torch.zeros(0, 0))
        return Features(torch.stack([row.question for row in rows]), torch.stack([row.visual for row in rows]))

    def knows(self, request: Request) -> bool:
        """Whether a request's features are in memory or on the disk."""
        return not self._missing({request.key: request})

    def take(self, requests: Sequence[Request], states: Sequence[Tensor]) -> None:
        """Keep the features of requests whose states, as ``Backbone.hidden`` gives them, were computed for something else."""
        self._check_seal()
        new = {r.key: (r, state) for r, state in zip(requests, states, strict=True) if r.key not in self._known}
        self._keep({key: self._pooled(request, state) for key, (request, state) in new.items()})
        self.taken += len(new)
        if len(self._unsaved) >= _UNSAVED:
            self.flush()

    def flush(self) -> None:
        """Write what is in memory only."""
        if self._unsaved:
            self._shards.write(self._unsaved)
            self._unsaved = {}

    def save(self, folder: str | Path, requests: Sequence[Request]) -> None:
        """Write the features of some requests to a folder, with what they depend on, for a machine that has not read them."""
        self(requests)
        copy = _Shards(Path(folder), self.about)
        if requests:
            copy.write({request.key: self._known[request.key] for request in requests})

    def load(self, folder: str | Path) -> bool:
        """Take over what ``save`` wrote, if it was made with these weights and settings; whether that was so."""
        about = Path(folder) / _ABOUT
        if not about.exists() or read_json(about) != self.about:
            return False
        self._known.update(_Shards(Path(folder), {}).new())  # in memory only: a cache holds what was computed here
        return True

    # -- inside --------------------------------------------------------------------------------------------------------

    def _missing(self, wanted: Mapping[str, Request]) -> dict[str, Request]:
        """What is not known yet; processes that work on the same requests begin at different places."""
        if any(key not in self._known for key in wanted):
            self._known.update(self._shards.new())
        keys = [key for key in wanted if key not in self._known]
        begin = len(keys) * int(os.environ.get("RANK", "0")) // max(int(os.environ.get("WORLD_SIZE", "1")), 1)
        return {key: wanted[key] for key in keys[begin:] + keys[:begin]}

    def _keep(self, rows: Mapping[str, Features]) -> None:
        self._known.update(rows)
        self._unsaved.update(rows)

    def _pooled(self, request: Request, states: Tensor) -> Features:
        spans = self.backbone.token_spans(request)
        return Features(_mean(states, spans.question), _mean(states, spans.visual))

    def _check_seal(self) -> None:
        if changed := self.seal.changed():
            raise ContractError(
                f"features of the unedited backbone were wanted while {len(changed)} of its weights are edited "
                f"({', '.join(changed[:3])}); reset the editor that edited them first"
            )

    @cached_property
    def about(self) -> dict[str, str | int]:
        """What the features depend on: the weights' fingerprint, dtype, device and libraries, and the layer."""
        self._check_seal()  # else they would be named after edited weights
        return {
            "backbone": self.backbone.id,
            "fingerprint": self.backbone.fingerprint(),
            "dtype": str(self.backbone.dtype),
            "conditions": conditions(self.backbone),
            "layer": self.layer,
        }

    @cached_property
    def _shards(self) -> _Shards:
        name = f"{str(self.about['fingerprint'])[:16]}-{self.about['conditions']}-layer{self.layer}"
        return _Shards(cache_folder(self.cache_dir) / "features" / name, self.about)


_SHARED: WeakValueDictionary[tuple[int, int, str], PooledFeatures] = WeakValueDictionary()


def shared_features(backbone: Backbone, *, layer: int = -1, cache_dir: str | Path | None = None) -> PooledFeatures:
    """The features that somebody in this process already holds for a backbone in its present state, or new ones."""
    place = (id(backbone), layer, str(cache_folder(cache_dir)))  # whoever is found holds the backbone, so its id is not reused
    found = _SHARED.get(place)
    if found is None or found.seal.changed():
        found = _SHARED[place] = PooledFeatures(backbone, layer=layer, cache_dir=cache_dir)
    return found


class _Shards:
    """Files of features, each named by the digest of its content and never changed, so that processes need no lock."""

    def __init__(self, folder: Path, about: Mapping[str, object]) -> None:
        self.folder = folder
        self.about = about
        self._read: set[str] = set()

    def new(self) -> dict[str, Features]:
        """Rows of all files not read before, by the request's key."""
        fresh = {path: _rows(path) for path in sorted(self.folder.glob("*.safetensors")) if path.stem not in self._read}
        self._read.update(path.stem for path in fresh)
        small = {path: rows for path, rows in fresh.items() if 0 < len(rows) < _SMALL}
        if len(small) > _MANY:
            self._merge(small)
        return {key: row for rows in fresh.values() for key, row in rows.items()}

    def write(self, rows: Mapping[str, Features]) -> str:
        """Add a file and return its name; raises StoreError where that is not possible."""
        tensors = {
            "keys": torch.tensor([list(bytes.fromhex(key)) for key in rows], dtype=torch.uint8),  # (n, 32)
            "question": torch.stack([row.question for row in rows.values()]),
            "visual": torch.stack([row.visual for row in rows.values()]),
        }
        name = _digest(tensors)
        try:
            if not (self.folder / _ABOUT).exists():
                write_json(self.folder / _ABOUT, self.about)
            save_tensors(self.folder / f"{name}.safetensors", tensors)
        except OSError as error:
            hint = "set KEDIT_CACHE or cache_dir to a folder that can be written"
            raise StoreError(f"cannot keep features in {self.folder}: {error.strerror or error}; {hint}") from error
        self._read.add(name)
        return name

    def _merge(self, small: Mapping[Path, Mapping[str, Features]]) -> None:
        """One file in place of many; who reads meanwhile finds a row twice, or not, and makes it again."""
        merged = self.write({key: row for rows in small.values() for key, row in rows.items()})
        for path in small:
            if path.stem != merged:
                path.unlink(missing_ok=True)


def _rows(path: Path) -> dict[str, Features]:
    """Rows of a file by the request's key; a damaged file is removed and gives none."""
    try:
        tensors = load_tensors(path)
        keys, question, visual = tensors["keys"], tensors["question"], tensors["visual"]
        if _digest(tensors) != path.stem:
            raise DataError("its content is not what its name says")
    except (DataError, KeyError) as error:
        if not path.exists():  # another process put it together with others
            return {}
        log.warning("%s is damaged and is made again: %s", path, error)
        path.unlink(missing_ok=True)
        return {}
    named = [bytes(row).hex() for row in keys.tolist()]
    return {key: Features(q, v) for key, q, v in zip(named, question, visual, strict=True)}


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """The first 32 hex digits: the name of a file by its content."""
    return tensors_digest(sorted(tensors.items()))[:32]


def _mean(states: Tensor, positions: Sequence[int]) -> Tensor:
    """Mean over some rows of (tokens, width), (width,), fp32 on the CPU; zeros where there are none."""
    if not positions:
        return torch.zeros(states.shape[-1])
    return states[list(positions)].float().mean(0).cpu()
