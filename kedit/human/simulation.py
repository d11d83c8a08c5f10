"""Made-up responses with known effects: to check an analysis, and to see how large a study must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kedit.human.table import ANSWER, CONDITION, ITEM, PARTICIPANT, RESPONSE, library
from kedit.scoring.verdict import NO, YES


def simulated(
    log_odds: Mapping[str, float],
    *,
    participants: int = 36,
    items: int = 100,
    per_participant: int = 10,
    participant_sd: float = 0.5,
    item_sd: float = 0.5,
    seed: int = 0,
) -> Any:
    """A table of responses in which a right answer has the given log odds by condition; each participant sees one condition.

    ``participants`` are those of each condition; each answers ``per_participant`` items of ``items``, drawn without putting
    back, half of which have the answer yes. Participants and items add normal effects of these standard deviations. The
    defaults are the size of CROPE's study (section 6).
    """
    if not 0 < per_participant <= items:
        raise ValueError(f"per_participant={per_participant}, expected 1 to {items}, the number of items")
    generator = np.random.default_rng(seed)
    item_effects = item_sd * generator.standard_normal(items)
    rows = []
    for condition, level in log_odds.items():
        for number in range(participants):
            own = level + participant_sd * generator.standard_normal()
            for item in generator.choice(items, per_participant, replace=False):
                right = generator.random() < 1 / (1 + np.exp(-own - item_effects[item]))
                answer, other = (YES, NO) if item % 2 else (NO, YES)
                rows.append((f"{condition}-{number}", int(item), condition, answer if right else other, answer))
    return library("pandas").DataFrame(rows, columns=[PARTICIPANT, ITEM, CONDITION, RESPONSE, ANSWER])
