"""Documents kept with the vectors by which they are found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedit.encoders import TextEncoder, encode_documents, encoder_name, text_encoder, unit
from kedit.memory import Memory
from kedit.routers.recent import Recent
from kedit.types import Knowledge

_VECTORS = 4096
"""Vectors kept of texts that were encoded last: one document is inserted for many questions."""


class Found(NamedTuple):
    """A document that was looked up: its edit id, or its id among those given; the document; its cosine with the query."""

    entry: str
    document: Knowledge
    similarity: float


class Library:
    """Documents by the meaning of their texts: those given, which stay, and those inserted, which come and go.

    A document that was brought more than once is there once, and found under the id of the newest edit that brought it; one
    without any text is not there. ``encoder`` is as for ``text_encoder``. Texts are encoded once each, those given only when
    something is first looked up or inserted.
    """

    def __init__(self, given: Sequence[Knowledge] = (), *, encoder: str | TextEncoder, index: str = "flat") -> None:
        self.encoder = encoder
        self.memory = Memory(index=index, encoder=encoder_name(encoder))
        self._waiting = list(given)
        self._standing: dict[str, None] = {}
        self._places: dict[tuple[str, str], str] = {}  # content -> id in the memory
        self._edits: dict[str, str] = {}  # edit id -> id in the memory
        self._owners: dict[str, dict[str, None]] = {}  # id in the memory -> its edits, the newest last
        self._vectors: dict[bool, Recent[str, NDArray[np.float32]]] = {True: Recent(_VECTORS), False: Recent(_VECTORS)}

    def __len__(self) -> int:
        self._settle()
        return len(self.memory)

    @property
    def given(self) -> int:
        """Documents that stay, encoded or not."""
        return len(self._standing) + len(self._waiting)

    def insert(self, edit_id: str, item: Knowledge) -> None:
        """Add an inserted document; nothing changes where it cannot be encoded."""
        self._settle()
        content = content_of(item)
        if not content[1]:
            return
        if content not in self._places:
            self.memory.add(edit_id, item, self._encoded([content[1]], documents=True)[0])
            self._places[content] = edit_id
        place = self._edits[edit_id] = self._places[content]
        self._owners.setdefault(place, {})[edit_id] = None

    def remove(self, edit_id: str) -> None:
        """Take an inserted document out, where no other edit and nobody else brought it too."""
        place = self._edits.pop(edit_id, None)
        if place is None:
            return
        del self._owners[place][edit_id]
        if not self._owners[place] and place not in self._standing:
            del self._places[content_of(self.memory[place])]
            self.memory.remove(place)

    def clear(self) -> None:
        """Take all inserted documents out."""
        for edit_id in list(self._edits):
            self.remove(edit_id)

    def search(self, queries: Sequence[str], k: int) -> list[list[Found]]:
        """The ``k`` documents nearest to each query, the nearest first (fewer where there are fewer, or it says nothing)."""
        found: list[list[Found]] = [[] for _ in queries]
        if not queries or not len(self):
            return found
        vectors = self._encoded(queries, documents=False)
        spoken = np.flatnonzero(np.linalg.norm(vectors, axis=1))
        for at, hits in zip(spoken.tolist(), self.memory.search_k(vectors[spoken], k), strict=True):
            found[at] = [Found(self._entry(hit.id), self.memory[hit.id], hit.score) for hit in hits]
        return found

    # -- files -----------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write the documents given, with their vectors; inserted ones are not among them."""
        self._settle()
        kept, ids = Memory(encoder=self.memory.encoder), list(self._standing)
        kept.add_all(ids, [self.memory[id] for id in ids], [self.memory.key(id) for id in ids])
        kept.save(path)

    def load(self, path: Path) -> None:
        """Take over what ``save`` wrote in place of the documents given, before anything is inserted.

        Raises DataError where the files are broken, or their vectors are another encoder's.
        """
        self.memory.load(path)
        self._waiting, self._edits, self._owners = [], {}, {}
        self._standing = dict.fromkeys(self.memory.ids)
        self._places = {content_of(self.memory[id]): id for id in self._standing}

    # -- inside ----------------------------------------------------------------------------------------------------

    def _entry(self, place: str) -> str:
        return next(reversed(self._owners.get(place, {})), place)

    def _settle(self) -> None:
        """Encode the documents given, all at once."""
        if not self._waiting:
            return
        new = {content: item for item in self._waiting if (content := content_of(item))[1]}
        ids = [f"document-{number}" for number in range(1, len(new) + 1)]
        if new:
            self.memory.add_all(ids, list(new.values()), self._encoded([text for _, text in new], documents=True))
        self._standing, self._places, self._waiting = dict.fromkeys(ids), dict(zip(new, ids, strict=True)), []

    def _encoded(self, texts: Sequence[str], *, documents: bool) -> NDArray[np.float32]:
        """Unit vectors, (texts, width); a row of zeros for a text in which the encoder sees nothing."""
        known = self._vectors[documents]
        vectors = {text: known[text] for text in texts if text in known}
        if missing := [text for text in dict.fromkeys(texts) if text not in known]:
            encode = text_encoder(self.encoder)
            fresh = list(zip(missing, unit(encode_documents(encode, missing) if documents else encode(missing)), strict=True))
            vectors.update(fresh)
            known.keep(fresh)
        return np.stack([vectors[text] for text in texts])


def content_of(item: Knowledge) -> tuple[str, str]:
    """What makes two documents the same, and the text by which one is found: title and text, or question and answer."""
    pair = f"{item.request.question.strip()}\n{item.answer.strip()}" if item.answer.strip() else ""
    text = item.text.strip() or pair
    return ("text" if item.text.strip() else "pair", f"{item.title.strip()}\n{text}".strip() if text else "")
