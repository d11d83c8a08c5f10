"""kibench-open: counts, determinism, and the rules of its cases."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from kedit.benchmark import Benchmark
from kedit.benchmarks import kibench, kibench_open
from kedit.benchmarks.kibench_cases import BLOCK, ORDERS, PARTITIONS, TASKS, round_robin
from kedit.benchmarks.kibench_open import KIBenchOpen, raw_case, spec_of
from kedit.benchmarks.scene import CASES, SPLITS, scenarios
from kedit.errors import DataError, UnknownNameError
from kedit.types import Case
from kedit.wording import SYSTEM_PROMPTS

BENCH = KIBenchOpen()
FILES = scenarios()


def content(case: Case) -> tuple[object, ...]:
    asked = [(p.dimension, p.request.key, p.reference, p.step) for p in case.probes]
    return case.id, tuple(sorted(case.tags.items())), [(k.request.key, k.answer) for k in case.chain], asked


def test_it_is_a_benchmark() -> None:
    assert isinstance(BENCH, Benchmark)
    assert {name: [d.name for d in task.dimensions] for name, task in BENCH.tasks.items()} == {
        "single": ["reliability", "generality", "cross_language_locality", "cross_scenario_locality"],
        "sequential": ["reliability", "generality", "locality"],
        "lifelong": ["reliability", "generality", "locality"],
    }
    assert [name for name, task in BENCH.tasks.items() if task.on_request] == ["lifelong"]


def test_scenarios_are_49_in_the_papers_groups_and_splits() -> None:
    assert len(FILES) == 49
    assert Counter(s["topic_group"] for s in FILES.values()) == {"social": 16, "religious": 19, "ethical": 14}
    assert Counter(s["split"] for s in FILES.values()) == {"single_train": 29, "single_test": 10, "sequential_test": 10}


def test_raw_cases_and_task_cases_are_as_many_as_the_papers() -> None:
    raws = {split: sum(map(len, BENCH.pool(split).values())) for split in SPLITS}
    assert raws == {"single_train": 5800, "single_test": 2000, "sequential_test": 2000}
    assert len(BENCH.cases("single")) == 4000
    assert len(BENCH.train(29)) == 58
    assert len(KIBenchOpen(orders=("en-zh-ar",)).cases("sequential", limit=20)) == 20


def test_another_process_makes_the_same_cases() -> None:
    code = (
        "from kedit.benchmarks.kibench_open import KIBenchOpen; b = KIBenchOpen();"
        "print(b.revision, [[p.request.key for p in c.probes] for t in b.tasks for c in b.cases(t, limit=2)])"
    )
    here = [[p.request.key for p in c.probes] for t in BENCH.tasks for c in BENCH.cases(t, limit=2)]
    environment = {"PYTHONHASHSEED": "5", "PYTHONPATH": "."}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1], env=environment
    )
    assert run.stdout.strip() == f"{BENCH.revision} {here}"


def test_another_seed_makes_other_cases_and_another_revision() -> None:
    other = KIBenchOpen(seed=1)
    assert other.revision != BENCH.revision
    assert content(other.cases("single", limit=1)[0]) != content(BENCH.cases("single", limit=1)[0])


@pytest.mark.parametrize("scenario", sorted(FILES))
def test_no_two_raw_cases_have_the_same_look_question_and_answer(scenario: str) -> None:
    found = FILES[scenario]
    raws, specs = [raw_case(found, k) for k in range(CASES)], [spec_of(found, k) for k in range(CASES)]
    assert len(set(specs)) == CASES and len({raw.image for raw in raws}) == CASES
    looks = [(s.colour, s.count, s.place) for s in specs]
    assert max(Counter(looks).values()) - min(Counter(looks).values()) <= 1
    for partition in PARTITIONS:
        texts = found["partitions"][partition]
        forms = {
            kind: [t.replace("{object}", "").replace("{place}", "") for t in texts[kind]] for kind in ("questions", "answers")
        }
        assert all(len(set(kind)) == len(kind) for kind in forms.values()), "templates differ in more than their slots"
        seen = Counter((look, *raw.qa[partition]) for look, raw in zip(looks, raws, strict=True))
        assert max(seen.values()) == 1


@pytest.mark.parametrize("scenario", sorted(FILES)[::7])
def test_images_of_a_scenario_are_all_different(scenario: str) -> None:
    digests = {BENCH.image(raw_case(FILES[scenario], k).image).digest for k in range(40)}
    assert len(digests) == 40


def test_partitions_of_a_scenario_share_no_text() -> None:
    for found in FILES.values():
        for first, second in combinations(PARTITIONS, 2):
            a, b = found["partitions"][first], found["partitions"][second]
            assert not {*a["questions"], *a["answers"]} & {*b["questions"], *b["answers"]}


def test_no_answer_is_shared_between_scenarios() -> None:
    seen = Counter(a for found in FILES.values() for p in PARTITIONS for a in found["partitions"][p]["answers"])
    assert [answer for answer, times in seen.items() if times > 1] == []


@pytest.mark.parametrize("task", TASKS)
def test_a_limit_gives_a_balanced_prefix_of_any_higher_limit(task: str) -> None:
    small, large = BENCH.cases(task, limit=7), BENCH.cases(task, limit=23)
    assert len(small) == 14 and len(large) == 46
    assert [content(c) for c in small] == [content(c) for c in large[: len(small)]]
    per_scenario = Counter(case.tags["scenario"] for case in large).values()
    assert len(per_scenario) == 10 and max(per_scenario) - min(per_scenario) <= 2


def test_single_cases_insert_zh_and_ar_and_follow_the_papers_rules() -> None:
    splits = {s["id"]: s["split"] for s in FILES.values()}
    for case in BENCH.cases("single", limit=20):
        (knowledge,), probes = case.chain, {p.dimension: p for p in case.probes}
        request = knowledge.request
        assert list(probes) == [d.name for d in TASKS["single"].dimensions] and len(case.probes) == 4
        assert case.tags["partition"] == request.language in ("zh", "ar")
        assert probes["reliability"].request == request and probes["reliability"].reference == knowledge.answer
        general = probes["generality"]
        assert general.request.images[0].digest != request.images[0].digest
        assert general.request.language == request.language and general.reference
        other = probes["cross_language_locality"]
        assert other.request.images == request.images and other.request.language != request.language and other.reference is None
        away = probes["cross_scenario_locality"]
        assert away.request.language == request.language and away.reference is None
        assert away.request.images[0].digest not in (request.images[0].digest, general.request.images[0].digest)
        assert splits[case.tags["scenario"]] == "single_test"


@pytest.mark.parametrize("split", SPLITS)
def test_other_items_come_from_the_right_scenario_and_split(split: str) -> None:
    inside = {s["id"] for s in FILES.values() if s["split"] == split}
    for row in BENCH.rows(split, 60):
        for step in row.steps:
            for dimension, items in step.others.items():
                (item,) = items
                assert item.scenario in inside
                same_block = int(item.case_id[-4:]) // BLOCK == int(row.raw[-4:]) // BLOCK
                assert same_block, "a small run must ask a subset of a large one"
                if dimension in ("generality", "cross_language_locality"):
                    assert item.scenario == row.scenario
                    assert (item.case_id == row.raw) == (dimension == "cross_language_locality")
                else:
                    assert item.scenario != row.scenario and item.partition == step.item.partition


def test_sequential_cases_insert_one_image_in_both_orders_with_three_probes_a_step() -> None:
    cases = BENCH.cases("sequential", limit=4)
    assert [c.tags["order"] for c in cases[:2]] == list(ORDERS) and cases[0].tags["raw"] == cases[1].tags["raw"]
    for case in cases:
        assert "-".join(k.request.language for k in case.chain) == case.tags["order"]
        assert len({k.request.images for k in case.chain}) == 1
        for step, knowledge in enumerate(case.chain, 1):
            probes = [p for p in case.probes if p.step == step]
            assert [p.dimension for p in probes] == ["reliability", "generality", "locality"]
            assert {p.request.language for p in probes} == {knowledge.request.language}
            assert [p.reference is None for p in probes] == [False, False, True]


def test_the_same_raw_case_asks_the_same_whatever_the_order() -> None:
    first, second = BENCH.cases("sequential", limit=1)
    asked = [{(p.dimension, p.request.key, p.reference) for p in case.probes} for case in (first, second)]
    assert asked[0] == asked[1]


def test_train_scenarios_occur_in_no_test_case() -> None:
    train = {case.tags["scenario"] for case in BENCH.train(29)}
    assert len(train) == 29
    assert not train & {case.tags["scenario"] for task in TASKS for case in BENCH.cases(task, limit=10)}


def test_every_request_carries_the_system_prompt_of_its_language() -> None:
    prompts = {p.request.language: p.request.system for c in BENCH.cases("sequential", limit=1) for p in c.probes}
    assert prompts == SYSTEM_PROMPTS == kibench.SYSTEM_PROMPTS  # one wording, which the embedded backbones are trained with


def test_images_are_drawn_only_for_cases_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(KIBenchOpen, "image", lambda self, image: drawn.append(image) or kibench_open.ImageRef(data=b"x"))
    cases = BENCH.cases("single")
    assert drawn == []
    assert cases[3].id and len(set(drawn)) == 3


def test_unknown_task_order_and_seedless_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown task 'singel'.*'single'"):
        BENCH.cases("singel")
    for orders in (("en-zh",), ("en-zh-zh",), (), "en-zh-ar"):
        with pytest.raises(DataError, match="order"):
            KIBenchOpen(orders=orders).cases("sequential", limit=1)
    with pytest.raises(DataError, match="no scenario files"):
        KIBenchOpen(root=tmp_path).cases("single", limit=1)


def test_round_robin_goes_on_when_a_group_ends() -> None:
    assert [element for _, _, element in round_robin({"a": [1, 2, 3], "b": [10]}, None)] == [1, 10, 2, 3]
    assert [element for _, _, element in round_robin({"a": [1, 2, 3], "b": [10]}, 3)] == [1, 10, 2]


def test_the_contact_sheet_shows_every_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image, ImageDraw

    labels: list[str] = []
    monkeypatch.setattr(ImageDraw.ImageDraw, "multiline_text", lambda self, at, text, **_: labels.append(text))
    path = BENCH.sheet(tmp_path / "new" / "sheet.png")
    assert sorted(label.split("\n")[0] for label in labels) == sorted(FILES)
    assert Image.open(path).size[0] > 1000
