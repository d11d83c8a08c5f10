"""How well people answer, in the measures that models are scored in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kedit.benchmark import Dimension
from kedit.human.table import ANSWER, CONDITION, ITEM, NOT_SURE, PARTICIPANT, RESPONSE, checked, library
from kedit.metrics import measures
from kedit.types import Record

_TASK = "people"
_DIMENSION = Dimension("answer", "Answer", scoring="yes-no")


def performance(table: Any, by: str | Sequence[str] = CONDITION) -> Any:
    """Measures by condition, as models have them (CROPE, Table 3): a table with a row per value of ``by``.

    ``table`` has ``participant``, ``item``, ``condition``, ``response`` and ``answer``, and the columns of ``by``. The result
    has ``participants``, ``responses`` and, in points, ``accuracy``, macro-averaged ``precision``, ``recall`` and ``f1``,
    ``yes_share``, and ``invalid``, which is the share of not sure: a wrong answer of neither class. ``_low`` and ``_high``
    are 95 % intervals over participants. NaN where a measure has no value. Raises DataError.
    """
    names = [by] if isinstance(by, str) else list(by)
    columns = dict.fromkeys([PARTICIPANT, ITEM, CONDITION, RESPONSE, ANSWER, *names])
    given = checked(table, list(columns), (PARTICIPANT, ITEM, CONDITION))
    rows = [dict(zip(names, group, strict=True)) | _scored(members) for group, members in given.groupby(names, sort=False)]
    return library("pandas").DataFrame(rows).set_index(names)


def _scored(rows: Any) -> dict[str, float]:
    records = [_record(number, *row) for number, row in enumerate(zip(*(rows[c] for c in _FIELDS), strict=True))]
    found: dict[str, float] = {"participants": len({record.case for record in records}), "responses": len(records)}
    for name, estimate in measures(records, [_DIMENSION]).items():
        if name in _SHOWN:
            low_high = (estimate.mean, estimate.low, estimate.high) if estimate else (float("nan"),) * 3
            found |= dict(zip((name, f"{name}_low", f"{name}_high"), low_high, strict=True))
    return found


_FIELDS = (PARTICIPANT, RESPONSE, ANSWER)
_SHOWN = ("accuracy", "precision", "recall", "f1", "yes_share", "invalid")


def _record(number: int, participant: Any, response: str, answer: str) -> Record:
    said = "" if response == NOT_SURE else response
    return Record(_TASK, repr(participant), number, _DIMENSION.name, 1, 1, "en", said, answer, False, 0, 0.0)
