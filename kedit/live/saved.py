"""What was inserted, as a folder that is whole at any moment, with the model that it belongs to."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kedit.artefacts import read_json, write_json
from kedit.config import difference
from kedit.editor import Editor
from kedit.errors import DataError, KeditError, StoreError
from kedit.locks import claim
from kedit.parameters import plain

FILE = "session.json"
_PREFIX = "edits-"


class Saved(NamedTuple):
    """The edits in a folder: where they are, the numbers of their entries, and how the editor differs from then."""

    edits: Path
    numbers: tuple[int, ...]
    notes: tuple[str, ...]


def write_saved(path: str | Path, editor: Editor, numbers: Sequence[int], backbone: Mapping[str, str]) -> Path:
    """Write an editor's edits below ``path``, then the file that says which they are; what was saved there before goes last.

    ``backbone`` has ``id`` and ``fingerprint``. Raises StoreError for a folder that holds anything else, or that cannot be
    written; what was saved before is then intact.
    """
    from kedit import __version__

    folder = Path(path)
    if folder.exists() and not (folder / FILE).is_file() and not _ours(folder):
        raise StoreError(f"{folder} holds something else than a saved session; name a new folder, or an empty one")
    name = f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    head = {
        "kedit": __version__,
        "backbone": dict(backbone),
        "editor": type(editor).__name__,
        "params": plain(editor.get_params()),
        "learned": editor.learned,
        "edits": name,
        "numbers": list(numbers),
    }
    with claim(folder):
        try:
            editor.save_edits(folder / name)
            write_json(folder / FILE, head)
        except BaseException as error:
            shutil.rmtree(folder / name, ignore_errors=True)
            if isinstance(error, OSError) and not isinstance(error, KeditError):
                reason = error.strerror or error
                raise StoreError(f"cannot save to {folder}: {reason}; what was saved before is intact") from error
            raise
        for old in folder.glob(f"{_PREFIX}*"):
            if old.name != name:
                shutil.rmtree(old, ignore_errors=True)
    return folder


def find_saved(path: str | Path, editor: Editor, backbone: Mapping[str, str]) -> Saved:
    """What ``write_saved`` wrote; raises DataError where there is none, or where it was made with another backbone."""
    folder = Path(path)
    file = folder / FILE
    if not file.is_file():
        raise DataError(f"{folder} is no saved session: it has no {FILE}; give a folder that was saved to")
    info = read_json(file)
    try:
        theirs, name, numbers = info["backbone"], str(info["edits"]), tuple(map(int, info["numbers"]))
        then = (str(theirs["id"]), str(theirs["fingerprint"]))
        before = {**info["params"], "what it learned": info["learned"]}
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{file} is not as save writes it ({type(error).__name__}: {error}); save again") from error
    if then[1] != backbone["fingerprint"]:
        raise DataError(
            f"{folder} was saved with {then[0]!r} (weights {then[1][:12]}), here is {backbone['id']!r} "
            f"(weights {backbone['fingerprint'][:12]}); load it with the backbone that it was saved with"
        )
    edits = folder / name
    if Path(name).name != name or not name.startswith(_PREFIX) or not edits.is_dir() or len(set(numbers)) < len(numbers):
        raise DataError(f"{file} is not as save writes it (edits {name!r}, numbers {numbers}); save again")
    now = {**plain(editor.get_params()), "what it learned": editor.learned}
    return Saved(edits, numbers, tuple(f"not as when it was saved: {line}" for line in difference(before, now)))


def _ours(folder: Path) -> bool:
    """Whether a folder is empty, but for what a save that was killed left."""
    return folder.is_dir() and all(file.name == ".lock" or file.name.startswith(_PREFIX) for file in folder.iterdir())
