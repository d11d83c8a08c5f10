"""An export's folder: it appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kedit.artefacts import read_json
from kedit.errors import DataError, StoreError

MARK = "kedit_export.json"
"""What every export holds, and what tells one from a folder of the user's own."""


@contextmanager
def fresh_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside ``path`` that takes its name when the block ends without an error, and is removed otherwise.

    Raises StoreError where something of that name exists, unless ``overwrite`` is set and it is an export of kedit's, which
    is then replaced with all that is in it; and where the disk refuses.
    """
    target = Path(path)
    _free(target, overwrite)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    except OSError as error:
        raise _refused(target, error) from error
    try:
        yield temporary
        _settle(temporary)
        _put(temporary, target)
    except StoreError:
        raise
    except OSError as error:
        raise _refused(target, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def mark_of(folder: Path) -> dict[str, Any]:
    """What an export says of itself; raises DataError for a folder that is none."""
    found = read_json(folder / MARK)
    if not isinstance(found, dict) or found.get("kedit_export") != 1:
        raise DataError(f"{folder / MARK} is not that of an export which this version of kedit can read; export again")
    return found


def _free(target: Path, overwrite: bool) -> None:
    if not (target.exists() or target.is_symlink()):
        return
    if not overwrite:
        raise StoreError(f"{target} exists already; name another folder, or replace an earlier export (overwrite, --overwrite)")
    try:
        if target.is_symlink():
            raise DataError("it is a link")
        mark_of(target)
    except DataError as error:
        raise StoreError(f"{target} was not written by an export of kedit and is not replaced ({error}); name another") from error


def _settle(folder: Path) -> None:
    """Everything on the disk, readable as the user's other files are."""
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o666 & ~mask)  # a library may have made it for its owner alone
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())


def _put(temporary: Path, target: Path) -> None:
    if not target.exists():
        temporary.rename(target)
        return
    aside = temporary.with_suffix(".old")
    target.rename(aside)
    try:
        temporary.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside)


def _refused(target: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write the export {target}: {error.strerror or error}; nothing is there; name another folder")
