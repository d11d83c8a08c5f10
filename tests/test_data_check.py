"""The report on a folder of data: each kind of damage is named, and good data is called good."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_scene import some_scenarios

from kedit.benchmarks.check import check
from kedit.benchmarks.kibench_open import KIBenchOpen
from kedit.errors import DataError


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The replica of two scenarios in each split, one raw case each."""
    bench = KIBenchOpen(root=some_scenarios(tmp_path_factory.mktemp("scenarios")))
    return bench.build(tmp_path_factory.mktemp("replica") / "out", cases=1)


@pytest.fixture
def data(good: Path, tmp_path: Path) -> Path:
    return shutil.copytree(good, tmp_path / "data")


def edit(path: Path, change: Callable[[dict[str, Any]], None], line: int = 0) -> None:
    rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    change(rows[line])
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def first_image(data: Path) -> Path:
    return data / json.loads((data / "single/test.jsonl").read_text(encoding="utf-8").splitlines()[0])["image"]


def test_the_replica_is_found_good(data: Path) -> None:
    report = check(data)
    assert report.ok and report.findings == ()
    assert report.images["found"] == len(list(data.rglob("*.png"))) and sum(report.images.values()) == report.images["found"]
    assert report.files[str(data / "single/test.jsonl")] == "4 single (single_test)"
    assert report.files[str(data / "sequential/test.jsonl")] == "2 chain (sequential_test)"
    assert report.files[str(data / "raw/single_train.jsonl")] == "2 raw (single_train)"
    assert report.rows == 16


def test_a_missing_image_is_counted_once(data: Path) -> None:
    first_image(data).unlink()
    report = check(data)
    assert not report.ok and report.images["missing"] == 1 and report.counts == {"image_missing": 1}


def test_a_truncated_image_is_broken(data: Path) -> None:
    image = first_image(data)
    image.write_bytes(image.read_bytes()[:400])
    report = check(data)
    assert not report.ok and report.images["broken"] == 1 and image.name in report.findings[0].message


def test_an_image_of_too_many_pixels_is_not_decoded(data: Path) -> None:
    image = first_image(data)
    content = bytearray(image.read_bytes())
    content[16:24] = (30000).to_bytes(4, "big") * 2  # the header's width and height
    content[29:33] = zlib.crc32(bytes(content[12:29])).to_bytes(4, "big")
    image.write_bytes(bytes(content))
    assert check(data).images["too_large"] == 1


def test_an_image_outside_the_folder_is_refused(data: Path) -> None:
    image, outside = first_image(data), data.parent / "outside.png"
    image.rename(outside)
    image.symlink_to(outside)
    report = check(data)
    assert not report.ok and report.images["refused"] == 1 and "leads outside" in report.findings[0].message


def test_a_broken_row_is_reported_and_the_other_files_are_still_checked(data: Path) -> None:
    edit(data / "single/test.jsonl", lambda row: row.update(question=""), line=2)
    report = check(data)
    assert not report.ok and report.counts == {"unreadable": 1}
    assert "test.jsonl, line 3: question is empty" in report.findings[0].message and len(report.files) == 5


@pytest.mark.parametrize("file", ["single/test.jsonl", "raw/single_test.jsonl"])
def test_an_empty_answer_is_reported(data: Path, file: str) -> None:
    edit(data / file, lambda row: row.update(answer=" ") if "answer" in row else row["qa"]["zh"].update(answer=""))
    report = check(data)
    assert not report.ok and report.counts == {"empty": 1} and "line 1" in report.findings[0].where


def test_a_text_in_another_script_is_worth_a_look_but_no_error(data: Path) -> None:
    edit(data / "single/test.jsonl", lambda row: row.update(answer="This is not Chinese at all."))
    report = check(data)
    assert report.ok and report.counts == {"wrong_script": 1}


def test_a_row_that_comes_twice_is_reported(data: Path) -> None:
    path = data / "single/test.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, lines[0]]), encoding="utf-8")
    report = check(data)
    assert report.ok and report.counts == {"duplicate": 2}, "the id, and image with question"


def test_a_generality_item_on_the_inserted_image_is_an_error(data: Path) -> None:
    def same(row: dict[str, Any]) -> None:
        row["gen"][0]["image"] = row["image"]

    edit(data / "single/test.jsonl", same)
    report = check(data)
    assert not report.ok and report.counts == {"same_image": 1}


def test_a_scenario_in_two_splits_is_an_error_and_its_answers_leak(data: Path) -> None:
    train, test = data / "raw/single_train.jsonl", data / "raw/single_test.jsonl"
    row = json.loads(test.read_text(encoding="utf-8").splitlines()[0]) | {"case_id": "copied"}
    with train.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
    report = check(data)
    assert not report.ok and report.counts == {"overlap": 1, "leak": 3}
    assert row["scenario_id"] in next(f.message for f in report.findings if f.kind == "overlap")


def test_nothing_is_downloaded_and_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="download it first"):
        check("hf:owner/name")
    with pytest.raises(DataError, match="holds no"):
        check(tmp_path)


def test_a_printed_report_names_files_numbers_and_findings(data: Path) -> None:
    for image in list(data.rglob("*.png"))[:8]:
        image.unlink()
    text = str(check(data))
    assert "test.jsonl: 4 single (single_test)" in text and "8 missing" in text
    assert text.count("there is no image") == 5 and "and 3 more" in text and text.endswith("16 rows, not sound")
