"""CVQA: both published revisions, labels that are held back, and names of columns as they really are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from choice_data import OPTIONS, answered, encoded, write_parquet
from fakes import DoNothing, FakeBackbone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedit.benchmark import Benchmark
from kedit.benchmarks import benchmark
from kedit.benchmarks.cvqa import CVQA
from kedit.errors import DataError
from kedit.evaluate import evaluate
from kedit.metrics import measures


def row(k: int = 1, **changes: Any) -> dict[str, Any]:
    """A row as the hub's files hold it, with list options as in the newer revision."""
    return {
        "image": {"bytes": encoded(k), "path": f"{k}.jpg"},
        "ID": f"58740{k}_0",
        "Subset": "('Japanese', 'Japan')",
        "Question": f"これは何ですか {k}",
        "Translated Question": f"What is this {k}?",
        "Options": ["パン", " 餅", "麺", "汁 "],
        "Translated Options": OPTIONS,
        "Label": k % 4,
        "Category": "Cooking and food",
        "Image Type": "Self",
        "Image Source": "Self-open",
        "License": "CC-BY-SA",
        **changes,
    }


def written(folder: Path, *rows: Mapping[str, Any]) -> Path:
    """Rows without bytes as JSON lines, and one image that all of them show."""
    folder.mkdir(exist_ok=True)
    (folder / "1.png").write_bytes(encoded(1))
    lines = [json.dumps({"image": "1.png", **{k: v for k, v in one.items() if k != "image"}}) + "\n" for one in rows]
    (folder / "cvqa.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def test_both_published_revisions_give_the_same_questions(tmp_path: Path) -> None:
    new = [row(k) for k in range(1, 7)]
    old = [{**one, "Options": str(one["Options"]), "Translated Options": str(one["Translated Options"])} for one in new]
    cases = [
        CVQA(write_parquet(tmp_path / name / "data" / "test-0.parquet", rows)).cases("test")
        for name, rows in (("new", new), ("old", old))
    ]
    assert [c.probes[0].request.key for c in cases[0]] == [c.probes[0].request.key for c in cases[1]]
    assert [c.probes[0].reference for c in cases[0]] == ["B", "C", "D", "A", "B", "C"]
    image = cases[0][4].probes[0].request.images[0]
    assert (image.data, image.read()) == (None, encoded(5))


def test_a_question_is_asked_in_its_language_or_in_english(tmp_path: Path) -> None:
    folder = written(tmp_path / "data", row())
    local, english = CVQA(folder), CVQA(folder, translated=True)
    probe = local.cases("test")[0].probes[0]
    assert probe.request.question.startswith("これは何ですか 1\nA. パン\nB. 餅\nC. 麺\nD. 汁\n")
    assert probe.request.language == "ja"
    assert english.cases("test")[0].probes[0].request.question.startswith("What is this 1?\nA. Bread\n")
    assert english.cases("test")[0].probes[0].request.language == "en"
    assert local.revision != english.revision
    assert isinstance(benchmark(f"cvqa:{folder}"), Benchmark)


def test_results_can_be_grouped_by_country_language_and_category(tmp_path: Path) -> None:
    case = CVQA(written(tmp_path / "data", row())).cases("test")[0]
    assert {k: case.tags[k] for k in CVQA.tasks["test"].groups} == {
        "country": "Japan", "language": "Japanese", "category": "Cooking and food",
    }  # fmt: skip


@pytest.mark.parametrize("subset", ["('Japanese', 'Japan')", ["Japanese", "Japan"], '["Japanese", "Japan"]'])
def test_a_subset_is_a_pair_however_it_is_stored(tmp_path: Path, subset: object) -> None:
    item = CVQA(written(tmp_path / "data", row(Subset=subset))).items[0]
    assert (item.language, item.country) == ("Japanese", "Japan")


@pytest.mark.parametrize("label", [-1, 4, None, "", "-1", 7.0])
def test_a_row_whose_label_is_held_back_is_asked_and_counted_as_unscored(tmp_path: Path, label: object) -> None:
    bench = CVQA(written(tmp_path / "data", row(1), row(2, Label=label)))
    assert bench.unlabelled == 1
    run = evaluate(DoNothing(), FakeBackboneOf("B"), bench, cache_dir=tmp_path / "cache")
    assert len(run.records()) == 2
    (scores,) = run.scores("test")
    assert sum(scores.unscored.values()) == 1
    assert scores.overall is not None
    assert (scores.overall.mean, scores.overall.n) == (100.0, 1)


def test_options_can_be_asked_in_all_rotations(tmp_path: Path) -> None:
    bench = CVQA(written(tmp_path / "data", row(1), row(2, Label=-1)), circular=True)
    cases = bench.cases("test")
    assert [len(case.probes) for case in cases] == [4, 4]
    found = measures(answered("test", cases, lambda probe: str(probe.reference) or "A"), bench.tasks["test"].dimensions)
    assert found["circular"] is not None
    assert (found["circular"].mean, found["circular"].n) == (100.0, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Subset": "('Japanese', "}, "Subset"), ({"Subset": "('a', 'b', 'c')"}, "Subset"), ({"Subset": 3}, "Subset"),
        ({"Options": "[1, 2]"}, "options"), ({"Options": "['a'"}, "options"), ({"Label": "soup"}, "Label"),
        ({"Label": True}, "Label"), ({"Question": ""}, "question"),
    ],
)  # fmt: skip
def test_a_broken_row_is_named_by_file_and_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    bench = CVQA(written(tmp_path / "data", row(1), row(2, **change)))
    with pytest.raises(DataError, match=rf"cvqa.jsonl, line 2: .*{message}"):
        bench.cases("test")


_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_values = _scalars | st.lists(_scalars, max_size=5) | st.dictionaries(st.text(max_size=5), _scalars, max_size=3)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from([*row(), "extra"]), _values, max_size=4), translated=st.booleans())
def test_mutated_rows_are_read_or_refused_by_file_and_row(tmp_path: Path, changes: dict[str, Any], translated: bool) -> None:
    file = tmp_path / "cvqa.jsonl"
    lines = [json.dumps({**row(), "image": "1.png", **part}) + "\n" for part in ({}, changes)]
    file.write_text("".join(lines), encoding="utf-8")
    try:
        found = CVQA(file, translated=translated).cases("test")
        assert all(case.probes[0].request.question for case in found)
    except DataError as error:
        assert "cvqa.jsonl, line 2" in str(error)


class FakeBackboneOf(FakeBackbone):
    """Says the same to everything."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def _answer(self, request: Any, weights: str, limit: int) -> Any:
        from kedit.types import Answer

        return Answer(self.text, 1)
