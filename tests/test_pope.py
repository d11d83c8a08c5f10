"""POPE: every published shape gives the same questions, one task per variant; answer files are scored in all four ways."""

from __future__ import annotations

import base64
import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeBackbone, Prepend
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_data import real_data
from samples import picture

from kedit import evaluate
from kedit.benchmark import Benchmark
from kedit.benchmarks import benchmark
from kedit.benchmarks.pope import POPE, SCORINGS, score_answers
from kedit.errors import DataError, UnknownNameError

OBJECTS = ("dog", "dining table", "skis")
ROWS = [
    {
        "question_id": k + 1,
        "image": f"COCO_val2014_{k // 2}.jpg",
        "text": f"Is there a {OBJECTS[k % 3]} in the image?",
        "label": label,
    }
    for k, label in enumerate(["yes", "no", "yes", "no"])
]
LINES = [json.dumps(row) for row in ROWS]


def lines(path: Path, rows: Sequence[Any] = ROWS, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(json.dumps(row) + end for row in rows).encode())
    return path


def nine(folder: Path) -> Path:
    """The nine question files in both of their shapes, under the published names."""
    for kind in ("random", "popular", "adversarial"):
        lines(folder / f"output/coco/coco_pope_{kind}.json", end="\n" if kind == "random" else "\r\n")
        for source in ("gqa", "aokvqa"):
            path = folder / f"output/seem/{source}/{source}_pope_seem_{kind}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps([row | {"image": f"{row['question_id']}.jpg"} for row in ROWS]))
    return folder


def test_a_folder_of_nine_files_gives_nine_tasks_named_after_their_variants(tmp_path: Path) -> None:
    bench = POPE(nine(tmp_path))
    assert isinstance(bench, Benchmark)
    assert set(bench.tasks) == {f"{s}-{k}" for s in ("coco", "gqa", "aokvqa") for k in ("random", "popular", "adversarial")}
    for name, task in bench.tasks.items():
        cases = bench.cases(name)
        assert task.name == name and len(cases) == 4 and len({case.id for case in cases}) == 4
        assert [case.probes[0].reference for case in cases] == ["yes", "no", "yes", "no"]
        assert {tag for case in cases for tag in case.tags} >= {"question_id", "variant", "category", "object", *task.groups}
        assert {(c.tags["variant"], c.tags["category"]) for c in cases} == {(name, name.partition("-")[2])}
    assert list(bench.train()) == [] and all(case.chain == () for case in bench.cases("gqa-random"))


def test_the_two_file_shapes_give_the_same_questions(tmp_path: Path) -> None:
    first = POPE(lines(tmp_path / "a/coco_pope_random.json", end="\r\n")).cases("coco-random")
    (tmp_path / "a/coco_pope_random.json").write_text(json.dumps(ROWS))
    second = POPE(tmp_path / "a").cases("coco-random")
    assert list(first) == list(second)


def test_what_is_asked_follows_the_prompt_and_names_the_object(tmp_path: Path) -> None:
    path = lines(tmp_path / "coco_pope_random.json")
    plain, worded = POPE(path), POPE(path, prompt="{question}\nOne word, {please}.")
    assert plain.cases("coco-random")[1].probes[0].request.question == "Is there a dining table in the image?"
    asked = worded.cases("coco-random", limit=2)
    assert [c.probes[0].request.question for c in asked][1] == "Is there a dining table in the image?\nOne word, {please}."
    assert [c.tags["object"] for c in plain.cases("coco-random")] == ["dog", "dining table", "skis", "dog"]
    assert plain.revision != worded.revision and plain.revision == POPE(str(path)).revision
    with pytest.raises(DataError, match="where the question goes"):
        POPE(path, prompt="Yes or no?").tasks  # noqa: B018


def test_photographs_are_found_in_several_folders_and_a_missing_one_keeps_its_question(tmp_path: Path) -> None:
    path = lines(tmp_path / "coco_pope_random.json")
    (tmp_path / "photos/val2014").mkdir(parents=True)
    (tmp_path / "photos/val2014/COCO_val2014_0.jpg").write_bytes(picture(0).read())
    cases = POPE(path, images=[tmp_path / "none", tmp_path / "photos"]).cases("coco-random")
    images = [case.probes[0].request.images[0] for case in cases]
    assert images[0].read() == picture(0).read() and len(cases) == 4
    with pytest.raises(OSError, match="COCO_val2014_1"):
        images[3].read()


