"""Differences between editors with their intervals: a forest plot of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kedit.errors import DataError
from kedit.plots.fonts import plain, wrapped
from kedit.plots.style import COLOURS, DOUBLE, FAINT, INK, NAME, SINGLE, SMALL, TEXT, drawing, dress, ends, new, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kedit.comparison import Comparison, Row

_MOST = 6
"""Panels side by side."""


@drawing
def forest_plot(found: Comparison, task: str | None = None) -> Figure:
    """Differences with their intervals, a panel per dimension, a row per pair: right of zero the first of the two is higher.

    Filled circles are distinguishable after Holm's correction, hollow squares are not. A pair without a common case says so.
    ``task`` defaults to the first; raises DataError where the comparison has none of that name.
    """
    tasks = list(dict.fromkeys(row.task for row in found.rows))
    name = task or next(iter(tasks), None)
    rows = [row for row in found.rows if row.task == name]
    if not rows:
        raise DataError(f"no comparison of task {task!r} to draw; there is one of {', '.join(tasks) or 'none'}")
    pairs = list(dict.fromkeys((row.a, row.b) for row in rows))
    columns = list(dict.fromkeys((row.dimension, row.label) for row in rows))
    against = pairs[0][1] if len({b for _, b in pairs}) == 1 else None
    labels = [wrapped(a if against else f"{a} - {b}", 2 * NAME) for a, b in pairs]
    across = min(len(columns), _MOST)
    down = -(-len(columns) // across)
    lines = sum(label.count("\n") + 1 for label in labels)
    title = f"Difference from {against}, {name}" if against else f"Differences of pairs, {name}"
    figure = new(title, DOUBLE if across > 1 else SINGLE * 1.3, down * (0.19 * lines + 0.45) + 0.75)
    spread(figure)
    grid: Any = figure.subplots(down, across, sharey=True, squeeze=False)
    axes: list[Axes] = list(grid.flat)
    for ax in axes[len(columns) :]:
        ax.remove()
    for ax, (dimension, label) in zip(axes, columns, strict=False):
        _panel(ax, label, [_of(rows, pair, dimension) for pair in pairs])
    axes[0].set_yticks(range(len(pairs)), labels)
    axes[0].set_ylim(len(pairs) - 0.4, -0.6)
    _reach(axes[: len(columns)], rows)
    _say(figure, found)
    return figure


def _of(rows: Sequence[Row], pair: tuple[str, str], dimension: str) -> Row | None:
    return next((row for row in rows if (row.a, row.b) == pair and row.dimension == dimension), None)


def _panel(ax: Axes, label: str, rows: Sequence[Row | None]) -> None:
    dress(ax, "x")
    ax.set_title(plain(label), fontsize=TEXT, color=INK, loc="left")
    ax.axvline(0, color=FAINT, linewidth=0.8, zorder=1)
    for y, row in enumerate(rows):
        if row is None or row.difference is None:
            ax.text(0, y, "no common case", ha="center", va="center", fontsize=SMALL - 1, color=FAINT, backgroundcolor="white")
            continue
        style: dict[str, Any] = {"marker": "o"} if row.distinguishable else {"marker": "s", "mfc": "white", "mew": 1}
        colour = COLOURS[0] if row.distinguishable else FAINT
        ax.errorbar([row.difference.mean], [y], xerr=ends([row.difference]), color=colour, lw=1.1, capsize=1.5, zorder=3, **style)
    counts = sorted({row.cases for row in rows if row is not None})
    told = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "0"
    ax.set_title(f"n = {told}", fontsize=SMALL, color=FAINT, loc="right")


def _reach(axes: Sequence[Axes], rows: Sequence[Row]) -> None:
    """The same to both sides, so that zero is in the middle of every panel."""
    most = max((max(abs(e.low), abs(e.high)) for row in rows if (e := row.difference) is not None), default=1.0)
    for ax in axes:
        ax.set_xlim(-1.08 * max(most, 1.0), 1.08 * max(most, 1.0))
        ax.locator_params(axis="x", nbins=4, min_n_ticks=3)


def _say(figure: Figure, found: Comparison) -> None:
    level = f"{100 * (1 - found.alpha):g} % interval"
    told = f"difference in points ({found.scorer}), {level}; filled: told apart at {found.alpha:g}, Holm over {found.tests} tests"
    figure.supxlabel(plain(told), fontsize=SMALL, color=INK)
