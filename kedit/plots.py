"""Curves and bars of a run, through Matplotlib's object interface: no window, no global state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.artefacts import replace_file
from kedit.benchmark import Dimension
from kedit.bootstrap import Estimate
from kedit.errors import DataError
from kedit.forgetting import By, Point, Retention
from kedit.protocols import RELIABILITY
from kedit.report.escape import visible
from kedit.report.results import Results
from kedit.report.tables import CURVES, MOST_STEPS, evenly_spaced
from kedit.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by all common kinds of colour vision, and each step has its own marker besides.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_BASE, _EDITED, _INK, _GRID = "#3b4652", "#8fc1e3", "#1c2024", "#d9dde1"
_ACROSS = 3
_PANEL = (3.7, 2.9)
_MOST_LINES = 7
_FITTING = 42
"""Characters that fit side by side under a panel."""


def retention_plot(run: Run | Results, order: str | None = None, *, task: str | None = None) -> Figure:
    """Reliability of each inserted item after each step, a panel per editor (paper, Fig. 6).

    A line per step's item (of a chain longer than seven: of seven steps, evenly spaced), from before any insert (where an
    editor does nothing in the run) to the end of the chain: dashed until the item is inserted, solid afterwards, with its
    95 % interval as a band. ``order`` defaults to the original one, ``task`` to the first with such records; raises
    DataError where there is none.
    """
    results = run if isinstance(run, Results) else Results(run)
    name = _retaining(results, task)
    wanted = order or results.run.order(name)
    found = {editor: results.retention(editor, name, wanted) for editor in results.edited}
    figure, axes = _panels(list(found), f"Retention, {name}, order {wanted or 'as given'}", _axis(results, name))
    for ax, matrix in zip(axes, found.values(), strict=True):
        _trajectories(ax, matrix)
        _say_n(ax, matrix.cases, "chains")
    _one_legend(figure, axes, "inserted item")
    return figure


def reliability_plot(run: Run | Results, by: str, *, task: str | None = None) -> Figure:
    """Reliability by a tag such as ``topic_group`` or ``partition``, a panel per editor (paper, Fig. 5): base dark, edited light.

    Of a task without reliability its headline is drawn. Bars carry 95 % intervals; there are no dark ones without an editor
    that does nothing. ``task`` defaults to the first whose cases have the tag; raises DataError where none has.
    """
    results = run if isinstance(run, Results) else Results(run)
    name = task or next((t for t in results.run.tasks if results.has_tag(t, by)), None)
    if name is None or not results.has_tag(name, by):
        raise DataError(f"no case of {results.run.path} has the tag {by!r}; see the tags of its records")
    base = _by_group(results, results.base, name, by) if results.base else {}
    heading = results.run.groups(name).get(by, by.replace("_", " "))
    figure, axes = _panels(results.edited, f"{_drawn(results, name)} by {heading}, {name}", _axis(results, name))
    for ax, editor in zip(axes, results.edited, strict=True):
        rows = _by_group(results, editor, name, by)
        groups = sorted(rows.keys() | base.keys())
        pairs = [(_EDITED, "edited", rows)] if editor != results.base else []
        pairs = [(_BASE, "base", base), *pairs] if base else pairs
        for k, (colour, label, values) in enumerate(pairs):
            found = [values[g][0] if g in values else None for g in groups]
            _bars(ax, found, (k - (len(pairs) - 1) / 2) * 0.38, colour, label)
        cases = [rows[g][1] if g in rows else 0 for g in groups]
        _name_groups(ax, [f"{_plain(g)}\nn = {n}" for g, n in zip(groups, cases, strict=True)])
    _one_legend(figure, axes, None)
    return figure


def _by_group(results: Results, editor: str, task: str, tag: str) -> dict[str, tuple[Estimate | None, int]]:
    """What is drawn, and the number of cases, by the value of a tag."""
    scores = results.groups(editor, task, tag)
    if _reliability(results, task):
        return {group: (row.dimensions.get(RELIABILITY), row.cases) for group, row in scores.items()}
    headlines = results.group_headlines(editor, task, tag)
    return {group: (headlines[group], row.cases) for group, row in scores.items()}


def _reliability(results: Results, task: str) -> Dimension | None:
    return next((d for d in results.run.dimensions(task) if d.name == RELIABILITY), None)


def _drawn(results: Results, task: str) -> str:
    """What the vertical axis shows: reliability, or the headline of a task without it."""
    return "Reliability" if _reliability(results, task) else results.headline_label(task)


def _axis(results: Results, task: str) -> str:
    """The label of the vertical axis: what is drawn, how it is scored, and the ids of that."""
    found = _reliability(results, task)
    if found is None:
        ids = ", ".join(way.measured_by or way.id for way, _ in results.scorings(task).values())
        return f"{_drawn(results, task)} (0 to 100)\n{ids}"
    way = results.way(found)
    return f"Reliability, {way.label} (0 to 100)\n{way.id}"


def _name_groups(ax: Axes, labels: Sequence[str]) -> None:
    """Names of groups under their bars, slanted where they would run into each other."""
    ax.set_xticks(range(len(labels)), labels)
    if len(labels) * max(max(map(len, label.split("\n"))) for label in labels) > _FITTING:
        ax.tick_params(axis="x", labelrotation=60, labelsize=7)


def run_plots(results: Results) -> Iterator[tuple[str, str, Figure]]:
    """Every plot that a run has, with a key for its file and a title: retention in each order, then bars by group."""
    for task in results.run.tasks:
        if results.has_retention(task):
            for order in results.orders(task):
                yield from retention_plots(results, task, order)
        for tag, heading in results.run.groups(task).items():
            if results.has_tag(task, tag):
                what = f"{_drawn(results, task)} in {task} by {heading}"
                yield f"{task}_{tag}", what, reliability_plot(results, tag, task=task)


def retention_plots(results: Results, task: str, order: str | None) -> Iterator[tuple[str, str, Figure]]:
    """A line per item of short chains, and where all was asked; of long ones curves by memory size and by gap."""
    longest = max((results.retention(editor, task, order) for editor in results.edited), key=lambda m: m.length)
    if longest.length <= MOST_STEPS or longest.complete:
        title = f"Retention curves of {task}, order {order}"
        yield f"{task}_retention_{order}", title, retention_plot(results, order, task=task)
    if longest.length > MOST_STEPS:
        for by, heading in CURVES.items():
            yield f"{task}_by_{by}_{order}", f"{task} by {heading}, order {order}", curve_plot(results, by, order, task=task)


def save_plot(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write ``<stem>.png`` and ``<stem>.svg``, each whole or not at all; the same figure gives the same bytes."""
    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    replace_file(png, lambda part: figure.savefig(part, format="png", dpi=150, metadata={"Software": None}))
    replace_file(svg, lambda part: _save_svg(figure, part))
    return png, svg


