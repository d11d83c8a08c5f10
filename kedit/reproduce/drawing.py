"""Figures in the paper's manner, by the plots that reports have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kedit.bootstrap import Estimate
from kedit.plots import bars_plot, reliability_plot, retention_plot
from kedit.reproduce.published import BARS, GROUPS, RETENTION, Artefact, Model
from kedit.reproduce.reading import Reading

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawn(Protocol):
    """A figure of ours with the paper's beside it."""

    @property
    def row(self) -> str: ...
    @property
    def ours(self) -> Estimate | None: ...
    @property
    def paper(self) -> float | None: ...


def figures(
    artefact: Artefact, model: Model, readings: Mapping[str, Reading], cells: Sequence[Drawn]
) -> Iterator[tuple[str, Figure]]:
    """File names and figures: panels of curves or of bars by group, or bars beside the paper's; nothing for a table."""
    if artefact.kind == RETENTION:
        reading = readings[artefact.run]
        yield artefact.key, retention_plot(reading.results, reading.order, task=reading.task)
    elif artefact.kind == GROUPS:
        reading = readings[artefact.run]
        for tag in artefact.tags:
            if reading.results.has_tag(reading.task, tag):
                yield f"{artefact.key}-{tag}", reliability_plot(reading.results, tag, task=reading.task)
    elif artefact.kind == BARS:
        own = str(readings[artefact.run].run.config["identity"]["backbone"]["id"])
        series: dict[str, list[Estimate | None]] = {
            f"this run: {own}": [cell.ours for cell in cells],
            f"paper: {model.name}": [None if c.paper is None else Estimate(c.paper, c.paper, c.paper, 0) for c in cells],
        }
        axis = f"{artefact.columns[0].label} (0 to 100)"
        yield artefact.key, bars_plot(f"{artefact.number}: {artefact.title}", axis, [cell.row for cell in cells], series)
