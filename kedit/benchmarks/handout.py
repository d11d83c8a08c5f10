"""How benchmarks that are made here write themselves: into a folder of their own, and as a sheet of tiles to look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kedit.errors import DataError
from kedit.images import open_image
from kedit.types import ImageRef

_GAP = 4


def new_folder(path: str | Path) -> Path:
    """The folder, made where it is not there; raises DataError where it has something in it."""
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} exists and is not an empty folder: remove it or name another")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tile_sheet(path: str | Path, tiles: Mapping[str, ImageRef], *, columns: int = 5, tile: int = 150, label: int = 22) -> Path:
    """Write a PNG with one image per tile, ``tile`` pixels wide, and its label below; returns its path."""
    from PIL import Image, ImageDraw, ImageFont

    lines = -(-len(tiles) // columns)
    sheet = Image.new("RGB", (columns * tile, lines * (tile + label)), "white")
    draw = ImageDraw.Draw(sheet)
    for k, (name, image) in enumerate(tiles.items()):
        x, y = k % columns * tile, k // columns * (tile + label)
        sheet.paste(open_image(image).resize((tile - _GAP, tile - _GAP)), (x, y))
        draw.multiline_text((x, y + tile - _GAP + 2), name, fill="black", font=ImageFont.load_default(12), spacing=2)
    found = Path(path)
    found.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(found, format="PNG")
    return found
