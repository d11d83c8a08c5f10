"""A table or a figure made again: our figures beside those in print, and why they may differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.artefacts import write_bytes, write_json
from kedit.bootstrap import Estimate
from kedit.plots import save_plot
from kedit.report.notes import Note
from kedit.report.tables import Column, Table, retention_tables
from kedit.report.text import csv_text, markdown, table_text
from kedit.reproduce.claims import Verdict
from kedit.reproduce.drawing import figures
from kedit.reproduce.published import RETENTION, Artefact, Model, Paper
from kedit.reproduce.reading import Reading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

JUDGED = 10
"""Points of our scale of 0 to 100 to one of a judge's of 0 to 10."""
_FEWEST = 3
"""Rows whose order says something."""


@dataclass(frozen=True)
class Cell:
    """One figure: ours, the paper's as it must be meant, and as it is printed."""

    row: str
    column: str
    ours: Estimate | None
    paper: float | None
    printed: float | None

    @property
    def difference(self) -> Estimate | None:
        """Ours minus the paper's, with the interval of ours; the paper's own sampling is not known."""
        if self.ours is None or self.paper is None:
            return None
        return Estimate(self.ours.mean - self.paper, self.ours.low - self.paper, self.ours.high - self.paper, self.ours.n)

    @property
    def inside(self) -> bool | None:
        """Whether the paper's figure is in our interval; None where one of them is missing."""
        found = self.difference
        return None if found is None else found.low <= 0 <= found.high


@dataclass(frozen=True)
class Reproduction:
    """What ``reproduce`` made: shows itself as a table with notes, and is written to files by ``write``.

    ``model`` is the paper's model whose figures stand beside ours, ``readings`` are those of the runs by name.
    """

    paper: Paper
    artefact: Artefact
    model: Model
    cells: tuple[Cell, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[Note, ...]
    readings: Mapping[str, Reading]

    @cached_property
    def table(self) -> Table:
        """A row for each figure."""
        columns = (
            Column("row", "Row", "name"),
            Column("figure", "Figure", "name"),
            Column("ours", "This run", "estimate"),
            Column("paper", "Paper", "count"),
            Column("difference", "Difference", "gain"),
        )
        rows = tuple((c.row, c.column, c.ours, None if c.paper is None else f"{c.paper:g}", c.difference) for c in self.cells)
        title = f"{self.paper.name}, {self.artefact.number}: {self.artefact.title}; the paper's {self.model.name}"
        return Table(self.artefact.key, title, "measures", columns, rows, tuple(self._notes()))

    @property
    def tables(self) -> list[Table]:
        """The table, and the matrices that a figure of retention draws."""
        if self.artefact.kind != RETENTION:
            return [self.table]
        reading = self.readings[self.artefact.run]
        return [self.table, *retention_tables(reading.results, reading.task, reading.order)]

    def _notes(self) -> Iterator[Note]:
        yield Note("This run and Difference (this run minus paper) with 95 % bootstrap intervals over cases of this run.")
        known = [cell.inside for cell in self.cells if cell.inside is not None]
        if known:
            yield Note(f"The paper's figure is inside this run's interval in {sum(known)} of {len(known)} figures.")
        for text in (self.artefact.said, self.artefact.unreadable):
            yield from [Note(text)] if text else []
        yield from [Note(agreed)] if (agreed := agreement(self.cells)) else []
        for verdict in self.verdicts:
            yield Note(f"Shape: {verdict}.", warning=verdict.holds is False)
        for erratum in self.artefact.errata:
            used = " Differences are from the corrected figures." if erratum.corrections else ""
            yield Note(f"Erratum: {erratum.text}{used}")
        yield from self.notes

    def figures(self) -> list[tuple[str, Figure]]:
        """Names and figures, drawn as the paper's; none for a table."""
        return list(figures(self.artefact, self.model, self.readings, self.cells))

    def write(self, folder: str | Path) -> list[Path]:
        """Write ``<key>.md``, ``.csv``, ``.json`` and the figures as PNG and SVG to a folder, and return what was written."""
        stem = Path(folder) / self.artefact.key
        text = "\n".join(markdown(table) for table in self.tables)
        write_bytes(stem.with_suffix(".md"), text.encode())
        write_bytes(stem.with_suffix(".csv"), csv_text(self.table).encode())
        write_json(stem.with_suffix(".json"), self._json())
        drawn = [path for name, figure in self.figures() for path in save_plot(figure, stem.with_name(name))]
        return [*(stem.with_suffix(f".{ending}") for ending in ("md", "csv", "json")), *drawn]

    def _json(self) -> dict[str, Any]:
        cells = [{**asdict(cell), "difference": asdict(d) if (d := cell.difference) else None} for cell in self.cells]
        claims = [{"claim": v.claim.text, "holds": v.holds, "figures": v.shown} for v in self.verdicts]
        notes = [asdict(note) for note in self.table.notes]
        runs = {name: str(reading.run.path) for name, reading in self.readings.items()}
        about = {
            "paper": self.paper.title,
            "source": self.paper.source,
            "artefact": self.artefact.number,
            "model": self.model.name,
        }
        found: dict[str, Any] = json.loads(json.dumps({**about, "runs": runs, "cells": cells, "claims": claims, "notes": notes}))
        return found

    def __repr__(self) -> str:
        return "\n\n".join(table_text(table) for table in self.tables)


def agreement(cells: Sequence[Cell]) -> str:
    """By column, how many pairs of rows are in the paper's order: what may hold where no figure is the same."""
    columns: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        if cell.ours is not None and cell.paper is not None:
            columns.setdefault(cell.column, []).append((cell.ours.mean, cell.paper))
    told = []
    for column, values in columns.items():
        pairs = [(a, b) for a, b in combinations(values, 2) if a[1] != b[1]]
        if len(values) >= _FEWEST:
            same = sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs)
            told.append(f"{column} {same} of {len(pairs)}")
    return f"Pairs of rows in the paper's order: {'; '.join(told)}." if told else ""
