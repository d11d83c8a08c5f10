"""Pools: Natural Questions and OK-VQA that locality questions are drawn from, and documents to look things up in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kedit.benchmarks.checks.base import Format


def _several_answers(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("answer"), list)


FORMATS = (
    Format("Natural Questions locality pool", keys=("questions", "answers"), texts=("questions",)),
    Format(
        "OK-VQA locality pool",
        keys=("question_id", "question", "answer", "image"),
        tells=_several_answers,
        id="question_id",
        texts=("question",),
        images=("image",),
    ),
    Format("documents", keys=("title", "text"), more=("image",), texts=("text",), images=("image",)),
)
