"""Answers are data from strangers: how each rendering keeps them from being anything else."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from typing import Any

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MARKDOWN = re.compile(r"([\\`*_\[\]|~#])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def visible(text: str, keep: str = "") -> str:
    """The text with every control character, direction override and lone surrogate written out, such as ``\\x1b``.

    ``keep`` are control characters to leave alone. Marks that scripts need (such as the zero-width non-joiner) stay.
    """
    if text.isprintable():  # most are; nothing that acts is printable
        return text
    return "".join(c if c in keep or not _acts(c) else _written(c) for c in text)


def _acts(c: str) -> bool:
    return c in _BIDI or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")


def _written(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"


def html_text(text: str) -> str:
    """Text for an HTML element or a quoted attribute."""
    return html.escape(visible(text, keep="\n\t"), quote=True)


def markdown_cell(text: str) -> str:
    """Text for one cell of a Markdown table: no markup, no tags, no line break."""
    return _MARKDOWN.sub(r"\\\1", html.escape(visible(text), quote=False))


def csv_cell(text: str) -> str:
    """Text for one cell of a CSV file: what a spreadsheet would take for a formula gets an apostrophe before it."""
    safe = visible(text, keep="\n\t\r")
    return f"'{safe}" if safe.startswith(_FORMULA) else safe


def script_json(value: Any) -> str:
    """JSON for a script element: no ``<``, so that no text in it can close the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for c in "<>&\u2028\u2029":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text
