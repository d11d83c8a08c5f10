"""Parts that decide whether an inserted item concerns a request; each is usable alone, or in an editor with a memory."""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = {
    "Decision": "base",
    "HiddenRouter": "contrastive",
    "ImageTextScope": "image_text",
    "Routed": "routed",
    "Router": "base",
    "TextScope": "text_scope",
    "calibrate": "calibration",
    "diagnose": "diagnostics",
    "entries": "pairs",
}
__all__ = [
    "Decision",
    "HiddenRouter",
    "ImageTextScope",
    "Routed",
    "Router",
    "TextScope",
    "calibrate",
    "diagnose",
    "entries",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"kedit.routers.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
