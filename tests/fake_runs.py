"""Run folders made without a model, through the store's own functions."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fakes import SEQUENTIAL, SINGLE, WORDS, FakeBenchmark
from PIL import Image

from kedit.casebook import Casebook
from kedit.flags import flags_of
from kedit.run import Run
from kedit.store import RunStore
from kedit.types import Answer, Case, ImageRef, Record

EDITORS: dict[str, float | None] = {"keeper": 0.85, "unedited": None, "forgetter": 0.75}
"""Probability that a word of the reference is kept; None does nothing. The one that does nothing is not the first."""


def picture(seed: int, size: tuple[int, int] = (500, 300)) -> ImageRef:
    """A plain picture whose colour the seed decides."""
    file = io.BytesIO()
    Image.new("RGB", size, (seed * 37 % 256, seed * 91 % 256, 160)).save(file, "PNG")
    return ImageRef(data=file.getvalue())


def config(editors: Mapping[str, float | None], size: int, **identity: Any) -> dict[str, Any]:
    """A ``run.json`` of the fake benchmark."""
    tasks = {}
    for name, dimensions, per_raw, order in (("single", SINGLE, 1, None), ("sequential", SEQUENTIAL, 2, "en-zh-ar")):
        rows = [{"name": d.name, "label": d.label, "locality": d.locality} for d in dimensions]
        tasks[name] = {"protocol": "tests", "dimensions": rows, "cases": per_raw * size, "order": order}
    found = {
        name: {"class": f"tests.runs.{name.title()}", "params": {"steps": 20, "lr": 1e-3}, "does_nothing": keep is None}
        for name, keep in editors.items()
    }
    backbone = {"id": "fake-vl", "revision": "1", "fingerprint": "f" * 64, "dtype": "float32", "device": "cpu"}
    benchmark = {"name": "fake-bench", "revision": "r" * 64, "limit": None}
    decoding = {"strategy": "greedy", "max_new_tokens": 64, "plain": False}
    standard = {"format": 1, "editors": found, "backbone": backbone, "benchmark": benchmark, "tasks": tasks, "decoding": decoding}
    full = {**standard, "seed": 0, "packages": {"torch": "2", "transformers": "5"}, **identity}
    return {"identity": full, "environment": {"started": "2026-01-01T00:00:00+00:00", "packages": {"kedit": "0.1.0"}}}


def make_run(folder: Path, *, size: int = 6, editors: Mapping[str, float | None] = EDITORS, **identity: Any) -> Run:
    """A finished run of the fake benchmark: each editor copies the reference with its own care, the base says something else."""
    benchmark = FakeBenchmark(size, images={n: picture(n) for n in range(size)})
    with RunStore.open(folder, config(editors, size, **identity)) as store:
        book = Casebook(folder)
        for task in benchmark.tasks:
            for case in benchmark.cases(task):
                book.add(task, case)
                for name, keep in editors.items():
                    store.append(name, _records(task, case, keep))
    return Run.load(folder)


def _records(task: str, case: Case, keep: float | None) -> list[Record]:
    length = len(case.chain)
    found = []
    for after in range(1, length + 1):
        for index, probe in enumerate(case.probes):
            if after == length or probe.dimension == "reliability":
                found.append(record(task, case, index, after, *_texts(case, index, keep, after)))
    return found


def record(task: str, case: Case, index: int, after: int, output: str, reference: str) -> Record:
    """One record with the flags that its text has."""
    probe = case.probes[index]
    language = probe.request.language
    flags = flags_of(Answer(output, 5), language)
    own = probe.reference is None
    tags = dict(case.tags)
    return Record(
        task, case.id, index, probe.dimension, probe.step, after, language, output, reference, own, 5, 0.01, flags, tags
    )


def _texts(case: Case, index: int, keep: float | None, after: int) -> tuple[str, str]:
    probe = case.probes[index]
    generator = random.Random(f"{case.id} {index} {keep} {after}")
    join = "" if probe.request.language == "zh" else " "
    own = _sentence(f"base {case.id} {index}", probe.request.language)
    reference = own if probe.reference is None else _sentence(f"{case.id} {probe.step}", probe.request.language)
    if keep is None:
        return own, reference
    care = keep ** (1 + max(after - probe.step, 0)) if after >= probe.step else 0.3
    words: Sequence[str] = list(reference) if join == "" else reference.split()
    said = [word if generator.random() < care else generator.choice(WORDS[probe.request.language]) for word in words]
    return join.join(said), reference


def _sentence(seed: str, language: str) -> str:
    words = random.Random(seed).choices(WORDS[language], k=8)
    return ("" if language == "zh" else " ").join(words)
