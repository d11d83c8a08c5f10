"""kedit data check: every format is recognised by its columns, dirt and leaks are counted by kind, and the exit status tells."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes import DoNothing, FakeBackbone, FakeBenchmark
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_data import real_data
from samples import picture

from kedit import evaluate
from kedit.artefacts import save_knowledge
from kedit.benchmarks.check import Report, check
from kedit.cli import main
from kedit.types import Knowledge, Request

EDIT = {
    "src": "How many bells hang there?",
    "rephrase": "What is the number of bells?",
    "alt": "2",
    "image": "val2014/a.png",
    "image_rephrase": "val2014/b.png",
    "loc": "nq question: who drew it",
    "loc_ans": "nobody",
    "m_loc": "val2014/c.png",
    "m_loc_q": "What is this for?",
    "m_loc_a": "tea",
}
FINE = {name: EDIT[name] for name in ("src", "alt", "rephrase", "image", "loc", "loc_ans")}
RELATED = {f"{m}rel_{n}": "q?" for m in ("", "m_") for n in (1, 2)} | {f"{m}rel_{n}_ans": "a" for m in ("", "m_") for n in (1, 2)}
CHOICE = {"question": "What is it?", "options": ["bowl", "drum", "hat", "fan"], "answer": 1}
ASK = "Is there a dog in the image?"
ROWS: dict[str, dict[str, Any]] = {
    "MMEdit E-VQA": EDIT | {"pred": "no", "image_rephrase": "val2014/1_COCO_val2014_b.png"},
    "MMEdit E-IC, or another file of its shape": EDIT | {"pred": "no"},
    "VLKEB": EDIT | {"pred": "no", "image": "m.0a_1/b.png"},
    "VLKEB with one hop": EDIT | {"port_new": [{"port_edit_q": "q", "port_edit_a": "a", "port_q": "q", "port_a": "a"}]},
    "VLKEB with several hops": EDIT | {"port_new": [{"port_type": "2-hop", "Q&A": {"Question": "q", "Answer": "a"}}]},
    "MMKE-Bench (entities)": EDIT | {"knowledge_type": "entity_level"} | RELATED,
    "MMKE-Bench (visual knowledge)": EDIT
    | {"knowledge_type": "visual_knowledge", "rel": "q", "rel_ans": "a", "m_rel": "q", "m_rel_ans": "a", "one_hop_img": "d.png"},
    "MMKE-Bench (user specific)": EDIT | {"knowledge_type": "user_specific", "one_hop_img": "d.png"} | RELATED,
    "FGVEdit": FINE | {"fg_gen_q": "q", "fg_gen_a": "a", "fg_loc_q": "q", "fg_loc_a": "a"},
    "ADS-Edit": EDIT | {"image": ["a.png", "b.png"], "image_rephrase": ["c.png"], "image_type": "multi-image", "source": "x"},
    "ComprehendEdit": {
        "pid": "1",
        "question": "q?",
        "answer": "a",
        "rephrase": "r?",
        "image": "a.png",
        "locality_prompt": "l?",
        "multimodal_locality_image": "b.png",
        "multimodal_locality_prompt": "m?",
        "multimodal_locality_ground_truth": "x",
        "Category": "c",
        "source": "s",
    },
    "CROPE": {
        "sample_id": "1",
        "image": "a.png",
        "question": "Is there a clog here?",
        "answer": "No",
        "definition_images": ["b.png"],
        "definition_captions": ["A clog."],
        "definition_summary": "A shoe of wood.",
        "chapter": "Clothing",
        "metadata": {"source_language": "tr", "image_id": "1"},
    },
    "K-Viscuit": CHOICE | {"question_type": 2, "category": "Food", "id_": "Food.1.1", "image_path": "a.png"},
    "CVQA": {
        "image": "a.png",
        "ID": "1_0",
        "Subset": "('Japanese', 'Japan')",
        "Question": "何?",
        "Options": "['a1', 'b2', 'c3', 'd4']",
        "Label": 2,
    },
    "POPE": {"question_id": 1, "image": "a.png", "text": ASK, "label": "yes"},
    "POPEv2": {"image_id": 1, "image_name": "/images/a.png", "target_object": "dog", "query": ASK, "label": "Yes"},
    "POPE (hub or TSV)": {"question_id": "1", "image": "a.png", "question": ASK, "answer": "yes", "category": "random"},
    "answers to POPE": {"question": ASK, "answer": "Yes, there is."},
    "OK-VQA locality pool": {"question_id": 1, "question": "q?", "answer": ["a"] * 10, "image": "a.png"},
    "Natural Questions locality pool": {"questions": "nq question: who", "answers": "nobody"},
    "CrossCult-KIBench": {
        "case_id": "1",
        "scenario_id": "s",
        "partition": "zh",
        "image": "a.png",
        "question": "问?",
        "answer": "答",
    },
}


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Rows as a JSON array, and every image that they name beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(rows), ensure_ascii=False), encoding="utf-8")
    for value in json.loads(path.read_text(encoding="utf-8")):
        for text in _strings(value):
            if text.endswith(".png"):
                file = path.parent / text.lstrip("/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(picture(len(text)).read())
    return path


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        return [text for part in (value.values() if isinstance(value, dict) else value) for text in _strings(part)]
    return [value] if isinstance(value, str) else []


def kinds(report: Report, *, errors: bool | None = None) -> dict[str, int]:
    found = [f.kind for f in report.findings if errors is None or f.error is errors]
    return {kind: found.count(kind) for kind in dict.fromkeys(found)}


# ------------------------------------------------------------------------------------------------------------ recognition


@pytest.mark.parametrize("name", ROWS)
def test_each_format_is_recognised_and_sound_rows_are_called_sound(tmp_path: Path, name: str) -> None:
    report = check(write(tmp_path / "data.json", [ROWS[name]]))
    assert report.formats == (name,)
    assert report.findings == () and report.rows == 1 and report.status == 0
    assert report.images.get("missing", 0) == 0
    assert f"taken for {name}" in str(report) and "1 rows, sound" in str(report)


@pytest.mark.parametrize("name", ROWS)
def test_each_format_is_recognised_whatever_the_order_of_its_columns(tmp_path: Path, name: str) -> None:
    assert check(write(tmp_path / "data.json", [dict(reversed(ROWS[name].items()))])).formats == (name,)


def test_a_folder_of_several_formats_is_checked_file_by_file(tmp_path: Path) -> None:
    write(tmp_path / "edits/eval.json", [ROWS["MMEdit E-VQA"]])
    write(tmp_path / "NQ dataset/validation.json", [])
    (tmp_path / "NQ dataset/validation.json").write_text('{\n"questions": ["nq question: who", "why"],\n"answers": ["x", "y"]\n}')
    write(tmp_path / "pope.json", [ROWS["POPE"]])
    report = check(tmp_path)
    assert set(report.formats) == {"MMEdit E-VQA", "Natural Questions locality pool", "POPE"} and report.rows == 4
    assert report.files[str(tmp_path / "NQ dataset/validation.json")] == "2 rows of Natural Questions locality pool"


def test_columns_that_only_some_rows_have_tell_the_format(tmp_path: Path) -> None:
    report = check(write(tmp_path / "eval_multihop.json", [EDIT, ROWS["VLKEB with several hops"] | {"src": "Another?"}]))
    assert report.formats == ("VLKEB with several hops",)
    assert kinds(report) == {}, "a row without hops is one that a loader leaves aside for them"


def test_an_unknown_file_alone_tells_its_keys_and_what_is_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "data.json", [{"src": "q", "alt": "a", "image": "x", "rephrase": "r", "loc": "l"}])
    report = check(path)
    assert report.status == 2 and kinds(report) == {"unknown": 1}
    assert "src, alt, image, rephrase, loc" in report.findings[0].message
    assert "nearest is MMEdit E-VQA: it lacks image_rephrase, m_loc" in report.findings[0].message
    assert "nothing known is like it" in check(write(tmp_path / "other.json", [{"foo": 1}])).findings[0].message


def test_an_unknown_file_beside_known_ones_is_only_mentioned(tmp_path: Path) -> None:
    write(tmp_path / "pope.json", [ROWS["POPE"]])
    write(tmp_path / "attribution.json", [{"url": "u"}])
    report = check(tmp_path)
    assert report.status == 0 and kinds(report) == {"unknown": 1}


def test_a_tsv_and_parquet_are_checked_with_the_images_that_they_hold(tmp_path: Path) -> None:
    image = base64.b64encode(picture(0).read()).decode()
    with (tmp_path / "POPE.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([["index", "image", "question", "answer", "category"], [0, image, ASK, "Yes", "random"]])
        writer.writerow([1, base64.b64encode(picture(1).read()[:200]).decode(), ASK, "No", "random"])
    report = check(tmp_path)
    assert report.formats == ("POPE (hub or TSV)",) and report.images["found"] == 1 and report.images["broken"] == 1
    assert "row 2" in report.findings[0].where


def test_parquet_with_lists_of_images_is_checked(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="parquet files are read with pyarrow")
    import pyarrow.parquet

    images = [{"bytes": picture(k).read(), "path": None} for k in range(3)]
    row = ROWS["CROPE"] | {"image": images[0], "definition_images": images[1:], "definition_captions": ["one"]}
    pyarrow.parquet.write_table(arrow.Table.from_pylist([row]), tmp_path / "test-00000-of-00001.parquet")
    report = check(tmp_path)
    assert report.formats == ("CROPE",) and report.images["found"] == 3 and kinds(report) == {"captions": 1}


# ------------------------------------------------------------------------------------------------------------------ dirt


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("MMEdit E-VQA", {"alt": " "}, {"empty_target": False}),
        ("MMEdit E-VQA", {"alt": " 2\n"}, {"outer_whitespace": False}),
        ("MMEdit E-VQA", {"alt": "2\n3"}, {"newline": False}),
        ("MMEdit E-VQA", {"alt": "no"}, {"unchanged": False}),
        ("MMEdit E-VQA", {"rephrase": '"How many?"'}, {"quoted_rephrase": False}),
        ("MMEdit E-VQA", {"rephrase": "a?\nb?"}, {"several_rephrases": False}),
        ("MMEdit E-VQA", {"rephrase": "I'm sorry, but I cannot do that."}, {"refusal": False}),
        ("MMEdit E-VQA", {"rephrase": EDIT["src"]}, {"same_rephrase": False}),
        ("MMEdit E-VQA", {"loc": "who\u200b drew it"}, {"zero_width": False}),
        ("MMEdit E-VQA", {"m_loc_a": "itâ€™s dusk"}, {"mojibake": False}),
        ("MMEdit E-VQA", {"m_loc_a": "Édith Škaroupka – naïve"}, {}),
        ("MMEdit E-VQA", {"loc_ans": ""}, {"half": False}),
        ("MMEdit E-VQA", {"src": ""}, {"empty": True}),
        ("MMEdit E-VQA", {"src": 3}, {"malformed": True}),
        ("MMEdit E-VQA", {"image": ""}, {"empty": True}),
        ("MMEdit E-VQA", {"image": "../a.png"}, {"image_refused": True}),
        ("MMEdit E-VQA", {"image": "none.jpg"}, {"image_missing": True}),
        ("VLKEB with one hop", {"port_new": [{"port_q": "q"}]}, {"hop": True}),
        ("K-Viscuit", {"answer": 4}, {"label": True}),
        ("K-Viscuit", {"options": ["a", "b"]}, {"options": True}),
        ("K-Viscuit", {"options": ["Vitamin A", "drum", "hat", "fan"]}, {"label_in_option": False}),
        ("K-Viscuit", {"options": ["Gat", "gatjib", "hat", "fan"]}, {"option_in_option": False}),
        ("K-Viscuit", {"options": ["hat", "hat ", "drum", "fan"]}, {"same_options": True}),
        ("K-Viscuit", {"options": "nothing"}, {"malformed": True}),
        ("K-Viscuit", {"question": "What  is it?"}, {"double_space": False}),
        ("K-Viscuit", {"question_type": 1}, {"question_type": False}),
        ("K-Viscuit", {"question_type": 3}, {"question_type": True}),
        ("CVQA", {"Label": -1}, {"unlabelled": False}),
        ("CVQA", {"Label": "C"}, {}),
        ("CVQA", {"Subset": "Japanese"}, {"subset": False}),
        ("CROPE", {"answer": "maybe"}, {"label": True}),
        ("CROPE", {"definition_captions": []}, {"captions": False}),
        ("CROPE", {"definition_images": [], "definition_captions": []}, {"no_definition_image": False}),
        ("CROPE", {"definition_summary": ""}, {"no_definition": False}),
        ("CROPE", {"metadata": {}}, {"no_language": False}),
        ("POPE", {"label": "unsure"}, {"label": True}),
    ],
)
def test_each_kind_of_dirt_is_counted_and_only_what_spoils_a_measurement_is_an_error(
    tmp_path: Path, name: str, change: dict[str, Any], found: dict[str, bool]
) -> None:
    good = ROWS[name] | {"image_path": "a.png"} if name == "K-Viscuit" else ROWS[name]
    path = write(
        tmp_path / "data.json", [good, good | {"id_": "x.1", "src": "Other?", "question": "Other?", "text": ASK + "?"} | change]
    )
    report = check(path)
    own = {
        f.kind: f.error for f in report.findings if f.kind not in ("duplicate", "duplicate_id", "same_rephrase", "unreferenced")
    }
    own |= {"same_rephrase": False} if "same_rephrase" in found and change["rephrase"] == EDIT["src"] else {}
    assert own == found
    assert all(
        "row 2" in f.where or "row 2" in f.message for f in report.findings if f.kind in found and f.kind != "same_rephrase"
    )
    assert report.status == int(any(found.values()))


def test_rows_that_come_twice_are_told_by_id_and_by_image_and_question(tmp_path: Path) -> None:
    row = ROWS["K-Viscuit"]
    report = check(write(tmp_path / "data.json", [row, row | {"question": "Why?"}, row | {"id_": "Food.9.1"}]))
    assert kinds(report) == {"duplicate_id": 1, "duplicate": 1} and report.status == 0
    assert "same image and question as row 1" in next(f.message for f in report.findings if f.kind == "duplicate")


def test_a_question_of_several_splits_in_one_file_is_no_duplicate(tmp_path: Path) -> None:
    row = ROWS["POPE (hub or TSV)"]
    report = check(write(tmp_path / "data.json", [row, row | {"category": "popular"}, row]))
    assert [f.where for f in report.findings] == [f"{tmp_path / 'data.json'}, row 3"] and kinds(report) == {"duplicate": 1}


def test_images_that_no_row_names_are_mentioned(tmp_path: Path) -> None:
    write(tmp_path / "data.json", [ROWS["POPE"]])
    (tmp_path / "spare.png").write_bytes(picture(9).read())
    report = check(tmp_path)
    assert kinds(report, errors=False) == {"unreferenced": 1} and "spare.png" in report.findings[0].message


def test_images_lie_where_the_user_says(tmp_path: Path) -> None:
    path = write(tmp_path / "data/pope.json", [ROWS["POPE"]])
    (tmp_path / "photos/val2014").mkdir(parents=True)
    path.with_name("a.png").rename(tmp_path / "photos/val2014/a.png")
    assert check(path).images["missing"] == 1 and "--images" in str(check(path))
    assert check(path, images=tmp_path / "photos").images["found"] == 1


def test_a_broken_row_ends_its_file_and_not_the_check(tmp_path: Path) -> None:
    write(tmp_path / "pope.json", [ROWS["POPE"]])
    (tmp_path / "broken.jsonl").write_text(json.dumps(ROWS["POPE"]) + "\n{\n")
    report = check(tmp_path)
    assert report.status == 2 and report.rows == 1 and "broken.jsonl, line 2" in report.findings[0].message


# ----------------------------------------------------------------------------------------------------------------- leaks


def split(tmp_path: Path, train: Sequence[Mapping[str, Any]], test: Sequence[Mapping[str, Any]]) -> Report:
    write(tmp_path / "data/entity/train.json", train)
    write(tmp_path / "data/entity/eval.json", test)
    return check(tmp_path / "data")


def test_what_train_and_test_share_is_found_by_image_by_edit_and_by_locality(tmp_path: Path) -> None:
    row = ROWS["VLKEB"]
    other = row | {"src": "Where?", "image": "m.9/z.png", "loc": "other", "m_loc": "y.png"}
    report = split(tmp_path, [row, other], [row, other | {"alt": "7", "image": "m.8/w.png", "m_loc": "v.png"}])
    assert kinds(report) == {"shared_images": 1, "leak": 1, "shared_locality": 2} and report.status == 1
    messages = " ".join(f.message for f in report.findings)
    assert "1 of the 2 images" in messages and "2 of the 2 distinct loc items" in messages
    assert "1 of the 2 distinct m_loc items" in messages


def test_disjoint_splits_and_files_that_are_all_tests_leak_nothing(tmp_path: Path) -> None:
    row = ROWS["VLKEB"]
    clean = row | {"src": "Where?", "image": "m.9/z.png", "loc": "other", "m_loc": "y.png"}
    assert split(tmp_path, [row], [clean]).findings == ()
    for kind in ("random", "popular"):
        write(tmp_path / f"pope/coco_pope_{kind}.json", [ROWS["POPE"]])
    assert check(tmp_path / "pope").findings == (), "the variants share their images on purpose"


# ------------------------------------------------------------------------------------------- what kedit wrote, exit status


def kedit(*words: str) -> Any:
    return CliRunner().invoke(main, ["data", "check", *words])


def test_exit_status_tells_sound_from_spoilt_from_unreadable(tmp_path: Path) -> None:
    good = write(tmp_path / "good.json", [ROWS["POPE"]])
    bad = write(tmp_path / "bad.json", [ROWS["POPE"] | {"label": "unsure"}])
    assert kedit(str(good)).exit_code == 0
    result = kedit(str(bad))
    assert result.exit_code == 1 and "error: label, 1 times" in result.output and "bad.json, row 1" in result.output
    for path in (tmp_path / "none", write(tmp_path / "alien.json", [{"a": 1}])):
        assert kedit(str(path)).exit_code == 2
    assert kedit("hf:owner/name").exit_code == 2
    (tmp_path / "empty").mkdir()
    assert kedit(str(tmp_path / "empty")).exit_code == 2
    assert kedit(str(good), "--images", str(tmp_path / "empty")).exit_code == 1


def test_a_run_and_saved_edits_are_told_for_what_they_are(tmp_path: Path) -> None:
    evaluate({"nothing": DoNothing()}, FakeBackbone(), FakeBenchmark(1), tasks="single", out=tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.formats == ("a run of kedit",) and report.rows == 4 and report.status == 0 and "kedit report" in str(report)
    save_knowledge(tmp_path / "edits", [Knowledge(Request("q?", (picture(0),)), "a")])
    saved = check(tmp_path / "edits")
    assert saved.formats == ("edits saved by kedit",) and saved.rows == 1 and saved.images["found"] == 1
    next((tmp_path / "edits/images").iterdir()).write_bytes(b"x")
    assert kedit(str(tmp_path / "edits")).exit_code == 2, "an image that is not what was saved"


def test_a_saved_memory_is_told_and_a_damaged_one_cannot_be_read(tmp_path: Path) -> None:
    import numpy as np

    from kedit.memory.files import write as write_memory

    write_memory(tmp_path / "m", ["1"], [Knowledge(Request("q?"), "a")], np.ones((1, 4), np.float32), None)
    assert check(tmp_path / "m").formats == ("a memory saved by kedit",)
    next((tmp_path / "m").glob("keys-*")).write_bytes(b"x")
    assert kedit(str(tmp_path / "m")).exit_code == 2


# ---------------------------------------------------------------------------------------------------------- whatever comes

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("\ud800"), st.just("a\0b")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)


def _survives(path: Path, rows: Sequence[Any]) -> None:
    path.write_text(json.dumps(rows), encoding="utf-8")
    report = check(path)
    assert report.status in (0, 1, 2) and str(report)
    assert all(str(path) in finding.where or "duplicate" in finding.kind for finding in report.findings)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(list(ROWS)), st.data())
def test_no_mutated_row_of_any_format_crashes_the_check(tmp_path: Path, name: str, data: st.DataObject) -> None:
    row: dict[str, Any] = dict(ROWS[name])
    for key in data.draw(st.lists(st.sampled_from(list(row)), max_size=3)):
        row[key] = data.draw(VALUES)
    _survives(tmp_path / "data.json", [ROWS[name], row, *data.draw(st.lists(VALUES, max_size=1))])


# -------------------------------------------------------------------------------------------------------------- real files


def test_the_published_viscuit_rows_have_their_known_dirt() -> None:
    folder = real_data("k-viscuit")
    report = check(folder / "annotations.jsonl")
    assert report.formats == ("K-Viscuit",) and report.rows == 657
    found = kinds(report)
    assert found["duplicate_id"] == 64 and found["double_space"] == 2 and "duplicate" not in found
    assert len({f.where for f in report.findings if f.kind == "option_in_option"}) == 9
    assert sum(report.images.values()) == 237 and report.images["broken"] == 0
    assert report.images["found"] == len([f for f in (folder / "images").iterdir() if f.name != "118.jpg"])
    assert report.images["missing"] == found["image_missing"] == 237 - report.images["found"]


def test_the_published_edits_have_their_known_dirt() -> None:
    folder = real_data("mmedit")
    report = check(folder / "vqa_eval.json")
    assert report.formats == ("MMEdit E-VQA",) and report.rows == 2093
    expected = {"quoted_rephrase": 562, "several_rephrases": 13, "same_rephrase": 45, "refusal": 1, "duplicate": 1}
    found = kinds(report)
    assert {kind: found[kind] for kind in expected} == expected
    assert check(folder / "nq_validation.json").formats == ("Natural Questions locality pool",)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_mutated_published_row_crashes_the_check(tmp_path: Path, data: st.DataObject) -> None:
    lines = (real_data("k-viscuit") / "annotations.jsonl").read_text(encoding="utf-8").split("\n")[:20]
    edits = json.loads((real_data("mmedit") / "vqa_eval.json").read_text(encoding="utf-8"))[:20]
    row = dict(data.draw(st.sampled_from([json.loads(line) for line in lines] + edits)))
    for key in data.draw(st.lists(st.sampled_from(list(row)), min_size=1, max_size=3)):
        row[key] = data.draw(VALUES)
    _survives(tmp_path / "data.json", [row])
