"""Studies with people: the questions that models are asked, put to participants, and what their answers say.

Everything works on a pandas table with a row per answer: ``participant``, ``item``, ``condition``, ``response`` ("yes", "no",
"not sure", or nothing) and ``answer`` (the right one), and any columns to group by. Needs ``pip install 'kedit[human]'``.
"""

from __future__ import annotations

from kedit.human.agreement import agreement, consensus, krippendorff
from kedit.human.regression import MixedEffects, mixed_effects, tested
from kedit.human.scores import performance
from kedit.human.simulation import simulated

__all__ = [
    "MixedEffects",
    "agreement",
    "consensus",
    "krippendorff",
    "mixed_effects",
    "performance",
    "simulated",
    "tested",
]
