"""Scores with their intervals: by dimension, by group of cases, or by whatever else is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kedit.bootstrap import Estimate
from kedit.errors import DataError
from kedit.metrics import OVERALL, Scores
from kedit.plots.fonts import plain, wrapped
from kedit.plots.parts import axis, by_group, drawn, ids, results_of
from kedit.plots.style import (
    ACROSS,
    BASE,
    COLOURS,
    DOUBLE,
    EDITED,
    FAINT,
    HATCHES,
    INK,
    MARKERS,
    NAME,
    NO_VALUE,
    PAGE,
    SINGLE,
    SMALL,
    TEXT,
    drawing,
    dress,
    ends,
    label_axis,
    new,
    one_legend,
    panels,
    spread,
)
from kedit.report.results import Results
from kedit.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LETTER = 0.056
"""Inches that a character takes on average at the small size."""


@drawing
def dimension_plot(run: Run | Results, task: str | None = None) -> Figure:
    """Every dimension and their mean, a panel each, an editor per row: its score with the 95 % interval.

    The dashed line is the editor that does nothing. A row without a value says so. ``task`` defaults to the first; raises
    UnknownNameError for one that the run does not have.
    """
    results = results_of(run)
    name = task or results.run.tasks[0]
    order = results.run.order(name)
    rows = {editor: results.scores(editor, name, order) for editor in results.editors}
    columns: dict[str, list[Estimate | None]] = {}
    for dimension in results.run.dimensions(name):
        columns[dimension.label] = [row.dimensions.get(dimension.name) for row in rows.values()]
    if len(columns) > 1 or results.run.headline(name) != OVERALL:
        columns[results.headline_label(name)] = [results.headline(editor, name) for editor in rows]
    figure = new(_titled(name, order), DOUBLE if len(columns) > 2 else SINGLE * max(1.3, len(columns)), len(rows) * 0.2 + 1.15)
    spread(figure)
    axes: Any = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for ax, (label, values) in zip(axes, columns.items(), strict=True):
        dress(ax, "x")
        ax.set_title(wrapped(label, NAME), fontsize=TEXT, color=INK, loc="left")
        _row_scores(ax, values, results.base is not None)
    axes[0].set_yticks(range(len(rows)), [wrapped(editor, 2 * NAME) for editor in rows])
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    figure.supxlabel(
        plain(f"score, 0 to 100 ({ids(results, name)}), 95 % interval; {_cases(list(rows.values()))}"), fontsize=SMALL, color=INK
    )
    return figure


def _titled(task: str, order: str | None) -> str:
    return f"Scores, {task}" + (f", order {order}" if order else "")


def _cases(rows: Sequence[Scores]) -> str:
    counts = sorted({row.cases for row in rows})
    return f"n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} cases"


def _row_scores(ax: Axes, found: Sequence[Estimate | None], base: bool) -> None:
    """A point with its interval per row; the first, where it does nothing, is hollow and a line down the panel."""
    floor = found[0] if base else None
    if floor is not None:
        ax.axvline(floor.mean, color=BASE, linewidth=0.9, linestyle="--", zorder=1)
    for y, value in enumerate(found):
        if value is None:
            ax.text(50, y, NO_VALUE, ha="center", va="center", fontsize=SMALL, color=FAINT)
            continue
        hollow = base and y == 0
        options: dict[str, Any] = {"mfc": "white", "marker": "s"} if hollow else {"marker": "o"}
        colour = BASE if hollow else COLOURS[0]
        ax.errorbar(
            [value.mean], [y], xerr=ends([value]), color=colour, capsize=2, ms=4.5, lw=1.2, zorder=3, clip_on=False, **options
        )
    ax.set_xlim(-3, 103)
    ax.set_xticks(range(0, 101, 50))


@drawing
def reliability_plot(run: Run | Results, by: str, *, task: str | None = None) -> Figure:
    """Reliability by a tag such as ``topic_group`` or ``partition``, a panel per editor (paper, Fig. 5): base dark, edited light.

    Of a task without reliability its headline is drawn. Bars carry 95 % intervals; there are no dark ones without an editor
    that does nothing. ``task`` defaults to the first whose cases have the tag; raises DataError where none has.
    """
    results = results_of(run)
    name = task or next((t for t in results.run.tasks if results.has_tag(t, by)), None)
    if name is None or not results.has_tag(name, by):
        raise DataError(f"no case of {results.run.path} has the tag {by!r}; see the tags of its records")
    base = by_group(results, results.base, name, by) if results.base else {}
    heading = results.run.groups(name).get(by, by.replace("_", " "))
    rows = {editor: by_group(results, editor, name, by) for editor in results.edited}
    groups = sorted({group for found in (base, *rows.values()) for group in found})

    def counts(found: Mapping[str, tuple[Estimate | None, int]], group: str) -> int:
        return found[group][1] if group in found else 0

    title = f"{drawn(results, name)} by {heading}, {name}"
    figure, axes = panels(
        results.edited, title, axis(results, name), 1.75 + 0.05 * max(map(len, groups), default=0), letters=2 * NAME
    )
    width = figure.get_figwidth() / min(len(axes), ACROSS) - 0.5
    same = len({tuple(counts(found, group) for group in groups) for found in rows.values()}) == 1
    for at, (ax, (editor, found)) in enumerate(zip(axes, rows.items(), strict=True)):
        pairs = [(EDITED, "edited", found)] if editor != results.base else []
        pairs = [(BASE, "base", base), *pairs] if base else pairs
        for k, (colour, label, values) in enumerate(pairs):
            chosen = [values[g][0] if g in values else None for g in groups]
            _bars(ax, chosen, (k - (len(pairs) - 1) / 2) * 0.38, colour, label)
        cases = [counts(found, g) for g in groups]
        slanted = _name_groups(ax, [f"{plain(g)}\nn = {n}" for g, n in zip(groups, cases, strict=True)], width)
        if slanted and same and at + ACROSS < len(axes):  # the panel below says the same
            ax.tick_params(axis="x", labelbottom=False)
    one_legend(figure, axes)
    return figure


@drawing
def bars_plot(title: str, axis: str, groups: Sequence[str], series: Mapping[str, Sequence[Estimate | None]]) -> Figure:
    """Bars with 95 % intervals: for each group one of every series, side by side; one without a value is marked by a cross.

    Each series has its own pair of colour and hatch.
    """
    wide = len(groups) * max(len(series), 2) > 9
    figure = new(title, DOUBLE if wide else SINGLE * 1.3, min(3.1 + 0.08 * len(series), PAGE))
    ax = figure.subplots()
    dress(ax)
    ax.set_ylim(0, 104)
    ax.set_yticks(range(0, 101, 25))
    label_axis(ax, axis)
    width = 0.84 / max(len(series), 1)
    for k, (label, found) in enumerate(series.items()):
        hatch = HATCHES[(k + k // len(COLOURS)) % len(HATCHES)]
        shift = (k - (len(series) - 1) / 2) * width
        _bars(ax, found, shift, COLOURS[k % len(COLOURS)], wrapped(label, 2 * NAME), width * 0.92, hatch)
    named = ["\n".join(map(plain, group.split("\n"))) for group in groups]
    _name_groups(ax, named, figure.get_figwidth() - 0.6)
    if len(series) > 1:
        one_legend(figure, [ax])
    return figure


def _bars(
    ax: Axes,
    found: Sequence[Estimate | None],
    shift: float,
    colour: str,
    label: str,
    width: float = 0.36,
    hatch: str = "",
) -> None:
    known = [(x + shift, e) for x, e in enumerate(found) if e is not None]
    bars: dict[str, Any] = {"color": colour, "width": width, "label": label, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
    reach = ends([e for _, e in known])
    ax.bar([x for x, _ in known], [e.mean for _, e in known], yerr=reach, ecolor=INK, error_kw={"lw": 0.9}, capsize=1.5, **bars)
    lost = [x + shift for x, e in enumerate(found) if e is None]
    if lost:
        cross: dict[str, Any] = {"linestyle": "none", "marker": MARKERS[-1], "ms": 3.5, "mfc": "white", "mec": FAINT, "mew": 0.7}
        ax.plot(lost, [3] * len(lost), label=NO_VALUE, **cross)


def _name_groups(ax: Axes, labels: Sequence[str], width: float) -> bool:
    """Names of groups under their bars, slanted where they would run into each other on an axis so many inches wide.

    Gives whether they are.
    """
    ax.set_xticks(range(len(labels)), labels)
    ax.set_xlim(-max(0.6, 1.2 - 0.3 * len(labels)), len(labels) - 1 + max(0.6, 1.2 - 0.3 * len(labels)))
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    slanted = len(labels) * (longest + 1) * _LETTER > width
    if slanted:
        steep = len(labels) > 6
        ax.set_xticks(range(len(labels)), [label.replace("\n", ", " if steep else "\n") for label in labels])
        ax.tick_params(axis="x", labelrotation=90 if steep else 60)
    return slanted
