"""mini-kviscuit: a miniature in the layout of K-Viscuit, written and drawn here, about a town that does not exist."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kedit.benchmarks.handout import new_folder, tile_sheet
from kedit.benchmarks.kviscuit import KViscuit, image_name
from kedit.benchmarks.scene import ENGINE, ROOT, SceneSpec, render
from kedit.files.rows import Row
from kedit.types import ImageRef

FOLDER = Path(__file__).parent / "mini_kviscuit"
ANNOTATIONS, DOCUMENTS, SCENES = "annotations.jsonl", "documents.jsonl", "scenes.json"
IMAGE_SIZE = 224


@dataclass(frozen=True)
class Scene:
    """Draws the image of that name, 224 x 224 PNG."""

    image: str

    def __call__(self) -> bytes:
        return _drawn(self.image)


@cache
def scenes() -> Mapping[str, SceneSpec]:
    """What each image shows."""
    found: Mapping[str, Mapping[str, Any]] = json.loads((FOLDER / SCENES).read_text(encoding="utf-8"))
    return {name: SceneSpec(**spec) for name, spec in found.items()}


@lru_cache(maxsize=64)
def _drawn(image: str) -> bytes:
    return render(scenes()[image], IMAGE_SIZE)


class MiniKViscuit(KViscuit):
    """A miniature of K-Viscuit that ships: 36 rows on 14 drawn scenes, with a document for each, about a made-up town.

    No model can know what its Type 2 questions ask: without a document in view, answers to them are guesses. It says nothing
    about Korea, nor about the published numbers. Options are those of ``KViscuit``.
    """

    name = "mini-kviscuit"
    instruction = "This is a question about a made-up town. Answer it briefly."
    about = "What do people do with this?"

    def __init__(
        self,
        *,
        circular: bool = False,
        prompt: str = "options-first",
        noise: bool = False,
        translations: str | Path | Mapping[str, Mapping[str, Any]] | None = None,
        documents: str | Path | Mapping[str, Any] | None = FOLDER / DOCUMENTS,
        language: str = "en",
    ) -> None:
        super().__init__(
            FOLDER / ANNOTATIONS,
            circular=circular,
            prompt=prompt,
            noise=noise,
            translations=translations,
            documents=documents,
            language=language,
        )

    @property
    def sources(self) -> list[Path]:
        drawings = sorted({spec.scenario for spec in scenes().values()})
        return [*super().sources, FOLDER / SCENES, ROOT / "palette.yaml", *(ROOT / f"{name}.svg" for name in drawings)]

    @property
    def settings(self) -> list[Any]:
        return [*super().settings, ENGINE, IMAGE_SIZE]

    def photograph(self, row: Row) -> ImageRef:
        return ImageRef(draw=Scene(image_name(row)))

    def build(self, out: str | Path, *, cases: int = 20) -> Path:
        """Write the miniature as a folder that ``KViscuit`` reads, with ``documents.jsonl``; it is always written whole."""
        folder = new_folder(out)
        (folder / "images").mkdir()
        for name in (ANNOTATIONS, DOCUMENTS):
            (folder / name).write_bytes((FOLDER / name).read_bytes())
        for image in scenes():
            (folder / "images" / image).write_bytes(Scene(image)())
        return folder

    def sheet(self, out: str | Path) -> Path:
        """Write a PNG with one labelled tile per scene; returns its path."""
        return tile_sheet(out, {Path(image).stem: ImageRef(draw=Scene(image)) for image in scenes()})
