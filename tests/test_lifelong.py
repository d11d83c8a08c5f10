"""Long chains: what is inserted, when it is asked, and that a killed run loses little of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from fakes import SEQUENTIAL, AddNoise, DoNothing, FakeBackbone, Lookup, Prepend
from numpy.typing import NDArray

from kedit.benchmark import Task
from kedit.benchmarks.kibench import KIBench
from kedit.benchmarks.kibench_open import KIBenchOpen
from kedit.cli import main
from kedit.editor import Editor
from kedit.errors import DataError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.methods import IKE, MCKI
from kedit.protocols import Ask, Event, Insert, Protocol, drawn, gap, milestones, retention, together
from kedit.routers.contrastive import HiddenRouter
from kedit.store import RunStore, records_file
from kedit.types import Answer, Case, Knowledge, Probe, Request

LENGTH = 40
RUNNER = sys.modules["kedit.evaluate"]  # the module: the package gives the function of that name


def chain(length: int = LENGTH) -> Case:
    items = [Knowledge(Request(f"q {n}?"), f"answer {n}") for n in range(1, length + 1)]
    probes = []
    for step, item in enumerate(items, 1):
        probes.append(Probe("reliability", item.request, item.answer, step))
        probes.append(Probe("locality", Request(f"far {step}?"), None, step))
    return Case("long", tuple(items), tuple(probes), {"raw": "long", "order": "shuffled"})


def asks(protocol: Protocol, case: Case) -> dict[int, set[int]]:
    """Steps that are asked, by the number of items inserted."""
    return {e.after: {case.probes[p].step for p in e.probes} for e in protocol(case) if isinstance(e, Ask)}


# -- protocols -----------------------------------------------------------------------------------------------------------


def test_gap_asks_the_same_items_after_each_number_of_further_inserts_and_at_the_end() -> None:
    found = asks(gap(0, 1, 10), chain())
    assert {(after - step) for after, steps in found.items() if after < LENGTH for step in steps} >= {0, 1, 10}
    for step in range(1, LENGTH - 10 + 1):
        assert {after for after, steps in found.items() if step in steps} == {step, step + 1, step + 10, LENGTH}
    assert not any(step > LENGTH - 10 for steps in found.values() for step in steps)


def test_a_sample_for_gaps_is_of_that_size_and_a_gap_as_long_as_the_chain_is_left_out() -> None:
    found = asks(gap(0, 3, LENGTH, sample=5), chain())
    items = found[LENGTH]
    assert len(items) == 5
    assert {after for after, steps in found.items() if min(items) in steps} == {min(items), min(items) + 3, LENGTH}


def test_milestones_ask_everyone_of_before_again_and_a_sample_of_what_came_since() -> None:
    found = asks(milestones(1, 10, 1000, sample=4), chain())
    assert list(found) == [1, 10, LENGTH]
    assert found[1] == {1}
    assert found[1] < found[10] < found[LENGTH]
    assert [len(steps) for steps in found.values()] == [1, 5, 9]
    assert all(step > 10 for step in found[LENGTH] - found[10])


def test_every_adds_its_multiples_and_all_items_are_asked_without_a_sample() -> None:
    found = asks(milestones(1, sample=None, every=15), chain())
    assert {after: len(steps) for after, steps in found.items()} == {1: 1, 15: 15, 30: 30, LENGTH: LENGTH}


def test_protocols_together_insert_once_and_ask_what_any_asks() -> None:
    both = together(milestones(1, 10, sample=3), gap(0, 5, sample=2))
    events: list[Event] = list(both(chain()))
    assert [e.step for e in events if isinstance(e, Insert)] == list(range(1, LENGTH + 1))
    one, other = asks(milestones(1, 10, sample=3), chain()), asks(gap(0, 5, sample=2), chain())
    assert asks(both, chain()) == {t: one.get(t, set()) | other.get(t, set()) for t in one.keys() | other.keys()}
    assert list(together(retention)(chain(3))) == list(retention(chain(3)))


def test_a_protocol_says_its_numbers_in_its_name_which_a_runs_identity_holds() -> None:
    assert together(milestones(10, 1), gap(2)).__qualname__ == "milestones(1, 10, sample=20, every=None) and gap(2, sample=None)"


@pytest.mark.parametrize("make", [lambda: gap(), lambda: gap(-1), lambda: milestones(), lambda: milestones(0)])
def test_numbers_that_mean_nothing_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="expected one or more numbers"):
        make()


def test_a_sample_does_not_depend_on_what_else_could_be_drawn_first() -> None:
    assert drawn(range(1, 9), 3, "a") == drawn(list(reversed(range(1, 9))), 3, "a") != drawn(range(1, 9), 3, "b")


# -- the benchmark's chains ----------------------------------------------------------------------------------------------


def bench(**options: Any) -> KIBenchOpen:
    return KIBenchOpen(lifelong={"chain": 24, **options})


def images(requests: Sequence[Request]) -> set[str]:
    return {str(getattr(image.draw, "path", "")) for request in requests for image in request.images}


def test_a_chain_has_its_length_and_partitions_and_what_measures_it_is_never_inserted() -> None:
    (case,) = bench().cases("lifelong")
    assert len(case.chain) == 24
    languages = [item.request.language for item in case.chain]
    assert (languages.count("zh"), languages.count("ar")) == (12, 12)
    inserted = images([item.request for item in case.chain])
    scenarios = {path.split("/")[1] for path in inserted}
    for dimension in ("generality", "locality"):
        probes = [probe for probe in case.probes if probe.dimension == dimension]
        assert len(probes) == 24
        assert not images([probe.request for probe in probes]) & inserted
        asked = {path.split("/")[1] for path in images([probe.request for probe in probes])}
        assert asked <= scenarios if dimension == "generality" else not asked & scenarios
    assert {p.reference is None for p in case.probes if p.dimension == "locality"} == {True}


def test_probes_say_the_partition_scenario_and_topic_of_their_item() -> None:
    (case,) = bench(partitions=("ar",)).cases("lifelong")
    assert {probe.tags["partition"] for probe in case.probes} == {"ar"}
    for probe in case.probes:
        assert probe.tags["scenario"] in str(case.chain[probe.step - 1].request.images[0].draw)


def test_orders_are_cases_of_the_same_items() -> None:
    cases = bench(order=("shuffled", "turns", "blocks", "scenarios")).cases("lifelong")
    assert [case.tags["order"] for case in cases] == ["shuffled", "turns", "blocks", "scenarios"]
    assert len({frozenset(item.request.key for item in case.chain) for case in cases}) == 1
    turns, blocks = ([item.request.language for item in case.chain] for case in cases[1:3])
    assert turns == ["zh", "ar"] * 12
    assert blocks == ["zh"] * 12 + ["ar"] * 12
    assert len({tuple(item.request.key for item in case.chain) for case in cases}) == 4


def test_several_chains_share_no_item_and_a_chain_is_as_long_as_there_are_items() -> None:
    one, other = bench(chains=2, partitions=("en", "zh", "ar")).cases("lifelong")
    assert not {k.request.key for k in one.chain} & {k.request.key for k in other.chain}
    (short,) = KIBenchOpen().cases("lifelong", limit=3)
    assert (len(short.chain), short.tags["length"]) == (6, "6")


def test_the_task_is_run_only_where_it_is_named() -> None:
    from kedit.work import tasks_of

    assert tasks_of(bench(), None) == ["single", "sequential"]
    assert tasks_of(bench(), "lifelong") == ["lifelong"]


def test_rows_from_files_make_chains_too_without_the_scenario_that_is_kept_for_locality(tmp_path: Path) -> None:
    rows = [
        {
            "case_id": f"{place}_{k}",
            "scenario_id": place,
            "topic_group": "food",
            "image": f"images/{place}/{k}.png",
            "qa": {p: {"question": f"{p} {place} {k}?", "answer": f"{p} {k}"} for p in ("en", "zh", "ar")},
        }
        for place in ("bakery", "market", "street")
        for k in range(6)
    ]
    (tmp_path / "sequential_raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (case,) = KIBench(tmp_path, lifelong={"partitions": ("en", "zh", "ar")}).cases("lifelong")
    assert len(case.chain) == 2 * 5 * 3
    asked = {dimension: [p for p in case.probes if p.dimension == dimension] for dimension in ("generality", "locality")}
    assert {probe.request.question.split()[1] for probe in asked["locality"]} == {"street"}
    assert {probe.request.question.split()[2] for probe in asked["generality"]} == {"4?"}
    assert {item.request.question.split()[2] for item in case.chain} == {"0?", "1?", "2?", "3?", "5?"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"order": "sideways"}, UnknownNameError),
        ({"partitions": ("fr",)}, UnknownNameError),
        ({"lenght": 3}, UnknownNameError),
        ({"chain": 0}, DataError),
        ({"gaps": (-1,)}, DataError),
        ({"partitions": ()}, DataError),
    ],
)
def test_options_that_mean_nothing_are_refused(options: Mapping[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        _ = KIBenchOpen(lifelong=options).tasks


# -- runs ----------------------------------------------------------------------------------------------------------------


@dataclass
class Long:
    """One chain, asked at sizes and after gaps."""

    name: str = "long"
    revision: str = "1"

    @property
    def tasks(self) -> dict[str, Task]:
        return {"lifelong": Task("lifelong", together(milestones(1, 10, sample=5), gap(0, 5, sample=6)), SEQUENTIAL)}

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        return [chain()]

    def train(self, limit: int | None = None) -> list[Case]:
        return []


class Sampling(AddNoise):
    """Draws random numbers to answer, too."""

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        return [Answer(f"{one.text} {float(torch.rand(1)):.6f}", one.tokens) for one in super().generate(requests)]


class Killed(BaseException):
    """The end of a process, as far as a test can have it."""


def dying(kind: type[Editor], at: int) -> Editor:
    class Dying(kind):  # type: ignore[misc, valid-type]
        def insert(self, knowledge: Knowledge) -> str:
            if len(self.edits_) == at:
                raise Killed
            return str(super().insert(knowledge))

    Dying.__module__, Dying.__qualname__, Dying.__name__ = kind.__module__, kind.__qualname__, kind.__name__
    return Dying()


@pytest.mark.parametrize("kind", [AddNoise, Sampling, Lookup, Prepend])
def test_a_killed_chain_is_inserted_again_and_asked_only_what_is_missing(
    kind: type[Editor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RUNNER, "_PART", 6)
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    whole = evaluate({"x": kind()}, FakeBackbone(), Long(), out=tmp_path / "whole", cache_dir=tmp_path / "other")
    with pytest.raises(Killed):
        evaluate({"x": dying(kind, 25)}, FakeBackbone(), Long(), out=tmp_path / "run")
    assert not records_file(tmp_path / "run", "x").exists(), "a chain is scored as a whole or not at all"
    (part,) = (tmp_path / "run" / "parts" / "x").glob("*.jsonl")
    kept = part.read_bytes().count(b"\n")
    part.write_bytes(part.read_bytes() + b'{"torn')
    backbone = FakeBackbone()
    again = evaluate({"x": kind()}, backbone, Long(), out=tmp_path / "run")

    def told(run: Any) -> list[tuple[Any, str]]:
        return [(record.key, record.output) for record in run.records("x")]

    assert told(again) == told(whole)
    assert 0 < kept < len(told(whole))
    assert backbone.asked <= len(told(whole)) - kept
    assert not list((tmp_path / "run" / "parts").rglob("*.jsonl"))


def test_what_is_all_kept_is_not_inserted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(RunStore, "append", killed)
    with pytest.raises(Killed):
        evaluate({"x": AddNoise()}, FakeBackbone(), Long(), out=tmp_path / "run")
    monkeypatch.undo()
    run = evaluate({"x": dying(AddNoise, 0)}, FakeBackbone(), Long(), out=tmp_path / "run")
    assert len(run.records("x")) == len({record.key for record in run.records("x")}) > 0


def test_a_chain_that_fails_is_a_failure_and_none_of_its_records_are_the_runs(tmp_path: Path) -> None:
    class Failing(AddNoise):
        def deltas(self, knowledge: Knowledge) -> Mapping[str, torch.Tensor]:
            if len(self.edits_) == 30:
                raise ValueError("too much")
            return super().deltas(knowledge)

    run = evaluate({"x": Failing()}, FakeBackbone(), Long(), out=tmp_path / "run")
    assert [(one["case"], one["stage"]) for one in run.failures] == [("long", "insert")]
    assert run.records("x") == []


# -- what an insert costs ------------------------------------------------------------------------------------------------


class Counting:
    """A text encoder that counts what it reads."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return np.array([[len(text), sum(map(ord, text)) % 97, 1.0] for text in texts], np.float32)


