"""K-Viscuit's published file, and the figures of its paper held against it; skipped where the file is not on this machine."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from fakes import DoNothing, FakeBackbone
from real_data import real_data

import kedit.reproduce
from kedit.benchmarks.kviscuit import KViscuit
from kedit.evaluate import evaluate
from kedit.images import open_image

FILE = Path(kedit.reproduce.__file__).parent / "published" / "kviscuit.json"
TABLES = {name: found["published"] for name, found in json.loads(FILE.read_text(encoding="utf-8"))["artefacts"].items()}
TABLE_2, TABLE_3, TABLE_7 = (
    {model: [cell for row in rows.values() for cell in row][:width] for model, rows in TABLES[name].items()}
    for name, width in (("table2", 11), ("table3", 3), ("table7", 3))
)
COUNTS = {
    "Food": 142, "Architecture": 109, "Tool": 75, "Heritage": 62, "Agriculture": 54, "Beverage": 52, "Game": 52,
    "Celebrations": 47, "Clothes": 37, "Religion": 27,
}  # fmt: skip


def test_the_published_file_has_its_rows_types_and_categories_under_the_papers_names() -> None:
    bench = KViscuit(real_data("k-viscuit"))
    assert Counter(item.type for item in bench.items) == {"1": 237, "2": 420}
    assert Counter(item.category for item in bench.items) == COUNTS
    assert len({item.image for item in bench.items}) == 237
    ids = Counter(item.id for item in bench.items)
    assert (len(ids), Counter(ids.values())) == (593, {1: 529, 2: 64})
    assert len({case.id for case in bench.cases("test")}) == 657
    assert len(bench.cases("one_shot")) == 420  # every image has its Type 1 row


def test_published_options_named_like_letters_are_rotated_and_none_is_a_label() -> None:
    cases = KViscuit(real_data("k-viscuit"), circular=True).cases("test")
    assert {len(case.probes) for case in cases} == {4}


def test_published_photographs_are_decoded_upright_and_without_transparency() -> None:
    from PIL import Image

    folder = real_data("k-viscuit")
    bench = KViscuit(folder)
    seen: Counter[str] = Counter()
    for item in {item.image: item for item in bench.items}.values():
        path = Path(str(item.photograph.path))
        if not path.is_file():
            continue
        with Image.open(path) as raw:
            size, mode, turned = raw.size, raw.mode, raw.getexif().get(274, 1)
        opened = open_image(item.photograph)
        assert opened.mode == "RGB"
        assert opened.size == (size[::-1] if turned in (5, 6, 7, 8) else size)
        seen.update([mode, f"orientation {turned}"])
    assert sum(seen[mode] for mode in ("RGB", "L", "RGBA", "P")) == len(list((folder / "images").iterdir()))
    assert seen["L"] > 0
    assert seen["RGBA"] > 0


def test_the_published_rows_without_a_photograph_are_reported_and_the_run_finishes(tmp_path: Path) -> None:
    bench = KViscuit(real_data("k-viscuit"))
    gone = [uid for uid, _ in bench.missing]
    assert len({path for _, path in bench.missing}) == 237 - len({c.photograph.path for c in bench.items if c.uid not in gone})
    asked = [case.id for case in bench.cases("test", limit=60)]
    if not gone:
        pytest.skip("every photograph is there")
    run = evaluate(DoNothing(), FakeBackbone(), bench, tasks=["test"], limit=60, cache_dir=tmp_path / "cache")
    assert [f["case"] for f in run.failures] == [case for case in asked if case in gone]
    assert [record.case for record in run.records()] == [case for case in asked if case not in gone]


@pytest.mark.parametrize("model", TABLE_2)
def test_every_published_cell_is_a_share_of_the_files_rows_and_the_categories_add_up(model: str) -> None:
    counts = Counter(item.category for item in KViscuit(real_data("k-viscuit")).items)
    whole, *cells = TABLE_2[model]
    columns = [
        "Food",
        "Beverage",
        "Game",
        "Celebrations",
        "Religion",
        "Tool",
        "Clothes",
        "Heritage",
        "Architecture",
        "Agriculture",
    ]
    found = [_hits(cell, counts[category]) for category, cell in zip(columns, cells, strict=True)]
    assert _hits(whole, 657) == sum(found)


def test_published_accuracies_by_type_add_up_except_for_two_models_whose_entries_are_exchanged() -> None:
    types = Counter(item.type for item in KViscuit(real_data("k-viscuit")).items)
    odd = {m for m, (one, two, all_) in TABLE_3.items() if _hits(one, types["1"]) + _hits(two, types["2"]) != _hits(all_, 657)}
    assert odd == {"Claude-3-opus", "Gemini-1.5-Pro"}
    claude, gemini = (TABLE_3[name] for name in ("Claude-3-opus", "Gemini-1.5-Pro"))
    assert _hits(claude[0], 237) + _hits(gemini[1], 420) == _hits(claude[2], 657)
    assert _hits(gemini[0], 237) + _hits(claude[1], 420) == _hits(gemini[2], 657)


def test_published_accuracies_with_documents_are_shares_of_the_food_rows() -> None:
    food = Counter(item.category for item in KViscuit(real_data("k-viscuit")).items)["Food"]
    assert all(_hits(cell, food) for cells in TABLE_7.values() for cell in cells)
    without = {model: cells[0] for model, cells in TABLE_7.items()}
    alone = {model: cells[1] for model, cells in TABLE_2.items() if model in without}
    assert {model for model in without if without[model] != alone[model]} == {"LLaVA-1.6-13B"}  # one row apart


def _hits(cell: float, of: int) -> int:
    """How many of so many rows a printed percentage means; fails where it means no whole number."""
    hits = round(cell * of / 100)
    assert abs(100 * hits / of - cell) <= 0.005 + 1e-9, f"{cell} % is no share of {of} rows"
    return hits
