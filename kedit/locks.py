"""Files and folders that several processes may want at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from kedit.errors import StoreError


def cache_folder(given: str | Path | None = None) -> Path:
    """Where what can be computed again is kept: the folder given, else the environment's KEDIT_CACHE, else ~/.cache/kedit."""
    return Path(given or os.environ.get("KEDIT_CACHE") or Path.home() / ".cache" / "kedit")


def claim(folder: Path, kind: str = "process", *, name: str = ".lock") -> FileLock:
    """The lock of a folder, which is made where it is missing, for this process alone; StoreError where another has it."""
    lock = FileLock(folder / name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise StoreError(f"{folder} is in use by another {kind}; wait for it, or name another folder") from None
    except OSError as error:
        raise StoreError(f"cannot use the folder {folder}: {error.strerror or error}; name one that can be written") from error
    return lock


@contextmanager
def taking_turns(path: Path) -> Iterator[None]:
    """Inside the block, no other process reads or writes the cache file ``path``; its folder is made where it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{path}.lock")
        lock.acquire()
    except OSError as error:
        hint = "set KEDIT_CACHE or cache_dir to a folder that can be written"
        raise StoreError(f"cannot use the cache {path}: {error.strerror or error}; {hint}") from error
    try:
        yield
    finally:
        lock.release()
