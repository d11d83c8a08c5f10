"""Folders that kedit itself wrote: runs, memories and saved edits."""

from __future__ import annotations

from pathlib import Path

from kedit.artefacts import EDITS, load_knowledge
from kedit.benchmarks.checks.images import Opened
from kedit.benchmarks.checks.report import Finding, Report
from kedit.memory import files
from kedit.run import Run
from kedit.store import CONFIG
from kedit.types import Knowledge


def own(path: Path) -> Report | None:
    """A report on what kedit wrote, None for anything else; raises DataError or StoreError for a damaged folder."""
    if (path / CONFIG).is_file():
        return _run(path)
    if (path / files.MANIFEST).is_file():
        return _knowledge(path, files.MANIFEST, "a memory saved by kedit", files.read(path).knowledge)
    if (path / EDITS).is_file():
        return _knowledge(path, EDITS, "edits saved by kedit", load_knowledge(path))
    return None


def _run(path: Path) -> Report:
    found = Run.load(path)
    records, failures = found.records(), found.failures
    taken = f"{len(records)} records of {', '.join(found.editors)} on {', '.join(found.tasks)}; look at them with kedit report"
    failed = [
        Finding("failed", f"{path}, {f['editor']}, {f['task']}", f"case {f['case']}: {f['error']}", False) for f in failures
    ]
    return Report(str(path), {str(path / CONFIG): taken}, len(records), {}, tuple(failed), ("a run of kedit",))


def _knowledge(path: Path, name: str, what: str, knowledge: list[Knowledge]) -> Report:
    opened = Opened()
    for k, item in enumerate(knowledge, 1):
        for image in (*item.request.images, *(image for image, _ in item.images)):
            opened.look(lambda image=image: image, f"{path / name}, entry {k}")  # type: ignore[misc]
    taken = f"{len(knowledge)} entries"
    return Report(str(path), {str(path / name): taken}, len(knowledge), dict(opened.counts), tuple(opened.findings), (what,))