class Looked(FakeBackbone):
    """Counts the requests whose states are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[Request] = []

    def hidden(self, requests: Sequence[Request], *, layer: int = -1) -> list[torch.Tensor]:
        self.read += requests
        return [torch.full((len(r.question), 8), float(sum(map(ord, r.question)) % 101)) + torch.arange(8.0) for r in requests]


def test_each_insert_of_a_long_chain_encodes_one_text_and_a_prompt_shows_no_more_facts_than_it_may() -> None:
    encoder = Counting()
    editor = IKE(demos=1, encoder=encoder, facts=4).attach(FakeBackbone()).fit([chain(3)])
    for item in chain(60).chain:
        before = len(encoder.texts)
        editor.insert(item)
        assert len(encoder.texts) == before + 1
    before = len(encoder.texts)
    (request,) = editor.rewrite_all([Request("q 17?")])
    assert len(encoder.texts) == before + 1
    assert str(request.context[0]).count("New Fact:") == 1 + 4 + 4  # the demonstration, copies, facts
    editor.reset()
    assert (editor.vectors_, editor.nearest_, dict(editor.shown_)) == ({}, {}, {})


def test_each_insert_of_a_long_chain_reads_one_request_however_many_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path))
    backbone = Looked()
    editor = MCKI(router=HiddenRouter(dim=4, threshold=0.5)).attach(backbone)
    editor.fit(
        [
            Case(
                "c",
                (Knowledge(Request("taught?"), "a"),),
                (Probe("generality", Request("again?"), "a"), Probe("locality", Request("far?"), None)),
            )
        ]
    )
    for item in chain(50).chain:
        before = len(backbone.read)
        editor.insert(item)
        assert backbone.read[before:] == [item.request]
    before = len(backbone.read)
    editor.rewrite_all([Request("another?"), Request("q 17?")])
    assert backbone.read[before:] == [Request("another?")]  # what was inserted is not read again


# -- the command line ----------------------------------------------------------------------------------------------------


def test_the_command_line_takes_options_of_long_chains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr("kedit.backbone.load_backbone", lambda *_, **__: FakeBackbone())

    def evaluated(editors: Any, model: Any, cases: Any, **options: Any) -> Any:
        made.update(cases=cases, **options)
        return evaluate({"nothing": DoNothing()}, model, Long(), out=options["out"])

    monkeypatch.setattr(RUNNER, "evaluate", evaluated)
    words = ["run", "--editors", "base", "--protocols", "lifelong", "--out", str(tmp_path / "run")]
    found = CliRunner().invoke(main, [*words, "--set", "lifelong.chain=30", "--set", "lifelong.order=blocks"])
    assert found.exit_code == 0, found.output
    assert (made["cases"].lifelong, made["tasks"]) == ({"chain": 30, "order": "blocks"}, ("lifelong",))
    refused = CliRunner().invoke(main, [*words, "--benchmark", "mini-kviscuit", "--set", "lifelong.chain=30"])
    assert (refused.exit_code, "unknown option of the benchmark" in refused.output) == (1, True)
