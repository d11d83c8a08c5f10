"""Figures of a run as a paper has them: dimensions, measures and what is derived from them, each by a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from kedit.bootstrap import Array, Estimate, of_sums
from kedit.errors import DataError
from kedit.metrics import OVERALL, Scores, chosen, grouped, measure
from kedit.protocols import RELIABILITY
from kedit.report.results import Results
from kedit.run import Run
from kedit.types import Record

T = TypeVar("T")
_NAMED = re.compile(r"(?P<value>\S+) of (?P<editor>\S+)(?: in (?P<tag>\w+)=(?P<of>.+))?")
EDITED = "edited"
"""In place of an editor: the mean over all that do something."""


@dataclass(frozen=True)
class Quantity:
    """A figure: of which editor, and of which group of cases (tag, value) where not of all.

    ``name`` is a dimension, "overall", a measure, "gain" (of reliability over the unedited model), "forgetting" (mean over
    items), "first_forgetting" (of the item inserted first), "kept" (reliability of all but the last item after the whole
    chain), or "relative_drop" (from accuracy to circular accuracy, in percent of the former).
    """

    name: str
    editor: str
    group: tuple[str, str] | None = None

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """From "NAME of EDITOR" or "NAME of EDITOR in TAG=VALUE"; raises DataError for anything else."""
        found = _NAMED.fullmatch(text)
        if found is None:
            raise DataError(f"quantity {text!r}: expected 'NAME of EDITOR' or 'NAME of EDITOR in TAG=VALUE'")
        return cls(found["value"], found["editor"], (found["tag"], found["of"]) if found["tag"] else None)

    def __str__(self) -> str:
        where = f" in {self.group[0]}={self.group[1]}" if self.group else ""
        return f"{self.name} of {self.editor}{where}"


class Reading:
    """The figures of one task of a run, in one order of its chains; ``results`` say how free text is scored."""

    def __init__(self, results: Results, task: str, order: str | None = None) -> None:
        self.results = results
        self.task = task
        self.order = order or results.run.order(task)
        self._scored: dict[tuple[str, str], Mapping[str, Scores]] = {}
        self._derived = {
            "gain": self._gain,
            "forgetting": self._forgetting,
            "first_forgetting": self._first_forgetting,
            "kept": self._kept,
            "relative_drop": self._relative_drop,
        }

    @property
    def run(self) -> Run:
        """The run that is read."""
        return self.results.run

    def number(self, quantity: Quantity) -> float | None:
        """A figure without its interval; of ``EDITED`` the mean over the editors that do something and have one."""
        if quantity.editor != EDITED:
            found = self.estimate(quantity)
            return None if found is None else found.mean
        each = [self.estimate(Quantity(quantity.name, editor, quantity.group)) for editor in self.results.edited]
        known = [one.mean for one in each if one is not None]
        return float(np.mean(known)) if known else None

    def estimate(self, quantity: Quantity) -> Estimate | None:
        """A figure with its 95 % interval over cases; None where the run has none, such as for an editor that it lacks.

        "kept" has no interval of its own: its bounds are its value.
        """
        if quantity.editor not in self.results.editors:
            return None
        if quantity.name in self._derived:
            return self._derived[quantity.name](quantity)
        if quantity.name == OVERALL or quantity.name in self._dimensions and not self._is_measure(quantity.name):
            return self._score(quantity)
        records = self._records(quantity)
        return measure(records, self.run.dimensions(self.task), quantity.name, order=self.order) if records else None

    @cached_property
    def _dimensions(self) -> set[str]:
        return {dimension.name for dimension in self.run.dimensions(self.task)}

    @cached_property
    def _offered(self) -> set[str]:
        return set(self.results.offered(self.task))

    def _is_measure(self, name: str) -> bool:
        """A name of both, such as accuracy, means the measure: the official first order of options, the mean over wordings."""
        return name in self._offered

    def _records(self, quantity: Quantity) -> list[Record]:
        records = self.results.records(quantity.editor, self.task, self.order)
        return records if quantity.group is None else _member(grouped(records, quantity.group[0]), quantity.group[1]) or []

    def _scores(self, quantity: Quantity) -> Scores | None:
        """One call scores all dimensions, which are read one after the other."""
        tag, value = quantity.group or ("", "")
        if (quantity.editor, tag) not in self._scored:
            self._scored[quantity.editor, tag] = (
                self.results.groups(quantity.editor, self.task, tag)
                if tag
                else {"": self.results.scores(quantity.editor, self.task, self.order)}
            )
        return _member(self._scored[quantity.editor, tag], value)

    def _score(self, quantity: Quantity) -> Estimate | None:
        scores = self._scores(quantity)
        if scores is None:
            return None
        return scores.overall if quantity.name == OVERALL else scores.dimensions.get(quantity.name)

    def _gain(self, quantity: Quantity) -> Estimate | None:
        scores = self._scores(quantity)
        return scores.gain.get(RELIABILITY) if scores is not None and scores.gain else None

    def _forgetting(self, quantity: Quantity) -> Estimate | None:
        return self.results.retention(quantity.editor, self.task, self.order).mean_forgetting

    def _first_forgetting(self, quantity: Quantity) -> Estimate | None:
        found = self.results.retention(quantity.editor, self.task, self.order).forgetting
        return found[0] if found else None

    def _kept(self, quantity: Quantity) -> Estimate | None:
        earlier = [e for e in self.results.retention(quantity.editor, self.task, self.order).last[:-1] if e is not None]
        if not earlier:
            return None
        mean = float(np.mean([e.mean for e in earlier]))
        return Estimate(mean, mean, mean, earlier[0].n)

    def _relative_drop(self, quantity: Quantity) -> Estimate | None:
        """Both accuracies resampled together; None where no question was asked in several orders or none was answered right."""
        records = self._records(quantity)
        offers = self.results.offered(self.task)
        vanilla, circular = chosen(offers, "accuracy"), chosen(offers, "circular")
        first, every = vanilla.rows(records), circular.rows(records)
        rows = [
            {**{f"v {k}": n for k, n in first[case].items()}, **{f"c {k}": n for k, n in every[case].items()}}
            for case in first
            if case in every
        ]

        def drop(columns: Mapping[str, Array]) -> Array:
            sides = [{key[2:]: values for key, values in columns.items() if key.startswith(side)} for side in ("v ", "c ")]
            before, after = vanilla.measure.value(sides[0]), circular.measure.value(sides[1])
            return 100 * np.divide(before - after, before, out=np.full_like(before, np.nan), where=before > 0)

        return of_sums(rows, drop) if rows else None


def _member(groups: Mapping[str, T], name: str) -> T | None:
    """The group of that name, else the only one whose name starts with it: "ethical" is "Ethical Values and Norms" too."""
    found = [name] if name in groups else [one for one in groups if one.casefold().startswith(name.casefold())]
    return groups[found[0]] if len(found) == 1 else None
