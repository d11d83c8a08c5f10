"""Foreign files: every shape in which rows are published gives the same rows, and what cannot be read names file and row."""

from __future__ import annotations

import base64
import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import picture

from kedit.errors import DataError
from kedit.files.objects import read_objects
from kedit.files.rows import Pictures, Row, content_digest, files_of, read_rows

ROWS = [{"question": "مَن؟ 谁\u2028?", "n": k, "options": ["a", "b"]} for k in range(3)]
LINES = [json.dumps(row, ensure_ascii=False) for row in ROWS]
PARALLEL = {key: [row[key] for row in ROWS] for key in ROWS[0]}
SHAPES = {
    "lines": "\n".join(LINES) + "\n",
    "no final newline": "\n".join(LINES),
    "CRLF": "\r\n".join(LINES) + "\r\n",
    "blank lines": "\n\n" + "\n\n".join(LINES) + "\n\n",
    "byte order mark": "\ufeff" + "\n".join(LINES),
    "byte order mark on a line of its own": "\ufeff\n" + "\n".join(LINES),
    "array": json.dumps(ROWS),
    "array, indented": json.dumps(ROWS, indent=2, ensure_ascii=False),
    "array after a byte order mark": "\ufeff" + json.dumps(ROWS),
    "array, CRLF": json.dumps(ROWS, indent=1).replace("\n", "\r\n"),
    "wrapped": json.dumps({"info": "x", "data": ROWS}),
    "wrapped, indented from the second key": '{"data": [\n' + ",\n".join(LINES) + "\n]}",
    "parallel lists": json.dumps(PARALLEL),
    "parallel lists, indented": json.dumps(PARALLEL, indent=4),
}


