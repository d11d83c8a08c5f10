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

    ``counts`` gives the counts of one case from its scored dimensions' records, by name; a name that a case lacks counts 0,
    and a case without any count has no part in the measure. ``value`` maps those columns, arrays of one shape that hold sums
    over cases, to the measure (in points, the same shape), NaN where it is undefined. So intervals can resample cases.

    ``unit`` names a tag by which records are put together instead of by case (several questions on one image); whole units
    are then resampled, and records without the tag are left out. ``about`` says what the measure is where its label does not.
    """

    name: str
    label: str
    counts: Callable[[Sequence[Record]], Mapping[str, float]]
    value: Callable[[Mapping[str, Array]], Array]
    unit: str | None = None
    about: str = ""


@dataclass(frozen=True)
class Scoring:
    """A way of scoring: ``id`` goes up with every change of a value and is printed beside scores.

    ``describe`` is a sentence for the notes under a table, ``label`` a word for an axis. ``scorer`` gives the value of one
    record; ``measures`` come in a table of their own, beside the ids ``measured_by`` where they are not all of this way.
    """

    id: str
    describe: str
    scorer: Scorer
    measures: tuple[Measure, ...] = field(default=())
    label: str = "score"
    measured_by: str = ""
