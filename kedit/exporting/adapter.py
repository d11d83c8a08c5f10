"""Low-rank edits as a PEFT adapter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedit.editor import Editor
from kedit.errors import ExportError
from kedit.exporting.common import Export, finish, require_edits
from kedit.exporting.folder import fresh_folder
from kedit.exporting.weights import require_weights, saveable
from kedit.weights.adapters import write_adapter
from kedit.weights.lowrank import Factors


def export_adapter(editor: Editor, path: str | Path, *, overwrite: bool = False) -> Export:
    """Write all inserted edits as one adapter that ``peft.PeftModel.from_pretrained(base, path)`` loads; the base stays apart.

    For editors that keep their edits as factors: in ``factors_`` (edit id -> module name -> ``Factors``) or in an ``Overlay`` of
    ``kedit.weights.lowrank`` named ``overlay_``. Raises ExportError for others, whose change is a full matrix, and where
    nothing is inserted; StoreError as ``fresh_folder`` does.
    """
    require_edits(editor)
    require_weights(editor)
    edits = _factors(editor)
    if edits.keys() != editor.edits_.keys():
        raise ExportError(
            f"{editor.name} does not keep the factors of its {len(editor.edits_)} edit(s): a change of whole matrices is no "
            "adapter; use export_model (--as model)"
        )
    backbone: Any = editor.backbone_
    with fresh_folder(path, overwrite=overwrite) as folder:
        rank = write_adapter(folder, saveable(backbone.model, editor), list(edits.values()), backbone.id)
        notes: dict[str, str | int | float] = {"rank": rank}
        finish(folder, editor, "adapter", notes)
    return Export(Path(path), "adapter", len(edits), notes)


def _factors(editor: Any) -> Mapping[str, Mapping[str, Factors]]:
    """Factors by edit and module; empty for an editor that keeps none."""
    own: Mapping[str, Mapping[str, Factors]] | None = getattr(editor, "factors_", None)
    return own if own is not None else getattr(getattr(editor, "overlay_", None), "edits", {})
