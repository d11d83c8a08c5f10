"""Whether annotators agree, and the label that they agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from kedit.bootstrap import Array, Estimate, of_sums
from kedit.human.table import ITEM, NOT_SURE, PARTICIPANT, RESPONSE, checked, library
from kedit.scoring.verdict import NO, YES

_LABELS = (YES, NO, NOT_SURE)
_ALIKE = "alike"
_VALUE = "value "


def agreement(table: Any, *, drop_not_sure: bool = False) -> Estimate | None:
    """Krippendorff's alpha of the responses to each item, with a 95 % interval over items (CROPE, section 3.2).

    ``table`` has ``participant``, ``item`` and ``response``. Not sure is a label of its own unless ``drop_not_sure`` takes it
    for no response. See ``krippendorff`` for items with few responses, and for None. Raises DataError.
    """
    given = checked(table, (PARTICIPANT, ITEM, RESPONSE), (PARTICIPANT, ITEM), drop_not_sure=drop_not_sure)
    return krippendorff(list(rows[RESPONSE]) for _, rows in given.groupby(ITEM, sort=False))


def krippendorff(units: Iterable[Iterable[Hashable]]) -> Estimate | None:
    """Krippendorff's alpha for nominal values: 1 - observed / expected disagreement, with a 95 % interval over units.

    A unit holds the values that it was given, as many as there are; None is none. With fewer than two it pairs with nothing and
    has no part. ``n`` is the number of units with a part. None where fewer than two different values are left, which leaves
    nothing to disagree on. (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section C.)
    """
    numbers: dict[Hashable, int] = {None: 0}
    rows = []
    for unit in units:
        counts = Counter(numbers.setdefault(value, len(numbers)) for value in unit if value is not None)
        if counts.total() > 1:
            rows.append(_coincidences(counts))
    return of_sums(rows, _alpha)


def _coincidences(counts: Counter[int]) -> dict[str, float]:
    """Of one unit: the diagonal of its coincidence matrix, summed, and the matrix's margin by value."""
    values = counts.total()
    margins = {f"{_VALUE}{value}": float(count) for value, count in counts.items()}
    return {_ALIKE: sum(count * (count - 1) for count in counts.values()) / (values - 1), **margins}


def _alpha(columns: Mapping[str, Array]) -> Array:
    margins = np.stack([values for name, values in columns.items() if name.startswith(_VALUE)])
    n = margins.sum(axis=0)
    by_chance = (margins * (margins - 1)).sum(axis=0)
    possible = n * (n - 1) - by_chance
    return np.divide((n - 1) * columns[_ALIKE] - by_chance, possible, out=np.full_like(n, np.nan), where=possible > 0)


def consensus(table: Any, *, annotations: int = 3) -> Any:
    """The label of each item that its annotations agree on: a table by item, in the order of their first rows.

    ``table`` has ``participant``, ``item`` and ``response``. Columns: ``yes``, ``no`` and ``not sure`` count responses;
    ``label`` is "yes", "no" or None; ``reason`` says why there is none. An item is discarded where it has another number of
    responses than ``annotations``, where at least two are not sure, or where no label has more than half of them (CROPE,
    section 3.1 and appendix A.2). Raises DataError.
    """
    given = checked(table, (PARTICIPANT, ITEM, RESPONSE), (PARTICIPANT, ITEM))
    rows, labels = [], []
    for item, responses in given.groupby(ITEM, sort=False)[RESPONSE]:
        counts = Counter(responses)
        label, reason = _agreed(counts, annotations)
        rows.append({ITEM: item, **{name: counts[name] for name in _LABELS}, "label": None, "reason": reason})
        labels.append(label)
    pandas = library("pandas")
    found = pandas.DataFrame(rows)
    found["label"] = pandas.Series(labels, dtype=object)  # None stays None
    return found.set_index(ITEM)


def _agreed(counts: Counter[str], annotations: int) -> tuple[str | None, str]:
    given = counts.total()
    if given != annotations:
        return None, f"{given} responses, expected {annotations}"
    if counts[NOT_SURE] >= 2:
        return None, f"{counts[NOT_SURE]} responses are not sure"
    label = next((name for name in (YES, NO) if 2 * counts[name] > given), None)
    return label, "" if label else "no majority"
