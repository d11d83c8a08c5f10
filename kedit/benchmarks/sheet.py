"""The open replica to look at and to hand on: a contact sheet of its scenarios, and a folder of files."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.artefacts import write_json
from kedit.benchmarks.kibench_cases import PARTITIONS, Item, Raw, Row, Step, round_robin
from kedit.benchmarks.kibench_open import KIBenchOpen, spec_of
from kedit.benchmarks.kibench_rows import ALIASES
from kedit.benchmarks.scene import CASES, ROOT, SPLITS, TOPIC_GROUPS, render, scenarios
from kedit.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = 7
_TILE, _LABEL, _MARGIN = 150, 36, 12


def contact_sheet(out: str | Path, *, seed: int = 0, root: str | Path | None = None) -> Path:
    """Write a PNG with one labelled tile per scenario (id, English name), grouped by topic; returns its path.

    Each tile is the scenario's first case for ``seed``. ``root`` is a folder of other scenario files. Raises OSError where
    ``out`` cannot be written.
    """
    from PIL import Image, ImageDraw, ImageFont

    folder, path = ROOT if root is None else Path(root), Path(out)
    groups = [(topic, [s for s in scenarios(folder).values() if s["topic_group"] == topic]) for topic in TOPIC_GROUPS]
    rows = sum(-(-len(found) // COLUMNS) for _, found in groups)
    width, height = COLUMNS * (_TILE + _MARGIN) + _MARGIN, rows * (_TILE + _LABEL + _MARGIN) + len(groups) * (_LABEL + _MARGIN)
    sheet = Image.new("RGB", (width, height), "white")
    draw, y = ImageDraw.Draw(sheet), _MARGIN
    for topic, found in groups:
        draw.text((_MARGIN, y), f"{topic} ({len(found)})", fill="black", font=ImageFont.load_default(22))
        y += _LABEL
        for k, scenario in enumerate(found):
            row, column = divmod(k, COLUMNS)
            at = (_MARGIN + column * (_TILE + _MARGIN), y + row * (_TILE + _LABEL + _MARGIN))
            sheet.paste(_tile(scenario, seed, folder), at)
            label = f"{scenario['id']}\n{scenario['name']['en']}"
            draw.multiline_text((at[0], at[1] + _TILE + 2), label, fill="black", font=ImageFont.load_default(12), spacing=2)
        y += -(-len(found) // COLUMNS) * (_TILE + _LABEL + _MARGIN) + _MARGIN
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, format="PNG")
    return path


def _tile(scenario: Mapping[str, Any], seed: int, root: Path) -> Image:
    from PIL import Image

    return Image.open(io.BytesIO(render(spec_of(scenario, 0, seed), _TILE, root))).convert("RGB")


def write_folder(bench: KIBenchOpen, folder: Path, cases: int) -> Path:
    """The replica as files in the layout that ``KIBench`` reads, ``cases`` raw cases per scenario; returns the folder.

    scenarios.json, raw/<split>.jsonl, single/{train,test}.jsonl, sequential/test.jsonl, images/<scenario>/<index>.png. Raises
    DataError where ``cases`` is not 1 to 200 or ``folder`` is there and not empty.
    """
    if not 1 <= cases <= CASES:
        raise DataError(f"cases must be 1 to {CASES} per scenario, got {cases}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} exists and is not an empty folder: remove it or name another")
    images: set[str] = set()
    for split in SPLITS:
        pool = bench.pool(split)
        raws = [raw for _, _, raw in round_robin(pool, cases * len(pool))]
        _write_lines(folder / "raw" / f"{split}.jsonl", [raw_json(raw) for raw in raws], images)
        task, _, part = split.partition("_")
        rows = bench.rows(split, cases * len(pool))
        _write_lines(folder / task / f"{part}.jsonl", [row_json(row) for row in rows], images)
    write_json(folder / "scenarios.json", [_scenario_json(s) for s in scenarios(bench.folder).values()])
    for path in sorted(images):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(bench.image(path).read())
    return folder


def _scenario_json(scenario: Mapping[str, Any]) -> dict[str, Any]:
    contexts = {p: scenario["partitions"][p]["context"] for p in PARTITIONS}
    kept = {"scenario_id": scenario["id"], **{key: scenario[key] for key in ("topic_group", "name", "split", "situation")}}
    return {**kept, "image_source": "drawn by kedit", "contexts": contexts}


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]], images: set[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8", newline="\n")
    images.update(_images(rows))


def _images(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (found for key, part in value.items() for found in ([part] if key == "image" else _images(part)))
    elif isinstance(value, list):
        yield from (found for part in value for found in _images(part))


def raw_json(raw: Raw) -> dict[str, Any]:
    """A raw case as one line of ``raw/<split>.jsonl``."""
    qa = {p: {"question": question, "answer": answer} for p, (question, answer) in raw.qa.items()}
    return {"case_id": raw.id, "scenario_id": raw.scenario, "topic_group": raw.topic_group, "image": raw.image, "qa": qa}


def row_json(row: Row) -> dict[str, Any]:
    """A task case as one line of ``single/<split>.jsonl`` or ``sequential/test.jsonl``."""
    head = {"case_id": row.id, "raw_id": row.raw, "scenario_id": row.scenario, "topic_group": row.topic_group}
    steps = [_step_json(step) for step in row.steps]
    body = {"order": [step["partition"] for step in steps], "steps": steps} if len(steps) > 1 else steps[0]
    return {**head, "image": row.steps[0].item.image, **body}


def _step_json(step: Step) -> dict[str, Any]:
    inserted = {"partition": step.item.partition, "question": step.item.question, "answer": step.item.answer}
    return {**inserted, **{ALIASES[dimension][0]: [_item_json(i) for i in items] for dimension, items in step.others.items()}}


def _item_json(item: Item) -> dict[str, Any]:
    body = {"partition": item.partition, "image": item.image, "question": item.question, "answer": item.answer}
    return {"case_id": item.case_id, "scenario_id": item.scenario, **body}
