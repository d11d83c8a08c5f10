"""Small data sets of questions with options, and records of what a made-up predictor says to them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from kedit.types import Case, Probe, Record

OPTIONS = ["Bread", "Rice cake", "Noodles", "Soup"]


def encoded(seed: int) -> bytes:
    """Coloured noise as PNG bytes."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (24, 20, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def rows() -> list[dict[str, Any]]:
    """Three images with one Type 1 row each and one, two and three Type 2 rows, whose third repeats an id."""
    found = []
    for image, category, more in ((1, "Food", 1), (2, "ArchitecturePlaces", 2), (3, "GamePlayPerformance", 3)):
        for k in range(more + 1):
            name = {"id_": f"{category}.{image}.{min(k, 2)}", "question_type": 1 if k == 0 else 2}
            question = {"question": f"What is thing {image}.{k}?", "options": OPTIONS, "answer": (image + k) % 4}
            found.append({**question, "category": category, **name, "image_url": "", "image_path": f"{image}.png"})
    return found


def write_github(folder: Path, found: Sequence[Mapping[str, Any]] | None = None, missing: Sequence[int] = ()) -> Path:
    """The layout of the GitHub repository: annotations.jsonl and images/ in dataset/."""
    (folder / "dataset" / "images").mkdir(parents=True)
    lines = [json.dumps(row) + "\n" for row in (rows() if found is None else found)]
    (folder / "dataset" / "annotations.jsonl").write_text("".join(lines), encoding="utf-8")
    for image in (1, 2, 3):
        if image not in missing:
            (folder / "dataset" / "images" / f"{image}.png").write_bytes(encoded(image))
    return folder


def write_parquet(file: Path, found: Sequence[Mapping[str, Any]], group: int = 4) -> Path:
    """A parquet file as the hub writes them, in row groups of ``group`` rows."""
    import pyarrow
    import pyarrow.parquet

    file.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(found)), file, row_group_size=group)
    return file


def answered(
    task: str, cases: Sequence[Case], say: Callable[[Probe], str], trace: Mapping[str, str | float] | None = None
) -> list[Record]:
    """Records as a run would hold them, of a predictor that sees the probe."""
    return [
        Record(
            task=task, case=case.id, probe=k, dimension=probe.dimension, step=probe.step, asked_at=len(case.chain),
            language=probe.request.language, output=say(probe), reference=str(probe.reference), from_base=False, tokens=1,
            seconds=0.0, tags={**case.tags, **probe.tags}, trace=trace or {},
        )
        for case in cases
        for k, probe in enumerate(case.probes)
    ]  # fmt: skip
