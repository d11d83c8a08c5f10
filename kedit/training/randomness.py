"""Random numbers that depend on the seed and on the place in the training, and on nothing that happened before."""

from __future__ import annotations

import random

from kedit.generators import set_generators


def permutation(items: int, seed: int, epoch: int) -> list[int]:
    """The order of the items in an epoch (from 0)."""
    order = list(range(items))
    random.Random(f"{seed}|order|{epoch}").shuffle(order)
    return order


def seed_step(seed: int, step: int) -> None:
    """Set the generators of Python, NumPy and torch (all devices) to where they are at the beginning of a step."""
    set_generators(random.Random(f"{seed}|step|{step}").getrandbits(32))
