"""Scoring free text by ROUGE-L."""

from __future__ import annotations

from kedit.rouge import rouge_id, rouge_l
from kedit.scoring.base import Score, Scorer, Scoring
from kedit.types import Record


def rouge_scorer(rouge: str = "multilingual") -> Scorer:
    """ROUGE-L of output against reference, 0 to 100; a reference without a word is unscored, never 0."""

    def score(record: Record) -> Score:
        value = rouge_l(record.output, record.reference, rouge=rouge)
        if value is not None:
            return Score(value)
        return Score(None, "no word in output and reference" if not record.output.strip() else "no word in the reference")

    return score


def scoring() -> Scoring:
    """The default for free text."""
    return Scoring(rouge_id(), "ROUGE-L F-measure, 0 to 100", rouge_scorer(), label="ROUGE-L")
