"""What a tracker is told of a run and of a training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kedit.tracking import Tracker
from kedit.tracking.contract import listens

if TYPE_CHECKING:
    from kedit.bootstrap import Estimate
    from kedit.editor import Progress as TrainingBar
    from kedit.evaluate import Progress as RunBar
    from kedit.run import Run


@contextmanager
def following(tracker: Tracker | None, config: Mapping[str, Any]) -> Iterator[None]:
    """Inside the block the tracker is started; at its end it is finished, as failed where an error comes through.

    A tracker that cannot start keeps the work from beginning; what it raises afterwards is a warning.
    """
    if tracker is None:
        yield
        return
    tracker.start(config)
    try:
        yield
    except BaseException:
        listens(tracker, "finish", failed=True)
        raise
    listens(tracker, "finish")


class _Told:
    """A tracker as long as it listens."""

    def __init__(self, tracker: Tracker | None) -> None:
        self.tracker = tracker

    def tell(self, what: str, *values: Any) -> None:
        if self.tracker is not None and not listens(self.tracker, what, *values):
            self.tracker = None


class RunSteps(_Told):
    """A run's ``progress`` that also tells a tracker: the share done by editor and task, at the number of cases done in all."""

    def __init__(self, tracker: Tracker | None, shown: RunBar | None = None) -> None:
        super().__init__(tracker)
        self.shown = shown
        self._done: dict[tuple[str, str], int] = {}

    @property
    def step(self) -> int:
        """Cases done, of all editors and tasks."""
        return sum(self._done.values())

    def __call__(self, editor: str, task: str, done: int, total: int) -> None:
        self._done[editor, task] = done
        if total:
            self.tell("log", self.step, {f"done/{editor}/{task}": done / total})
        if self.shown is not None:
            self.shown(editor, task, done, total)

    def end(self, run: Run) -> None:
        """Tell the tracker the scores of the finished run: as numbers, and with their intervals as the table ``scores``."""
        if self.tracker is None:
            return
        rows = list(_scores(run))
        self.tell("log", self.step, {f"score/{r['editor']}/{r['task']}/{r['score']}": r["mean"] for r in rows})
        self.tell("table", "scores", rows)


def _scores(run: Run) -> Iterator[dict[str, Any]]:
    """Dimensions, their mean, and measures of every task and editor, those without a value left out."""
    from kedit.metrics import OVERALL, measures

    for one in run.scores():
        dimensions = run.dimensions(one.task)
        more = measures(run.records(one.editor, one.task), dimensions, order=one.order)
        found = {**one.dimensions, **({OVERALL: one.overall} if len(dimensions) > 1 else {}), **more}
        for name, estimate in found.items():
            if estimate is not None:
                yield {"editor": one.editor, "task": one.task, "score": name, **_numbers(estimate)}


def _numbers(estimate: Estimate) -> dict[str, float]:
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "cases": estimate.n}


class TrainingSteps(_Told):
    """A training's ``progress`` that also tells a tracker.

    An editor that trains several parts one after the other begins again at a lower step; here the steps go on, and ``part``
    says which it is.
    """

    def __init__(self, tracker: Tracker | None, shown: TrainingBar | None = None) -> None:
        super().__init__(tracker)
        self.shown = shown
        self._part, self._before, self._offset = 1, 0, 0

    @property
    def step(self) -> int:
        """Steps of all parts so far."""
        return self._offset + self._before

    def __call__(self, step: int, total: int, values: Mapping[str, float]) -> None:
        if step < self._before:
            self._part, self._offset = self._part + 1, self._offset + self._before
        self._before = step
        self.tell("log", self.step, {**values, "part": self._part})
        if self.shown is not None:
            self.shown(step, total, values)

    def end(self, scores: Mapping[str, float]) -> None:
        """Tell the tracker what validation gave, by dimension."""
        if scores:
            self.tell("log", self.step, {f"validation/{name}": value for name, value in scores.items()})
            self.tell("table", "validation", [{"dimension": name, "score": value} for name, value in scores.items()])
