"""Pictures in parquet files: opened when they are needed, the same bytes every time, and little of them in memory."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crope_files import row, table, write_parquet

from kedit.errors import ImageError
from kedit.files.parquet import Stored, encoded, light, light_rows
from kedit.files.rows import rows_of
from kedit.types import ImageRef

COLUMNS = ("image", "definition_images")


def big_rows(count: int, size: int) -> list[dict[str, Any]]:
    """Rows whose pictures are large and differ."""
    made = [row(k, definitions=1) for k in range(count)]
    for k, one in enumerate(made):
        one["image"]["bytes"] = bytes([k]) * size
        one["definition_images"][0]["bytes"] = bytes([k + 100]) * size
    return made


def test_a_stored_picture_gives_the_bytes_of_its_place_in_any_order(tmp_path: Path) -> None:
    rows = [row(k, definitions=k % 4) for k in range(11)]
    found = [light(one, *COLUMNS).values for one in rows_of(write_parquet(tmp_path / "a.parquet", rows))]
    for k in (10, 0, 5, 5, 9, 1, 3, 2, 7, 4, 6, 8, 0):
        assert found[k]["image"]() == rows[k]["image"]["bytes"]
        assert [one() for one in found[k]["definition_images"]] == [one["bytes"] for one in rows[k]["definition_images"]]


def test_a_stored_picture_is_hashable_equal_and_can_be_sent_to_another_process(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [row(0)])
    first, again = (next(iter(rows_of(path))) for _ in range(2))
    one, two = light(first, *COLUMNS).values["image"], light(again, *COLUMNS).values["image"]
    assert one == two and hash(one) == hash(two) and ImageRef(draw=one) == ImageRef(draw=two)
    assert pickle.loads(pickle.dumps(one))() == two()


def test_only_bytes_are_left_in_the_file_and_only_of_parquet(tmp_path: Path) -> None:
    made = row(0, definitions=3)
    made["image"]["bytes"] = None
    made["definition_images"][1]["bytes"] = None
    kept = light(next(iter(rows_of(write_parquet(tmp_path / "a.parquet", [made])))), *COLUMNS).values
    assert kept["image"] == {"bytes": None, "path": "0.png"}
    assert [type(one).__name__ for one in kept["definition_images"]] == ["Stored", "dict", "Stored"]
    assert kept["question"] == made["question"]


WALK = """
import pyarrow, sys
from pathlib import Path
from kedit.files.parquet import light_rows
rows = list(light_rows(Path(sys.argv[1]), None, ("image", "definition_images")))
read = pyarrow.default_memory_pool().max_memory()
for k, row in enumerate(rows):
    assert row.values["image"]() == bytes([k]) * 200_000
    assert row.values["definition_images"][0]() == bytes([k + 100]) * 200_000
    assert not any(isinstance(value, bytes) for value in row.values.values())
print(read, pyarrow.default_memory_pool().max_memory())
"""


def test_pictures_looked_at_one_after_the_other_never_lie_in_memory_together(tmp_path: Path) -> None:
    """Arrow's highest memory in a process of its own; the file's pictures have 16 MB, those of a row group 0.8 MB."""
    path = write_parquet(tmp_path / "a.parquet", big_rows(40, 200_000), row_group_size=2)
    done = subprocess.run([sys.executable, "-c", WALK, str(path)], capture_output=True, text=True, check=True)
    reading, walking = map(int, done.stdout.split())
    assert reading < 200_000, "not one picture is read to know the rows"
    assert 400_000 < walking < 3_200_000


def changed(change: Any) -> list[dict[str, Any]]:
    rows = [row(k, definitions=2) for k in range(5)]
    change(rows[3])
    return rows


@pytest.mark.parametrize(
    "change",
    [
        lambda one: None,
        lambda one: one.update(image=None),
        lambda one: one.update(image={"bytes": None, "path": "x.png"}),
        lambda one: one.update(image={"bytes": b"", "path": "x.png"}),
        lambda one: one.update(definition_images=None),
        lambda one: one.update(definition_images=[]),
        lambda one: one.update(definition_images=[None, one["definition_images"][0]]),
        lambda one: one.update(definition_images=[one["definition_images"][0], {"bytes": None, "path": "x.png"}]),
        lambda one: one.update(definition_images=[{"bytes": None, "path": None}]),
    ],
    ids=["all", "no image", "a path", "empty", "no list", "empty list", "a null", "a path in a list", "nothing in a list"],
)
def test_rows_read_lightly_hold_what_rows_read_whole_hold(change: Any, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", changed(change), row_group_size=2)
    whole, lightly = list(rows_of(path)), list(light_rows(path, None, COLUMNS))
    assert [(one.place, one.uid) for one in lightly] == [(one.place, one.uid) for one in whole]

    def opened(cell: Any) -> Any:
        """What a cell gives in the end; bytes that are empty only fail when they are opened."""
        if isinstance(cell, list):
            return [opened(part) for part in cell]
        try:
            return cell() if callable(cell) else encoded(cell) or cell
        except ImageError:
            return {"bytes": b"", "path": "x.png"}

    for one, other in zip(whole, lightly, strict=True):
        assert {**one.values, **{name: opened(one.values[name]) for name in COLUMNS}} == {
            **other.values,
            **{name: opened(other.values[name]) for name in COLUMNS},
        }


def test_rows_of_other_writers_are_read_where_statistics_say_nothing(tmp_path: Path) -> None:
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table(changed(lambda one: None)), path, row_group_size=2, write_statistics=False)
    for one, made in zip(light_rows(path, None, COLUMNS), changed(lambda one: None), strict=True):
        assert one.values["image"]() == made["image"]["bytes"]


def test_a_picture_whose_file_is_gone_or_changed_says_which(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [row(k) for k in range(3)])
    gone = [light(one, *COLUMNS).values["image"] for one in rows_of(path)][2]
    path.unlink()
    with pytest.raises(ImageError, match=r"a\.parquet, row 3, image: image cannot be read any more"):
        gone()
    write_parquet(path, [row(0)])
    for place in (Stored(str(path), 2, "image", stamp=1), Stored(str(path), 0, "other", stamp=1)):
        with pytest.raises(ImageError, match=r"a\.parquet, row \d"):
            place()
    with pytest.raises(ImageError, match=r"row 1, definition_images\[7\]"):
        Stored(str(path), 0, "definition_images", 7, stamp=1)()
