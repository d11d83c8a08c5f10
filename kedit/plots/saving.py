"""Figures as files: the same figure, the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.artefacts import replace_file
from kedit.errors import unknown_name
from kedit.plots.style import settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 200
# Without when and by what it was made, which would differ from one call or machine to the next.
_METADATA: Mapping[str, Mapping[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
FORMATS = tuple(_METADATA)
"""Vector formats first: PDF with its text as text in TrueType fonts, SVG with its text as outlines; PNG with 200 dots an inch."""


def save_plot(figure: Figure, stem: Path, formats: Sequence[str] = ("png", "svg")) -> tuple[Path, ...]:
    """Write ``<stem>.<format>`` for each format, each whole or not at all; the same figure gives the same bytes.

    Raises UnknownNameError for a format that is not one of ``FORMATS``.
    """
    for wanted in formats:
        if wanted not in FORMATS:
            raise unknown_name("format of figures", wanted, FORMATS)
    return tuple(_save(figure, stem.with_name(f"{stem.name}.{wanted}"), wanted) for wanted in formats)


def _save(figure: Figure, path: Path, wanted: str) -> Path:
    options: dict[str, Any] = {"dpi": _DPI, "format": wanted, "metadata": dict(_METADATA[wanted])}
    with settings():
        replace_file(path, lambda part: figure.savefig(part, **options))
    return path
