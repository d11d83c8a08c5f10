"""POPE's question files in all published shapes, and files of answers to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kedit.benchmarks.checks.base import Format, Rule, names, said
from kedit.benchmarks.checks.report import Finding
from kedit.files.rows import Row

ASKS = ("is there ", "are there ")


def yes_or_no(key: str) -> Rule:
    """A rule: the column holds yes or no, in any case."""

    def rule(row: Row) -> Iterator[Finding]:
        value = said(row, key)
        if value and value.lower() not in ("yes", "no"):
            yield Finding("label", row.where, f"{names(key)[0]} is {value[:80]!r}, expected yes or no")

    return rule


def _asks(key: str) -> Callable[[Mapping[str, Any]], bool]:
    """The question of a row asks whether something is there."""

    def tells(row: Mapping[str, Any]) -> bool:
        return any(str(row.get(name, "")).strip().lower().startswith(ASKS) for name in names(key))

    return tells


def _questions(name: str, question: str, answer: str, image: str, more: tuple[str, ...] = ()) -> Format:
    return Format(
        name,
        keys=(question, answer, image, *more),
        more=("question_id",),
        tells=_asks(question),
        texts=(question, answer),
        answer=answer,
        apart="category",
        images=(image,),
        rules=(yes_or_no(answer),),
    )


FORMATS = (
    _questions("POPE", "text", "label", "image"),
    _questions("POPEv2", "query", "label", "image_name", ("target_object",)),
    _questions("POPE (hub or TSV)", "question", "answer", "image"),
    Format(
        "answers to POPE",
        keys=("question", "answer"),
        tells=lambda row: _asks("question")(row) and "image" not in row,
        texts=("question",),
    ),
)
