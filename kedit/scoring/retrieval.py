"""Choices answered with a retrieved document in view: whether it was the right one is counted beside the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kedit.bootstrap import Array
from kedit.scoring.base import Measure, Scoring
from kedit.types import Record


def _counts(records: Sequence[Record]) -> Mapping[str, float]:
    """Of records that have a right document and whose editor says what it looked up: how many, and how often it was that."""
    searched = [record for record in records if record.tags.get("document") and record.trace]
    if not searched:
        return {}
    return {
        "retrieval_searched": len(searched),
        "retrieval_found": sum(r.trace.get("title") == r.tags["document"] for r in searched),
    }


def _recall(sums: Mapping[str, Array]) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        recall: Array = 100 * sums["retrieval_found"] / sums["retrieval_searched"]
    return recall


RECALL = Measure("recall_at_1", "Recall@1", _counts, _recall)
"""Share of questions whose ``trace["title"]`` is ``tags["document"]``; no value for an editor that looks up nothing."""


def choice() -> Scoring:
    """As "choice", with ``RECALL``."""
    from kedit.scoring import scoring

    base = scoring("choice")
    described = f"{base.describe}; recall is the share of questions whose right document came first in the search"
    return replace(base, id=f"{base.id}+retrieval-1", describe=described, measures=(*base.measures, RECALL))
