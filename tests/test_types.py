from __future__ import annotations

import hashlib
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from kedit.types import ImageRef, Record, Request

RED, BLUE = ImageRef(data=b"red"), ImageRef(data=b"blue")
REQUEST = Request("What is it?", (RED,), "en", "Be brief.", ("a text", BLUE))


def test_an_image_needs_exactly_one_source() -> None:
    sources = {"path": "a.png", "data": b"x", "draw": bytes}
    wrong = [{}, *({k: sources[k] for k in pair} for pair in (("path", "data"), ("path", "draw"), ("data", "draw")))]
    for arguments in wrong:
        with pytest.raises(ValueError, match="needs one of path, data"):
            ImageRef(**arguments)  # type: ignore[arg-type]


def test_an_image_is_the_same_by_path_and_by_bytes(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"red")
    assert ImageRef(path=str(file)).digest == RED.digest == hashlib.sha256(b"red").hexdigest()


def test_a_missing_image_is_noticed_only_when_it_is_needed() -> None:
    request = Request("q", (ImageRef(path="/does/not/exist.png"),))
    with pytest.raises(OSError, match="exist"):
        _ = request.key


@pytest.mark.parametrize(
    "change",
    [
        {"question": "What is it ?"},
        {"images": (BLUE,)},
        {"images": ()},
        {"language": "zh"},
        {"system": None},
        {"system": ""},
        {"context": ("a text",)},
        {"context": (BLUE, "a text")},
    ],
)
def test_every_part_of_a_request_changes_its_key(change: dict[str, object]) -> None:
    assert replace(REQUEST, **change).key != REQUEST.key  # type: ignore[arg-type]


def test_a_text_that_looks_like_an_image_has_another_key_than_the_image() -> None:
    image, text = Request("q", context=(RED,)), Request("q", context=(f'{{"image": "{RED.digest}"}}', RED.digest))
    assert image.key != text.key


def test_equal_requests_have_equal_keys_and_hashes() -> None:
    twin = replace(REQUEST)
    assert twin is not REQUEST
    assert (twin.key, hash(twin)) == (REQUEST.key, hash(REQUEST))


def test_nouns_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        REQUEST.question = "other"  # type: ignore[misc]


def test_a_record_is_identified_by_task_case_state_and_probe() -> None:
    record = Record("single", "c1", 3, "locality", 2, 5, "en", "out", "ref", True, 1, 0.5)
    assert record.key == ("single", "c1", 5, 3)


def test_a_message_about_an_unknown_name_suggests_the_nearest_and_does_not_list_thousands() -> None:
    from kedit.errors import unknown_name

    message = str(unknown_name("parameter", "layer.7.weigth", [f"layer.{n}.weight" for n in range(1_000)]))
    assert "'layer.7.weight'" in message
    assert "and 940 more" in message
    assert len(message) < 2_000
