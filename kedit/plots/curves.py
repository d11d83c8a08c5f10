"""What chains leave of each item: a line per item, or a curve by memory size or by further inserts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kedit.bootstrap import Estimate
from kedit.forgetting import By, Point, Retention
from kedit.plots.fonts import plain
from kedit.plots.parts import axis, results_of, retaining
from kedit.plots.style import BASE, COLOURS, INK, MARKERS, SMALL, drawing, one_legend, panels, say_n
from kedit.protocols import RELIABILITY
from kedit.report.results import Results
from kedit.report.tables import CURVES, MOST_STEPS, evenly_spaced
from kedit.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINES = 7
_MOST_TICKS = 7


@drawing
def retention_plot(run: Run | Results, order: str | None = None, *, task: str | None = None) -> Figure:
    """Reliability of each inserted item after each step, a panel per editor (paper, Fig. 6).

    A line per step's item (of a chain longer than seven: of seven steps, evenly spaced), from before any insert (where an
    editor does nothing in the run) to the end of the chain: dashed until the item is inserted, solid afterwards, with its
    95 % interval as a band. ``order`` defaults to the original one, ``task`` to the first with such records; raises
    DataError where there is none.
    """
    results = results_of(run)
    name = retaining(results, task)
    wanted = order or results.run.order(name)
    found = {editor: results.retention(editor, name, wanted) for editor in results.edited}
    figure, axes = panels(list(found), f"Retention, {name}, order {wanted or 'as given'}", axis(results, name))
    for ax, matrix in zip(axes, found.values(), strict=True):
        _trajectories(ax, matrix)
        say_n(ax, matrix.cases, "chains")
    one_legend(figure, axes, "inserted item (dashed and hollow: not inserted yet)")
    return figure


@drawing
def curve_plot(run: Run | Results, by: By, order: str | None = None, *, task: str | None = None) -> Figure:
    """Each dimension of what was inserted by memory size ("size") or by further inserts ("gap"), a panel per editor.

    Reliability of the editor that does nothing is dashed. Bands are 95 % intervals (see ``kedit.forgetting.curve``); the axis
    is logarithmic from 1 on. ``order`` defaults to the original one, ``task`` to the first with chains asked on the way;
    raises DataError where there is none.
    """
    results = results_of(run)
    name = retaining(results, task)
    wanted = order or results.run.order(name)
    label = axis(results, name).replace("Reliability", "Score", 1)
    figure, axes = panels(results.edited, f"By {CURVES[by]}, {name}, order {wanted or 'as given'}", label)
    for ax, editor in zip(axes, results.edited, strict=True):
        if results.base not in (None, editor):
            floor = results.curve(str(results.base), name, wanted, by, RELIABILITY)
            ax.plot([p.at for p in floor], [p.value.mean for p in floor], "--", color=BASE, lw=1.1, label="Rel, unedited")
        for k, dimension in enumerate(results.run.dimensions(name)):
            points = results.curve(editor, name, wanted, by, dimension.name)
            _curve(ax, points, k, plain(dimension.label))
            if dimension.name == RELIABILITY:
                _count(ax, points, by)
                say_n(ax, max((p.items for p in points), default=0), "items", "≤")
        ax.set_xlabel("items in memory" if by == "size" else "inserts since the item's own", fontsize=SMALL, color=INK)
    one_legend(figure, axes)
    return figure


def retention_plots(results: Results, task: str, order: str | None) -> Iterator[tuple[str, str, Figure]]:
    """A line per item of short chains, and where all was asked; of long ones curves by memory size and by gap."""
    longest = _longest(results, task, order)
    if _whole(longest):
        title = f"Retention curves of {task}, order {order}"
        yield f"{task}_retention_{order}", title, retention_plot(results, order, task=task)
    if longest.length > MOST_STEPS:
        for by, heading in CURVES.items():
            yield f"{task}_by_{by}_{order}", f"{task} by {heading}, order {order}", curve_plot(results, by, order, task=task)


def has_matrix(results: Results, task: str, order: str | None) -> bool:
    """Whether a task's chains are short enough, or asked often enough, for a retention matrix to be looked at."""
    return _whole(_longest(results, task, order))


