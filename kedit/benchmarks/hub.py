"""Where a benchmark's files lie: a path on this machine, or a data set of the hub that is asked for by ``hf:owner/name``."""

from __future__ import annotations

from pathlib import Path

HUB = "hf:"


def local(path: str | Path) -> Path:
    """The folder or file on this machine; ``hf:owner/name`` is downloaded from the hub, and nothing else ever is."""
    if not str(path).startswith(HUB):
        return Path(path)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(path).removeprefix(HUB), repo_type="dataset"))
