"""What of a run's results the figures draw: one score of a task, and how it is called on an axis."""

from __future__ import annotations

from kedit.benchmark import Dimension
from kedit.bootstrap import Estimate
from kedit.errors import DataError
from kedit.protocols import RELIABILITY
from kedit.report.results import Results
from kedit.run import Run


def results_of(run: Run | Results) -> Results:
    """A run's results; those that were read already stay as they are."""
    return run if isinstance(run, Results) else Results(run)


def reliability_of(results: Results, task: str) -> Dimension | None:
    """The dimension of a task that is drawn by default; None for a task without it."""
    return next((d for d in results.run.dimensions(task) if d.name == RELIABILITY), None)


def drawn(results: Results, task: str) -> str:
    """What a vertical axis shows: reliability, or the headline of a task without it."""
    return "Reliability" if reliability_of(results, task) else results.headline_label(task)


def axis(results: Results, task: str) -> str:
    """The label of a vertical axis: what is drawn, how it is scored, and the ids of that."""
    found = reliability_of(results, task)
    if found is None:
        ids = ", ".join(way.measured_by or way.id for way, _ in results.scorings(task).values())
        return f"{drawn(results, task)} (0 to 100)\n{ids}"
    way = results.way(found)
    return f"Reliability, {way.label} (0 to 100)\n{way.id}"


def ids(results: Results, task: str) -> str:
    """How all dimensions of a task are scored, with the versions of that."""
    return ", ".join(dict.fromkeys(way.id for way, _ in results.scorings(task).values()))


def by_group(results: Results, editor: str, task: str, tag: str) -> dict[str, tuple[Estimate | None, int]]:
    """What is drawn, and the number of cases, by the value of a tag."""
    scores = results.groups(editor, task, tag)
    if reliability_of(results, task):
        return {group: (row.dimensions.get(RELIABILITY), row.cases) for group, row in scores.items()}
    headlines = results.group_headlines(editor, task, tag)
    return {group: (headlines[group], row.cases) for group, row in scores.items()}


def retaining(results: Results, task: str | None) -> str:
    """The task named, or the first, that asked reliability before its chains were complete; DataError where none did."""
    name = task or next((t for t in results.run.tasks if results.has_retention(t)), None)
    if name is None or not results.has_retention(name):
        raise DataError(f"no retention in {results.run.path}: no task asked reliability before its chains were complete")
    return name
