"""What all exports have in common: what was inserted, by whom, into what, and the card that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import kedit
from kedit import jsonl
from kedit.artefacts import write_bytes, write_json
from kedit.editor import Editor
from kedit.errors import ExportError
from kedit.exporting.card import card
from kedit.exporting.folder import MARK
from kedit.methods import EDITORS
from kedit.parameters import plain
from kedit.types import Knowledge

Kind = Literal["model", "adapter", "memory"]
INSERTED = "inserted.jsonl"
_PLAIN = str | int | float | bool | None


@dataclass(frozen=True)
class Export:
    """Where an export was written, its kind, how many edits it holds, and what its reader should know."""

    folder: Path
    kind: Kind
    edits: int
    notes: Mapping[str, str | int | float]


def require_edits(editor: Editor) -> None:
    """Raise NotAttachedError before ``attach``, and ExportError where nothing is inserted."""
    editor._require_attached()
    if not editor.edits_:
        raise ExportError(f"{editor.name}: nothing is inserted, so there is nothing to export; insert knowledge first")


def finish(folder: Path, editor: Editor, kind: Kind, notes: Mapping[str, str | int | float]) -> None:
    """Write what was inserted (texts, pictures by digest), the mark and the card."""
    rows = [_row(edit, knowledge) for edit, knowledge in editor.edits_.items()]
    data = b"".join(jsonl.encode(row) for row in rows)
    write_bytes(folder / INSERTED, data)
    mark = {"kedit_export": 1, "kind": kind, "kedit": kedit.__version__, **described(editor), "edits": len(rows)}
    mark["notes"] = dict(notes)
    write_json(folder / MARK, mark)
    write_bytes(folder / "README.md", card(mark, list(editor.edits_.values())).encode("utf-8", "replace"))


def described(editor: Editor) -> dict[str, Any]:
    """The editor and the backbone as an export names them."""
    params = editor.get_params()
    found = {
        "class": f"{type(editor).__module__}:{type(editor).__qualname__}",
        "name": editor.name,
        "params": plain(params),
        "rebuildable": _is_plain(params),
        "learned": editor.learned if editor.needs_fit else None,
    }
    backbone = editor.backbone_
    dtype = str(getattr(backbone, "dtype", "") or "").removeprefix("torch.")  # a served model does not tell
    return {"editor": found, "backbone": {"id": backbone.id, "revision": backbone.revision, "dtype": dtype}}


def short_name(kind: str) -> str | None:
    """The short name of one of kedit's own editors, by ``module:Class``; None for another."""
    return next((name for name, place in EDITORS.items() if place == kind), None)


def _is_plain(value: Any) -> bool:
    """Whether a parameter comes back from JSON as it was, tuples and lists taken for the same."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(part) for key, part in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _row(edit: str, knowledge: Knowledge) -> dict[str, Any]:
    request = knowledge.request
    return {
        "edit": edit,
        "question": request.question,
        "answer": knowledge.answer,
        "title": knowledge.title,
        "text": knowledge.text,
        "language": request.language,
        "images": [image.digest for image in request.images],
    }


def set_dtype(file: Path, dtype: str) -> None:
    """Let a model's configuration, and those in it, name the type that the weights were written in."""
    config = json.loads(file.read_text(encoding="utf-8"))

    def change(part: Any) -> None:
        if isinstance(part, dict):
            if "dtype" in part:
                part["dtype"] = dtype
            for inner in part.values():
                change(inner)

    change(config)
    write_json(file, config)
