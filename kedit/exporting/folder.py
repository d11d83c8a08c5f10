"""An export's folder: it appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from kedit.artefacts import read_json
from kedit.errors import DataError, StoreError
from kedit.locks import claim

MARK = "kedit_export.json"
"""What every export holds, and what tells one from a folder of the user's own."""


@contextmanager
def fresh_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside ``path`` that takes its name when the block ends without an error, and is removed otherwise.

    Raises StoreError where something of that name exists, unless ``overwrite`` is set and it is an export of kedit's, which
    is then replaced with all that is in it; and where the disk refuses. What an export to ``path`` that was killed left is
    taken away first, and an old export that it was about to replace put back.
    """
    target = Path(path)
    _clear_up(target)
    _free(target, overwrite)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    except OSError as error:
        raise _refused(target, error) from error
    try:
        lock = claim(target.parent, name=temporary.with_suffix(".lock").name)  # says that somebody is at work there
    except StoreError:
        temporary.rmdir()
        raise
    try:
        yield temporary
        _settle(temporary)
        _put(temporary, target)
    except StoreError:
        raise
    except (OSError, SafetensorError) as error:  # libraries write into the folder, too
        raise _refused(target, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def mark_of(folder: Path) -> dict[str, Any]:
    """What an export says of itself; raises DataError for a folder that is none."""
    found = read_json(folder / MARK)
    if not isinstance(found, dict) or found.get("kedit_export") != 1:
        raise DataError(f"{folder / MARK} is not that of an export which this version of kedit can read; export again")
    return found


def _clear_up(target: Path) -> None:
    """Take away what processes left beside the target that were killed, and none that is still at work."""
    locks = [file for file in _beside(target) if file.name.startswith(f".{target.name}.") and file.suffix == ".lock"]
    for file in locks:
        with suppress(StoreError, OSError):
            lock = claim(file.parent, name=file.name)
            aside = file.with_suffix(".old")
            if aside.exists() and not target.exists():
                aside.rename(target)
            for folder in (aside, file.with_suffix(".part")):
                shutil.rmtree(folder, ignore_errors=True)
            file.unlink(missing_ok=True)
            lock.release()


def _beside(target: Path) -> list[Path]:
    try:
        return list(target.parent.iterdir())
    except OSError:  # not there yet, or not readable: nothing of ours
        return []


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
    shutil.rmtree(aside, ignore_errors=True)  # the new one is in place, whatever the old one holds


def _refused(target: Path, error: Exception) -> StoreError:
    there = "the one that is there is as it was" if target.exists() else "nothing is there"
    return StoreError(
        f"cannot write the export {target}: {getattr(error, 'strerror', None) or error}; {there}; name another folder"
    )
