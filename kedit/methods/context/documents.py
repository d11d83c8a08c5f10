"""Documents as knowledge to be looked up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from kedit.files.documents import Source, digest_of
from kedit.files.documents import read_documents as read
from kedit.types import Knowledge, Request

Documents: TypeAlias = Source | Sequence[Knowledge]


def read_documents(source: Documents | None) -> list[Knowledge]:
    """Documents of a file, a folder or a mapping (see ``kedit.files.documents``), or a sequence as it is; none for None.

    Raises DataError naming file and row.
    """
    if source is None:
        return []
    if isinstance(source, Sequence) and not isinstance(source, str):
        return list(source)
    return [
        Knowledge(Request(d.title or "What is this document about?", language=d.language), "", d.title, d.text)
        for d in read(source)
    ]


def digest(source: Documents | None) -> str:
    """What a file or folder of documents holds, 64 hex digits; "" for what is no file, which shows its content itself."""
    return digest_of(read(source)) if isinstance(source, str | Path) else ""
