"""What all figures have in common: sizes of a printed column, colours that all can tell apart, axes, legends."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

from kedit.bootstrap import Estimate
from kedit.plots.fonts import noting, plain, set_families, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
SINGLE, DOUBLE, PAGE = 3.5, 7.1, 9.2
"""Inches: the width of one column and of two, and the most height that a page has."""
# Okabe and Ito's palette: told apart by all common kinds of colour vision. Markers and hatches tell the same in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++")
BASE, EDITED, INK, GRID, FAINT = "#3b4652", "#8fc1e3", "#1c2024", "#d9dde1", "#5f6872"
SHADES = "cividis"
"""A colour map that is even in lightness and the same for all common kinds of colour vision."""
TITLE, TEXT, SMALL = 9, 8, 7
"""Points."""
NO_VALUE = "no value"
"""What stands where a bar or a point is missing."""
NAME = 17
"""Characters of an editor's name in a line over a panel; longer ones are broken."""
ACROSS = 3
"""Panels side by side."""
_SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": TEXT,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlepad": 4,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # TrueType: text stays text, and publishers take it
    "ps.fonttype": 42,
    "svg.fonttype": "path",  # outlines: it looks the same where a font is missing
    "svg.hashsalt": "kedit",  # ids that do not change from run to run
}


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Matplotlib's defaults with kedit's over them, whatever the user's are; as before on leaving."""
    from matplotlib import style

    with style.context(["default", _SETTINGS]):
        yield


def drawing(make: Callable[P, Figure]) -> Callable[P, Figure]:
    """A function that gives a figure, made under kedit's settings and with fonts that have all of its characters."""

    @functools.wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with settings(), noting() as families:
            figure = make(*args, **kwargs)
            set_families(figure, families)
        return figure

    return made


def new(title: str, width: float, height: float) -> Figure:
    """An empty figure of a size in inches, its title over it."""
    from kedit.plots.shown import Shown

    figure = Shown(figsize=(width, min(height, PAGE)), layout="constrained", facecolor="white")
    figure.suptitle(wrapped(title, int(width * 13)), fontsize=TITLE, color=INK, fontweight="bold")
    return figure


def panels(
    names: Sequence[str],
    title: str,
    axis: str,
    height: float = 1.85,
    *,
    scale: bool = True,
    letters: int = NAME,
    most: int = ACROSS,
) -> tuple[Figure, list[Axes]]:
    """A panel per name, up to ``most`` side by side; ``scale`` gives all the axis 0 to 100.

    ``axis`` is the label on the left, ``letters`` the longest line of a name.
    """
    across = min(len(names), most)
    down = -(-len(names) // across)
    figure = new(title, SINGLE if across == 1 else DOUBLE, down * height + 0.75)
    grid: Any = figure.subplots(down, across, sharey=scale, squeeze=False)
    flat: list[Axes] = list(grid.flat)
    for ax in flat[len(names) :]:
        ax.remove()
    for index, (ax, name) in enumerate(zip(flat, names, strict=False)):
        ax.set_title(wrapped(name, letters if across > 1 else 2 * NAME), fontsize=TEXT, color=INK, loc="left")
        dress(ax)
        if scale:
            ax.set_ylim(0, 104)
            ax.set_yticks(range(0, 101, 25))
        if index % across == 0:
            label_axis(ax, axis)
    return figure, flat[: len(names)]


def spread(figure: Figure) -> None:
    """Room between panels for the numbers at the ends of their axes."""
    figure.get_layout_engine().set(w_pad=0.07, h_pad=0.05)  # type: ignore[union-attr,call-arg]


def label_axis(ax: Axes, text: str) -> None:
    """The label of the vertical axis; each of its lines as it is."""
    ax.set_ylabel("\n".join(map(plain, text.split("\n"))), fontsize=SMALL, color=INK)


def dress(ax: Axes, grid: str = "y") -> None:
    """Light lines to read values from, across (``y``) or up (``x``), and no box."""
    ax.grid(axis="y" if grid == "y" else "x", color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, labelsize=SMALL, length=0)
    for side, spine in ax.spines.items():
        spine.set_visible(side == ("bottom" if grid == "y" else "left"))


def say_n(ax: Axes, count: int, what: str, sign: str = "=") -> None:
    """How many there are, over the right end of a panel."""
    ax.set_title(f"n {sign} {count} {what}", fontsize=SMALL, color=FAINT, loc="right")


def one_legend(figure: Figure, axes: Sequence[Axes], title: str | None = None) -> None:
    """One legend under all panels, with as many columns as fit."""
    handles = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if not handles:
        return
    handles = dict(sorted(handles.items(), key=lambda pair: pair[0] == NO_VALUE))
    widest = max(len(line) for label in handles for line in label.split("\n"))
    fits = int(figure.get_figwidth() * 72 / (widest * 4.2 + 30))
    figure.legend(
        list(handles.values()),
        list(handles),
        title=title,
        loc="outside lower center",
        ncols=max(1, min(fits, len(handles))),
        frameon=False,
        fontsize=SMALL,
        title_fontsize=SMALL,
        handleheight=1.1,
    )


def ends(found: Sequence[Estimate]) -> list[list[float]]:
    """What intervals reach below and above their means, for error bars."""
    return [[max(e.mean - e.low, 0.0) for e in found], [max(e.high - e.mean, 0.0) for e in found]]
