"""Numbers as shades with the numbers in them: the retention matrix, and editors by benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kedit.bootstrap import Array, Estimate
from kedit.errors import DataError
from kedit.forgetting import Retention
from kedit.plots.fonts import plain, wrapped
from kedit.plots.parts import axis, results_of, retaining
from kedit.plots.style import ACROSS, DOUBLE, FAINT, INK, NAME, SHADES, SINGLE, SMALL, drawing, new, panels, say_n
from kedit.report.results import Results
from kedit.report.tables import MOST_STEPS, evenly_spaced
from kedit.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_BRIGHT = 60.0
"""From which value on the shade is light enough for dark letters."""


_NARROW = 7
"""Columns that fit into a third of the width."""


@drawing
def retention_heatmap(run: Run | Results, order: str | None = None, *, task: str | None = None) -> Figure:
    """The retention matrix R[asked after t][inserted at i] of reliability, a panel per editor (paper, Fig. 6).

    A row per number of inserts, the unedited model's first, a column per item; of long chains twelve of each, evenly spaced.
    Framed is what was asked right after its own insert; what lies above was asked before. A cell that was not asked, or has
    no value, is hatched: of a long chain asked here and there nearly all are, and ``curve_plot`` shows more.

    ``order`` and ``task`` as for ``retention_plot``; raises DataError where nothing was asked on the way.
    """
    results = results_of(run)
    name = retaining(results, task)
    wanted = order or results.run.order(name)
    found = {editor: results.retention(editor, name, wanted) for editor in results.edited}
    rows = max(min(len(m.asked), MOST_STEPS) + 1 for m in found.values())
    most = ACROSS if all(len(m.steps) <= _NARROW for m in found.values()) else 2
    title = f"Retention matrix, {name}, order {wanted or 'as given'}"
    figure, axes = panels(list(found), title, "asked after inserting", 0.75 + 0.2 * rows, scale=False, most=most)
    for ax, matrix in zip(axes, found.values(), strict=True):
        image = _retention(ax, matrix)
        say_n(ax, matrix.cases, "chains")
    _scale(figure, axes, image, axis(results, name).replace("\n", ", "))
    return figure


def _retention(ax: Axes, found: Retention) -> AxesImage:
    items = evenly_spaced(len(found.steps))
    asked = evenly_spaced(len(found.asked))
    values = found.means()[np.ix_(asked, items)]
    names = dict(zip(found.steps, found.languages, strict=True))
    up = [_step(found.asked[t], names) for t in asked]
    if found.base is not None:
        base = [found.base[i] for i in items]
        values = np.vstack([[np.nan if e is None else e.mean for e in base], values])
        up = ["base", *up]
    image = _cells(ax, values)
    ax.set_xticks(range(len(items)), [_step(found.steps[i], names) for i in items])
    ax.set_yticks(range(len(up)), up)
    ax.set_xlabel("inserted item", fontsize=SMALL, color=INK)
    first = found.base is not None
    for x, i in enumerate(items):
        for y, t in enumerate(asked):
            if found.asked[t] == found.steps[i]:
                _frame(ax, x, y + first)
    return image


def _step(step: int, languages: Mapping[int, str]) -> str:
    language = languages.get(step, "")
    return plain(f"{step} {language}" if language and len(languages) <= 6 else str(step))


@drawing
def headline_heatmap(
    title: str,
    columns: Sequence[str],
    rows: Mapping[str, Sequence[Estimate | None]],
    scale: str = "headline (0 to 100)",
) -> Figure:
    """Editors by benchmarks: a row per editor, a column per benchmark's task, its headline as shade and number.

    Columns hold different measures, so that shades compare within a column. The best of each column is framed (all that are
    equal, none where all are); a cell without a value is hatched. Raises DataError where there is no cell.
    """
    if not columns or not rows:
        raise DataError(f"nothing to draw: {len(rows)} editors on {len(columns)} columns; run at least one of each")
    values = np.array([[np.nan if e is None else e.mean for e in row] for row in rows.values()], dtype=np.float64)
    wide = DOUBLE if len(columns) > 3 else SINGLE * 1.3
    headings = [wrapped(column.replace("\n", " "), 22) for column in columns]
    height = 0.22 * len(rows) + 1.6 + 0.06 * max(len(line) for text in headings for line in text.split("\n"))
    figure = new(title, wide, height)
    ax = figure.subplots()
    image = _cells(ax, values)
    ax.set_xticks(range(len(columns)), headings, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), [wrapped(name, 2 * NAME) for name in rows])
    for x, column in enumerate(values.T):
        if np.nanmax(column, initial=-1) > np.nanmin(column, initial=101):
            for y in np.flatnonzero(column == np.nanmax(column)):
                _frame(ax, x, int(y))
    _scale(figure, [ax], image, scale)
    return figure


# -- cells -------------------------------------------------------------------------------------------------------------


def _cells(ax: Axes, values: Array) -> AxesImage:
    """Shades of 0 to 100, each with its number; hatched where there is none."""
    from matplotlib.patches import Rectangle

    image = ax.imshow(np.ma.masked_invalid(values), cmap=SHADES, vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    for (y, x), value in np.ndenumerate(values):
        if np.isnan(value):
            hatched: dict[str, Any] = {"facecolor": "#f4f5f6", "edgecolor": "#b9c0c6", "hatch": "////", "linewidth": 0}
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **hatched))
        else:
            ink = INK if value >= _BRIGHT else "white"
            ax.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=SMALL - 0.5, color=ink)
    ax.grid(False)
    ax.tick_params(colors=INK, labelsize=SMALL, length=0)
    ax.set_xticks(np.arange(1, values.shape[1]) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, values.shape[0]) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=0.8)
    ax.tick_params(which="minor", length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return image


def _frame(ax: Axes, x: int, y: int) -> None:
    """A dark frame in a light one, to be seen on every shade."""
    from matplotlib.patches import Rectangle

    for width, colour in ((2.4, "white"), (1.1, "black")):
        ax.add_patch(Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, fill=False, edgecolor=colour, linewidth=width))


def _scale(figure: Figure, axes: Sequence[Axes], image: AxesImage, label: str) -> None:
    bar = figure.colorbar(image, ax=list(axes), location="right", fraction=0.03, pad=0.015, aspect=40, ticks=range(0, 101, 25))
    bar.set_label(plain(label), fontsize=SMALL, color=INK)
    bar.ax.tick_params(labelsize=SMALL, length=0, colors=FAINT)
    bar.outline.set_visible(False)  # type: ignore[operator]
