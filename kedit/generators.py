"""The generators of random numbers that a computation may draw from."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def set_generators(number: int) -> None:
    """Set the generators of Python, NumPy and torch (all devices) by one number from 0 to 2**64 - 1."""
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number)


def seed_by(seed: int, *parts: str) -> None:
    """Set the generators by a seed and by what it is for, such as an editor and a case."""
    digest = hashlib.sha256("\x1f".join([str(seed), *parts]).encode("utf-8", "surrogatepass")).digest()
    set_generators(int.from_bytes(digest[:8], "big"))


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
