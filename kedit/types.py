"""The nouns of kedit: what is inserted, what is asked, and what was answered.

Everything here is immutable, holds no tensors and imports nothing from kedit, so that any part can depend on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class ImageRef:
    """A reference to one image, by path, by its encoded bytes, or by what draws it; nothing is opened until it is needed.

    Exactly one of the three must be given (ValueError otherwise). ``draw`` returns the encoded bytes, the same at every
    call, and is hashable. Two references are the same image for every cache when their ``digest`` is the same.
    """

    path: str | None = None
    data: bytes | None = field(default=None, repr=False)
    draw: Callable[[], bytes] | None = None

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.path, self.data, self.draw)) != 1:
            raise ValueError("ImageRef needs one of path, data and draw: ImageRef(path='a.png') or ImageRef(data=b'...')")

    def read(self) -> bytes:
        """The encoded bytes; raises OSError where the path cannot be read."""
        if self.data is not None:
            return self.data
        return self.draw() if self.draw is not None else Path(str(self.path)).read_bytes()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the encoded bytes, 64 hex digits; raises OSError where the path cannot be read."""
        return hashlib.sha256(self.read()).hexdigest()

    def _repr_png_(self) -> bytes | None:
        """What a notebook shows; None for an image in another format."""
        data = self.read()
        return data if data.startswith(b"\x89PNG") else None

    def _repr_jpeg_(self) -> bytes | None:
        data = self.read()
        return data if data.startswith(b"\xff\xd8") else None


@dataclass(frozen=True)
class Request:
    """One question to a model, with everything that the model is to see.

    ``context`` (texts and images) precedes ``images``, which precede ``question``, all in one user turn after the system
    prompt. Frozen and hashable; ``key`` identifies the content for caches.
    """

    question: str
    images: tuple[ImageRef, ...] = ()
    language: str = "en"
    system: str | None = None
    context: tuple[str | ImageRef, ...] = ()

    @cached_property
    def key(self) -> str:
        """SHA-256 over question, image contents, language, system prompt and context, 64 hex digits."""
        parts = [{"image": c.digest} if isinstance(c, ImageRef) else c for c in self.context]
        content = [self.question, [i.digest for i in self.images], self.language, self.system, parts]
        return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Knowledge:
    """What an editor inserts: a request with the answer it should get, and what contextual editors use besides.

    ``title``, ``text`` (a summary or a document) and ``images`` (with captions) are empty where a benchmark has none.
    """

    request: Request
    answer: str
    title: str = ""
    text: str = ""
    images: tuple[tuple[ImageRef, str], ...] = ()


@dataclass(frozen=True)
class Probe:
    """One question that measures one dimension of an edit.

    ``reference`` is the wanted answer; None means "what the unedited backbone says", which is asked before any edit.
    ``step`` is the 1-based position in the chain of the knowledge that the probe belongs to. ``tags`` are added to the
    case's own in the record: what scoring needs to know of the question, such as the options of a choice.
    """

    dimension: str
    request: Request
    reference: str | None
    step: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A chain of knowledge (one item, three, or thousands), the probes that measure it, and tags to group by."""

    id: str
    chain: tuple[Knowledge, ...]
    probes: tuple[Probe, ...]
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a model generated for one request, decoded, with the facts needed to judge whether to trust it."""

    text: str
    tokens: int = 0
    """Generated tokens, without the end-of-sequence token."""
    truncated: bool = False
    """The limit of new tokens was reached before an end-of-sequence token."""
    finite: bool = True
    """No NaN or infinity appeared in the logits that chose the tokens."""


@dataclass(frozen=True)
class Record:
    """One probe, asked once: appended to a run and never edited."""

    task: str
    case: str
    probe: int
    """Index into the case's probes."""
    dimension: str
    step: int
    """Which knowledge of the chain the probe belongs to, 1-based."""
    asked_at: int
    """How many items of the chain were inserted when it was asked."""
    language: str
    output: str
    reference: str
    from_base: bool
    """The reference is the unedited backbone's own output."""
    tokens: int
    seconds: float
    flags: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    """Those of the case and of the probe."""
    trace: Mapping[str, str | float] = field(default_factory=dict)
    """What the editor says it did with the request, such as the entry it found and how similar that is."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """By name: what only the model could tell when it was asked, such as teacher-forced accuracy."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What identifies a record within one editor's part of a run: (task, case, asked_at, probe)."""
        return (self.task, self.case, self.asked_at, self.probe)
