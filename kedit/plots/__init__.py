"""Figures of a run that can be printed, through Matplotlib's object interface: no window, no global state.

Sizes are those of one or two columns, colours are told apart by all common kinds of colour vision and doubled by markers or
hatches, and every text is set in a font that has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kedit.plots.bars import bars_plot, dimension_plot, reliability_plot
from kedit.plots.curves import curve_plot, retention_plot, retention_plots
from kedit.plots.fonts import MissingFontWarning
from kedit.plots.forest import forest_plot
from kedit.plots.heat import headline_heatmap, retention_heatmap
from kedit.plots.outcomes import joint_plot, router_plot
from kedit.plots.parts import drawn
from kedit.plots.saving import FORMATS, save_plot
from kedit.report.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FORMATS",
    "MissingFontWarning",
    "bars_plot",
    "curve_plot",
    "dimension_plot",
    "forest_plot",
    "headline_heatmap",
    "joint_plot",
    "reliability_plot",
    "retention_heatmap",
    "retention_plot",
    "retention_plots",
    "router_plot",
    "run_plots",
    "save_plot",
]


def run_plots(results: Results) -> Iterator[tuple[str, str, Figure]]:
    """Every plot that a report shows, with a key for its file and a title: retention in each order, then bars by group."""
    for task in results.run.tasks:
        if results.has_retention(task):
            for order in results.orders(task):
                yield from retention_plots(results, task, order)
        yield from group_plots(results, task)


def group_plots(results: Results, task: str) -> Iterator[tuple[str, str, Figure]]:
    """Bars of a task by each tag that it is broken down by."""
    for tag, heading in results.run.groups(task).items():
        if results.has_tag(task, tag):
            what = f"{drawn(results, task)} in {task} by {heading}"
            yield f"{task}_{tag}", what, reliability_plot(results, tag, task=task)
