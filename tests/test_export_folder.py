"""The folder of an export after kills and damage: the old one is not lost, nothing stays behind, errors are told."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from fakes import FakeBackbone, Lookup, Prepend
from safetensors.torch import save_file
from sessions import session

from kedit.artefacts import save_tensors
from kedit.cli import main
from kedit.errors import DataError, StoreError
from kedit.exporting import export_memory, load_memory
from kedit.exporting.folder import MARK, fresh_folder
from kedit.types import Knowledge, Request


def killed(place: Path, dies: str) -> int:
    """Replace an export in a process of its own that is killed on the way; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    rename = Path.rename

    def dying(self: Path, target: Path) -> Path:
        found = rename(self, target)
        if dies == "swapping" and target.suffix == ".old":
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    try:
        Path.rename = dying  # type: ignore[assignment,method-assign]
        with fresh_folder(place, overwrite=True) as folder:
            (folder / MARK).write_text(json.dumps({"kedit_export": 1, "kind": "new"}))
            if dies == "writing":
                os.kill(os.getpid(), signal.SIGKILL)
    finally:
        os._exit(1)


@pytest.mark.parametrize("dies", ["writing", "swapping"])
def test_after_a_kill_the_old_export_is_there_again_and_nothing_stays_behind(dies: str, tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "export") as folder:
        (folder / MARK).write_text(json.dumps({"kedit_export": 1, "kind": "old"}))
    assert killed(tmp_path / "export", dies) == -signal.SIGKILL and len(list(tmp_path.iterdir())) > 1
    with pytest.raises(StoreError, match="exists already"), fresh_folder(tmp_path / "export"):
        pass
    assert json.loads((tmp_path / "export" / MARK).read_text())["kind"] == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_an_export_that_is_still_being_written_is_not_cleared_away(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "export") as one:
        (one / MARK).write_text(json.dumps({"kedit_export": 1, "kind": "one"}))
        with fresh_folder(tmp_path / "export") as other:
            (other / MARK).write_text("{}")
            assert (one / MARK).exists()
        (tmp_path / "export" / MARK).unlink()
        (tmp_path / "export").rmdir()
    assert json.loads((tmp_path / "export" / MARK).read_text())["kind"] == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_a_disk_that_fills_up_under_a_library_is_told_as_one(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(StoreError, match="nothing is there"), fresh_folder(tmp_path / "export") as folder:
            save_file({"x": torch.zeros(10_000)}, folder / "model.safetensors")
        with pytest.raises(OSError, match="x.safetensors"):
            save_tensors(tmp_path / "x.safetensors", {"x": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change", [{"kind": None}, {"kind": 3}, {"editor": None}, {"editor": []}, {"editor": {}}, {"editor": {"class": "Prepend"}}]
)
def test_a_mark_that_lost_a_part_is_told(change: dict[str, Any], tmp_path: Path) -> None:
    editor = Prepend().attach(FakeBackbone())  # type: ignore[arg-type]
    editor.insert(Knowledge(Request("A?"), "a"))
    export_memory(editor, tmp_path / "memory")
    mark = json.loads((tmp_path / "memory" / MARK).read_text())
    (tmp_path / "memory" / MARK).write_text(json.dumps({**mark, **change}))
    with pytest.raises(DataError, match="memory"):
        load_memory(tmp_path / "memory", FakeBackbone(), editor=Prepend())  # type: ignore[arg-type]


def test_what_a_session_saved_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("kedit.backbone.load_backbone", lambda name, **_: FakeBackbone())
    one = session(Lookup())
    one.insert("A?", "a")
    one.save(tmp_path / "kept")
    words = ["export", f"{Path(__file__).with_name('fakes.py')}:Prepend", "--edits", str(tmp_path / "kept")]
    done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "memory")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "memory" / "inserted.jsonl").read_text())["answer"] == "a"
