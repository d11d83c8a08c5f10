"""A figure that a notebook shows as a picture, although nothing made it through pyplot."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

_DPI = 110


class Shown(Figure):
    """Matplotlib's figure, with a picture of itself for notebooks."""

    def _repr_png_(self) -> bytes:
        from kedit.plots.style import settings

        file = io.BytesIO()
        with settings():
            self.savefig(file, format="png", dpi=_DPI)
        return file.getvalue()
