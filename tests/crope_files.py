"""Rows in CROPE's published columns, made up, and ways to write them."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

from samples import picture

CHAPTERS = ("Food and Beverages", "Animal", "The house")
LANGUAGES = ("ID", "sw", "Tamil", "tr", "zh-CN")


@cache
def png(seed: int) -> bytes:
    return picture(seed, 12, 10).read()


def row(number: int, *, answer: str | None = None, definitions: int = 2, image: int | None = None) -> dict[str, Any]:
    """A row; ``image`` is which picture it shows. Concepts and chapters take turns, so that each concept has one chapter."""
    concept, shown = number % 6, number // 2 if image is None else image
    language = LANGUAGES[shown % len(LANGUAGES)]
    return {
        "sample_id": f"sample-{number}",
        "image": {"bytes": png(shown % 7), "path": f"{shown}.png"},
        "question": f"Is there a thing{concept} in the image?",
        "answer": answer or ("Yes" if number % 2 == 0 else "no"),
        "definition_images": [{"bytes": png(20 + concept + k), "path": f"d{k}.png"} for k in range(definitions)],
        "definition_captions": [f"thing{concept}, view {k}" for k in range(definitions)],
        "definition_summary": f"A thing{concept} is round and number {concept}.",
        "chapter": CHAPTERS[concept % 3],
        "metadata": {
            "definition_concept": f"thing{concept}",
            "definition_wikipedia_page_url": f"https://en.wikipedia.org/wiki/Thing_{concept}",
            "image_concept": f"thing{(concept + 3) % 6 if number % 2 else concept}",
            "image_concept_chapter": CHAPTERS[concept % 3],
            "image_id": f"{shown}.png",
            "image_url": f"https://example.org/{shown}.png",
            "source_language": language,
        },
    }


def table(rows: list[dict[str, Any]]) -> Any:
    """An arrow table with the hub's types."""
    import pyarrow as pa

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    types = {"image": image, "definition_images": pa.list_(image)}
    names = list(dict.fromkeys(key for one in rows for key in one))
    return pa.table({name: pa.array([one.get(name) for one in rows], types.get(name)) for name in names})


def write_parquet(path: Path, rows: list[dict[str, Any]], row_group_size: int = 4) -> Path:
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table(rows), path, row_group_size=row_group_size)
    return path


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows), encoding="utf-8", newline="\n")
    return path


def as_text(value: Any) -> Any:
    """A row as JSON can hold it: bytes become base64."""
    if isinstance(value, dict):
        return {key: as_text(part) for key, part in value.items()}
    if isinstance(value, list):
        return [as_text(part) for part in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def as_paths(rows: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The rows with their pictures written below ``folder`` and named by path."""

    def stored(image: dict[str, Any], name: str) -> str:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(image["bytes"])
        return name

    return [
        {
            **one,
            "image": stored(one["image"], f"pictures/{k}.png"),
            "definition_images": [stored(d, f"pictures/{k}-{n}.png") for n, d in enumerate(one["definition_images"])],
        }
        for k, one in enumerate(rows)
    ]