def _whole(found: Retention) -> bool:
    return found.length <= MOST_STEPS or found.complete


def _longest(results: Results, task: str, order: str | None) -> Retention:
    return max((results.retention(editor, task, order) for editor in results.edited), key=lambda m: m.length)


def _trajectories(ax: Axes, found: Retention) -> None:
    first = [(0, found.base)] if found.base is not None else []
    rows = [*first, *zip(found.asked, found.matrix, strict=True)]
    once = len(set(found.languages)) == len(found.steps)
    language_of = dict(zip(found.steps, found.languages, strict=True)) if once else {}
    shades = sorted(found.languages)  # the same language has the same colour in every order, where there is one step of each
    for k, item in enumerate(evenly_spaced(len(found.steps), _MOST_LINES)):
        step, language = found.steps[item], found.languages[item]
        if once and len(found.steps) <= _MOST_LINES:
            k = shades.index(language)
        label = f"{step}: {language}" if language else str(step)
        points = [(after, value) for after, row in rows if item < len(row) and (value := row[item]) is not None]
        _line(ax, points, step, k, plain(label))
    ticks = [found.asked[t] for t in evenly_spaced(len(found.asked), _MOST_TICKS)]
    if first:  # the word "base" is wider than a number
        ticks = [0, *(t for t in ticks if 8 * t >= found.length)]
    ax.set_xticks(ticks, ["base" if t == 0 else plain(language_of.get(t) or str(t)) for t in ticks])
    ax.set_xlabel("asked after inserting", fontsize=SMALL, color=INK)


def _line(ax: Axes, points: Sequence[tuple[int, Estimate]], inserted: int, kind: int, label: str) -> None:
    """One item's line: dashed up to the step that inserts it, solid from there."""
    colour, marker = COLOURS[kind], MARKERS[kind]
    before = [(t, e) for t, e in points if t <= inserted]
    after = [(t, e) for t, e in points if t >= inserted]
    for part, style in ((before, (0, (3, 2))), (after, "-")):
        ax.plot([t for t, _ in part], [e.mean for _, e in part], linestyle=style, color=colour)
    _band(ax, points, colour)
    for solid in (True, False):  # hollow markers where the item is not inserted yet
        chosen = [(t, e.mean) for t, e in points if (t >= inserted) == solid]
        face = colour if solid else "white"
        ax.plot([t for t, _ in chosen], [y for _, y in chosen], marker, mfc=face, mec=colour, mew=1, clip_on=False, zorder=3)
    ax.plot([], [], marker=marker, color=colour, label=label)


def _curve(ax: Axes, points: Sequence[Point], kind: int, label: str) -> None:
    colour, marker = COLOURS[kind % len(COLOURS)], MARKERS[kind % len(MARKERS)]
    places = [(point.at, point.value) for point in points]
    ax.plot([x for x, _ in places], [e.mean for _, e in places], color=colour)
    ax.plot([x for x, _ in places], [e.mean for _, e in places], marker, color=colour, clip_on=False, zorder=3)
    ax.plot([], [], marker=marker, color=colour, label=label)
    _band(ax, places, colour)


def _band(ax: Axes, points: Sequence[tuple[int, Estimate]], colour: str) -> None:
    low, high = [e.low for _, e in points], [e.high for _, e in points]
    ax.fill_between([x for x, _ in points], low, high, color=colour, alpha=0.14, lw=0)


def _count(ax: Axes, points: Sequence[Point], by: By) -> None:
    """The horizontal axis: logarithmic, with 0 where gaps have it."""
    if points:
        ax.set_xscale("symlog" if by == "gap" else "log", **({"linthresh": 1} if by == "gap" else {}))
        long = len(points) > 6 or max(len(p.label) for p in points) > 6
        ax.set_xticks([p.at for p in points], [p.label for p in points], rotation=45 if long else 0)
        ax.minorticks_off()
