"""Teacher-forced metrics of a case's probes, taken while it is edited; they need the model, so that records must carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kedit.answers import Asked
from kedit.editor import Editor
from kedit.errors import ContractError
from kedit.forcing import Forced, forced_by
from kedit.types import Case, Probe

FORCED_ANSWER = "forced_answer"
"""Tag of a probe without a reference: the answer that a benchmark gives for it, right or wrong, to feed to both models."""
TOP_TEXT, TOP_IMAGE = 1, 10
"""Ranks compared for questions without and with an image (EasyEdit)."""


@dataclass(frozen=True)
class Forcing:
    """The answers that a case's probes are forced along, and what the unedited backbone predicts on the way, by probe."""

    answers: Mapping[int, str]
    base: Mapping[int, Forced | None]

    @classmethod
    def before(cls, backbone: Any, case: Case, missing: Iterable[tuple[int, int]], said: Mapping[int, Asked]) -> Forcing:
        """Ask the unedited backbone along the answers of (step, probe); ``said`` are its own where there is no reference."""
        chosen = {index: case.probes[index] for index in sorted({index for _, index in missing})}
        answers = {index: _answer(probe, said.get(index)) for index, probe in chosen.items()}
        kept = [index for index, probe in chosen.items() if probe.reference is None]
        found = forced_by(backbone, [chosen[i].request for i in kept], [answers[i] for i in kept], TOP_IMAGE)
        return cls(answers, dict(zip(kept, found, strict=True)))

    def measure(self, editor: Editor, case: Case, probes: Sequence[int]) -> list[Mapping[str, float]]:
        """For each probe what can be told of it, as fractions from 0 to 1: see ``kedit.scoring.legacy``."""
        asked = [case.probes[index] for index in probes]
        found = editor.forced([probe.request for probe in asked], [self.answers[index] for index in probes], TOP_IMAGE)
        if len(found) != len(asked):
            raise ContractError(f"{editor.name}: forced() gave {len(found)} results for {len(asked)} requests")
        return [self._told(index, probe, one) for index, probe, one in zip(probes, asked, found, strict=True)]

    def _told(self, index: int, probe: Probe, found: Forced | None) -> Mapping[str, float]:
        if found is None:
            return {}
        if probe.reference is not None:
            accuracy = found.accuracy()
            return {} if accuracy is None else {"token_accuracy": accuracy, "exact_match": float(accuracy == 1.0)}
        base = self.base.get(index)
        k = TOP_IMAGE if probe.request.images else TOP_TEXT
        agreement = None if base is None else found.agreement(base, k)
        return {} if agreement is None else {f"top{k}": agreement}


def _answer(probe: Probe, said: Asked | None) -> str:
    if probe.reference is not None:
        return probe.reference
    return probe.tags.get(FORCED_ANSWER) or (said.answer.text if said is not None and said.answer is not None else "")
