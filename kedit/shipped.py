"""What editors learned for an embedded backbone and ships with it: found by editor and backbone, taken where it fits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.artefacts import read_object
from kedit.errors import FamilyError, NotFittedError
from kedit.parameters import plain
from kedit.zoo.catalogue import artefact

if TYPE_CHECKING:
    from kedit.backbone import Backbone
    from kedit.benchmark import Benchmark
    from kedit.editor import Editor

FILE = "editor.json"


def shipped(editor: Editor, backbone: str) -> Path | None:
    """The folder of what one of kedit's own editors learned for a backbone, by its id, with just these parameters; else None."""
    folder = _made_for(editor, backbone)
    return folder if folder is not None and not _differences(folder, editor) else None


def mismatch(editor: Editor, backbone: str) -> list[str]:
    """The parameters in which what ships was fitted otherwise, as "name: there -> here"; empty where nothing ships."""
    folder = _made_for(editor, backbone)
    return _differences(folder, editor) if folder is not None else []


def take(editor: Editor, backbone: Backbone) -> None:
    """Attach an editor where it is not attached yet, and load what ships for it where it has learned nothing."""
    if getattr(editor, "backbone_", None) is not backbone:
        editor.attach(backbone)
    if not editor.fitted and (folder := shipped(editor, backbone.id)) is not None:
        editor.load(folder)


def bring(editors: Mapping[str, Editor], backbone: Backbone, benchmark: Benchmark) -> None:
    """Load what ships for those editors that have learned nothing for this backbone, where their parameters are its.

    Afterwards ``Editor.learned`` says for each of them what a run on the backbone will say. Raises NotFittedError, which names
    them all, where some still have to learn and the benchmark has nothing to learn from.
    """
    for editor in editors.values():
        if editor.needs_fit:
            _bring(editor, backbone)
    lacking = [name for name, editor in editors.items() if editor.needs_fit and editor.needs_cases and not editor.fitted]
    if lacking and not benchmark.train(1):
        told = "".join(_otherwise(name, editors[name], backbone) for name in lacking)
        raise NotFittedError(
            f"{', '.join(lacking)} must learn before anything is inserted, and {benchmark.name} has no train split. Give what "
            f"was learned on another benchmark, kedit.fitted(name, backbone, folder) or --fitted NAME=FOLDER (made by kedit "
            f"train NAME), or leave out what has learned nothing.{told}"
        )


def _bring(editor: Editor, backbone: Backbone) -> None:
    attached = getattr(editor, "backbone_", None)
    if attached is backbone and editor.fitted:
        return
    folder = shipped(editor, backbone.id)
    if folder is None and attached in (None, backbone):
        return
    with suppress(FamilyError):  # they do not go together, which whoever attaches it for its work will find too
        editor.attach(backbone)  # what it learned for another backbone may be lost by that
        if folder is not None and not editor.fitted:
            editor.load(folder)


def learning(name: str, editor: Editor, backbone: Backbone, benchmark: Benchmark, cases: int) -> str:
    """What to tell a user who may not expect that an editor is going to learn from so many cases of the train split."""
    told = f"{name} has learned nothing yet: fitting it on the train split of {benchmark.name} ({cases} cases)."
    return told + _otherwise(name, editor, backbone)


def _otherwise(name: str, editor: Editor, backbone: Backbone) -> str:
    """How the editor's parameters differ from those of what ships for it; empty where nothing ships."""
    found = mismatch(editor, backbone.id)
    return (
        f" What ships for {name} on {backbone.id} has other parameters ({'; '.join(found)}): "
        f"kedit.fitted({editor.name!r}, backbone) takes it."
        if found
        else ""
    )


def stored_params(folder: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that an artefact was fitted with, where they differ from ``defaults``."""
    stored, own = _stored(folder), plain(defaults)
    given = {name: stored[name] for name in own if name in stored and stored[name] != own[name]}
    return {name: _as_tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _made_for(editor: Editor, backbone: str) -> Path | None:
    own = editor.needs_fit and type(editor).__module__.startswith("kedit.")
    return artefact(backbone, editor.name) if own else None


def _differences(folder: Path, editor: Editor) -> list[str]:
    from kedit.config import difference  # brings NumPy along, which the command line's help does without

    return difference(_stored(folder), plain(editor.get_params()))


def _stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_object(folder / FILE).get("params", {})
    return found


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(part) for part in value) if isinstance(value, list) else value
