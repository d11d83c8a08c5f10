"""What is written comes back equal, is written whole or not at all, and cannot run code or leave its folder."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import samples
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kedit import artefacts
from kedit.artefacts import load_knowledge, load_tensors, read_json, save_knowledge, save_tensors, write_json
from kedit.errors import DataError, ImageError
from kedit.types import ImageRef, Knowledge, Request

FULL = Knowledge(
    Request("问题\u2028\n؟", (samples.A, samples.B), "ar", "النظام", ("text", samples.C, "more")),
    "answer \U0001f600",
    "title",
    "a document",
    ((samples.B, "caption"), (samples.A, "")),
)
BARE = Knowledge(Request("q"), "a")


def content(item: Knowledge) -> tuple[Any, ...]:
    """All fields, images by what they hold: references by path and by bytes are then the same."""
    return item.request.key, item.answer, item.title, item.text, tuple((image.digest, caption) for image, caption in item.images)


# -- knowledge ---------------------------------------------------------------------------------------------------------


def test_knowledge_comes_back_with_every_field(tmp_path: Path) -> None:
    save_knowledge(tmp_path, [FULL, BARE])
    back = load_knowledge(tmp_path)
    assert [content(item) for item in back] == [content(FULL), content(BARE)]
    assert back[1] == BARE
    assert back[0].request.context[0] == "text"
    assert [r for r in back[0].request.images if not Path(str(r.path)).is_relative_to(tmp_path)] == []


text = st.text(st.characters(codec=None))


@settings(max_examples=40, deadline=None)
@given(text, text, st.none() | text, st.lists(text, max_size=3), text)
def test_any_text_survives_the_round_trip(question: str, answer: str, system: str | None, context: list[str], title: str) -> None:
    item = Knowledge(Request(question, system=system, context=tuple(context)), answer, title)
    with tempfile.TemporaryDirectory() as folder:
        save_knowledge(folder, [item, BARE])
        assert load_knowledge(folder) == [item, BARE]


def test_images_keep_bytes_and_suffix_and_are_stored_once(tmp_path: Path) -> None:
    (tmp_path / "one.JPG").write_bytes(b"\xff\xd8\xff rest")
    by_path, by_bytes = ImageRef(path=str(tmp_path / "one.JPG")), ImageRef(data=b"\xff\xd8\xff rest")
    for image in (by_path, by_bytes):
        save_knowledge(tmp_path / "out", [Knowledge(Request("q", (image, image)), "a")])
    (stored,) = (tmp_path / "out" / "images").iterdir()
    assert stored.name == f"{by_path.digest}.jpg"
    assert stored.read_bytes() == b"\xff\xd8\xff rest"


def test_saving_again_replaces_the_list(tmp_path: Path) -> None:
    save_knowledge(tmp_path, [FULL, BARE])
    save_knowledge(tmp_path, [])
    assert load_knowledge(tmp_path) == []


def test_a_missing_image_is_an_error_and_leaves_the_old_list(tmp_path: Path) -> None:
    save_knowledge(tmp_path, [BARE])
    with pytest.raises(ImageError, match=r"gone\.png"):
        save_knowledge(tmp_path, [FULL, Knowledge(Request("q", (ImageRef(path="gone.png"),)), "a")])
    assert load_knowledge(tmp_path) == [BARE]


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "malformed"),
        ("[1]", "malformed"),
        ('"text"', "malformed"),
        ("{}", "'request' is missing"),
        ('{"request": 3}', "malformed"),
        ("ANSWER: 3", "malformed"),
    ],
)
def test_a_malformed_line_is_reported_with_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    save_knowledge(tmp_path, [BARE])
    with (tmp_path / "edits.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=rf"edits\.jsonl, line 2.*{message}"):
        load_knowledge(tmp_path)


def test_a_wrong_type_inside_a_line_is_reported(tmp_path: Path) -> None:
    save_knowledge(tmp_path, [BARE])
    row = json.loads((tmp_path / "edits.jsonl").read_text("utf-8"))
    (tmp_path / "edits.jsonl").write_text(json.dumps({**row, "answer": 7}), "utf-8")
    with pytest.raises(DataError, match=r"line 1: expected a text, got 7"):
        load_knowledge(tmp_path)


@pytest.mark.parametrize("name", ["../outside.png", "/etc/hostname", "images/../../outside.png", "images/link.png"])
def test_images_outside_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.png").write_bytes(b"secret")
    folder = tmp_path / "edits"
    save_knowledge(folder, [Knowledge(Request("q", (samples.A,)), "a")])
    (folder / "images" / "link.png").symlink_to(tmp_path / "outside.png")
    row = json.loads((folder / "edits.jsonl").read_text("utf-8"))
    row["request"]["images"][0]["image"] = name
    (folder / "edits.jsonl").write_text(json.dumps(row), "utf-8")
    with pytest.raises(DataError, match="lies outside"):
        load_knowledge(folder)


@pytest.mark.parametrize("damage, message", [(lambda f: f.unlink(), "missing"), (lambda f: f.write_bytes(b"other"), "SHA-256")])
def test_a_lost_or_changed_image_is_noticed(tmp_path: Path, damage: Any, message: str) -> None:
    save_knowledge(tmp_path, [Knowledge(Request("q", (samples.A,)), "a")])
    damage(next((tmp_path / "images").iterdir()))
    with pytest.raises(DataError, match=message):
        load_knowledge(tmp_path)


def test_a_folder_without_edits_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"edits\.jsonl"):
        load_knowledge(tmp_path)


# -- JSON and tensors --------------------------------------------------------------------------------------------------


def test_json_comes_back_equal_and_readable(tmp_path: Path) -> None:
    value = {"name": "月饼", "list": [1, 2.5, None, True], "odd": "\ud800"}
    write_json(tmp_path / "new" / "a.json", value)
    assert read_json(tmp_path / "new" / "a.json") == value
    write_json(tmp_path / "b.json", {"name": "月饼"})
    assert "月饼" in (tmp_path / "b.json").read_text("utf-8")


@pytest.mark.parametrize("data", [b"{", b"", b"\xff\xfe\x00"])
def test_broken_json_is_reported_with_its_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.json is not valid"):
        read_json(tmp_path / "a.json")


def test_missing_json_is_reported_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.json does not exist"):
        read_json(tmp_path / "a.json")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"x": object()})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: write_json(tmp_path / "a.json", 2), lambda: save_tensors(tmp_path / "t.safetensors", {})):
        with pytest.raises(OSError, match="No space left"):
            write()
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert read_json(tmp_path / "a.json") == 1


def test_tensors_come_back_bit_for_bit_whatever_their_layout(tmp_path: Path) -> None:
    base = torch.randn(4, 6)
    tensors = {"t": base.t(), "view": base[:, ::2], "shared": base, "half": base.bfloat16(), "scalar": torch.tensor(3)}
    save_tensors(tmp_path / "a.safetensors", tensors)
    back = load_tensors(tmp_path / "a.safetensors")
    assert set(back) == set(tensors)
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)
    save_tensors(tmp_path / "none.safetensors", {})
    assert load_tensors(tmp_path / "none.safetensors") == {}


@pytest.mark.parametrize("name", ["a.pt", "a.pkl", "a.bin", "a.ckpt", "a", "a.safetensors.pt"])
def test_files_that_could_run_code_are_refused(tmp_path: Path, name: str) -> None:
    torch.save({"a": torch.zeros(1)}, tmp_path / name)
    with pytest.raises(DataError, match=r"\.safetensors only"):
        load_tensors(tmp_path / name)
    with pytest.raises(DataError, match=r"\.safetensors only"):
        save_tensors(tmp_path / name, {})


def test_a_broken_or_missing_tensor_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\x00" * 20)
    for name in ("a.safetensors", "b.safetensors"):
        with pytest.raises(DataError, match=name):
            load_tensors(tmp_path / name)


def test_written_files_have_ordinary_permissions(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", 1)
    (tmp_path / "plain").write_text("1")
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert artefacts.EDITS == "edits.jsonl"
