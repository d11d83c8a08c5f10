"""What a run's chains leave of each item, for a notebook, a table or a figure: matrix, forgetting, transfer and curves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kedit.artefacts import write_bytes
from kedit.bootstrap import Array, Estimate
from kedit.errors import DataError, StoreError, unknown_name
from kedit.forgetting import By, Point
from kedit.forgetting import Retention as Matrix
from kedit.plots import curve_plot, retention_plot, retention_plots, save_plot
from kedit.protocols import RELIABILITY
from kedit.report.export import safe_name
from kedit.report.html import shown_html
from kedit.report.results import Results
from kedit.report.tables import Table, retention_tables
from kedit.report.text import csv_text, table_text
from kedit.run import Run
from kedit.scoring import Scoring

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Retained:
    """The chains of one task of a run in one order; made by ``retention``. Where one editor edits, ``editor`` may be left out."""

    def __init__(self, results: Results, task: str, order: str | None) -> None:
        self.results = results
        self.task = task
        self.order = order

    @property
    def editors(self) -> list[str]:
        """The editors that do something; the one that does nothing where it is the only one."""
        return self.results.edited

    @cached_property
    def matrices(self) -> Mapping[str, Matrix]:
        """By editor: the matrix with its intervals, and what was lost of each step (see ``kedit.forgetting.Retention``)."""
        return {name: self.results.retention(name, self.task, self.order) for name in self.editors}

    def of(self, editor: str | None = None) -> Matrix:
        """One editor's; raises DataError where several edit and none is named, UnknownNameError for another name."""
        if editor is None and len(self.editors) > 1:
            raise DataError(f"{len(self.editors)} editors edit in this run; name one of {', '.join(self.editors)}")
        name = editor if editor is not None else self.editors[0]
        if name not in self.matrices:
            raise unknown_name("editor of these chains", name, self.editors)
        return self.matrices[name]

    def matrix(self, editor: str | None = None) -> Array:
        """R[t][i] as numbers, (times asked, items asked about): rows are ``of(editor).asked``, columns its ``steps``."""
        return self.of(editor).means()

    @property
    def forgetting(self) -> dict[str, Estimate | None]:
        """By editor, mean over items: first reliability once inserted minus that after the whole chain; positive is lost."""
        return {name: found.mean_forgetting for name, found in self.matrices.items()}

    @property
    def backward_transfer(self) -> dict[str, Estimate | None]:
        """By editor: mean over items of R[T][i] - R[i][i], the negative of ``forgetting``."""
        return {name: found.backward_transfer for name, found in self.matrices.items()}

    @property
    def forward_effect(self) -> dict[str, Estimate | None]:
        """By editor: mean of R[i - 1][i] minus the unedited model's; None where items were not asked before their insert."""
        return {name: found.forward_effect for name, found in self.matrices.items()}

    def curve(self, by: By = "size", editor: str | None = None, dimension: str = RELIABILITY) -> tuple[Point, ...]:
        """How inserted items fare by memory size or by gap (see ``kedit.forgetting.curve``)."""
        self.of(editor)
        return self.results.curve(editor or self.editors[0], self.task, self.order, by, dimension)

    def to_frame(self) -> Any:
        """A DataFrame with a row per question: editor, chain, dimension, partition, step, asked_at, gap, score.

        ``gap`` is negative for what was asked before its own insert; ``score`` is NaN where unscored. Rows of the editor that
        does nothing are there too. Needs pandas.
        """
        import pandas

        score = self.results.scorer(self.task)
        rows = [
            {
                "editor": name,
                "chain": record.case,
                "dimension": record.dimension,
                "language": record.language,
                "step": record.step,
                "asked_at": record.asked_at,
                "gap": record.asked_at - record.step,
                "score": score(record).value,
            }
            for name in self.results.editors
            for record in self.results.records(name, self.task, self.order)
        ]
        return pandas.DataFrame(rows).astype({"score": "float64"})

    def tables(self) -> list[Table]:
        """The matrix where chains are short or all was asked; of long ones, curves by size and by gap, and transfer."""
        return list(retention_tables(self.results, self.task, self.order))

    def plot(self, by: Literal["step"] | By | None = None) -> Figure:
        """A line per item ("step"), or each dimension by memory size ("size") or further inserts ("gap").

        Left out: what fits the length of the chains, as in a report.
        """
        if by is None:
            return next(figure for _, _, figure in retention_plots(self.results, self.task, self.order))
        if by == "step":
            return retention_plot(self.results, self.order, task=self.task)
        return curve_plot(self.results, by, self.order, task=self.task)

    def write(self, out: str | Path | None = None) -> list[Path]:
        """Write every table as CSV and every figure as PNG and SVG, by default to ``retention`` in the run's folder."""
        folder = self.results.run.path / "retention" if out is None else Path(out)
        written: list[Path] = []
        try:
            for table in self.tables():
                written.append(folder / f"{safe_name(table.key)}.csv")
                write_bytes(written[-1], csv_text(table).encode())
            for key, _, figure in retention_plots(self.results, self.task, self.order):
                written += save_plot(figure, folder / safe_name(key))
        except OSError as error:
            raise StoreError(f"cannot write to {folder}: {error.strerror or error}; give another folder as out") from error
        return written

    def __repr__(self) -> str:
        return "\n\n".join(table_text(table) for table in self.tables())

    def _repr_html_(self) -> str:
        return "".join(map(shown_html, self.tables()))


def retention(run: Run, *, task: str | None = None, order: str | None = None, judged: Scoring | None = None) -> Retained:
    """What the chains of a run leave of each item, from its records alone.

    ``task`` defaults to the first that asked reliability before its chains were complete, ``order`` to the original one;
    ``judged`` stands in for the scoring of free text, such as ``kedit.judging.judge_scoring``. Raises UnknownNameError for a
    task or order that the run does not have, DataError where no task asked on the way.
    """
    results = Results(run, judged)
    found = [name for name in run.tasks if results.has_retention(name)]
    if task is not None and task not in run.tasks:
        raise unknown_name("task of the run", task, run.tasks)
    if not found or (task is not None and task not in found):
        raise DataError(f"{run.path}: {task or 'no task'} asked no reliability before its chains were complete")
    name = task or found[0]
    orders = results.orders(name)
    if order is not None and order not in orders:
        raise unknown_name("order of the chains", order, [one for one in orders if one is not None])
    return Retained(results, name, order or orders[0])