def test_the_second_version_has_other_columns_and_capitals(tmp_path: Path) -> None:
    rows = [
        {
            "image_id": 9,
            "image_name": "/images/9.jpg",
            "target_object": "cup",
            "query": "Is there a cup in the image?",
            "label": "No",
        },
        {
            "image_id": 9,
            "image_name": "/coco/train2017/9.jpg",
            "target_object": "cup",
            "query": "Is there a cup?",
            "label": "Yes",
        },
    ]
    path = tmp_path / "POPEv2/dataset/annotations.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(rows))
    (tmp_path / "POPEv2/dataset/images").mkdir()
    (tmp_path / "POPEv2/dataset/images/9.jpg").write_bytes(picture(1).read())
    cases = POPE(tmp_path / "POPEv2/dataset").cases("popev2")
    assert [(case.probes[0].reference, case.tags["object"]) for case in cases] == [("no", "cup"), ("yes", "cup")]
    assert cases[0].probes[0].request.images[0].read() == picture(1).read()


def test_a_tsv_row_of_several_splits_is_asked_in_each(tmp_path: Path) -> None:
    image = base64.b64encode(picture(0).read()).decode()
    with (tmp_path / "POPE.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["index", "image", "question", "answer", "category"])
        writer.writerow([0, image, "Is there a dog in the image?", "Yes", "adversarial,popular,random"])
        writer.writerow([1, "0", "Is there a cat in the image?", "No", "random"])
    bench = POPE(tmp_path)
    assert {name: len(bench.cases(name)) for name in bench.tasks} == {"adversarial": 1, "popular": 1, "random": 2}
    assert {case.probes[0].request.images[0].digest for case in bench.cases("random")} == {picture(0).digest}


def test_the_hubs_parquet_is_read_in_both_of_its_layouts_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="parquet files are read with pyarrow")
    import pyarrow.parquet

    rows = [
        {
            "question_id": str(k),
            "question": row["text"],
            "answer": row["label"],
            "image_source": "COCO_val2014_0",
            "category": kind,
        }
        | {"image": {"bytes": picture(0).read(), "path": None}}
        for kind in ("adversarial", "random")
        for k, row in enumerate(ROWS)
    ]
    for folder in ("data", "Full"):
        (tmp_path / folder).mkdir()
    for k in range(2):
        table = arrow.Table.from_pylist(rows[4 * k : 4 * k + 4])
        pyarrow.parquet.write_table(table, tmp_path / f"data/test-0000{k}-of-00002-ab.parquet")
    bench = POPE(tmp_path / "data")
    assert {name: len(bench.cases(name)) for name in bench.tasks} == {"coco-adversarial": 4, "coco-random": 4}
    assert bench.cases("coco-random")[3].probes[0].request.images[0].read() == picture(0).read()
    pyarrow.parquet.write_table(arrow.Table.from_pylist(rows[:4]), tmp_path / "Full/adversarial-00000-of-00001.parquet")
    both = POPE(tmp_path)
    assert sorted(len(both.cases(name)) for name in both.tasks) == [4, 4, 4]


def test_every_editor_runs_and_equals_the_base_because_nothing_is_inserted(tmp_path: Path) -> None:
    path = lines(tmp_path / "coco_pope_random.json")
    for name in ("COCO_val2014_0.jpg", "COCO_val2014_1.jpg"):
        (tmp_path / name).write_bytes(picture(3).read())
    script = {row["text"]: "Yes, there is." if row["label"] == "yes" else "No." for row in ROWS}
    run = evaluate({"prepend": Prepend()}, FakeBackbone(script), benchmark(f"pope:{path}"), out=tmp_path / "run")
    assert run.failures == [] and len(run.records("prepend")) == 4
    # "dog" is asked twice: scripted by question, the last one wins
    right = [script[row["text"]].lower().startswith(row["label"]) for row in ROWS]
    scores = run.scores("coco-random")[-1]
    assert scores.overall is not None and scores.overall.mean == 100 * sum(right) / 4


# ------------------------------------------------------------------------------------------------------------- answers


def answers(path: Path, said: Sequence[str]) -> Path:
    return lines(path, [{"question": row["text"], "answer": text} for row, text in zip(ROWS, said, strict=True)])


def test_an_answers_file_is_joined_by_order_and_scored_in_four_ways_that_differ(tmp_path: Path) -> None:
    asked = lines(tmp_path / "coco_pope_random.json", end="\r\n")
    found = score_answers(asked, answers(tmp_path / "a.jsonl", ["yes.", "NO", "No", "no"]))
    assert set(found) == set(SCORINGS)
    assert found["yes-no-official"]["official_accuracy"] == 50, "NO counts as yes there"
    assert found["yes-no"]["accuracy"] == found["yes-no-vlmeval"]["vlmeval_accuracy"] == 75
    assert found["yes-no-lmms"]["lmms_accuracy"] == 50, "a full stop is one character too many there"
    macro = (2 / 3 + 4 / 5) / 2
    assert found["yes-no"]["f1"] == pytest.approx(100 * macro), "mean of the F1 of yes (1 of 2 found) and of no (2 of 2)"


