"""Keys as names of files."""

from __future__ import annotations

import hashlib

_LONGEST = 60
"""Characters of a key in a file's name; the order of a long chain would not fit."""


def safe_name(key: str) -> str:
    """A key as a file name: letters, digits, ``-`` and ``_`` of it; one that had to change gets a hash, so none collide."""
    safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in key)[:_LONGEST]
    return safe if safe == key else f"{safe}-{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
