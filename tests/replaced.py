"""What the tests of editors with a replacement model share: a toy text encoder and cases that can be learned in seconds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WIDTH = 96


class Words:
    """Texts as bags of words, each word a fixed random direction: near where words are shared."""

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([sum((_direction(word) for word in text.split()), np.zeros(WIDTH, np.float32)) for text in texts])

    def __repr__(self) -> str:
        return "Words()"


def _direction(word: str) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)
