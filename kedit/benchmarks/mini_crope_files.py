"""The miniature as files to look at and to hand on."""

from __future__ import annotations

import io
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from kedit.benchmarks.mini_crope import CONCEPTS, Picture, picture, rows
from kedit.errors import DataError, unknown_name

LAYOUTS = ("jsonl", "parquet")
_TILE, _LABEL, _COLUMNS = 180, 40, 3


def write_folder(folder: Path, cases: int, layout: str) -> Path:
    """The miniature in one of ``LAYOUTS``, at most ``cases`` rows per concept shown; returns the folder.

    Raises DataError where ``folder`` has something in it or ``cases`` is below 1, UnknownNameError for another layout.
    """
    if layout not in LAYOUTS:
        raise unknown_name("layout", layout, LAYOUTS)
    if cases < 1:
        raise DataError(f"cases must be 1 or more per concept, got {cases}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} exists and is not an empty folder: remove it or name another")
    if layout == "jsonl":
        _write_lines(folder, cases)
    else:
        _write_parquet(folder / "data" / "test-00000-of-00001.parquet", cases)
    return folder


def _chosen(found: list[dict[str, Any]], cases: int) -> list[dict[str, Any]]:
    by_concept = groupby(found, lambda row: row["metadata"]["image_concept"])
    return [row for _, group in by_concept for row in list(group)[:cases]]


def _write_lines(folder: Path, cases: int) -> None:
    drawn: dict[str, Picture] = {}

    def path(shown: Picture, name: str) -> str:
        drawn[f"images/{name}.png"] = shown
        return f"images/{name}.png"

    chosen = _chosen(list(rows(path)), cases)
    named = {one for row in chosen for one in (row["image"], *row["definition_images"])}
    (folder / "images").mkdir(parents=True)
    for name in sorted(named):
        (folder / name).write_bytes(drawn[name]())
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen)
    (folder / "test.jsonl").write_text(text, encoding="utf-8", newline="\n")


def _write_parquet(file: Path, cases: int) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{file}: parquet needs the package pyarrow (pip install pyarrow); or choose layout='jsonl'") from error
    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    chosen = _chosen(list(rows(lambda shown, name: {"bytes": shown(), "path": f"{name}.png"})), cases)
    columns = {name: [row[name] for row in chosen] for name in chosen[0]}
    types = {"image": image, "definition_images": pyarrow.list_(image)}
    metadata = {key: pyarrow.string() for key in chosen[0]["metadata"]}
    types["metadata"] = pyarrow.struct({**metadata, "definition_images_url": pyarrow.list_(pyarrow.string())})
    file.parent.mkdir(parents=True)
    table = pyarrow.table({name: pyarrow.array(values, types.get(name)) for name, values in columns.items()})
    pyarrow.parquet.write_table(table, file, row_group_size=10)


def contact_sheet(path: Path) -> Path:
    """A PNG with the first definition image of every concept, its name and language under it; returns its path."""
    from PIL import Image, ImageDraw, ImageFont

    lines = -(-len(CONCEPTS) // _COLUMNS)
    sheet = Image.new("RGB", (_COLUMNS * _TILE, lines * (_TILE + _LABEL)), "white")
    draw = ImageDraw.Draw(sheet)
    for k, concept in enumerate(CONCEPTS):
        line, column = divmod(k, _COLUMNS)
        at = (column * _TILE, line * (_TILE + _LABEL))
        tile = Image.open(io.BytesIO(picture(concept, 0)())).convert("RGB").resize((_TILE - 8, _TILE - 8))
        sheet.paste(tile, at)
        label = f"{concept.name} ({concept.language})\n{concept.chapter}"
        draw.multiline_text((at[0], at[1] + _TILE - 4), label, fill="black", font=ImageFont.load_default(13), spacing=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, format="PNG")
    return path
