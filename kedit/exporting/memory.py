"""The memory of an editor that leaves the weights alone: what was inserted and what it learned, as one folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kedit.editor import Editor, WeightEditor
from kedit.errors import DataError, ExportError
from kedit.exporting.common import Export, finish, require_edits, short_name
from kedit.exporting.folder import MARK, fresh_folder, mark_of
from kedit.shipped import stored_params

if TYPE_CHECKING:
    from kedit.backbone import Backbone

EDITS, LEARNED = "edits", "learned"


def export_memory(editor: Editor, path: str | Path, *, overwrite: bool = False) -> Export:
    """Write what was inserted (texts and pictures) and what the editor learned; ``load_memory`` makes an editor of it.

    Raises ExportError for an editor that changes weights, whose edits are no memory, and where nothing is inserted;
    StoreError as ``fresh_folder`` does.
    """
    require_edits(editor)
    if isinstance(editor, WeightEditor):
        raise ExportError(f"{editor.name} keeps its edits in weights, not in a memory; use export_model or export_adapter")
    with fresh_folder(path, overwrite=overwrite) as folder:
        if type(editor).save is not Editor.save:
            editor.save(folder / LEARNED)
        editor.save_edits(folder / EDITS)
        finish(folder, editor, "memory", {})
    return Export(Path(path), "memory", len(editor.edits_), {})


def load_memory(path: str | Path, backbone: Backbone, *, editor: Editor | None = None) -> Editor:
    """An editor that holds an exported memory, attached to a backbone: the one that it was made with answers as before.

    ``editor``, not yet attached, is needed for one that is not kedit's own, and for parameters that are objects: nothing that
    a folder names is imported or called. Raises DataError for a folder that is no exported memory, or another editor's.
    """
    root = Path(path)
    mark = mark_of(root)
    kind, told = mark.get("kind"), mark.get("editor")
    if kind != "memory":
        raise DataError(f"{root} is an exported {kind}, not a memory; load it as its README.md says")
    if not isinstance(told, dict) or not {"class", "rebuildable"} <= told.keys():
        raise DataError(f"{root / MARK} does not say which editor made the memory, as an export does; export again")
    made = editor if editor is not None else _made(root, told)
    made.attach(backbone)
    if (root / LEARNED).is_dir():
        made.load(root / LEARNED)
    made.load_edits(root / EDITS)
    return made


def _made(root: Path, told: dict[str, object]) -> Editor:
    from kedit.methods import editor

    name = short_name(str(told["class"]))
    if name is None or not told["rebuildable"]:
        why = "is not one of kedit's own" if name is None else "has parameters that a file cannot hold"
        raise DataError(
            f"{root} was made by {told['class']}, which {why}; make that editor and give it: load_memory(..., editor=)"
        )
    made: Editor = editor(name, stored_params(root / EDITS, editor(name).get_params()))
    return made
