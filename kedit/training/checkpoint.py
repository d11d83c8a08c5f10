"""A stopped training as one safetensors file: what was learned, the optimiser, the best so far, and where it stopped.

The file is replaced in one go and carries a digest, and the one before it is kept until the training ends, so that neither
a kill nor a damaged disk block costs more than the steps since.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kedit.artefacts import replace_file
from kedit.config import difference
from kedit.errors import StoreError
from kedit.trunk import tensors_digest

log = logging.getLogger(__name__)

LAST, PREVIOUS = "last.safetensors", "previous.safetensors"
_FIELD = "kedit"
_STATE, _OPTIMISER, _BEST = "state/", "optimiser/", "best/"


@dataclass
class Best:
    """The best validation so far: its score, the step it was made at, and what had been learned by then."""

    score: float
    step: int
    state: dict[str, Tensor]


@dataclass
class Checkpoint:
    """Where a training stopped. ``identity`` decides the result: only a training with an equal one may continue."""

    identity: Mapping[str, Any]
    step: int
    state: dict[str, Tensor]
    optimiser: dict[str, Tensor] = field(default_factory=dict)
    best: Best | None = None

    def save(self, folder: Path) -> None:
        """Write ``last.safetensors``; the one before it becomes ``previous.safetensors``."""
        from safetensors.torch import save_file

        tensors = _prefixed(_STATE, self.state) | _prefixed(_OPTIMISER, self.optimiser)
        facts: dict[str, Any] = {"identity": self.identity, "step": self.step, "best": None}
        if self.best is not None:
            tensors |= _prefixed(_BEST, self.best.state)
            facts["best"] = {"score": self.best.score, "step": self.best.step}
        facts["digest"] = tensors_digest(sorted(tensors.items()))
        text = json.dumps(facts, sort_keys=True)
        last = folder / LAST

        def write(file: Path) -> None:
            save_file(tensors, file, metadata={_FIELD: text})
            if last.exists():  # between this and the next rename there is only the previous one, which is whole
                last.replace(folder / PREVIOUS)

        try:
            replace_file(last, write)
        except OSError as error:
            raise StoreError(
                f"cannot write the checkpoint {last}: {error.strerror or error}; the one before it is intact"
            ) from error


def find(folder: Path, identity: Mapping[str, Any]) -> Checkpoint | None:
    """The last whole checkpoint of a folder, None where there is none; a damaged one is passed over with a warning.

    Raises StoreError, which says what differs, when it belongs to a training with another ``identity``.
    """
    for name in (LAST, PREVIOUS):
        found = read(folder / name) if (folder / name).exists() else None
        if found is None:
            continue
        if changes := difference(found.identity, json.loads(json.dumps(identity))):
            listed = "\n  ".join(changes)
            raise StoreError(
                f"{folder} holds a training of {found.step} steps with other settings (stored -> now):\n  {listed}\n"
                "train with the stored settings to continue it, name another folder, or remove this one"
            )
        return found
    return None


def read(file: Path) -> Checkpoint | None:
    """A checkpoint as it was saved; None, with a warning, where the file is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            facts = json.loads((opened.metadata() or {})[_FIELD])
            tensors: dict[str, Tensor] = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        log.warning("%s is damaged and passed over: %s", file, error)
        return None
    if facts.pop("digest", None) != tensors_digest(sorted(tensors.items())):
        log.warning("%s is damaged and passed over: its content is not what was saved", file)
        return None
    best = facts["best"] and Best(**facts["best"], state=_under(_BEST, tensors))
    return Checkpoint(facts["identity"], facts["step"], _under(_STATE, tensors), _under(_OPTIMISER, tensors), best)


def tidy(folder: Path) -> None:
    """Remove what a killed process left half written."""
    for partial in folder.glob(".*.part"):
        partial.unlink(missing_ok=True)


def settle(folder: Path) -> None:
    """The training has ended: only its last checkpoint stays."""
    (folder / PREVIOUS).unlink(missing_ok=True)


def snapshot(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU that no later step changes."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's running values, by ``<parameter's number>/<name>``."""
    state = optimiser.state_dict()["state"]
    return snapshot({f"{at}/{name}": torch.as_tensor(value) for at, values in state.items() for name, value in values.items()})


def load_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what ``optimiser_tensors`` gave; the optimiser has the same parameters in the same order."""
    state: dict[int, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        at, _, name = path.partition("/")
        state.setdefault(int(at), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
