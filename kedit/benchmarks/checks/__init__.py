"""The formats that ``kedit data check`` knows: a module each, which lists what it recognises in ``FORMATS``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from kedit.benchmarks.checks.base import Format, has, names

MODULES = ("edits", "crope", "kviscuit", "cvqa", "pope", "pools", "kibench")
"""In the order in which equals are preferred; a new format is a module beside these, named here."""


@cache
def formats() -> tuple[Format, ...]:
    """All formats."""
    return tuple(one for name in MODULES for one in importlib.import_module(f"{__name__}.{name}").FORMATS)


def recognise(row: Mapping[str, Any]) -> Format | None:
    """The format of a row: of those that fit, the one that explains most of its columns; None where none fits."""
    lowered = {key.lower(): value for key, value in row.items()}
    fitting = [one for one in formats() if one.fits(row)] or [one for one in formats() if one.fits(lowered)]
    return max(fitting, key=lambda one: (one.certain, one.weight(row)), default=None)


def nearest(row: Mapping[str, Any]) -> str:
    """What an unknown row is most like and which columns it lacks for that."""
    likest = max(formats(), key=lambda one: one.likeness(row))
    lacking = [names(key)[0] for key in likest.keys if not has(row, key)]
    why = f"it lacks {', '.join(lacking)}" if lacking else "it has its columns, but not its values"
    return f"nearest is {likest.name}: {why}" if likest.likeness(row) > 0 else "nothing known is like it"
