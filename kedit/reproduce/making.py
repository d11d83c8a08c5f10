"""From a paper's table or figure to ours: run what is missing, read the figures, say why they differ."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kedit.backbone import Backbone
from kedit.bootstrap import Estimate
from kedit.editor import Editor
from kedit.errors import DataError
from kedit.matrix import Progress, matrix
from kedit.report.notes import Note
from kedit.report.results import Results
from kedit.reproduce.claims import verdict
from kedit.reproduce.costing import costs
from kedit.reproduce.job import Job
from kedit.reproduce.planning import Given
from kedit.reproduce.published import EFFICIENCY, Place
from kedit.reproduce.reading import Quantity, Reading
from kedit.reproduce.result import JUDGED, Reproduction
from kedit.reproduce.sources import judge_notes, sources
from kedit.run import Run
from kedit.scoring import FREE_TEXT


def reproduce(
    paper_name: str,
    what: str,
    backbone: Backbone,
    *,
    benchmarks: Given | Sequence[Given] = (),
    editors: Sequence[str] | Mapping[str, Editor] | None = None,
    out: str | Path | None = None,
    limit: int | None = None,
    train_limit: int | None = None,
    judge: str | None = None,
    published: str | None = None,
    seed: int = 0,
    max_new_tokens: int = 64,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Make a table or figure of a paper again on a backbone, and put its figures beside those in print.

    ``benchmarks`` are names or benchmarks (a stand-in that ships where none is given), ``editors`` some of its editors by short
    name, or editors by that name in place of those with the paper's settings. ``out`` holds the runs, which tables and figures
    of one paper share, and resumes: what is there is not asked again. ``limit`` counts raw cases, ``train_limit`` those
    that editors learn from. ``judge`` is the id of one that has judged the runs; ``published`` is the paper's model to stand
    beside (the backbone itself, one of its family, or a default). Raises UnknownNameError for a name, DataError for a benchmark
    that cannot be read, and StoreError where ``out`` holds other runs.
    """
    job = Job.of(paper_name, what, backbone, benchmarks, editors, published)
    folder = tempfile.TemporaryDirectory(prefix="kedit-") if out is None else None
    place = Path(folder.name if folder else str(out))
    asking: dict[str, Any] = {"seed": seed, "max_new_tokens": max_new_tokens, "progress": progress}
    if job.artefact.kind == EFFICIENCY:
        return costs(job, place, raw_cases=limit, **asking)
    asking |= {"limit": limit, "train_limit": train_limit, "cache_dir": cache_dir}
    runs: dict[str, Run] = {}
    skipped: dict[str, str] = {}
    for name in job.data.by_run:
        runs[name], lost = _run(job, name, place, folder, asking)
        skipped |= lost
    return _made(job, runs, skipped, judge)


def _run(job: Job, name: str, out: Path, keep: object, asking: Mapping[str, Any]) -> tuple[Run, dict[str, str]]:
    """One run in ``out``/<its name>, and which editors were left out why."""
    part = job.data.by_run[name]
    part.check()
    done = matrix(job.asked(name), job.backbone, {name: part}, out=out, train=job.data.train, **asking)
    if name not in done.runs:
        raise DataError(done.skipped[name])
    run = done.runs[name]
    return Run(run.path, run.config, keep), dict(done.skipped)


def _made(job: Job, runs: Mapping[str, Run], skipped: Mapping[str, str], judge: str | None) -> Reproduction:
    results = {name: Results(run) for name, run in runs.items()}
    readings = {name: _reading(job, name, one) for name, one in results.items()}
    _ordered(job, readings[job.artefact.run])
    judged = {} if judge is None else {name: _judged(job, name, run, judge) for name, run in runs.items()}
    cells = job.cells(lambda row, column: _read(job, readings, judged, row, column), judged=bool(judged))
    number = readings[job.artefact.run].number
    verdicts = tuple(verdict(claim, number) for claim in job.artefact.claims if claim.model in (None, job.model.name))
    notes = tuple(_notes(job, results, judged, skipped))
    return Reproduction(job.paper, job.artefact, job.model, tuple(cells), verdicts, notes, readings)


def _notes(job: Job, results: Mapping[str, Results], judged: Mapping[str, Reading], skipped: Mapping[str, str]) -> Iterator[Note]:
    yield from sources(job.paper, job.model, results, getattr(job.backbone, "batch_size", None))
    if any(column.judge for column in job.artefact.columns):
        ids = [reading.results.judged.id for reading in judged.values() if reading.results.judged is not None]
        yield from judge_notes(job.paper, ids[0] if ids else None)
    yield from (Note(why) for why in job.data.left_out.values())
    yield from (Note(f"{name} was left out: {why}", warning=True) for name, why in skipped.items())


def _ordered(job: Job, reading: Reading) -> None:
    """Raises DataError where a benchmark of one's own has its chains in other orders only."""
    found = [order for order in reading.results.orders(reading.task) if order is not None]
    if found and reading.order not in found:
        name = reading.run.config["identity"]["benchmark"]["name"]
        raise DataError(
            f"{job.artefact.number} needs chains in the order {reading.order}; those of {name} are {', '.join(found)}"
        )


def _reading(job: Job, run: str, results: Results) -> Reading:
    return Reading(results, job.paper.runs[run].task, job.artefact.order)


def _judged(job: Job, name: str, run: Run, judge: str) -> Reading:
    from kedit.judging import judge_scoring

    task = job.paper.runs[name].task
    if not any(dimension.scoring == FREE_TEXT for dimension in run.dimensions(task)):
        raise DataError(f"{job.artefact.number} has no answers in free text for a judge; leave out --judge")
    return _reading(job, name, Results(run, judge_scoring(run, judge, "score")))


def _read(job: Job, readings: Mapping[str, Reading], judged: Mapping[str, Reading], row: Place, column: Place) -> Estimate | None:
    reading = (judged if column.judge else readings)[row.run or job.artefact.run]
    found = reading.estimate(Quantity(row.value or str(column.value), str(row.editor), row.group or column.group))
    if found is None or not column.judge:
        return found
    return Estimate(found.mean / JUDGED, found.low / JUDGED, found.high / JUDGED, found.n)
