"""The miniature: drawn, written here, read by the same code, and enough for every task and measure."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from fakes import DoNothing, FakeBackbone, Prepend

from kedit.benchmark import Benchmark
from kedit.benchmarks import Buildable, benchmark
from kedit.benchmarks.crope import CROPE
from kedit.benchmarks.mini_crope import CONCEPTS, MiniCROPE
from kedit.benchmarks.scene import scenarios
from kedit.errors import DataError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.images import open_image
from kedit.metrics import measures


def content(bench: Any, task: str) -> list[Any]:
    return [
        (
            case.id,
            dict(case.tags),
            [(probe.request.key, probe.reference) for probe in case.probes],
            [(k.request.key, k.answer, k.title, k.text, [(i.digest, c) for i, c in k.images]) for k in case.chain],
        )
        for case in bench.cases(task)
    ]


def test_it_has_every_task_language_chapter_and_answer() -> None:
    bench = benchmark("mini-crope")
    assert isinstance(bench, Benchmark) and isinstance(bench, Buildable)
    assert list(bench.tasks) == ["test", "easy", "three_images"]
    cases = bench.cases("test")
    assert 24 <= len(cases) <= 40 and len({case.id for case in cases}) == len(cases)
    assert {case.tags["source_language"] for case in cases} == {"qaa", "qab", "qac"}
    assert len({case.tags["chapter"] for case in cases}) == 3
    assert Counter(case.tags["answer"] for case in cases) == {"no": 18, "yes": 12}
    assert {len(case.chain[0].images) for case in cases} == {1, 2, 3, 4}
    assert any("" in [caption for _, caption in case.chain[0].images] for case in cases), "captions that do not align"
    answers = defaultdict(set)
    for case in cases:
        answers[case.tags["consistency_group"]].add(case.tags["answer"])
    assert sum(found == {"yes", "no"} for found in answers.values()) >= 9


def test_a_no_shows_another_concept_than_the_one_asked_for_and_a_yes_the_same() -> None:
    drawn = {concept.name: (concept.scenario, concept.colour, concept.count) for concept in CONCEPTS}
    assert len(set(drawn.values())) == len(CONCEPTS), "told apart by what is drawn"
    for case in MiniCROPE().cases("test"):
        spec = case.probes[0].request.images[0].draw.spec  # type: ignore[union-attr]
        shown = (spec.scenario, spec.colour, spec.count)
        assert (shown == drawn[case.tags["concept"]]) == (case.tags["answer"] == "yes")
        for image, _ in case.chain[0].images:
            spec = image.draw.spec  # type: ignore[union-attr]
            assert (spec.scenario, spec.colour, spec.count) == drawn[case.tags["concept"]]


def test_every_concept_can_be_drawn_and_no_two_pictures_are_the_same() -> None:
    for concept in CONCEPTS:
        known = scenarios()[concept.scenario]
        assert concept.colour in known["colours"] and concept.count in known["counts"]
        assert concept.name in concept.summary.lower()
    first = {case.chain[0].title: case.chain[0].images for case in MiniCROPE().cases("test")}
    pictures = [image for images in first.values() for image, _ in images]
    pictures += list({case.probes[0].request.images[0]: None for case in MiniCROPE().cases("test")})
    assert len({image.digest for image in pictures}) == len(pictures) == 25 + 18
    assert open_image(pictures[0]).size == (224, 224)


@pytest.mark.parametrize("layout", ["jsonl", "parquet"])
def test_what_is_written_is_read_as_the_same_cases(layout: str, tmp_path: Path) -> None:
    bench = MiniCROPE()
    found = CROPE(bench.build(tmp_path / "out", layout=layout))
    for task in bench.tasks:
        assert content(found, task) == content(bench, task)
    with pytest.raises(DataError, match="not an empty folder"):
        bench.build(tmp_path / "out")
    with pytest.raises(UnknownNameError, match="layout 'csv'"):
        bench.build(tmp_path / "new", layout="csv")


def test_a_smaller_folder_has_some_rows_of_every_concept(tmp_path: Path) -> None:
    cases = CROPE(MiniCROPE().build(tmp_path / "out", cases=1)).cases("test")
    assert [case.tags["image_concept"] for case in cases] == [concept.name for concept in CONCEPTS]
    with pytest.raises(DataError, match="cases must be 1 or more"):
        MiniCROPE().build(tmp_path / "none", cases=0)


def test_it_is_the_same_every_time_and_options_change_its_revision() -> None:
    assert MiniCROPE().revision == MiniCROPE().revision
    others = {MiniCROPE(seed=1).revision, MiniCROPE(prompts=("{question}",)).revision, MiniCROPE(which={"selmet": 1}).revision}
    assert len(others | {MiniCROPE().revision}) == 4


def test_its_sheet_is_a_picture(tmp_path: Path) -> None:
    from PIL import Image

    with Image.open(MiniCROPE().sheet(tmp_path / "new" / "sheet.png")) as sheet:
        assert sheet.size == (540, 660)


def test_it_runs_with_any_editor_and_every_measure_has_a_value(tmp_path: Path) -> None:
    bench = MiniCROPE()
    words = {p.request.question: ("Yes" if k % 3 else "No") for k, c in enumerate(bench.cases("test")) for p in c.probes}
    run = evaluate([DoNothing(), Prepend()], FakeBackbone(words), bench, tasks="test", limit=9, cache_dir=tmp_path)
    assert not run.failures
    records = run.records("donothing")
    assert len(records) == 27 and Counter(record.tags["source_language"] for record in records) == dict.fromkeys(
        ("qaa", "qab", "qac"), 9
    )
    found = measures(records, bench.tasks["test"].dimensions)
    missing = [name for name, value in found.items() if value is None]
    assert not missing and {"f1", "precision", "recall", "yes_share", "consistency", "f1_sd"} <= found.keys()
