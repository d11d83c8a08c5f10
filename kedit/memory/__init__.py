"""Parts that hold inserted items with their vectors; the home of the index behind memory editors."""

from kedit.memory.entries import Hit, Memory

__all__ = ["Hit", "Memory"]
