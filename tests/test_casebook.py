from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from fake_runs import picture
from fakes import DoNothing, FakeBackbone, FakeBenchmark, Lookup
from PIL import Image

from kedit import casebook
from kedit.casebook import Casebook, read_cases, read_image
from kedit.errors import DataError, StoreError
from kedit.evaluate import evaluate
from kedit.types import Case, ImageRef, Knowledge, Probe, Request


def a_case(id: str = "c", *images: ImageRef, context: tuple[str | ImageRef, ...] = ()) -> Case:
    request = Request("what?", images, "en", context=context)
    return Case(id, (Knowledge(request, "this"),), (Probe("reliability", request, "this"),), {"raw": "1"})


def test_evaluating_keeps_every_case_and_image_once_for_all_editors(tmp_path: Path) -> None:
    benchmark = FakeBenchmark(2, images={n: picture(n) for n in range(2)})
    evaluate([DoNothing(), Lookup()], FakeBackbone(), benchmark, out=tmp_path / "run")
    rows = list(read_cases(tmp_path / "run"))
    expected = [(task, case.id) for task in benchmark.tasks for case in benchmark.cases(task)]
    assert [(row["task"], row["id"]) for row in rows] == expected
    assert rows[0]["probes"][0]["request"]["question"] == "q 0 zh?"
    assert rows[0]["probes"][0]["request"]["images"] == [picture(0).digest]
    assert len((tmp_path / "run" / "cases.jsonl").read_text().splitlines()) == len(expected)
    assert len(list((tmp_path / "run" / "images").iterdir())) == 2


def test_a_run_that_is_resumed_or_repeated_doubles_nothing(tmp_path: Path) -> None:
    benchmark = FakeBenchmark(2, images={0: picture(0)})
    evaluate([Lookup()], FakeBackbone(), benchmark, out=tmp_path / "run")
    before = (tmp_path / "run" / "cases.jsonl").read_bytes()
    evaluate([Lookup()], FakeBackbone(), benchmark, out=tmp_path / "run")
    (tmp_path / "run" / "records" / "lookup.jsonl").unlink()
    evaluate([Lookup()], FakeBackbone(), benchmark, out=tmp_path / "run")
    assert (tmp_path / "run" / "cases.jsonl").read_bytes() == before


def test_a_torn_last_case_is_dropped_and_written_again(tmp_path: Path) -> None:
    Casebook(tmp_path).add("t", a_case("first"))
    Casebook(tmp_path).add("t", a_case("second"))
    whole = (tmp_path / "cases.jsonl").read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        (tmp_path / "cases.jsonl").write_bytes(whole[:cut])
        assert [row["id"] for row in read_cases(tmp_path)] == ["first"]
        Casebook(tmp_path).add("t", a_case("second"))
        assert (tmp_path / "cases.jsonl").read_bytes() == whole


@pytest.mark.parametrize("bad", [ImageRef(path="/nowhere.png"), ImageRef(data=b"no image"), ImageRef(path="null\0byte")])
def test_an_image_that_cannot_be_read_is_left_out_and_stops_nothing(tmp_path: Path, bad: ImageRef) -> None:
    good = picture(1)
    Casebook(tmp_path).add("t", a_case("c", bad, good))
    (row,) = read_cases(tmp_path)
    assert row["probes"][0]["request"]["images"][1] == good.digest
    assert [path.stem for path in (tmp_path / "images").iterdir()] == [good.digest]


def test_a_full_disk_is_reported_and_the_case_is_written_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
        patch.setattr(casebook, "replace_file", full)
        Casebook(tmp_path).add("t", a_case("c", picture(1)))
    assert list(read_cases(tmp_path)) == []
    Casebook(tmp_path).add("t", a_case("c", picture(1)))
    assert read_image(tmp_path, picture(1).digest) is not None


def test_kept_images_are_small_copies_under_the_digest_of_the_original(tmp_path: Path) -> None:
    image = picture(3, size=(1000, 400))
    Casebook(tmp_path).add("t", a_case("c", image))
    kept = read_image(tmp_path, image.digest)
    assert kept is not None
    assert Image.open(str(kept.path)).size == (384, 154)
    assert Image.open(str(kept.path)).getpixel((5, 5)) == (3 * 37, 3 * 91 % 256, 160)


def test_images_and_texts_in_the_context_are_kept_in_their_order(tmp_path: Path) -> None:
    image = picture(4)
    Casebook(tmp_path).add("t", a_case("c", context=("before", image, "after")))
    (row,) = read_cases(tmp_path)
    assert row["chain"][0]["request"]["context"] == ["before", {"image": image.digest}, "after"]
    assert read_image(tmp_path, image.digest) is not None


def test_a_digest_that_is_none_reaches_no_file(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "secret.png")
    assert read_image(tmp_path, "../secret") is None
    assert read_image(tmp_path, "0" * 64) is None


def test_a_row_that_is_no_case_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text(json.dumps({"task": "t"}) + "\n")
    with pytest.raises(DataError, match=r"cases\.jsonl: not a case"):
        list(read_cases(tmp_path))
