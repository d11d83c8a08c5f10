"""From what is typed to an export: an editor that has learned, knowledge to insert, and the form to write."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kedit.artefacts import load_knowledge, read_json
from kedit.editor import Editor, WeightEditor
from kedit.errors import DataError
from kedit.exporting.adapter import export_adapter
from kedit.exporting.common import Export, Kind
from kedit.exporting.memory import export_memory
from kedit.exporting.weights import export_model
from kedit.types import Knowledge


def export(
    editor: Editor, path: str | Path, *, kind: Kind | None = None, dtype: str | None = None, overwrite: bool = False
) -> Export:
    """Write an editor's work as a "model", an "adapter" or a "memory"; None: a model where weights are edited, else a memory.

    ``dtype`` is for models alone. Raises as ``export_model``, ``export_adapter`` and ``export_memory`` do.
    """
    kind = kind or ("model" if isinstance(editor, WeightEditor) else "memory")
    if dtype is not None and kind != "model":
        raise DataError(f"dtype is for an exported model; of {kind} there is none to choose: leave it out")
    if kind == "model":
        return export_model(editor, path, dtype=dtype, overwrite=overwrite)
    return (export_adapter if kind == "adapter" else export_memory)(editor, path, overwrite=overwrite)


def insert_saved(editor: Editor, folder: str | Path) -> int:
    """Insert what any editor's ``save_edits`` wrote, and say how many; edits of an editor of this class are loaded as they were.

    Another editor's knowledge is inserted anew. A folder with ``edits.jsonl`` alone will do. Raises DataError for another.
    """
    root, before = Path(folder), len(editor.edits_)
    file = root / "editor.json"
    if file.is_file() and read_json(file).get("editor") == type(editor).__name__:
        editor.load_edits(root)
    else:
        insert_all(editor, load_knowledge(root))
    return len(editor.edits_) - before


def insert_all(editor: Editor, items: Iterable[Knowledge]) -> int:
    """Insert each item once, in order, and say how many."""
    distinct = list(dict.fromkeys(items))
    for knowledge in distinct:
        editor.insert(knowledge)
    return len(distinct)
