"""Random numbers that depend on the seed and on the place in the training, and on nothing that happened before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from kedit.generators import set_generators


def permutation(items: int, seed: int, epoch: int) -> list[int]:
    """The order of the items in an epoch (from 0)."""
    order = list(range(items))
    random.Random(f"{seed}|order|{epoch}").shuffle(order)
    return order


def seed_step(seed: int, step: int) -> None:
    """Set the generators of Python, NumPy and torch (all devices) to where they are at the beginning of a step."""
    set_generators(random.Random(f"{seed}|step|{step}").getrandbits(32))


@contextmanager
def generators_restored() -> Iterator[None]:
    """Afterwards the generators of Python, NumPy and torch (all devices in use) are as they were before."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if devices:
            torch.cuda.set_rng_state_all(devices)
