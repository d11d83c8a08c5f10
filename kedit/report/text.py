"""Tables as text: for a terminal, for Markdown and for CSV."""

from __future__ import annotations

import csv
import io
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence

from kedit.bootstrap import Estimate
from kedit.report.escape import csv_cell, markdown_cell, visible
from kedit.report.results import Results
from kedit.report.tables import Cell, Column, Share, Table, tables
from kedit.run import Run
from kedit.scoring import Scoring

NOTHING = "–"
_WIDTH = 118


def cell_text(cell: Cell, column: Column) -> str:
    """A cell as every rendering shows it: one decimal, the interval in brackets, a dash for no value."""
    if cell is None:
        return NOTHING
    if isinstance(cell, Estimate):
        sign = "+" if column.kind in ("gain", "loss") else ""
        mean, low, high = (format(round(v, 1) + 0.0, f"{sign}.1f") for v in (cell.mean, cell.low, cell.high))  # + 0.0: no -0.0
        return f"{mean} [{low}, {high}]"
    return f"{cell.count} / {cell.of}" if isinstance(cell, Share) else str(cell)


def run_text(run: Run, judged: Scoring | None = None) -> str:
    """A run for a terminal: scores and measures in every order and retention, with notes; safe whatever names and texts hold.

    ``judged`` stands in for the scoring of free text.
    """
    results = Results(run, judged)
    shown = [table for table in tables(results) if table.kind != "groups"]
    parts = [_heading(run), *(table_text(table) for table in shown)]
    if len(shown) == 0:
        parts.append("no task was run")
    return "\n\n".join(parts)


def _heading(run: Run) -> str:
    identity = run.config["identity"]
    return visible(f"Run {run.path}: {identity['benchmark']['name']} on {identity['backbone']['id']}")


def table_text(table: Table) -> str:
    """A table for a terminal: title, scores, counts in a block of their own, measures in several to keep lines short, notes."""
    counts = [i for i, c in enumerate(table.columns) if c.kind == "count" and table.kind == "scores"]
    scores = [i for i in range(len(table.columns)) if i not in counts]
    blocks = list(_fitting(table)) if table.kind == "measures" else [scores, *([[0, *counts]] if counts else [])]
    lines = [visible(table.title)]
    for number, picked in enumerate(blocks):
        lines += [*([""] if number else []), *_aligned(table, picked)]
    return "\n".join([*lines, "", *_notes(table)])


def _fitting(table: Table) -> Iterator[list[int]]:
    """Columns in parts that fit a line, the first column in each."""
    widths = [
        max(map(_width, [visible(c.label), *(visible(cell_text(row[i], c)) for row in table.rows)]))
        for i, c in enumerate(table.columns)
    ]
    part = [0]
    for i in range(1, len(table.columns)):
        if len(part) > 1 and sum(widths[j] + 2 for j in [*part, i]) > _WIDTH:
            yield part
            part = [0]
        part.append(i)
    yield part


def _aligned(table: Table, picked: Sequence[int]) -> Iterator[str]:
    columns = [table.columns[i] for i in picked]
    heads = [visible(c.label) for c in columns]
    body = [[visible(cell_text(row[i], table.columns[i])) for i in picked] for row in table.rows]
    widths = [max(map(_width, cells)) for cells in zip(heads, *body, strict=True)]
    yield "  ".join(_padded(h, w, c) for h, w, c in zip(heads, widths, columns, strict=True)).rstrip()
    yield "  ".join("-" * w for w in widths)
    for row in body:
        yield "  ".join(_padded(t, w, c) for t, w, c in zip(row, widths, columns, strict=True)).rstrip()


def _padded(text: str, width: int, column: Column) -> str:
    blanks = " " * (width - _width(text))
    return text + blanks if column.kind == "name" else blanks + text


def _width(text: str) -> int:
    """Columns that a terminal gives a text: two for wide characters, none for combining ones."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _notes(table: Table) -> Iterator[str]:
    for note in table.notes:
        mark = "! " if note.warning else "  "
        yield textwrap.fill(visible(note.text), _WIDTH, initial_indent=mark, subsequent_indent="  ")


def markdown(table: Table) -> str:
    """A table in Markdown with its notes as a list."""
    heads = [markdown_cell(c.label) for c in table.columns]
    rules = [":--" if c.kind == "name" else "--:" for c in table.columns]
    body = [[markdown_cell(cell_text(v, c)) for v, c in zip(row, table.columns, strict=True)] for row in table.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, rules, *body)]
    notes = [f"- {'**Caution:** ' if note.warning else ''}{markdown_cell(note.text)}" for note in table.notes]
    return "\n".join([f"## {markdown_cell(table.title)}", "", *lines, "", *notes, ""])


def csv_text(table: Table) -> str:
    """A table as CSV: estimates as three columns (mean, ``_low``, ``_high``), shares as two, numbers in full, no notes."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([csv_cell(name) for column in table.columns for name in _names(column)])
    for row in table.rows:
        writer.writerow([v for cell, c in zip(row, table.columns, strict=True) for v in _plain(cell, len(_names(c)))])
    return file.getvalue()


def _names(column: Column) -> list[str]:
    if column.kind in ("name", "count"):
        return [column.key]
    endings = ("", "_of") if column.kind == "share" else ("", "_low", "_high")
    return [column.key + ending for ending in endings]


def _plain(cell: Cell, width: int) -> list[str | int | float]:
    """The cell's values; numbers stay numbers, so that only text is guarded against being a formula."""
    if cell is None:
        return [""] * width
    if isinstance(cell, Estimate):
        return [cell.mean, cell.low, cell.high]
    if isinstance(cell, Share):
        return [cell.count, cell.of]
    return [csv_cell(cell) if isinstance(cell, str) else cell]
