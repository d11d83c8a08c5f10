"""K-Viscuit's rows: a question on a photograph with four options."""

from __future__ import annotations

from collections.abc import Iterator

from kedit.benchmarks.checks.base import Format, said
from kedit.benchmarks.checks.choices import choice
from kedit.benchmarks.checks.report import Finding
from kedit.files.rows import Row


def _type(row: Row) -> Iterator[Finding]:
    """Type 1 names what is seen, Type 2 asks further; ids of the first end in ``.0``."""
    kind, id_ = said(row, "question_type"), said(row, "id_")
    if kind not in ("1", "2"):
        yield Finding("question_type", row.where, f"question_type is {kind!r}, expected 1 or 2")
    elif id_ and (kind == "1") != id_.endswith(".0"):
        yield Finding("question_type", row.where, f"question_type is {kind}, but the id is {id_!r}", False)


FORMATS = (
    Format(
        "K-Viscuit",
        keys=("question", "options", "answer", "question_type", "category", "image|image_path"),
        more=("id_", "image_url"),
        id="id_",
        texts=("question",),
        answer="answer",
        images=("image|image_path",),
        rules=(choice("options", "answer"), _type),
    ),
)
