"""A run's records, read once for everything that is drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kedit.casebook import read_cases
from kedit.metrics import Retention, Scores, chain_lengths, grouped, in_order, retention, summarise
from kedit.protocols import RELIABILITY
from kedit.run import Run
from kedit.types import Record


class Results:
    """What tables, curves and the page read of a run; a run in progress stays as it was at the first look."""

    def __init__(self, run: Run) -> None:
        self.run = run

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
        return summarise(records, dimensions, editor=editor, task=task, order=order, base=floor, **more)

    def retention(self, editor: str, task: str, order: str | None) -> Retention:
        """An editor's retention matrix, with the row of the editor that does nothing."""
        floor = None if self.base is None else self.records(self.base, task, order)
        return retention(self.records(editor, task, order), order=order, base=floor)

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
