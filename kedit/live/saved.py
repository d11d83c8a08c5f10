"""What was inserted, as a folder that is whole at any moment, with the model that it belongs to."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kedit.artefacts import read_json, read_object, write_json
from kedit.config import difference
from kedit.editor import Editor
from kedit.errors import DataError, KeditError, StoreError
from kedit.locks import claim
from kedit.parameters import plain

FILE = "session.json"
_PREFIX = "edits-"
_EDITS = re.compile(rf"{_PREFIX}[0-9a-f]{{12}}")
_UNDONE = re.compile(rf"\.{re.escape(FILE)}\..*\.part")
"""What a save that was killed leaves of the file that says which edits count."""


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
    if folder.exists() and not _ours(folder):
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
        for old in folder.iterdir():
            if _EDITS.fullmatch(old.name) and old.name != name:
                shutil.rmtree(old, ignore_errors=True)
            elif _UNDONE.fullmatch(old.name):
                old.unlink(missing_ok=True)
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
    if Path(name).name != name or not _EDITS.fullmatch(name) or not edits.is_dir() or len(set(numbers)) < len(numbers):
        raise DataError(f"{file} is not as save writes it (edits {name!r}, numbers {numbers}); save again")
    now = {**plain(editor.get_params()), "what it learned": editor.learned}
    return Saved(edits, numbers, tuple(f"not as when it was saved: {line}" for line in difference(before, now)))


def edits_in(path: str | Path) -> Path:
    """The folder of edits that a saved session names; ``path`` itself where it is none. Raises DataError for a broken one."""
    folder = Path(path)
    if not (folder / FILE).is_file():
        return folder
    name = str(read_object(folder / FILE).get("edits"))
    if not _EDITS.fullmatch(name) or not (folder / name).is_dir():
        raise DataError(f"{folder / FILE} is not as save writes it (edits {name!r}); save again")
    return folder / name


def _ours(folder: Path) -> bool:
    """Whether a folder was saved to, or is empty but for what a save that was killed left."""
    if (folder / FILE).exists():
        return _is_head(folder / FILE)
    left = (r"\.lock", _EDITS, _UNDONE)
    return folder.is_dir() and all(any(re.fullmatch(one, file.name) for one in left) for file in folder.iterdir())


def _is_head(file: Path) -> bool:
    """Whether a file of that name, which other programs write too, is one of ours."""
    try:
        found = read_json(file)
    except DataError:
        return False
    return isinstance(found, dict) and {"kedit", "edits", "numbers"} <= found.keys()
