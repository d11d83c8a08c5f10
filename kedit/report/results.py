"""A run's records, read once for everything that is drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kedit.benchmark import Dimension
from kedit.bootstrap import Estimate
from kedit.casebook import read_cases
from kedit.forgetting import By, Point, Retention, curve, retention
from kedit.metrics import (
    OVERALL,
    Offer,
    Scores,
    chain_lengths,
    chosen,
    grouped,
    in_order,
    measure,
    measure_gain,
    measures,
    offered,
    summarise,
)
from kedit.protocols import RELIABILITY
from kedit.run import Run
from kedit.scoring import FREE_TEXT, Scorer, Scoring, by_dimension, scoring
from kedit.types import Record


class Results:
    """What tables, curves and the page read of a run; a run in progress stays as it was at the first look.

    ``judged`` is a way of scoring that stands in for that of free text, such as a judge's.
    """

    def __init__(self, run: Run, judged: Scoring | None = None) -> None:
        self.run = run
        self.judged = judged

    @cached_property
    def base(self) -> str | None:
        """The first editor that does nothing; None without one."""
        declared: dict[str, Any] = self.run.config["identity"]["editors"]
        return next((name for name, row in declared.items() if row.get("does_nothing")), None)

    @cached_property
    def editors(self) -> list[str]:
        """All editors, the one that does nothing in front."""
        return sorted(self.run.editors, key=lambda name: name != self.base)

    @property
    def edited(self) -> list[str]:
        """The editors that do something; the one that does nothing where it is the only one."""
        return [name for name in self.editors if name != self.base] or self.editors

    @cached_property
    def _records(self) -> dict[str, list[Record]]:
        return {name: self.run.records(name) for name in self.editors}

    @cached_property
    def failures(self) -> list[dict[str, Any]]:
        """As of the run."""
        found: list[dict[str, Any]] = self.run.failures
        return found

    def records(self, editor: str, task: str, order: str | None = None) -> list[Record]:
        """An editor's records of a task, in one order of the chains where given."""
        found: list[Record] = in_order([r for r in self._records[editor] if r.task == task], order)
        return found

    def orders(self, task: str) -> list[str | None]:
        """The orders of a task's chains, the original first; ``[None]`` for a task without."""
        found = [self.run.order(task)]
        for name in self.editors:
            found += [r.tags["order"] for r in self.records(name, task) if "order" in r.tags]
        return list(dict.fromkeys(found))

    def scores(self, editor: str, task: str, order: str | None) -> Scores:
        """An editor's row; gains are over the editor that does nothing, which itself has none."""
        failed = self.failed(editor, task, order)
        return self._summary(editor, task, order, self.records(editor, task, order), failures=failed)

    def failed(self, editor: str, task: str, order: str | None = None) -> int:
        """How many cases of a task an editor failed in, in one order of the chains where given."""
        cases = [f["case"] for f in self.failures if f["editor"] == editor and f["task"] == task]
        return sum(order is None or self._case_orders.get((task, case), order) == order for case in cases)

    @cached_property
    def _case_orders(self) -> dict[tuple[str, str], str]:
        """Orders of the cases that have one: a case that failed has no record that tells."""
        rows = read_cases(self.run.path)
        return {(row["task"], row["id"]): row["tags"]["order"] for row in rows if "order" in row["tags"]}

    def groups(self, editor: str, task: str, tag: str) -> dict[str, Scores]:
        """An editor's rows by the value of a tag, in the original order of the chains."""
        order = self.run.order(task)
        found = grouped(self.records(editor, task, order), tag)
        return {group: self._summary(editor, task, order, members, group=group) for group, members in found.items()}

    def _summary(self, editor: str, task: str, order: str | None, records: Sequence[Record], **more: Any) -> Scores:
        floor = None if self.base in (None, editor) else self.records(str(self.base), task, order)
        dimensions = self.run.dimensions(task)
        scorer = self.scorer(task)
        return summarise(records, dimensions, editor=editor, task=task, order=order, base=floor, scorer=scorer, **more)

    def measures(self, editor: str, task: str, order: str | None) -> dict[str, Estimate | None]:
        """An editor's measures by name, those of a task's scorings and what was measured while it was asked."""
        return measures(self.records(editor, task, order), self.run.dimensions(task), order=order)

    def offered(self, task: str) -> dict[str, Offer]:
        """The measures that any editor of a task can have, by name."""
        every = [record for editor in self.editors for record in self.records(editor, task)]
        return offered(every, self.run.dimensions(task))

    def headline(self, editor: str, task: str) -> Estimate | None:
        """The number that stands for a task, in the original order of the chains; None where it has no value.

        Raises UnknownNameError where the task names a measure that its scorings do not have.
        """
        name, order = self.run.headline(task), self.run.order(task)
        if name == OVERALL:
            return self.scores(editor, task, order).overall
        return measure(self.records(editor, task, order), self.run.dimensions(task), name, order=order)

    def headline_gain(self, editor: str, task: str, order: str | None) -> Estimate | None:
        """The headline minus that of the editor that does nothing, on the cases of both; None without it and for itself."""
        if self.base in (None, editor):
            return None
        name = self.run.headline(task)
        if name == OVERALL:
            gain = self.scores(editor, task, order).gain
            return gain[OVERALL] if gain else None
        own, floor = self.records(editor, task, order), self.records(str(self.base), task, order)
        return measure_gain(own, floor, self.run.dimensions(task), name, order=order)

    def headline_label(self, task: str) -> str:
        """What a heading calls the headline."""
        name = self.run.headline(task)
        return "Overall" if name == OVERALL else chosen(self.offered(task), name).measure.label

    def group_headlines(self, editor: str, task: str, tag: str) -> dict[str, Estimate | None]:
        """An editor's headline by the value of a tag, in the original order of the chains."""
        name, order = self.run.headline(task), self.run.order(task)
        if name == OVERALL:
            return {group: scores.overall for group, scores in self.groups(editor, task, tag).items()}
        found = grouped(self.records(editor, task, order), tag)
        dimensions = self.run.dimensions(task)
        return {group: measure(members, dimensions, name, order=order) for group, members in found.items()}

    def scorings(self, task: str) -> dict[str, tuple[Scoring, list[Dimension]]]:
        """The ways in which a task is scored, by name, each with its dimensions."""
        found: dict[str, tuple[Scoring, list[Dimension]]] = {}
        for dimension in self.run.dimensions(task):
            found.setdefault(dimension.scoring, (self.way(dimension), []))[1].append(dimension)
        return found

    def way(self, dimension: Dimension) -> Scoring:
        """How a dimension is scored here."""
        return self.judged if self.judged is not None and dimension.scoring == FREE_TEXT else scoring(dimension.scoring)

    def scorer(self, task: str) -> Scorer:
        """What scores a task's records."""
        return by_dimension(self.run.dimensions(task)) if self.judged is None else self.judged.scorer

    def retention(self, editor: str, task: str, order: str | None) -> Retention:
        """An editor's retention matrix, with the row of the editor that does nothing."""
        floor = None if self.base is None else self.records(self.base, task, order)
        return retention(self.records(editor, task, order), order=order, base=floor, scorer=self.scorer(task))

    def curve(self, editor: str, task: str, order: str | None, by: By, dimension: str) -> tuple[Point, ...]:
        """How an editor's inserted items fare by gap or memory size."""
        return curve(self.records(editor, task, order), by, dimension=dimension, order=order, scorer=self.scorer(task))

    def has_retention(self, task: str) -> bool:
        """Whether reliability was asked before a chain was complete."""
        for name in self.editors:
            records = self.records(name, task)
            lengths = chain_lengths(records)
            if any(r.dimension == RELIABILITY and 0 < r.asked_at < lengths[r.case] for r in records):
                return True
        return False

    def has_tag(self, task: str, tag: str) -> bool:
        """Whether any record of a task can be grouped by the tag."""
        return any(tag in r.tags for editor in self.editors for r in self.records(editor, task))
