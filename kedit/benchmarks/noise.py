"""Images without content, to see what a model answers from the question alone."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass


@dataclass(frozen=True)
class Noise:
    """Draws ``size`` x ``size`` pixels of uniform RGB noise as PNG, the same for the same ``seed``."""

    seed: str
    size: int = 224

    def __call__(self) -> bytes:
        from PIL import Image

        pixels = hashlib.shake_256(self.seed.encode("utf-8", "surrogatepass")).digest(3 * self.size * self.size)
        file = io.BytesIO()
        Image.frombytes("RGB", (self.size, self.size), pixels).save(file, "PNG")
        return file.getvalue()
