"""How answers are scored, by name; a dimension of a task names one."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import lru_cache

from kedit.benchmark import Dimension
from kedit.errors import UnknownNameError, unknown_name
from kedit.scoring.base import Measure, Score, Scorer, Scoring
from kedit.scoring.text import rouge_scorer
from kedit.types import Record

__all__ = ["FREE_TEXT", "SCORINGS", "Measure", "Score", "Scorer", "Scoring", "by_dimension", "rouge_scorer", "scoring"]

SCORINGS: dict[str, str] = {
    "rouge": "kedit.scoring.text:scoring",
    "yes-no": "kedit.scoring.yes_no:scoring",
    "yes-no-official": "kedit.scoring.yes_no:official",
    "yes-no-lmms": "kedit.scoring.yes_no:lmms",
    "yes-no-vlmeval": "kedit.scoring.yes_no:vlmeval",
    "choice": "kedit.scoring.choice:scoring",
    "choice-official": "kedit.scoring.choice:official",
}
FREE_TEXT = "rouge"
"""Scores free text, where an answer gets something for every word that it shares with the reference; a judge may stand in."""


@lru_cache
def scoring(name: str) -> Scoring:
    """The way of scoring of that name, or ``"module:function"`` for one of your own, a function that returns a Scoring.

    Raises UnknownNameError.
    """
    module, colon, function = SCORINGS.get(name, name).partition(":")
    if not colon:
        raise unknown_name("scoring", name, SCORINGS, "Or give 'module:function'.")
    try:
        found: Scoring = getattr(importlib.import_module(module), function)()
    except (ModuleNotFoundError, AttributeError) as error:
        raise UnknownNameError(f"scoring {name!r} cannot be loaded: {error}; expected 'module:function'") from error
    return found


def by_dimension(dimensions: Iterable[Dimension]) -> Scorer:
    """A scorer that scores every record as its dimension asks; of a dimension that is not given, by ROUGE-L."""
    scorers = {dimension.name: scoring(dimension.scoring).scorer for dimension in dimensions}
    default = scoring("rouge").scorer

    def score(record: Record) -> Score:
        return scorers.get(record.dimension, default)(record)

    return score