def test_one_who_never_says_yes_has_no_official_precision_and_crashes_nothing(tmp_path: Path) -> None:
    asked = lines(tmp_path / "coco_pope_random.json")
    found = score_answers(asked, answers(tmp_path / "a.jsonl", ["No"] * 4))
    assert found["yes-no-official"]["official_precision"] is None and found["yes-no-official"]["official_recall"] == 0
    assert found["yes-no"]["f1"] == pytest.approx(100 / 3) and found["yes-no-official"]["official_accuracy"] == 50


def test_answers_to_other_questions_are_refused(tmp_path: Path) -> None:
    asked = lines(tmp_path / "coco_pope_random.json")
    said = [{"question": row["text"], "answer": "yes"} for row in ROWS]
    with pytest.raises(DataError, match="has 3 rows, but .* asks 4"):
        score_answers(asked, lines(tmp_path / "a.jsonl", said[:3]))
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: answers 'Is there a dining table"):
        score_answers(asked, lines(tmp_path / "a.jsonl", [said[1], said[0], *said[2:]]))
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: answer is 7"):
        score_answers(asked, lines(tmp_path / "a.jsonl", [said[0], said[1] | {"answer": 7}, *said[2:]]))


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "maybe"}, "label is 'maybe', expected yes or no"),
        ({"label": None}, "label is nothing"),
        ({"text": " "}, "text is"),
        ({"image": "../x.jpg"}, "is refused"),
        ({"image": 7}, "image is 7"),
    ],
)
def test_a_broken_row_is_an_error_that_names_file_and_row(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = lines(tmp_path / "coco_pope_random.json", [ROWS[0], ROWS[1] | change])
    with pytest.raises(DataError, match=rf"coco_pope_random\.json, line 2: .*{message}"):
        POPE(path).tasks  # noqa: B018


def test_unknown_tasks_scorings_and_folders_without_questions_are_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "coco_pope_random.json")
    with pytest.raises(UnknownNameError, match="coco-random"):
        POPE(path).cases("coco-randm")
    with pytest.raises(UnknownNameError, match="yes-no"):
        POPE(path, scoring="yes-no-oficial").tasks  # noqa: B018
    answers(tmp_path / "only/a.json", ["yes"] * 4)
    with pytest.raises(DataError, match="no question file"):
        POPE(tmp_path / "only").tasks  # noqa: B018
    lines(tmp_path / "only/coco_pope_random.json")
    assert list(POPE(tmp_path / "only").tasks) == ["coco-random"], "answers beside questions are left aside"


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.text(max_size=3), max_size=3)
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_mutated_row_crashes_without_naming_file_and_row(tmp_path: Path, data: st.DataObject) -> None:
    row: dict[str, Any] = dict(data.draw(st.sampled_from(ROWS)))
    for key in data.draw(st.lists(st.sampled_from([*row, "category", "target_object", "image_source", "id"]), max_size=3)):
        if data.draw(st.booleans()):
            row.pop(key, None)
        else:
            row[key] = data.draw(st.one_of(VALUES, st.dictionaries(st.sampled_from(["bytes", "path"]), VALUES)))
    path = lines(tmp_path / "coco_pope_random.json", [ROWS[0], row])
    try:
        bench = POPE(path)
        for name in bench.tasks:
            assert all(c.probes[0].reference in ("yes", "no") for c in bench.cases(name))
    except DataError as error:
        assert "coco_pope_random.json, line 2" in str(error)


# ------------------------------------------------------------------------------------------------------------- real files


def test_the_published_files_have_the_published_numbers() -> None:
    bench = POPE(real_data("pope"))
    assert set(bench.tasks) >= {"coco-random", "coco-popular", "coco-adversarial"}
    for name in bench.tasks:
        cases = bench.cases(name)
        labels = Counter(case.probes[0].reference for case in cases)
        images = Counter(case.probes[0].request.images[0] for case in cases)
        expected = {"yes": 500, "no": 500} if name == "popev2" else {"yes": 1500, "no": 1500}
        assert labels == expected and len({case.id for case in cases}) == len(cases)
        assert all(case.tags["object"] for case in cases)
        if name.startswith("coco"):
            assert set(images.values()) == {6} and len(images) == 500
