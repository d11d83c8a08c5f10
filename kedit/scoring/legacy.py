"""The field's older metrics, read from what was measured while a model was edited; not comparable with generation.

Token accuracy feeds the wanted answer to the model and counts the tokens that it would have chosen at each place, so that the
answer's beginning and length are given away. Locality counts equal ids among the likeliest tokens before and after the edit,
at every position of prompt and answer: 1 for text, 10 in rank order with an image. Both as EasyEdit (commit 14cea82) does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kedit.benchmark import Dimension
from kedit.bootstrap import Array
from kedit.scoring.base import Measure
from kedit.types import Record

ID = "teacher-forced-1"
SLOT = "slot"
"""Tag of a record: which of a dimension's several questions it is; each has its measure, as the field reports them."""
NOTE = (
    "Legacy metrics, not comparable with generation: the right answer is fed to the model, which gives away its beginning and "
    "its length; locality compares the likeliest tokens at all positions, most of which belong to the prompt."
)
_WANTED = {"token_accuracy": "token accuracy", "exact_match": "all tokens"}
_KEPT = {"top1": "top-1, text", "top10": "top-10, image"}


@dataclass(frozen=True)
class _Mean:
    """The mean over records of one measured name, of one dimension and one of its questions."""

    dimension: str
    key: str
    slot: str | None

    def counts(self, records: Sequence[Record]) -> Mapping[str, float]:
        values = [r.measured[self.key] for r in records if r.dimension == self.dimension and self._counts(r)]
        return {"sum": sum(values), "n": float(len(values))} if values else {}

    def _counts(self, record: Record) -> bool:
        return self.key in record.measured and self.slot in (None, record.tags.get(SLOT))

    def value(self, columns: Mapping[str, Array]) -> Array:
        count = columns["n"]
        return np.divide(100 * columns["sum"], count, out=np.full_like(count, np.nan), where=count > 0)


def measures(records: Sequence[Record], dimensions: Sequence[Dimension], *, exact: bool = False) -> tuple[Measure, ...]:
    """Measures (0 to 100) of what the records hold, none where a run was made without; ``exact`` adds whole-answer matches."""
    keys = {**{key: label for key, label in _WANTED.items() if exact or key != "exact_match"}, **_KEPT}
    return tuple(measure for dimension in dimensions for measure in _of(dimension, keys, records))


def _of(dimension: Dimension, keys: Mapping[str, str], records: Sequence[Record]) -> Iterator[Measure]:
    own = [record for record in records if record.dimension == dimension.name and record.measured]
    for key, label in keys.items():
        slots = dict.fromkeys(record.tags.get(SLOT) for record in own if key in record.measured)
        for slot in slots:
            mean = _Mean(dimension.name, key, slot)
            several = len(slots) > 1 and slot is not None
            name = "_".join(["legacy", dimension.name, key, *([slot] if several and slot else [])])
            shown = f"{dimension.label}, {slot}" if several else dimension.label
            yield Measure(name, f"{shown} ({label})", mean.counts, mean.value)
