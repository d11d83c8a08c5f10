"""CROPE's rows: a yes/no question on a photograph, and a definition of a concept in text and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kedit.benchmarks.checks.base import Format, said
from kedit.benchmarks.checks.pope import yes_or_no
from kedit.benchmarks.checks.report import Finding
from kedit.files.rows import Row


def _definition(row: Row) -> Iterator[Finding]:
    """Whether a row has what the contextual conditions show."""
    images, captions = (_length(row.get(name)) for name in ("definition_images", "definition_captions"))
    if images == 0:
        yield Finding("no_definition_image", row.where, "definition_images is empty: no picture to show as context", False)
    if images and captions is not None and captions != images:
        yield Finding("captions", row.where, f"{captions} definition_captions for {images} definition_images", False)
    if not said(row, "definition_summary"):
        yield Finding("no_definition", row.where, "definition_summary is empty: no text to show as context", False)
    metadata = row.get("metadata")
    if isinstance(metadata, Mapping) and not metadata.get("source_language"):
        yield Finding("no_language", row.where, "metadata has no source_language: the row is in no group", False)


def _length(value: Any) -> int | None:
    return None if value is None else len(value) if hasattr(value, "__len__") and not isinstance(value, str) else 1


FORMATS = (
    Format(
        "CROPE",
        keys=("question", "answer", "definition_summary", "sample_id|definition_images|definition_captions"),
        more=("image", "definition_images", "definition_captions", "chapter", "metadata"),
        id="sample_id",
        texts=("question", "answer"),
        answer="answer",
        images=("image", "definition_images"),
        rules=(yes_or_no("answer"), _definition),
    ),
)
