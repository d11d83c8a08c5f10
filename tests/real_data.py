"""Published files that are not part of the project: tests that read them skip where they are not on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[2] / "shared" / "data"


def real_data(name: str) -> Path:
    """The folder of that name under KEDIT_DATA, else beside the checkout; skips the test where there is none."""
    folder = Path(os.environ.get("KEDIT_DATA") or BESIDE) / name
    if not folder.is_dir():
        pytest.skip(f"needs the published files of {name}: set KEDIT_DATA to the folder that holds {name}/")
    return folder
