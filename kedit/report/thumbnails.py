"""Small copies of a run's images, as data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from pathlib import Path

from kedit.casebook import read_image
from kedit.errors import ImageError
from kedit.images import open_image

_SIDES = ((100, 384), (1000, 192), (4000, 128))
_SMALLEST = 96
"""Longest side in pixels beyond the last of ``_SIDES``."""
_KINDS: tuple[tuple[str, dict[str, int]], ...] = (("png", {}), ("jpeg", {"quality": 82}))


def side(number: int) -> int:
    """Longest side in pixels for so many images: the page stays below some 30 MB, whatever they show."""
    return next((side for most, side in _SIDES if number <= most), _SMALLEST)


def thumbnails(folder: Path, digests: Iterable[str]) -> dict[str, str]:
    """A data URI per digest, each once; without those that the run's folder does not keep or that cannot be opened."""
    distinct = list(dict.fromkeys(digests))
    longest = side(len(distinct))
    found = ((digest, _thumbnail(folder, digest, longest)) for digest in distinct)
    return {digest: uri for digest, uri in found if uri is not None}


def _thumbnail(folder: Path, digest: str, longest: int) -> str | None:
    image = read_image(folder, digest)
    if image is None:
        return None
    try:
        small = open_image(image)
    except ImageError:
        return None
    small.thumbnail((longest, longest))
    found = []
    for kind, options in _KINDS:
        file = io.BytesIO()
        small.save(file, kind, **options)
        found.append((kind, file.getvalue()))
    kind, data = min(found, key=lambda pair: len(pair[1]))
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