@pytest.mark.parametrize("name", ["d.json", "d.jsonl"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_rows(tmp_path: Path, shape: str, name: str) -> None:
    file = tmp_path / "a folder with blanks" / name
    file.parent.mkdir()
    file.write_bytes(SHAPES[shape].encode())
    assert [row for _, row in read_objects(file)] == ROWS


def test_one_row_alone_is_a_row_and_not_a_list_of_its_fields(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text(LINES[0], encoding="utf-8")
    assert list(read_objects(tmp_path / "d.json")) == [("line 1", ROWS[0])]
    (tmp_path / "e.json").write_text(json.dumps(ROWS[0], indent=2), encoding="utf-8")
    assert list(read_objects(tmp_path / "e.json")) == [("row 1", ROWS[0])]
    (tmp_path / "f.json").write_text(" \n")
    assert list(read_objects(tmp_path / "f.json")) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": \n', "line 2: not valid JSON"),
        (b'{"a": 1\n{"a": 2}\n', "line 1: not valid JSON"),
        (b'[{"a": 1},', "not valid JSON"),
        (b'{"a": [1, 2], "b": [1]}', r"different lengths: a \(2\), b \(1\)"),
        (b'{"a": 1}\n{"a": "\xff"}', "line 2: cannot be read as UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "cannot be read as UTF-8"),
        (b"[" * 100_000, "not valid JSON"),
        (b"null", "expected a list of rows"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "d.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_objects(tmp_path / "d.jsonl"))
    assert str(tmp_path / "d.jsonl") in str(caught.value)


def tsv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_tsv_holds_images_as_base64_of_any_length_and_refers_to_those_of_other_rows(tmp_path: Path) -> None:
    data = picture(0, 300, 300).read()
    text = base64.b64encode(data).decode()
    assert len(text) > 131_072, "longer than the csv module reads unless told"
    rows = [{"index": "7", "image": text, "question": 'a\t"b"\nc'}, {"index": "8", "image": "7", "question": "0"}]
    found = list(read_rows(tsv(tmp_path / "d.tsv", rows)))
    assert [row.values["question"] for row in found] == ['a\t"b"\nc', "0"]
    pictures = Pictures((tmp_path,))
    first, second = (pictures.ref(row.get("image"), row) for row in found)
    assert first.data == data and first is second, "the same photograph is kept once"


def test_a_tsv_of_uneven_rows_is_an_error_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "d.tsv").write_text("a\tb\n1\t2\n1\n")
    with pytest.raises(DataError, match="row 2: 1 cells, expected the header's 2"):
        list(read_objects(tmp_path / "d.tsv"))


def test_parquet_is_read_in_batches_whatever_it_is_called(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="parquet files are read with pyarrow")
    import pyarrow.parquet

    rows = [{"question": f"q{k}", "image": {"bytes": bytes([k, 1]), "path": None}} for k in range(200)]
    pyarrow.parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "d.parquet", row_group_size=50)
    found = list(read_objects(tmp_path / "d.parquet"))
    assert [row for _, row in found] == rows and found[-1][0] == "row 200"
    (tmp_path / "d.parquet").rename(tmp_path / "e.json")
    assert len(list(read_objects(tmp_path / "e.json"))) == 200
    (tmp_path / "f.parquet").write_bytes((tmp_path / "e.json").read_bytes()[:500])
    with pytest.raises(DataError, match=r"f\.parquet: cannot be read as parquet"):
        list(read_objects(tmp_path / "f.parquet"))


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["d.json", "d.jsonl", "d.tsv", "d.parquet"]))
def test_no_bytes_crash_the_reading_without_the_files_name(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str
) -> None:
    file = tmp_path_factory.getbasetemp() / name
    file.write_bytes(data)
    try:
        list(read_objects(file))
    except DataError as error:
        assert str(file) in str(error)


# ------------------------------------------------------------------------------------------------- rows and their images


def row(**values: Any) -> Row:
    return Row(Path("d.jsonl"), "line 3", values)


def test_rows_of_files_with_one_name_in_several_folders_have_ids_of_their_own(tmp_path: Path) -> None:
    for folder in ("entity", "visual", ".cache"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "eval.json").write_text(json.dumps(ROWS))
    assert [found.uid for found in read_rows(tmp_path)] == [f"{f}/eval/{k}" for f in ("entity", "visual") for k in (1, 2, 3)]
    assert [found.uid for found in read_rows(tmp_path / "visual/eval.json")] == ["eval/1", "eval/2", "eval/3"]
    assert len(files_of(tmp_path)) == 2, "hidden folders are left aside"


def test_a_digest_follows_contents_and_settings(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"1")
    b.write_bytes(b"2")
    found = {content_digest([a, b]), content_digest([b, a]), content_digest([a]), content_digest([a], 1), content_digest([a], {})}
    assert len(found) == 5 and content_digest([a], 1) == content_digest([a], 1)


@pytest.mark.parametrize("value", [["a", "b "], ("a", "b "), "['a', 'b ']", '["a", "b "]', "('a', 'b ')"])
def test_a_list_of_texts_is_read_however_it_was_stored(value: Any) -> None:
    assert row(options=value).texts("options") == ["a", "b "]


@pytest.mark.parametrize("value", ["a, b", "3", None, [1, 2], {"a": 1}, "['a' 'b'"])
def test_what_is_no_list_of_texts_is_an_error_with_its_row(value: Any) -> None:
    with pytest.raises(DataError, match=r"d\.jsonl, line 3: options is"):
        row(options=value).texts("options")


def test_an_image_is_found_however_it_is_named(tmp_path: Path) -> None:
    picture_file = tmp_path / "mmkb_images/m.01/g_1.jpg"
    picture_file.parent.mkdir(parents=True)
    data = picture(0).read()
    picture_file.write_bytes(data)
    pictures = Pictures((tmp_path / "other", tmp_path), ("images", "mmkb_images"))
    for name in ("m.01/g_1.jpg", "/m.01/g_1.jpg", ["m.01/g_1.jpg"], {"bytes": None, "path": "m.01/g_1.jpg"}, str(picture_file)):
        assert pictures.ref(name, row()).path == str(picture_file)
    text = base64.b64encode(data).decode()
    for content in (data, bytearray(data), {"bytes": data, "path": "x"}, text, f"data:image/png;base64,{text}"):
        assert pictures.ref(content, row()).data == data
    assert [r.path or r.data for r in pictures.refs(str(["/m.01/g_1.jpg", text]), row())] == [str(picture_file), data]
    assert pictures.ref("m.01/none.jpg", row()).path == str(tmp_path / "other/m.01/none.jpg"), "a missing file keeps its row"


@pytest.mark.parametrize(
    "value", ["../x.jpg", "http://h/x.jpg", "a\0b", "", " ", None, 7, {"bytes": b"", "path": None}, b"", [1, 2]]
)
def test_what_is_no_image_of_the_data_is_refused_with_its_row(tmp_path: Path, value: Any) -> None:
    with pytest.raises(DataError, match=r"d\.jsonl, line 3: image"):
        Pictures((tmp_path,)).ref(value, row())


def test_a_name_too_long_for_the_file_system_is_an_error_with_its_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"d\.jsonl, line 3: .*too long"):
        Pictures((tmp_path,)).ref("x" * 5000 + ".jpg", row())
