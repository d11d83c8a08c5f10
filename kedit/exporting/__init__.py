"""An editor's work taken out of kedit: a plain model, an adapter, or a memory."""

from kedit.exporting.adapter import export_adapter
from kedit.exporting.common import Export
from kedit.exporting.memory import export_memory, load_memory
from kedit.exporting.weights import export_model

__all__ = ["Export", "export_adapter", "export_memory", "export_model", "load_memory"]
