"""Curves and bars of a run, through Matplotlib's object interface: no window, no global state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.artefacts import replace_file
from kedit.bootstrap import Estimate
from kedit.errors import DataError
from kedit.metrics import Retention
from kedit.protocols import RELIABILITY
from kedit.report.escape import visible
from kedit.report.results import Results
from kedit.report.tables import GROUPS, evenly_spaced
from kedit.rouge import rouge_id
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


def retention_plot(run: Run | Results, order: str | None = None, *, task: str | None = None) -> Figure:
    """Reliability of each inserted item after each step, a panel per editor (paper, Fig. 6).

    A line per step's item (of a chain longer than seven: of seven steps, evenly spaced), from before any insert (where an
    editor does nothing in the run) to the end of the chain: dashed until the item is inserted, solid afterwards, with its
    95 % interval as a band. ``order`` defaults to the original one, ``task`` to the first with such records; raises
    DataError where there is none.
    """
    results = run if isinstance(run, Results) else Results(run)
    name = task or next((t for t in results.run.tasks if results.has_retention(t)), None)
    if name is None or not results.has_retention(name):
        raise DataError(f"no retention in {results.run.path}: no task asked reliability before its chains were complete")
    wanted = order or results.run.order(name)
    found = {editor: results.retention(editor, name, wanted) for editor in results.edited}
    figure, axes = _panels(list(found), f"Retention, {name}, order {wanted or 'as given'}")
    for ax, matrix in zip(axes, found.values(), strict=True):
        _trajectories(ax, matrix)
        _say_n(ax, matrix.cases, "chains")
    _one_legend(figure, axes, "inserted item")
    return figure


def reliability_plot(run: Run | Results, by: str, *, task: str | None = None) -> Figure:
    """Reliability by a tag such as ``topic_group`` or ``partition``, a panel per editor (paper, Fig. 5): base dark, edited light.

    Bars carry 95 % intervals; there are no dark ones without an editor that does nothing. ``task`` defaults to the first
    whose cases have the tag; raises DataError where none has.
    """
    results = run if isinstance(run, Results) else Results(run)
    name = task or next((t for t in results.run.tasks if results.has_tag(t, by)), None)
    if name is None or not results.has_tag(name, by):
        raise DataError(f"no case of {results.run.path} has the tag {by!r}; see the tags of its records")
    base = results.groups(results.base, name, by) if results.base else {}
    figure, axes = _panels(results.edited, f"Reliability by {GROUPS.get(by, by.replace('_', ' '))}, {name}")
    for ax, editor in zip(axes, results.edited, strict=True):
        rows = results.groups(editor, name, by)
        groups = sorted(rows.keys() | base.keys())
        pairs = [(_EDITED, "edited", rows)] if editor != results.base else []
        pairs = [(_BASE, "base", base), *pairs] if base else pairs
        for k, (colour, label, values) in enumerate(pairs):
            found = [values[g].dimensions.get(RELIABILITY) if g in values else None for g in groups]
            _bars(ax, found, (k - (len(pairs) - 1) / 2) * 0.38, colour, label)
        cases = [rows[g].cases if g in rows else 0 for g in groups]
        ax.set_xticks(range(len(groups)), [f"{_plain(g)}\nn = {n}" for g, n in zip(groups, cases, strict=True)])
    _one_legend(figure, axes, None)
    return figure


def run_plots(results: Results) -> Iterator[tuple[str, str, Figure]]:
    """Every plot that a run has, with a key for its file and a title: retention in each order, then bars by group."""
    for task in results.run.tasks:
        if results.has_retention(task):
            for order in results.orders(task):
                yield (
                    f"{task}_retention_{order}",
                    f"Retention curves of {task}, order {order}",
                    retention_plot(results, order, task=task),
                )
        for tag in GROUPS:
            if results.has_tag(task, tag):
                yield f"{task}_{tag}", f"Reliability in {task} by {GROUPS[tag]}", reliability_plot(results, tag, task=task)


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


def _panels(editors: Sequence[str], title: str) -> tuple[Figure, list[Axes]]:
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
        _dress(ax, editor, labelled=index % across == 0)
    return figure, flat[: len(editors)]


def _dress(ax: Axes, editor: str, *, labelled: bool) -> None:
    ax.set_title(_plain(editor), fontsize=11, color=_INK, loc="left")
    ax.set_ylim(0, 104)
    ax.set_yticks(range(0, 101, 25))
    ax.grid(axis="y", color=_GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(colors=_INK, labelsize=9, length=0)
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_GRID)
    if labelled:
        ax.set_ylabel(f"Reliability, ROUGE-L (0 to 100)\n{rouge_id()}", fontsize=8, color=_INK)


def _trajectories(ax: Axes, found: Retention) -> None:
    length = len(found.matrix)
    start = 0 if found.base is not None else 1
    rows = [*([found.base] if found.base is not None else []), *found.matrix]
    shades = sorted(found.languages)  # the same language has the same colour in every order, where there is one step of each
    for k, item in enumerate(evenly_spaced(length, _MOST_LINES)):
        language = found.languages[item]
        if len(set(shades)) == length <= _MOST_LINES:
            k = shades.index(language)
        label = f"{item + 1}: {language}" if language else str(item + 1)
        column = [row[item] if item < len(row) else None for row in rows]
        _line(ax, column, start, item + 1, _COLOURS[k], _MARKERS[k], _plain(label))
    ticks = sorted({*range(start, 1), *(step + 1 for step in evenly_spaced(length))})
    ax.set_xticks(ticks, ["base" if t == 0 else _plain(found.languages[t - 1] or str(t)) for t in ticks])
    ax.set_xlabel("asked after inserting", fontsize=9, color=_INK)


def _line(ax: Axes, column: Sequence[Estimate | None], start: int, inserted: int, colour: str, marker: str, label: str) -> None:
    """One item's line: dashed up to the step that inserts it, solid from there."""
    points = [(t, e) for t, e in enumerate(column, start) if e is not None]
    before = [(t, e) for t, e in points if t <= inserted]
    after = [(t, e) for t, e in points if t >= inserted]
    for part, style in ((before, (0, (3, 2))), (after, "-")):
        ax.plot([t for t, _ in part], [e.mean for _, e in part], linestyle=style, color=colour, linewidth=1.8)
    known = [t >= inserted for t, _ in points]
    ax.fill_between(
        [t for t, _ in points], [e.low for _, e in points], [e.high for _, e in points], color=colour, alpha=0.12, lw=0
    )
    for solid in (True, False):  # hollow markers where the item is not inserted yet
        chosen = [(t, e.mean) for (t, e), now in zip(points, known, strict=True) if now == solid]
        face = colour if solid else "white"
        ax.plot([t for t, _ in chosen], [y for _, y in chosen], marker, ms=5.5, mfc=face, mec=colour, mew=1.3)
    ax.plot([], [], marker=marker, color=colour, label=label)


def _bars(ax: Axes, found: Sequence[Estimate | None], shift: float, colour: str, label: str) -> None:
    known = [(x + shift, e) for x, e in enumerate(found) if e is not None]
    below = [max(e.mean - e.low, 0.0) for _, e in known]
    above = [max(e.high - e.mean, 0.0) for _, e in known]
    bars: dict[str, Any] = {"color": colour, "width": 0.36, "label": label}
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
