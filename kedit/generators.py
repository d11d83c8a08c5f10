"""The generators of random numbers that a computation may draw from."""

from __future__ import annotations

import random

import numpy as np
import torch


def set_generators(number: int) -> None:
    """Set the generators of Python, NumPy and torch (all devices) by one number from 0 to 2**64 - 1."""
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number)
