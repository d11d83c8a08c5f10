"""K-Viscuit: reading its files, the cases of its tasks, and circular evaluation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from choice_data import OPTIONS, answered, encoded, rows, write_github, write_parquet
from fakes import DoNothing, FakeBackbone, Prepend
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedit.benchmark import Benchmark
from kedit.benchmarks import benchmark
from kedit.benchmarks.kviscuit import KViscuit
from kedit.errors import DataError, ImageError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.images import open_image
from kedit.metrics import measures
from kedit.scoring import scoring
from kedit.types import Probe


@pytest.fixture
def github(tmp_path: Path) -> Path:
    return write_github(tmp_path / "data")


def right(probe: Probe) -> str:
    return str(probe.reference)


def value(task: str, bench: KViscuit, say: Callable[[Probe], str], name: str) -> float | None:
    """A measure of a predictor on a task."""
    found = measures(answered(task, bench.cases(task), say), bench.tasks[task].dimensions)[name]
    return None if found is None else found.mean


# -- reading -------------------------------------------------------------------------------------------------------------


def test_it_is_a_benchmark_named_with_its_path_on_the_command_line(github: Path) -> None:
    found = benchmark(f"kviscuit:{github}")
    assert isinstance(found, Benchmark)
    assert len(found.cases("test")) == 9


@pytest.mark.parametrize("below", ["", "dataset", "dataset/annotations.jsonl"])
def test_folder_data_folder_and_file_give_the_same_cases_and_revision(github: Path, below: str) -> None:
    whole, part = KViscuit(github), KViscuit(github / below)
    assert [case.id for case in part.cases("test")] == [f"annotations/{k}" for k in range(1, 10)]
    assert list(part.cases("test")) == list(whole.cases("test"))
    assert part.revision == whole.revision
    assert part.missing == []


def test_repeated_ids_stay_apart_and_categories_have_the_papers_names(github: Path) -> None:
    bench = KViscuit(github)
    assert Counter(item.id for item in bench.items)["GamePlayPerformance.3.2"] == 2
    assert len({case.id for case in bench.cases("test")}) == 9
    assert Counter(item.category for item in bench.items) == {"Food": 2, "Architecture": 3, "Game": 4}
    assert Counter(item.type for item in bench.items) == {"1": 3, "2": 6}


def test_a_row_is_asked_in_the_official_words_with_its_letter_as_reference(github: Path) -> None:
    case = KViscuit(github).cases("test")[0]
    probe = case.probes[0]
    assert probe.request.question.startswith("What is thing 1.0?\n    A. Bread\n")
    assert probe.request.images[0].read() == encoded(1)
    assert probe.request.system is None
    assert probe.reference == "B"
    assert json.loads(probe.tags["options"]) == OPTIONS
    assert case.tags == {"raw": "annotations/1", "question_type": "1", "category": "Food"}


def test_the_hubs_parquet_files_give_the_same_questions_and_their_images_stay_in_the_file(tmp_path: Path, github: Path) -> None:
    found = [{**row, "image": {"bytes": encoded(int(row["image_path"][0])), "path": row["image_path"]}} for row in rows()]
    write_parquet(tmp_path / "hub" / "data" / "test-00000-of-00001.parquet", found)
    hub, folder = KViscuit(tmp_path / "hub"), KViscuit(github)
    for a, b in zip(hub.cases("test"), folder.cases("test"), strict=True):
        assert (a.probes[0].request.question, a.probes[0].reference) == (b.probes[0].request.question, b.probes[0].reference)
        image = a.probes[0].request.images[0]
        assert image.data is None
        assert image.draw is not None
        assert image.digest == b.probes[0].request.images[0].digest
    assert [case.id for case in hub.cases("test")][:2] == ["test-00000-of-00001/1", "test-00000-of-00001/2"]


def test_a_missing_photograph_keeps_its_row_and_a_run_reports_it_and_finishes(tmp_path: Path) -> None:
    bench = KViscuit(write_github(tmp_path / "data", missing=[2]))
    assert [uid for uid, _ in bench.missing] == ["annotations/3", "annotations/4", "annotations/5"]
    backbone = FakeBackbone({case.probes[0].request.question: str(case.probes[0].reference) for case in bench.cases("test")})
    run = evaluate(DoNothing(), backbone, bench, tasks=["test"], cache_dir=tmp_path / "cache")
    assert [f["case"] for f in run.failures] == [uid for uid, _ in bench.missing]
    assert all("2.png" in f["error"] for f in run.failures)
    (scores,) = run.scores("test")
    assert scores.cases == 6
    assert scores.overall is not None
    assert scores.overall.mean == 100.0
    by_type = {s.group: s.cases for s in run.scores("test", by="question_type")}
    assert by_type == {"1": 2, "2": 4}


def test_images_may_lie_elsewhere(tmp_path: Path, github: Path) -> None:
    (github / "dataset" / "images").rename(tmp_path / "photographs")
    assert len(KViscuit(github).missing) == 9
    assert KViscuit(github, images=tmp_path / "photographs").missing == []


def test_a_limit_takes_the_categories_in_turn_and_every_lower_one_is_part_of_a_higher(github: Path) -> None:
    bench = KViscuit(github)
    three = bench.cases("test", limit=3)
    assert [case.tags["category"] for case in three] == ["Food", "Architecture", "Game"]
    for n in range(9):
        assert {c.id for c in bench.cases("test", limit=n)} <= {c.id for c in bench.cases("test", limit=n + 1)}
    assert list(bench.cases("test", limit=99)) == list(bench.cases("test"))


def test_an_unknown_task_is_refused_and_retrieval_says_that_it_needs_documents(github: Path) -> None:
    with pytest.raises(UnknownNameError, match="needs documents"):
        KViscuit(github).cases("retrieval")
    with pytest.raises(UnknownNameError, match="test"):
        KViscuit(github).cases("tset")


def test_every_option_that_changes_what_is_asked_changes_the_revision(github: Path, tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [
        {}, {"circular": True}, {"noise": True}, {"prompt": "plain"}, {"language": "ko"}, {"documents": {"1.png": "text"}},
        {"documents": {"1.png": "other"}}, {"translations": {"annotations/1": {"question": "무엇?"}}},
    ]  # fmt: skip
    assert len({KViscuit(github, **given).revision for given in options}) == len(options)
    assert KViscuit(github).revision == KViscuit(github).revision


# -- tasks ---------------------------------------------------------------------------------------------------------------


def test_noise_stands_in_place_of_photographs_even_of_those_that_are_not_there(tmp_path: Path) -> None:
    data = write_github(tmp_path / "data", missing=[1, 2, 3])
    noisy = [case.probes[0].request.images[0] for case in KViscuit(data, noise=True).cases("test")]
    assert {open_image(image).size for image in noisy} == {(224, 224)}
    assert len({image.digest for image in noisy}) == 3  # one for each photograph
    again = KViscuit(data, noise=True).cases("test")[0].probes[0].request.images[0]
    assert again.digest == noisy[0].digest


def test_questions_are_asked_in_another_language_and_rows_without_a_translation_are_counted(github: Path) -> None:
    given = {
        "annotations/1": {"question": "이것은 무엇인가요?", "options": ["빵", "떡", "국수", "국"]},
        "annotations/3": {"question": "어디?"},
        "annotations/4": {"question": " "},
    }
    bench = KViscuit(github, translations=given, language="ko", prompt="plain")
    first, second = bench.cases("test")
    assert first.probes[0].request.question.startswith("이것은 무엇인가요?\nA. 빵\nB. 떡\n")
    assert first.probes[0].request.language == "ko"
    assert first.probes[0].reference == "B"
    assert "A. Bread" in second.probes[0].request.question
    assert len(bench.skipped) == 7
    assert all(reason == "no translation" for _, reason in bench.skipped)
    assert "annotations.jsonl, line 2" in bench.skipped[0][0]


def test_a_translation_with_another_number_of_options_is_named(github: Path) -> None:
    bench = KViscuit(github, translations={"annotations/1": {"question": "?", "options": ["가", "나"]}})
    with pytest.raises(DataError, match=r"key annotations/1: options holds 2, expected 4"):
        bench.cases("test")


def test_one_shot_asks_type_two_rows_after_the_pair_of_the_same_image(tmp_path: Path) -> None:
    found = [row for row in rows() if row["id_"] != "Food.1.0"]
    bench = KViscuit(write_github(tmp_path / "data", found))
    cases = bench.cases("one_shot")
    assert len(cases) == 5  # the image without a Type 1 row is left out
    assert {case.tags["question_type"] for case in cases} == {"2"}
    pair = cases[0].chain[0]
    assert (pair.request.question, pair.answer) == ("What is thing 2.0?", "Noodles")
    assert pair.request.images == cases[0].probes[0].request.images


def test_free_form_shows_no_options_and_is_scored_against_the_options_text(github: Path) -> None:
    bench = KViscuit(github)
    case = bench.cases("free_form")[0]
    (probe,) = case.probes
    assert probe.request.question == f"{bench.instruction}\nWhat is thing 1.0?"
    assert probe.reference == "Rice cake"
    assert bench.tasks["free_form"].dimension(probe.dimension).scoring == "rouge"


def test_documents_are_the_knowledge_of_the_rows_they_are_about(github: Path) -> None:
    bench = KViscuit(github, documents={"2.png": {"title": "Noodle house", "text": "about image 2"}, "Soup": "about soup"})
    cases = bench.cases("test")
    assert [len(case.chain) for case in cases] == [0, 0, 1, 1, 1, 1, 1, 1, 1]  # image 3 shows soup
    assert (cases[2].chain[0].title, cases[2].chain[0].text) == ("Noodle house", "about image 2")
    assert cases[2].chain[0].answer == "about image 2"
    assert cases[2].tags["document"] == "Noodle house"
    assert "document" not in cases[0].tags
    assert [case.id for case in bench.cases("retrieval")] == [case.id for case in cases if case.chain]
    assert {(k.title, k.text) for k in bench.library()} == {("Noodle house", "about image 2"), ("Soup", "about soup")}


def test_rows_with_and_without_a_document_are_all_scored_in_a_run(tmp_path: Path, github: Path) -> None:
    bench = KViscuit(github, documents={"2.png": "about image 2"})
    for editor in (DoNothing(), Prepend()):
        run = evaluate(editor, FakeBackbone(), bench, tasks=["test"], cache_dir=tmp_path / "cache")
        (scores,) = run.scores("test")
        assert (scores.cases, run.failures) == (9, [])


# -- circular evaluation -------------------------------------------------------------------------------------------------


def test_a_predictor_that_is_wrong_but_consistent_scores_zero_under_circular_evaluation(github: Path) -> None:
    bench = KViscuit(github, circular=True)
    case = bench.cases("test")[0]
    assert [probe.reference for probe in case.probes] == ["B", "A", "D", "C"]
    wrong = partial(_picks, at=lambda probe, shown: shown.index(next(o for o in OPTIONS if o != shown[_index(probe)])))
    assert value("test", bench, wrong, "circular") == 0.0
    assert value("test", bench, wrong, "accuracy") == 0.0
    assert value("test", bench, right, "circular") == 100.0


def test_a_predictor_with_a_favourite_position_is_exposed_by_circular_evaluation(github: Path) -> None:
    plain, circular = KViscuit(github), KViscuit(github, circular=True)
    first = value("test", plain, lambda probe: "C", "accuracy")
    assert first is not None
    assert first > 20.0  # as good as guessing
    assert value("test", circular, lambda probe: "C", "circular") == 0.0
    assert value("test", circular, lambda probe: "C", "position_bias") == 75.0


def test_a_row_whose_options_are_labels_is_asked_once_and_counts_by_that(tmp_path: Path) -> None:
    found = [{**rows()[0], "options": ["A", "B", "C", "D"], "answer": 3}, rows()[1]]
    bench = KViscuit(write_github(tmp_path / "data", found), circular=True)
    assert [len(case.probes) for case in bench.cases("test")] == [1, 4]
    assert value("test", bench, lambda probe: "D" if len(json.loads(probe.tags["options"])[0]) == 1 else "x", "circular") == 50.0


def _index(probe: Probe) -> int:
    return "ABCD".index(str(probe.reference))


def _picks(probe: Probe, at: Callable[[Probe, list[str]], int]) -> str:
    return "ABCD"[at(probe, json.loads(probe.tags["options"]))]


# -- recall of the oracle document ---------------------------------------------------------------------------------------


def test_recall_is_the_share_of_questions_for_which_the_right_document_was_found(github: Path) -> None:
    bench = KViscuit(github, documents={"1.png": {"title": "One", "text": "t"}, "2.png": {"title": "Two", "text": "u"}})
    dimensions = bench.tasks["retrieval"].dimensions
    found = answered("retrieval", bench.cases("retrieval"), right, {"title": "One", "similarity": 0.5})
    recall = measures(found, dimensions)["recall_at_1"]
    assert recall is not None
    assert recall.mean == pytest.approx(40.0)  # two of five rows are about the first image
    nothing = measures(answered("retrieval", bench.cases("retrieval"), right, {"similarity": 0.1}), dimensions)["recall_at_1"]
    assert nothing is not None
    assert nothing.mean == 0.0
    assert measures(answered("retrieval", bench.cases("retrieval"), right), dimensions)["recall_at_1"] is None
    assert scoring(dimensions[0].scoring).id.startswith(scoring("choice").id)


# -- dirt ----------------------------------------------------------------------------------------------------------------

_BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"question": ""}, "question"), ({"question": None}, "question"), ({"question": 7}, "question"),
    ({"options": ["one"]}, "options holds 1"), ({"options": ["a", " "]}, r"options\[1\]"), ({"options": "a, b"}, "options"),
    ({"options": [1, 2]}, "options"), ({"answer": 4}, "answer is 4"), ({"answer": -1}, "answer is -1"),
    ({"answer": True}, "answer is True"), ({"answer": None}, "answer is None"), ({"question_type": 3}, "question_type is 3"),
    ({"image_path": "../../etc/passwd"}, "refused"), ({"image_path": "http://x/y.jpg"}, "refused"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), _BROKEN)
def test_a_broken_row_is_named_by_file_and_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    found = rows()
    found[4].update(change)
    bench = KViscuit(write_github(tmp_path / "data", found))
    with pytest.raises(DataError, match=rf"annotations.jsonl, line 5: .*{message}"):
        bench.cases("test")


def test_what_other_files_write_differently_is_read(tmp_path: Path) -> None:
    found = rows()
    found[0].update(answer="B", options=str(OPTIONS))
    found[1].update(answer="Noodles", options=[f" {option} " for option in OPTIONS])
    del found[2]["question_type"]
    found[3].update(question_type="2", image_path="/images/2.png")
    found[4]["image_path"] = ""
    bench = KViscuit(write_github(tmp_path / "data", found))
    cases = bench.cases("test")
    assert [case.probes[0].reference for case in cases[:2]] == ["B", "C"]
    assert [item.type for item in bench.items[2:4]] == ["1", "2"]
    assert cases[3].probes[0].request.images[0].read() == encoded(2)
    with pytest.raises(ImageError, match=r"annotations.jsonl, line 5"):
        cases[4].probes[0].request.images[0].read()


_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_values = _scalars | st.lists(_scalars, max_size=5) | st.dictionaries(st.text(max_size=5), _scalars, max_size=3)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from([*rows()[0], "image", "extra"]), _values, max_size=4), at=st.integers(0, 8))
def test_mutated_rows_are_read_or_refused_by_file_and_row(tmp_path: Path, changes: dict[str, Any], at: int) -> None:
    found = rows()
    found[at].update(changes)
    file = tmp_path / "annotations.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    bench = KViscuit(file, documents={"1.png": "one", "Soup": "two"}, circular=True)
    try:
        for task in bench.tasks:
            for case in bench.cases(task):
                assert case.id
                assert all(probe.reference and probe.request.question for probe in case.probes)
    except DataError as error:
        assert f"annotations.jsonl, line {at + 1}" in str(error)
