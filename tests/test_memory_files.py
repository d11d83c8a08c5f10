"""A saved memory comes back whole or is refused, and a kill while saving leaves the old one or the new one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import samples
import torch

from kedit import artefacts
from kedit.artefacts import save_tensors
from kedit.errors import DataError
from kedit.memory import Memory
from kedit.types import Knowledge, Request

SEEN = Knowledge(Request("问题\u2028?", (samples.A,), "zh"), "答", "title", "text", ((samples.B, "caption"),))


def units(count: int, width: int = 6, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    found = np.random.default_rng(seed).standard_normal((count, width))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def memory_of(count: int, seed: int = 0, **settings: Any) -> Memory:
    memory = Memory(**settings)
    items = [SEEN, *(Knowledge(Request(f"q{at}"), f"a{at} {seed}") for at in range(1, count))]
    memory.add_all([f"{seed}-{at}" for at in range(count)], items, units(count, seed=seed))
    return memory


def content(memory: Memory) -> list[tuple[Any, ...]]:
    """Ids, knowledge and keys, images by what they hold."""
    found = [(id, memory[id], memory.key(id).tobytes()) for id in memory]
    return [
        (id, item.request.key, item.answer, item.title, item.text, [(i.digest, text) for i, text in item.images], key)
        for id, item, key in found
    ]


def test_what_was_saved_comes_back_in_order_with_the_same_bits(tmp_path: Path) -> None:
    memory = memory_of(7, encoder="router 1")
    memory.remove("0-3")
    memory.save(tmp_path / "new" / "folder")
    back = Memory(index="numpy").load(tmp_path / "new" / "folder")
    assert content(back) == content(memory)
    assert (back.index, back.encoder) == ("numpy", "router 1")
    queries = units(20, seed=9)
    assert back.search_k(queries, 3) == memory.search_k(queries, 3)


def test_an_empty_memory_can_be_saved_and_loaded_over_another(tmp_path: Path) -> None:
    Memory().save(tmp_path)
    assert len(memory_of(3).load(tmp_path)) == 0


def test_a_loaded_memory_can_be_changed_and_saved_in_its_own_folder(tmp_path: Path) -> None:
    memory_of(4).save(tmp_path)
    memory = Memory().load(tmp_path)
    memory.remove("0-1")
    memory.add("new", Knowledge(Request("new", (samples.C,)), "a"), units(1)[0])
    memory.save(tmp_path)
    assert content(Memory().load(tmp_path)) == content(memory)
    assert len(list(tmp_path.glob("*.jsonl"))) == len(list(tmp_path.glob("*.safetensors"))) == 1


def test_keys_of_another_encoder_are_refused(tmp_path: Path) -> None:
    memory_of(3, encoder="router 1").save(tmp_path)
    kept = memory_of(2, seed=5, encoder="router 2")
    before = content(kept)
    with pytest.raises(DataError, match="'router 1', expected 'router 2'"):
        kept.load(tmp_path)
    assert content(kept) == before
    memory_of(3).save(tmp_path)
    with pytest.raises(DataError, match="None, expected 'router 2'"):
        kept.load(tmp_path)


@pytest.mark.parametrize("kill", range(5))
def test_a_kill_while_saving_leaves_the_old_memory_or_the_new_one(
    kill: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = memory_of(4, seed=1), memory_of(5, seed=2)
    new.add("unseen", Knowledge(Request("picture", (samples.C,)), "a"), units(1)[0])
    old.save(tmp_path)
    plain, calls = artefacts.replace_file, iter(range(99))

    def deadly(path: Path, write: Any) -> None:
        if next(calls) == kill:
            path.with_suffix(".part").write_bytes(b"torn")
            raise KeyboardInterrupt
        plain(path, write)

    monkeypatch.setattr(artefacts, "replace_file", deadly)
    if kill < 4:  # an image, the entries, the keys, the manifest
        with pytest.raises(KeyboardInterrupt):
            new.save(tmp_path)
    else:
        new.save(tmp_path)
    monkeypatch.setattr(artefacts, "replace_file", plain)
    assert content(Memory().load(tmp_path)) == content(old if kill < 4 else new)
    new.save(tmp_path)
    assert content(Memory().load(tmp_path)) == content(new)
    assert len(list(tmp_path.glob("*.jsonl"))) == len(list(tmp_path.glob("*.safetensors"))) == 1


def test_a_kill_before_old_files_are_deleted_leaves_the_new_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory_of(4, seed=1).save(tmp_path)
    new = memory_of(5, seed=2)
    monkeypatch.setattr(Path, "glob", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        new.save(tmp_path)
    monkeypatch.undo()
    assert content(Memory().load(tmp_path)) == content(new)


def entries(folder: Path) -> Path:
    return next(folder.glob("entries-*.jsonl"))


def keys(folder: Path) -> Path:
    return next(folder.glob("keys-*.safetensors"))


def rewrite(folder: Path, **changes: Any) -> None:
    file = folder / "memory.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def rekey(folder: Path, tensor: torch.Tensor, name: str = "keys") -> None:
    """Put other keys in place, with a manifest that vouches for them."""
    import hashlib

    save_tensors(keys(folder), {name: tensor})
    files = json.loads((folder / "memory.json").read_text())["files"]
    files["keys"]["sha256"] = hashlib.sha256(keys(folder).read_bytes()).hexdigest()
    rewrite(folder, files=files)


BREAKS = {
    "no manifest": lambda f: (f / "memory.json").unlink(),
    "torn manifest": lambda f: (f / "memory.json").write_text('{"format": 1, '),
    "another format": lambda f: rewrite(f, format=2),
    "no object": lambda f: (f / "memory.json").write_text("[1]"),
    "no files": lambda f: rewrite(f, files={}),
    "a file elsewhere": lambda f: rewrite(
        f, files={"entries": {"name": "entries-/../x", "sha256": ""}, "keys": {"name": "k", "sha256": ""}}
    ),
    "no entries": lambda f: entries(f).unlink(),
    "no keys": lambda f: keys(f).unlink(),
    "torn entries": lambda f: entries(f).write_bytes(entries(f).read_bytes()[:-20]),
    "torn keys": lambda f: keys(f).write_bytes(keys(f).read_bytes()[:-4]),
    "one changed bit of a key": lambda f: keys(f).write_bytes(keys(f).read_bytes()[:-1] + bytes([keys(f).read_bytes()[-1] ^ 1])),
    "an id too few": lambda f: rewrite(f, ids=["a", "b"]),
    "an id twice": lambda f: rewrite(f, ids=["a", "a", "b"]),
    "another count": lambda f: rewrite(f, count=4),
    "another width": lambda f: rewrite(f, width=7),
    "an encoder that is no text": lambda f: rewrite(f, encoder=1),
    "keys of no unit length": lambda f: rekey(f, torch.ones(3, 6)),
    "keys that are no numbers": lambda f: rekey(f, torch.full((3, 6), float("nan"))),
    "keys of double width": lambda f: rekey(f, torch.eye(3, 6, dtype=torch.float64)),
    "no tensor of keys": lambda f: rekey(f, torch.eye(3, 6), name="other"),
    "a changed image": lambda f: next((f / "images").iterdir()).write_bytes(b"x"),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_or_foreign_folder_is_refused_and_the_memory_stays(broken: str, tmp_path: Path) -> None:
    memory_of(3).save(tmp_path)
    BREAKS[broken](tmp_path)  # type: ignore[no-untyped-call]
    memory = memory_of(2, seed=5, encoder=None)
    before = content(memory)
    with pytest.raises(DataError, match=str(tmp_path)):
        memory.load(tmp_path)
    assert (content(memory), memory.encoder) == (before, None)
