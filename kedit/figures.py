"""Every figure of a run or of a matrix as files that a paper can print."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kedit.artefacts import read_json
from kedit.bootstrap import Estimate
from kedit.comparison import compare
from kedit.errors import DataError, StoreError, unknown_name
from kedit.plots import (
    FORMATS,
    dimension_plot,
    forest_plot,
    group_plots,
    headline_heatmap,
    joint_plot,
    retention_heatmap,
    retention_plots,
    router_plot,
    save_plot,
)
from kedit.plots.curves import has_matrix
from kedit.plots.outcomes import has_joint, routers
from kedit.report.names import safe_name
from kedit.report.results import Results
from kedit.run import Run
from kedit.scoring import Scoring

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Named: TypeAlias = "Iterator[tuple[str, Figure]]"
MATRIX = "matrix.json"


def _dimensions(results: Results) -> Named:
    for task in results.run.tasks:
        yield f"{task}_dimensions", dimension_plot(results, task)


def _groups(results: Results) -> Named:
    for task in results.run.tasks:
        for key, _, figure in group_plots(results, task):
            yield key, figure


def _chains(results: Results) -> Iterator[tuple[str, str | None]]:
    for task in results.run.tasks:
        if results.has_retention(task):
            yield from ((task, order) for order in results.orders(task))


def _retention(results: Results) -> Named:
    for task, order in _chains(results):
        for key, _, figure in retention_plots(results, task, order):
            yield key, figure


def _retention_matrix(results: Results) -> Named:
    for task, order in _chains(results):
        if has_matrix(results, task, order):
            yield f"{task}_retention_matrix_{order}", retention_heatmap(results, order, task=task)


def _joint(results: Results) -> Named:
    for task in results.run.tasks:
        if has_joint(results, task):
            yield f"{task}_joint", joint_plot(results, task)


def _router(results: Results) -> Named:
    for task in results.run.tasks:
        if routers(results, task):
            yield f"{task}_router", router_plot(results, task)


def _comparison(results: Results) -> Named:
    """Each editor against the one that does nothing, or all pairs without it; nothing where one editor is alone."""
    if len(results.editors) < 2:
        return
    found = compare(results.run, against=results.base, scorer=_scorer(results))
    for task in results.run.tasks:
        yield f"{task}_comparison", forest_plot(found, task)


def _scorer(results: Results) -> Any:
    """A judge's scorer under the judge's name; None, each dimension's own way, without one."""
    if results.judged is None:
        return None
    judged = results.judged

    def scorer(record: Any) -> Any:
        return judged.scorer(record)

    scorer.__name__ = judged.id
    return scorer


KINDS: Mapping[str, Callable[[Results], Named]] = {
    "dimensions": _dimensions,
    "groups": _groups,
    "retention": _retention,
    "retention-matrix": _retention_matrix,
    "joint": _joint,
    "router": _router,
    "comparison": _comparison,
}
"""Kinds of figures of a run."""
HEADLINES = "matrix"
"""The one kind of figure of a matrix."""


def figures(run: Run | Results, only: Collection[str] | None = None, *, judged: Scoring | None = None) -> Named:
    """Every figure that a run has, with a key for its file; ``only`` names kinds (see ``KINDS``).

    ``judged`` stands in for the scoring of free text, such as ``kedit.judging.judge_scoring``. Raises UnknownNameError for
    another kind.
    """
    for kind in only or ():
        if kind not in KINDS:
            hint = f"{HEADLINES!r} is drawn of the folder of a matrix." if kind == HEADLINES else ""
            raise unknown_name("kind of figure of a run", kind, KINDS, hint)
    results = run if isinstance(run, Results) else Results(run, judged)
    for kind, draw in KINDS.items() if results.editors else ():
        if only is None or kind in only:
            yield from draw(results)


def matrix_figure(folder: str | Path) -> Figure:
    """Editors by benchmarks of a matrix that was written to a folder (its ``matrix.json``); raises DataError as that is read."""
    file = Path(folder) / MATRIX
    found = read_json(file)
    try:
        columns = [f"{part['benchmark']} {part['task']}: {part['headline']}" for part in found["columns"]]
        rows = {name: [None if e is None else Estimate(**e) for e in row] for name, row in found["rows"].items()}
        return headline_heatmap(f"Headlines on {found['backbone']}", columns, rows)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file} is not as a matrix writes it: {error!r}; write it anew with kedit matrix") from error


def write_figures(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    formats: Collection[str] = FORMATS,
    only: Collection[str] | None = None,
    judge: str | None = None,
) -> list[Path]:
    """Write the figures of a run, or of the folder of a matrix, and return the paths; by default to its ``figures``.

    ``formats`` are of ``kedit.plots.FORMATS``, ``only`` names kinds, ``judge`` a judge that has judged the run. The same run
    gives the same bytes. Raises UnknownNameError for a format, kind or judge, StoreError for a folder that is neither or cannot
    be written to, DataError where the run has no figure of the kinds named.
    """
    for wanted in formats:
        if wanted not in FORMATS:
            raise unknown_name("format of figures", wanted, FORMATS)
    place, written = Path(folder) / "figures" if out is None else Path(out), list[Path]()
    for key, figure in _found(Path(folder), only, judge):
        try:
            written += save_plot(figure, place / safe_name(key), tuple(formats))
        except OSError as error:
            raise StoreError(f"cannot write to {place}: {error.strerror or error}; give another folder as out") from error
    if not written:
        raise DataError(f"{folder} has no figure of {', '.join(only or KINDS)}; its answers do not hold what they show")
    return written


def _found(folder: Path, only: Collection[str] | None, judge: str | None) -> Named:
    if (folder / MATRIX).exists():
        for kind in only or ():
            if kind != HEADLINES:
                raise unknown_name("kind of figure of a matrix", kind, [HEADLINES], f"Others are drawn of a run inside {folder}.")
        if judge is not None:
            raise DataError(f"{folder} is a matrix, which no judge scores; give one of its runs, {folder}/<benchmark>")
        yield HEADLINES, matrix_figure(folder)
        return
    run = Run.load(folder)
    judged = None
    if judge is not None:
        from kedit.judging import judge_scoring

        judged = judge_scoring(run, judge)
    yield from figures(run, only, judged=judged)
