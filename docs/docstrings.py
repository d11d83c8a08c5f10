"""How docstrings become pages: they are prose, in which `R[t][i]` is a matrix and no Markdown link."""

from __future__ import annotations

import re
from typing import Any

import griffe

_INDEX = re.compile(r"(?<=\w)\[|\]\[")
"""A bracket right after a word or another bracket: an index."""


def escaped(text: str) -> str:
    """The text with such brackets escaped outside of code spans and indented code."""
    lines = [line if line.startswith("    ") else _outside_code(line) for line in text.split("\n")]
    return "\n".join(lines)


def _outside_code(line: str) -> str:
    parts = re.split(r"(`+[^`]*`+)", line)
    parts[::2] = [_INDEX.sub(lambda found: found[0].replace("[", "\\["), part) for part in parts[::2]]
    return "".join(parts)


class Prose(griffe.Extension):
    """Escapes every docstring once, when its object has been read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = escaped(obj.docstring.value)
