"""What a way of scoring is: a value per record, and measures that are no mean over records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kedit.bootstrap import Array
from kedit.types import Record


class Score(NamedTuple):
    """A value from 0 to 100, or None with the reason why there is none."""

    value: float | None
    reason: str = ""


Scorer = Callable[[Record], Score]


@dataclass(frozen=True)
class Measure:
    """A number of a whole task that is a function of sums over its cases, such as a macro-averaged F1.

    ``counts`` gives the counts of one case from its scored dimension's records, by name; a name that a case lacks counts 0.
    ``value`` maps those columns, arrays of one shape that hold sums over cases, to the measure (0 to 100, the same shape),
    NaN where it is undefined. So intervals can resample cases.
    """

    name: str
    label: str
    counts: Callable[[Sequence[Record]], Mapping[str, float]]
    value: Callable[[Mapping[str, Array]], Array]


@dataclass(frozen=True)
class Scoring:
    """A way of scoring: ``id`` goes up with every change of a value and is printed beside scores.

    ``describe`` is a sentence for the notes under a table. ``scorer`` gives the value of one record; ``measures`` come in a
    table of their own.
    """

    id: str
    describe: str
    scorer: Scorer
    measures: tuple[Measure, ...] = field(default=())
