"""Tables as HTML: whole for the page, compact for a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kedit.bootstrap import Estimate
from kedit.report.escape import html_text
from kedit.report.results import Results
from kedit.report.tables import Cell, Column, Table, tables
from kedit.report.text import NOTHING, cell_text
from kedit.run import Run


def table_html(table: Table, picked: Sequence[int] | None = None) -> str:
    """A table element; ``picked`` are indexes of columns, by default all. Everything in it is escaped."""
    columns = range(len(table.columns)) if picked is None else picked
    heads = "".join(f'<th scope="col" class="{table.columns[i].kind}">{html_text(table.columns[i].label)}</th>' for i in columns)
    body = "".join(f"<tr>{''.join(_cell(row[i], table.columns[i]) for i in columns)}</tr>\n" for row in table.rows)
    return f"<table><thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table>"


def _cell(cell: Cell, column: Column) -> str:
    if column.kind == "name":
        return f'<th scope="row">{html_text(cell_text(cell, column))}</th>'
    return f'<td class="{_classes(cell, column)}">{_inner(cell, column)}</td>'


def _classes(cell: Cell, column: Column) -> str:
    if cell is None or (column.kind == "count" and cell == 0):
        return f"{column.kind} none"
    if column.kind in ("gain", "loss") and isinstance(cell, Estimate) and (cell.low > 0 or cell.high < 0):
        return f"{column.kind} {'good' if (cell.low > 0) == (column.kind == 'gain') else 'bad'}"
    return column.kind


def _inner(cell: Cell, column: Column) -> str:
    text = html_text(cell_text(cell, column))
    mean, bracket, interval = text.partition(" [")
    return f'{mean} <span class="interval">[{interval}</span>' if bracket else text


def notes_html(table: Table) -> str:
    """The notes under a table, warnings marked."""
    items = (f'<li class="{"warning" if note.warning else "plain"}">{html_text(note.text)}</li>' for note in table.notes)
    return f'<ul class="notes">{"".join(items)}</ul>' if table.notes else ""


def shown_html(table: Table) -> str:
    """A table with its notes, as a notebook shows what is a table."""
    return f'<div class="kedit">{table_html(table)}{notes_html(table)}</div>'


def run_html(run: Run) -> str:
    """A run for a notebook: each task's scores and measures in every order, counts where there is one, warnings; no script."""
    shown = [table for table in tables(Results(run)) if table.kind in ("scores", "measures")]
    return f'<div class="kedit">{_STYLE}{"".join(_compact(table) for table in shown)}</div>'


def _compact(table: Table) -> str:
    picked = [i for i, column in enumerate(table.columns) if column.kind != "count" or any(row[i] for row in table.rows)]
    lines = "".join(f'<p class="{"warning" if warns else ""}">{html_text(text)}</p>' for text, warns in _few(table))
    return f"<p><b>{html_text(table.title)}</b></p>{table_html(table, picked)}{lines}"


def _few(table: Table) -> Iterator[tuple[str, bool]]:
    """The note on the scale, and the warnings."""
    for index, note in enumerate(table.notes):
        if index == 0 or note.warning:
            yield note.text, note.warning
    if not table.rows:
        yield NOTHING, False


_STYLE = (
    "<style>.kedit table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    ".kedit th,.kedit td{padding:.25em .7em;text-align:right}.kedit tbody th{text-align:left}"
    ".kedit .interval,.kedit .none{opacity:.6}.kedit p{margin:.4em 0;font-size:.9em}.kedit .warning{font-weight:600}</style>"
)
