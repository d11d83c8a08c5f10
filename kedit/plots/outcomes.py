"""What became of whole cases, and what routers did with questions, as shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kedit.benchmark import Dimension
from kedit.errors import DataError
from kedit.metrics import Joint, Thresholds, final_records
from kedit.plots.fonts import plain, wrapped
from kedit.plots.parts import ids, results_of
from kedit.plots.style import ACROSS, FAINT, GRID, INK, NAME, SINGLE, SMALL, TEXT, drawing, dress, new, one_legend, panels
from kedit.report.results import Results
from kedit.run import Run
from kedit.types import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_JOINT = (
    ("joint", "reliable, general and local", "#0072B2", ""),
    ("under", "reliable and local, not general", "#56B4E9", "...."),
    ("over", "reliable and general, not local", "#E69F00", "////"),
    ("both", "reliable only", "#D55E00", "xxxx"),
    ("rest", "not reliable", GRID, ""),
)
_ROUTED = (
    ("own", "its own entry used", "#0072B2", ""),
    ("other", "another entry used", "#D55E00", "////"),
    ("alone", "left alone", GRID, ""),
)
_EDIT = "edit-"
"""Edit ids are this and the number of the insert."""


@drawing
def joint_plot(run: Run | Results, task: str | None = None) -> Figure:
    """Outcomes of whole cases, a row per editor: the share that is reliable, general and local at once, and what lacked.

    From the thresholds of ``kedit.metrics.Thresholds`` on; counted are the cases with a score in every dimension. ``task``
    defaults to the first that has reliability, generality and locality; raises DataError where none has.
    """
    results = results_of(run)
    name = task or next((t for t in results.run.tasks if has_joint(results, t)), None)
    if name is None or not has_joint(results, name):
        raise DataError(f"no joint outcomes in {results.run.path}: no task has reliability, generality and locality of one case")
    found = _joint(results, name)
    figure = new(f"Outcome of each case, {name}", SINGLE * 1.5, 0.21 * len(found) + 1.75)
    ax = figure.subplots()
    shares = [_shares_of(joint) for joint in found.values()]
    _stacked(ax, shares, [joint.n for joint in found.values()], _JOINT)
    ax.set_yticks(range(len(found)), [wrapped(editor, 2 * NAME) for editor in found])
    at = Thresholds()
    told = f"reliable and general from {at.reliable:.0f} on, local from {at.local:.0f} on ({ids(results, name)})"
    ax.set_xlabel(f"share of cases (%)\n{plain(told)}", fontsize=SMALL, color=INK)
    one_legend(figure, [ax])
    return figure


def has_joint(results: Results, task: str) -> bool:
    """Whether any editor has cases with a score in all of reliability, generality and locality."""
    return any(joint.n for joint in _joint(results, task).values())


def _joint(results: Results, task: str) -> dict[str, Joint]:
    order = results.run.order(task)
    found = {editor: results.scores(editor, task, order).joint for editor in results.editors}
    return {editor: joint for editor, joint in found.items() if joint is not None}


def _shares_of(joint: Joint) -> dict[str, float]:
    counts = {"joint": joint.joint, "under": joint.under, "over": joint.over, "both": joint.both}
    return _percent({**counts, "rest": joint.n - joint.reliable}, joint.n)


@drawing
def router_plot(run: Run | Results, task: str | None = None) -> Figure:
    """What routers did with the questions asked after the whole chain, a panel per editor with one, a row per dimension.

    From what the records say of the look-up (``Record.trace``): an entry was used, that of the question's own step or another,
    or none passed the threshold. ``task`` defaults to the first with such records; raises DataError where none has.
    """
    results = results_of(run)
    name = task or next((t for t in results.run.tasks if routers(results, t)), None)
    if name is None or not (found := routers(results, name)):
        raise DataError(f"no router's decisions in {results.run.path}: no record says what was compared with a threshold")
    dimensions = results.run.dimensions(name)
    figure, axes = panels(list(found), f"What routers did, {name}", "", 0.75 + 0.21 * len(dimensions), scale=False)
    for k, (ax, records) in enumerate(zip(axes, found.values(), strict=True)):
        counts = [_routed(records, dimension) for dimension in dimensions]
        asked = [sum(one.values()) for one in counts]
        _stacked(ax, [_percent(one, n) for one, n in zip(counts, asked, strict=True)], asked, _ROUTED)
        labels = [plain(d.label) + (" *" if d.locality else "") for d in dimensions]
        ax.set_yticks(range(len(dimensions)), labels if k % ACROSS == 0 else [""] * len(dimensions))
        ax.set_xlabel("share of questions (%)", fontsize=SMALL, color=INK)
    starred = any(d.locality for d in dimensions)
    one_legend(figure, axes, "* should be left alone; the others want their own entry" if starred else None)
    return figure


def routers(results: Results, task: str) -> dict[str, list[Record]]:
    """By editor: the final records of a task that tell of a threshold; without editors that have none."""
    order = results.run.order(task)
    found = {e: [r for r in final_records(results.records(e, task, order)) if "threshold" in r.trace] for e in results.editors}
    return {editor: records for editor, records in found.items() if records}


def _routed(records: Sequence[Record], dimension: Dimension) -> dict[str, int]:
    counts = {key: 0 for key, *_ in _ROUTED}
    for record in records:
        if record.dimension == dimension.name:
            entry = record.trace.get("entry")
            counts["alone" if entry is None else "own" if entry == f"{_EDIT}{record.step}" else "other"] += 1
    return counts


# -- shares ------------------------------------------------------------------------------------------------------------


def _percent(counts: Mapping[str, int], of: int) -> dict[str, float]:
    return {key: 100 * count / of if of else 0.0 for key, count in counts.items()}


def _stacked(
    ax: Axes, rows: Sequence[Mapping[str, float]], counts: Sequence[int], parts: Sequence[tuple[str, str, str, str]]
) -> None:
    """Rows of shares that add up to 100, n at the end of each; "none" in place of a row of nothing."""
    dress(ax, "x")
    left = [0.0] * len(rows)
    for key, label, colour, hatch in parts:
        wide = [row[key] for row in rows]
        style: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0, "height": 0.74}
        ax.barh(range(len(rows)), wide, left=left, label=label, **style)
        left = [a + b for a, b in zip(left, wide, strict=True)]
    for y, n in enumerate(counts):
        if n:
            ax.text(102, y, f"n = {n}", va="center", fontsize=SMALL - 1, color=FAINT)
        else:
            ax.text(50, y, "none", ha="center", va="center", fontsize=SMALL, color=FAINT)
    ax.set_xlim(0, 100)
    ax.set_xticks(range(0, 101, 25))
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", labelsize=TEXT if len(rows) < 16 else SMALL)
