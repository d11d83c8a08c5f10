"""A run as its reader sees it: configuration, records, failures, scores."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit import jsonl
from kedit.artefacts import read_json
from kedit.benchmark import GROUPS, Dimension
from kedit.errors import StoreError, unknown_name
from kedit.store import CONFIG, TIMING, read_failures, read_notes, read_records, records_file
from kedit.types import Record

if TYPE_CHECKING:
    from kedit.metrics import Scores
    from kedit.scoring import Scorer


class Run:
    """The folder of one run, read anew at every access, so that a run in progress can be looked at.

    ``keep`` is held for as long as the run is: the temporary folder of a run without one of its own.
    """

    def __init__(self, path: Path, config: dict[str, Any], keep: object = None) -> None:
        self.path = path
        self.config = config
        self._keep = keep

    @classmethod
    def load(cls, path: str | Path, keep: object = None) -> Run:
        """Open a run's folder for reading; raises StoreError where there is none."""
        file = Path(path) / CONFIG
        if not file.exists():
            raise StoreError(f"{path} is not a run: it has no {CONFIG}; give the folder that the run was written to")
        return cls(Path(path), read_json(file), keep)

    @property
    def editors(self) -> list[str]:
        """Display names, in the order in which they were given."""
        return list(self.config["identity"]["editors"])

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in the benchmark's order."""
        return list(self.config["identity"]["tasks"])

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Cases that failed and were not made good: editor, task, case, stage, error."""
        return read_failures(self.path)

    @property
    def timings(self) -> list[dict[str, Any]]:
        """Per finished case: editor, task, case and lists of seconds: ``insert`` (one per insert) and ``ask``."""
        return list(jsonl.read(self.path / TIMING))

    @property
    def notes(self) -> dict[str, dict[str, Any]]:
        """By editor: what it says of its work, such as the share of texts that its encoder cut."""
        return read_notes(self.path)

    def dimensions(self, task: str) -> tuple[Dimension, ...]:
        """The dimensions of a task."""
        return tuple(Dimension(**row) for row in self._task(task)["dimensions"])

    def order(self, task: str) -> str | None:
        """The original order of a task's chains, None where it has no chains."""
        order: str | None = self._task(task)["order"]
        return order

    def groups(self, task: str) -> dict[str, str]:
        """Tags by which a task's results are broken down, and what a heading calls them."""
        found: dict[str, str] = dict(self._task(task).get("groups", GROUPS))
        return found

    def headline(self, task: str) -> str:
        """What stands for a task beside other benchmarks: "overall" or the name of a measure."""
        return str(self._task(task).get("headline", "overall"))

    def records(self, editor: str | None = None, task: str | None = None) -> list[Record]:
        """Records of one editor or of all, of one task or of all, in the order in which they were asked."""
        if editor is not None and editor not in self.editors:
            raise unknown_name("editor of the run", editor, self.editors)
        names = self.editors if editor is None else [editor]
        found = [record for name in names for record in read_records(records_file(self.path, name))]
        return found if task is None else [record for record in found if record.task == self._named(task)]

    def scores(
        self,
        task: str | None = None,
        *,
        base: str | None = None,
        by: str | None = None,
        order: str | None = None,
        scorer: Scorer | None = None,
    ) -> list[Scores]:
        """One ``Scores`` per task and editor, and per value of the tag ``by`` where given (such as ``topic_group``).

        ``base`` names the editor that does nothing, to show gains over it. ``order`` picks the order of the chains, the
        original one by default. ``scorer`` defaults to that of each dimension. Failures are those
        of all orders; by group they are not known and 0.
        """
        from kedit.metrics import grouped, summarise

        found = []
        for name in self.tasks if task is None else [self._named(task)]:
            floor = self.records(base, name) if base else None
            row = partial(summarise, task=name, order=order or self.order(name), base=floor, scorer=scorer)
            for editor in self.editors:
                records = self.records(editor, name)
                failed = sum(f["editor"] == editor and f["task"] == name for f in self.failures)
                groups = {"": records} if by is None else grouped(records, by)
                for group, members in groups.items():
                    failures = 0 if by else failed
                    found.append(row(members, self.dimensions(name), editor=editor, group=group, failures=failures))
        return found

    def to_frame(self, task: str | None = None, *, scorer: Scorer | None = None) -> Any:
        """The records with their scores as a pandas DataFrame, one row each (see ``kedit.frames.records_frame``).

        ``scorer`` defaults to that of each dimension. Raises MissingPackageError without pandas.
        """
        from kedit.frames import records_frame

        return records_frame(self, self.tasks if task is None else [self._named(task)], scorer)

    def __repr__(self) -> str:
        from kedit.report import run_text

        text: str = run_text(self)
        return text

    def _repr_html_(self) -> str:
        from kedit.report import run_html

        html: str = run_html(self)
        return html

    def _named(self, task: str) -> str:
        if task not in self.tasks:
            raise unknown_name("task of the run", task, self.tasks)
        return task

    def _task(self, task: str) -> dict[str, Any]:
        found: dict[str, Any] = self.config["identity"]["tasks"][self._named(task)]
        return found