def _save_svg(figure: Figure, path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "kedit"}):  # ids that do not change from run to run
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _panels(editors: Sequence[str], title: str, axis: str) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    across = min(len(editors), _ACROSS)
    down = -(-len(editors) // across)
    figure = Figure(figsize=(max(across * _PANEL[0], 5.2), down * _PANEL[1] + 0.9), layout="constrained", facecolor="white")
    figure.suptitle(_plain(title), fontsize=12, color=_INK, fontweight="bold")
    grid: Any = figure.subplots(down, across, sharey=True, squeeze=False)
    flat: list[Axes] = list(grid.flat)
    for ax in flat[len(editors) :]:
        ax.remove()
    for index, (ax, editor) in enumerate(zip(flat, editors, strict=False)):
        _dress(ax, editor, axis if index % across == 0 else None)
    return figure, flat[: len(editors)]


def _dress(ax: Axes, editor: str, axis: str | None) -> None:
    ax.set_title(_plain(editor), fontsize=11, color=_INK, loc="left")
    ax.set_ylim(0, 104)
    ax.set_yticks(range(0, 101, 25))
    ax.grid(axis="y", color=_GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(colors=_INK, labelsize=9, length=0)
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_GRID)
    if axis is not None:
        ax.set_ylabel("\n".join(map(_plain, axis.split("\n"))), fontsize=8, color=_INK)


def _trajectories(ax: Axes, found: Retention) -> None:
    first = [(0, found.base)] if found.base is not None else []
    rows = [*first, *zip(found.asked, found.matrix, strict=True)]
    language_of = dict(zip(found.steps, found.languages, strict=True))
    shades = sorted(found.languages)  # the same language has the same colour in every order, where there is one step of each
    for k, item in enumerate(evenly_spaced(len(found.steps), _MOST_LINES)):
        step, language = found.steps[item], found.languages[item]
        if len(set(shades)) == len(found.steps) <= _MOST_LINES:
            k = shades.index(language)
        label = f"{step}: {language}" if language else str(step)
        points = [(after, value) for after, row in rows if item < len(row) and (value := row[item]) is not None]
        _line(ax, points, step, _COLOURS[k], _MARKERS[k], _plain(label))
    ticks = [*(t for t, _ in first), *(found.asked[t] for t in evenly_spaced(len(found.asked)))]
    ax.set_xticks(ticks, ["base" if t == 0 else _plain(language_of.get(t) or str(t)) for t in ticks])
    ax.set_xlabel("asked after inserting", fontsize=9, color=_INK)


def _line(ax: Axes, points: Sequence[tuple[int, Estimate]], inserted: int, colour: str, marker: str, label: str) -> None:
    """One item's line: dashed up to the step that inserts it, solid from there."""
    before = [(t, e) for t, e in points if t <= inserted]
    after = [(t, e) for t, e in points if t >= inserted]
    for part, style in ((before, (0, (3, 2))), (after, "-")):
        ax.plot([t for t, _ in part], [e.mean for _, e in part], linestyle=style, color=colour, linewidth=1.8)
    known = [t >= inserted for t, _ in points]
    _band(ax, points, colour)
    for solid in (True, False):  # hollow markers where the item is not inserted yet
        chosen = [(t, e.mean) for (t, e), now in zip(points, known, strict=True) if now == solid]
        face = colour if solid else "white"
        ax.plot([t for t, _ in chosen], [y for _, y in chosen], marker, ms=5.5, mfc=face, mec=colour, mew=1.3)
    ax.plot([], [], marker=marker, color=colour, label=label)


def _band(ax: Axes, points: Sequence[tuple[int, Estimate]], colour: str) -> None:
    low, high = [e.low for _, e in points], [e.high for _, e in points]
    ax.fill_between([x for x, _ in points], low, high, color=colour, alpha=0.12, lw=0)


def curve_plot(run: Run | Results, by: By, order: str | None = None, *, task: str | None = None) -> Figure:
    """Each dimension of what was inserted by memory size ("size") or by further inserts ("gap"), a panel per editor.

    Reliability of the editor that does nothing is dashed. Bands are 95 % intervals (see ``kedit.forgetting.curve``); the axis
    is logarithmic from 1 on. ``order`` defaults to the original one, ``task`` to the first with chains asked on the way;
    raises DataError where there is none.
    """
    results = run if isinstance(run, Results) else Results(run)
    name = _retaining(results, task)
    wanted = order or results.run.order(name)
    axis = _axis(results, name).replace("Reliability", "Score", 1)
    figure, axes = _panels(results.edited, f"By {CURVES[by]}, {name}, order {wanted or 'as given'}", axis)
    for ax, editor in zip(axes, results.edited, strict=True):
        if results.base not in (None, editor):
            floor = results.curve(str(results.base), name, wanted, by, RELIABILITY)
            ax.plot([p.at for p in floor], [p.value.mean for p in floor], "--", color=_BASE, lw=1.4, label="Rel, unedited")
        for k, dimension in enumerate(results.run.dimensions(name)):
            points = results.curve(editor, name, wanted, by, dimension.name)
            places = [(point.at, point.value) for point in points]
            ax.plot([x for x, _ in places], [e.mean for _, e in places], color=_COLOURS[k], lw=1.8)
            ax.plot([x for x, _ in places], [e.mean for _, e in places], _MARKERS[k], color=_COLOURS[k], ms=5.5)
            ax.plot([], [], marker=_MARKERS[k], color=_COLOURS[k], label=_plain(dimension.label))
            _band(ax, places, _COLOURS[k])
            if dimension.name == RELIABILITY:
                _count(ax, points, by)
        _say_n(ax, max((p.items for p in results.curve(editor, name, wanted, by, RELIABILITY)), default=0), "items at most")
        ax.set_xlabel("items in memory" if by == "size" else "inserts since the item's own", fontsize=9, color=_INK)
    _one_legend(figure, axes, None)
    return figure


def _count(ax: Axes, points: Sequence[Point], by: By) -> None:
    """The horizontal axis: logarithmic, with 0 where gaps have it."""
    if points:
        ax.set_xscale("symlog" if by == "gap" else "log", **({"linthresh": 1} if by == "gap" else {}))
        ax.set_xticks([p.at for p in points], [p.label for p in points], rotation=45 if len(points) > 6 else 0)
        ax.minorticks_off()


def _retaining(results: Results, task: str | None) -> str:
    """The task named, or the first, that asked reliability before its chains were complete; DataError where none did."""
    name = task or next((t for t in results.run.tasks if results.has_retention(t)), None)
    if name is None or not results.has_retention(name):
        raise DataError(f"no retention in {results.run.path}: no task asked reliability before its chains were complete")
    return name


def bars_plot(title: str, axis: str, groups: Sequence[str], series: Mapping[str, Sequence[Estimate | None]]) -> Figure:
    """Bars with 95 % intervals: for each group one of every series, side by side; one without a value is left out."""
    figure, (ax,) = _panels([""], title, axis)
    figure.set_size_inches(max(5.2, min(14, 0.9 * len(groups) + 0.22 * len(groups) * len(series))), 4.2)
    width = 0.8 / max(len(series), 1)
    for k, (label, found) in enumerate(series.items()):
        _bars(ax, found, (k - (len(series) - 1) / 2) * width, _COLOURS[k % len(_COLOURS)], _plain(label), width * 0.92)
    _name_groups(ax, ["\n".join(map(_plain, group.split("\n"))) for group in groups])
    if len(series) > 1:
        _one_legend(figure, [ax], None)
    return figure


def _bars(ax: Axes, found: Sequence[Estimate | None], shift: float, colour: str, label: str, width: float = 0.36) -> None:
    known = [(x + shift, e) for x, e in enumerate(found) if e is not None]
    below = [max(e.mean - e.low, 0.0) for _, e in known]
    above = [max(e.high - e.mean, 0.0) for _, e in known]
    bars: dict[str, Any] = {"color": colour, "width": width, "label": label}
    ax.bar(
        [x for x, _ in known], [e.mean for _, e in known], yerr=[below, above], ecolor=_INK, error_kw={"lw": 1}, capsize=2, **bars
    )


def _one_legend(figure: Figure, axes: Sequence[Axes], title: str | None) -> None:
    handles = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(
        list(handles.values()),
        list(handles),
        title=title,
        loc="outside lower center",
        ncols=max(len(handles), 1),
        frameon=False,
        fontsize=9,
    )


def _say_n(ax: Axes, cases: int, what: str) -> None:
    ax.set_title(f"n = {cases} {what}", fontsize=8, color="#5f6872", loc="right")


def _plain(text: str) -> str:
    """A label as it is: control characters written out, and no dollar sign that would start a formula."""
    return visible(text).replace("$", r"\$")
