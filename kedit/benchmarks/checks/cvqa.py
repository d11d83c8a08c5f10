"""CVQA's rows: a question on a photograph in a local language and in English, with four options."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kedit.benchmarks.checks.base import Format, said
from kedit.benchmarks.checks.choices import choice
from kedit.benchmarks.checks.report import Finding
from kedit.files.rows import Row


def _subset(row: Row) -> Iterator[Finding]:
    """The subset is a pair of language and country, usually written as a string."""
    try:
        pair = ast.literal_eval(said(row, "Subset"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pair = None
    if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(one, str) for one in pair)):
        message = f"Subset is {said(row, 'Subset')[:80]!r}, expected a pair of language and country"
        yield Finding("subset", row.where, message, False)


FORMATS = (
    Format(
        "CVQA",
        keys=("Question", "Options", "Label", "Subset", "image"),
        more=("ID", "Translated Question", "Translated Options", "Category", "Image Type", "Image Source", "License"),
        id="ID",
        texts=("Question",),
        answer="Label",
        images=("image",),
        rules=(choice("Options", "Label", unlabelled=True), _subset),
    ),
)
