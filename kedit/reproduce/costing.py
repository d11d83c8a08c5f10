"""A table of what editors cost, beside the paper's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kedit.bootstrap import Estimate
from kedit.matrix import Progress
from kedit.report.notes import Note
from kedit.reproduce.efficiency import Costs, accelerator, measure_all
from kedit.reproduce.job import Job
from kedit.reproduce.published import Place
from kedit.reproduce.result import Reproduction
from kedit.reproduce.sources import backbone_notes, data_notes


def costs(job: Job, out: Path, *, raw_cases: int | None, progress: Progress | None, **asking: Any) -> Reproduction:
    """Measure each editor once, and put its costs beside the paper's; ``raw_cases`` in place of the paper's number of them."""
    run = job.artefact.run
    part, task = job.data.by_run[run], job.paper.runs[run].task
    part.check()
    shown = {str(row.editor) for row in job.artefact.rows}
    found = measure_all(
        {name: editor for name, editor in job.asked(run).items() if name in shown},
        job.backbone,
        part,
        task,
        train=job.data.train,
        raw_cases=raw_cases or job.artefact.raw_cases or 1,
        out=out,
        progress=None if progress is None else lambda name, done, total: progress(part.name, name, task, done, total),
        **asking,
    )

    def read(row: Place, column: Place) -> Estimate | None:
        return found[str(row.editor)].estimate(str(column.value)) if row.editor in found else None

    return Reproduction(job.paper, job.artefact, job.model, tuple(job.cells(read)), (), tuple(_notes(job, found)), {})


def _letters(name: str) -> str:
    """Without blanks and hyphens, which papers and drivers set as they like: "A100-SXM4 80GB" is "A100-SXM4-80GB"."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _notes(job: Job, found: Mapping[str, Costs]) -> Iterator[Note]:
    where = accelerator(job.backbone) or "a CPU"
    if _letters(job.artefact.hardware) not in _letters(where):
        yield Note(f"Other hardware: {where} instead of one {job.artefact.hardware}.", warning=True)
    dtype, device = str(job.backbone.dtype).removeprefix("torch."), str(job.backbone.device).split(":")[0]
    yield from backbone_notes(job.model, {"id": job.backbone.id, "dtype": dtype, "device": device})
    spec = job.paper.runs[job.artefact.run]
    yield from data_notes(job.paper.benchmarks[spec.benchmark], job.data.by_run[spec.name].name)
    inserts = [len(one.insert_ms) for one in found.values()]
    n = " to ".join(map(str, dict.fromkeys((min(inserts, default=0), max(inserts, default=0)))))
    yield Note(f"n = {n} inserts of each editor; questions one at a time, without caches.")
    yield Note("What is measured once has no interval: training, memory, parameters.")
    if all(one.eval_gib is None for one in found.values()):
        yield Note("Memory is that of an accelerator, and none is in use here.")
    yield Note("Parameters are all that are loaded, hypernetworks included, which the paper's column seems to leave out.")
    for name, one in found.items():
        if one.failures:
            yield Note(f"{name} failed in {one.failures} cases, which are not in its times.", warning=True)
