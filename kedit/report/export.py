"""Writing a report beside its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kedit.artefacts import write_bytes
from kedit.errors import StoreError
from kedit.report.browser import browser_data
from kedit.report.escape import html_text, markdown_cell
from kedit.report.formats import check_formats, write_formats
from kedit.report.names import safe_name
from kedit.report.page import Figure, page
from kedit.report.results import Results
from kedit.report.tables import Table, tables
from kedit.report.text import csv_text, markdown
from kedit.run import Run
from kedit.scoring import Scoring

__all__ = ["Report", "report", "safe_name"]


@dataclass(frozen=True)
class Report:
    """Where a report was written: its folder, the page, the Markdown file, a CSV file per table, PNG and SVG of each plot."""

    folder: Path
    page: Path
    markdown: Path
    tables: tuple[Path, ...]
    plots: tuple[Path, ...]
    more: tuple[Path, ...] = ()
    """What was asked for besides: LaTeX tables, records as Parquet."""

    def _repr_html_(self) -> str:
        return f"Report in <code>{html_text(str(self.folder))}</code>; open <code>{html_text(str(self.page))}</code>"


def report(run: Run, out: str | Path | None = None, *, judged: Scoring | None = None, formats: Sequence[str] = ()) -> Report:
    """Write a run's tables, curves and page to a folder, by default ``report`` in the run's own, and return the paths.

    ``judged`` stands in for the scoring of free text, such as ``kedit.judging.judge_scoring``; the folder is then named after it.
    ``formats`` are further ones: "latex" (a file per table) and "parquet" (the records with their scores). Files are replaced
    one by one, each whole. Raises StoreError where the folder cannot be written, UnknownNameError for a format and
    MissingPackageError where one needs a package that is not installed, both before anything is written. No model is needed.
    """
    check_formats(formats)
    name = "report" if judged is None else f"report-{safe_name(judged.id)}"
    folder = run.path / name if out is None else Path(out)
    results = Results(run, judged)
    found = tables(results)
    try:
        figures = _plots(results, folder / "plots")
        files = tuple(_write(folder / "tables" / f"{safe_name(table.key)}.csv", csv_text(table)) for table in found)
        text = _write(folder / "report.md", _markdown(run, found))
        more = tuple(write_formats(results, found, folder, formats))
        html = _write(folder / "index.html", page(results, found, figures, browser_data(results)))
    except OSError as error:
        raise StoreError(f"cannot write the report in {folder}: {error.strerror or error}; give another folder as out") from error
    return Report(folder, html, text, files, tuple(path for figure in figures for path in (figure.png, figure.svg)), more)


def _plots(results: Results, folder: Path) -> list[Figure]:
    from kedit.plots import run_plots, save_plot

    figures = []
    for key, title, figure in run_plots(results):
        png, svg = save_plot(figure, folder / safe_name(key))
        figures.append(Figure(title, png, svg))
    return figures


def _markdown(run: Run, found: list[Table]) -> str:
    return "\n".join([f"# Report of {markdown_cell(str(run.path))}", "", *(markdown(table) for table in found)])


def _write(path: Path, text: str) -> Path:
    write_bytes(path, text.encode())
    return path
