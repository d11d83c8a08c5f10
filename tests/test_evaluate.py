from __future__ import annotations

import errno
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from fakes import AddNoise, DoNothing, FakeBackbone, FakeBenchmark, Lookup, Prepend
from torch import Tensor

from kedit import jsonl
from kedit.artefacts import read_json, write_json
from kedit.editor import ContextEditor, Editor
from kedit.errors import ContractError, RequestError, StoreError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.run import Run
from kedit.store import records_file
from kedit.types import Answer, Case, ImageRef, Knowledge, Record, Request

EDITORS: dict[str, Callable[[], Editor]] = {"nothing": DoNothing, "noise": AddNoise, "prepend": Prepend, "lookup": Lookup}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


def editors() -> dict[str, Editor]:
    return {name: make() for name, make in EDITORS.items()}


def timeless(records: Sequence[Record]) -> list[Record]:
    return [replace(record, seconds=0.0) for record in records]


def lines(run: Run) -> dict[str, list[dict[str, Any]]]:
    """What is in the record files, as it lies there, without seconds."""
    return {name: [asdict(r) | {"seconds": 0} for r in run.records(name)] for name in run.editors}


# -- what is recorded ----------------------------------------------------------------------------------------------------


def test_every_probe_is_recorded_in_the_order_of_task_case_event_and_probe() -> None:
    run = evaluate(AddNoise(), FakeBackbone(), FakeBenchmark(2))
    found = [(r.task, r.case, r.asked_at, r.probe) for r in run.records("addnoise")]
    single = [("single", f"s{n}", 1, p) for n in range(2) for p in range(4)]
    chains = [f"c{n}-{order}" for n in range(2) for order in ("en-zh-ar", "ar-zh-en")]
    asks = [(1, (0, 3, 6)), (2, (0, 3, 6)), (3, range(9))]
    assert found == single + [("sequential", c, after, p) for c in chains for after, probes in asks for p in probes]


def test_an_edit_is_seen_in_the_answers_and_its_undoing_in_the_next_case() -> None:
    backbone = FakeBackbone()
    run = evaluate(Lookup(), backbone, FakeBenchmark(2), tasks="single")
    reliability, generality, language, scenario = run.records("lookup")[:4]
    assert reliability.output == reliability.reference == "红钟0"
    assert generality.output != generality.reference
    assert language.output == language.reference == backbone.generate([Request("q 0 en?", (), "en")])[0].text
    assert (scenario.from_base, reliability.from_base) == (True, False)
    assert (reliability.language, reliability.tokens, reliability.dimension) == ("zh", 3, "reliability")
    assert reliability.tags == {"raw": "0", "scenario": "scene0", "topic_group": "social", "partition": "zh"}


def test_doing_nothing_gives_the_base_answers_exactly() -> None:
    backbone = FakeBackbone()
    run = evaluate(DoNothing(), backbone, FakeBenchmark(3))
    local = [r for r in run.records() if r.from_base]
    assert local and all(r.output == r.reference for r in local)


def test_flags_say_what_is_wrong_with_an_answer() -> None:
    backbone = FakeBackbone({"q 0 zh?": "a red clock", "other 0 zh?": ""})
    backbone.count_tokens = lambda text: 99 if text == "礼客0" else 1  # type: ignore[method-assign]
    run = evaluate(DoNothing(), backbone, FakeBenchmark(1), tasks="single", max_new_tokens=5)
    assert [r.flags for r in run.records()] == [
        ("truncated", "wrong_script"),
        ("truncated", "empty", "long_reference"),
        ("truncated",),
        ("truncated",),
    ]


def test_the_limit_of_new_tokens_holds_for_every_editor() -> None:
    backbone = FakeBackbone()
    evaluate(editors(), backbone, FakeBenchmark(2), max_new_tokens=7)
    assert set(backbone.limits) == {7}


def test_strings_from_an_editor_are_answers() -> None:
    class Talker(Lookup):
        def generate(self, requests: Sequence[Request]) -> list[Any]:
            return ["three small words"] * len(requests)

    record = evaluate(Talker(), FakeBackbone(), FakeBenchmark(1)).records()[0]
    assert (record.output, record.tokens) == ("three small words", 3)


def test_progress_counts_every_case_of_every_editor() -> None:
    seen: list[tuple[str, str, int, int]] = []
    evaluate({"a": AddNoise(), "b": Prepend()}, FakeBackbone(), FakeBenchmark(2), progress=lambda *call: seen.append(call))
    assert [c for c in seen if c[0] == "a"] == [("a", "single", n, 2) for n in range(3)] + [
        ("a", "sequential", n, 4) for n in range(5)
    ]
    assert seen[-1] == ("b", "sequential", 4, 4)


def test_seconds_of_inserts_and_questions_are_kept_per_case() -> None:
    run = evaluate({"a": AddNoise()}, FakeBackbone(), FakeBenchmark(1))
    assert [(t["case"], len(t["insert"]), len(t["ask"])) for t in run.timings] == [
        ("s0", 1, 4),
        ("c0-en-zh-ar", 3, 15),
        ("c0-ar-zh-en", 3, 15),
    ]
    assert all(second > 0 for t in run.timings for second in t["insert"])


# -- base answers --------------------------------------------------------------------------------------------------------


def test_base_answers_come_from_the_unedited_model_in_a_chain_too() -> None:
    run = evaluate(AddNoise(size=5.0), FakeBackbone(), FakeBenchmark(3))
    fresh = FakeBackbone()
    cases = {c.id: c for task in ("single", "sequential") for c in FakeBenchmark(3).cases(task)}
    local = [r for r in run.records() if r.from_base]
    assert len(local) == 3 * 2 + 6 * 3
    for record in local:
        request = cases[record.case].probes[record.probe].request
        assert record.reference == fresh.generate([request])[0].text


def test_base_answers_are_asked_once_for_all_editors_and_runs(tmp_path: Path) -> None:
    evaluate(DoNothing(), FakeBackbone(), FakeBenchmark(3), cache_dir=tmp_path / "c")
    backbone = FakeBackbone()
    evaluate({"x": DoNothing(), "y": DoNothing()}, backbone, FakeBenchmark(3), cache_dir=tmp_path / "c")
    assert backbone.asked == 0


def test_edits_from_before_are_undone_before_anything_is_asked() -> None:
    backbone = FakeBackbone()
    first = backbone.fingerprint()
    editor = AddNoise(size=3.0).attach(backbone)
    editor.insert(FakeBenchmark(1).cases("single")[0].chain[0])
    run = evaluate(editor, backbone, FakeBenchmark(1))
    assert run.config["identity"]["backbone"]["fingerprint"] == first == backbone.fingerprint()


def test_another_editor_never_gets_the_answers_of_the_first(tmp_path: Path) -> None:
    one = evaluate(Prepend(), FakeBackbone(), FakeBenchmark(2), cache_dir=tmp_path / "shared")
    both = evaluate({"noise": AddNoise(), "prepend": Prepend()}, FakeBackbone(), FakeBenchmark(2), cache_dir=tmp_path / "shared")
    alone = evaluate({"noise": AddNoise()}, FakeBackbone(), FakeBenchmark(2), cache_dir=tmp_path / "own")
    assert timeless(both.records("prepend")) == timeless(one.records("prepend"))
    assert timeless(both.records("noise")) == timeless(alone.records("noise"))


# -- fast equals plain ---------------------------------------------------------------------------------------------------


def test_batched_and_cached_gives_what_one_at_a_time_gives() -> None:
    fast, plain = FakeBackbone(), FakeBackbone()
    a = evaluate(editors(), fast, FakeBenchmark(5))
    b = evaluate(editors(), plain, FakeBenchmark(5), plain=True)
    assert lines(a) == lines(b)
    assert {len(call) for call in plain.calls} <= {0, 1}
    assert plain.asked > fast.asked
    assert len(plain.calls) > 3 * len(fast.calls)


def test_requests_that_a_context_editor_leaves_alone_are_never_generated_again(tmp_path: Path) -> None:
    evaluate(DoNothing(), FakeBackbone(), FakeBenchmark(3), cache_dir=tmp_path / "c")
    backbone = FakeBackbone()
    evaluate(Prepend(), backbone, FakeBenchmark(3), tasks="single", cache_dir=tmp_path / "c")
    assert backbone.asked == 3 * 3  # reliability, generality and the other scenario; the other language is unchanged
    assert len(backbone.calls) == 1


def test_a_context_editor_with_its_own_generate_is_asked_itself() -> None:
    class Shouts(Prepend):
        def generate(self, requests: Sequence[Request]) -> list[Answer]:
            return [replace(a, text=a.text.upper()) for a in super().generate(requests)]

    assert all(r.output == r.output.upper() for r in evaluate(Shouts(), FakeBackbone(), FakeBenchmark(1)).records())


class Counted(Lookup):
    """Counts calls of the replacement; fails on one question."""

    def __init__(self, *, fails: str = "") -> None:
        self.fails = fails

    def build(self) -> None:
        self.sizes_: list[int] = []

    def replace(self, requests: Sequence[Request], knowledge: Sequence[Knowledge]) -> list[Answer]:
        self.sizes_.append(len(requests))
        if self.fails and any(self.fails in r.question for r in requests):
            raise RuntimeError("cannot")
        return super().replace(requests, knowledge)

    def notes(self) -> Mapping[str, float]:
        return {"replaced": sum(self.sizes_)}


def test_requests_that_a_replacement_does_not_answer_have_the_cached_base_answer(tmp_path: Path) -> None:
    evaluate(DoNothing(), FakeBackbone(), FakeBenchmark(3), cache_dir=tmp_path / "c")
    backbone, editor = FakeBackbone(), Counted()
    run = evaluate(editor, backbone, FakeBenchmark(3), tasks="single", cache_dir=tmp_path / "c")
    assert backbone.calls == []
    assert editor.sizes_ == [3], "the hits of all cases are answered together"
    plain = evaluate(Counted(), FakeBackbone(), FakeBenchmark(3), tasks="single", plain=True)
    assert timeless(run.records()) == timeless(plain.records())


def test_a_replacement_that_fails_on_one_request_loses_that_case_only() -> None:
    run = evaluate({"x": Counted(fails="1 zh?")}, FakeBackbone(), FakeBenchmark(3), tasks="single")
    assert [(f["case"], f["stage"], f["error"]) for f in run.failures] == [("s1", "generate", "RuntimeError: cannot")]
    assert {r.case for r in run.records()} == {"s0", "s2"}


def test_what_an_editor_notes_of_its_work_is_kept_with_the_run(tmp_path: Path) -> None:
    run = evaluate({"x": Counted(), "y": Lookup()}, FakeBackbone(), FakeBenchmark(3), tasks="single", out=tmp_path)
    assert run.notes == {"x": {"replaced": 3}}
    evaluate({"x": Counted(), "y": Lookup()}, FakeBackbone(), FakeBenchmark(3), tasks="single", out=tmp_path)
    assert Run.load(tmp_path).notes == {"x": {"replaced": 3}}, "a run with nothing left to do keeps what was noted"


def test_a_run_says_where_what_an_editor_learned_comes_from(tmp_path: Path) -> None:
    def learned(editor: Editor, name: str) -> str:
        run = evaluate({"x": editor}, FakeBackbone(), FakeBenchmark(1), tasks="single", out=tmp_path / name)
        found: str = run.config["identity"]["editors"]["x"]["learned"]
        return found

    editor = Saves()
    assert learned(editor, "run") == "train split"
    assert learned(editor, "run") == "train split", "the same editor, fitted by the run before, resumes it"
    assert learned(Saves(), "run") == "train split"
    editor.save(tmp_path / "artefact")
    by_hand = Saves().fit(FakeBenchmark(2).train())
    assert learned(by_hand, "hand") == "by hand"
    loaded = Saves().attach(FakeBackbone()).load(tmp_path / "artefact")
    assert learned(loaded, "loaded").startswith("artefact ")
    with pytest.raises(StoreError, match="learned"):
        learned(Saves(), "loaded")


# -- a case stands alone -------------------------------------------------------------------------------------------------


class One(FakeBenchmark):
    """Only the last case of each task."""

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        return super().cases(task, limit=limit)[-1:]


@pytest.mark.parametrize("make", EDITORS.values())
def test_a_case_gives_the_same_alone_as_after_50_others(make: Callable[[], Editor]) -> None:
    after = evaluate({"x": make()}, FakeBackbone(), FakeBenchmark(51))
    alone = evaluate({"x": make()}, FakeBackbone(), One(51))
    wanted = {r.case for r in alone.records()}
    assert timeless(alone.records()) == timeless([r for r in after.records() if r.case in wanted])


def test_results_do_not_depend_on_the_state_of_the_random_generators() -> None:
    class Random(Lookup):
        def replace(self, requests: Sequence[Request], knowledge: Sequence[Knowledge]) -> list[Answer]:
            return [Answer(f"{random.random()} {np.random.rand()} {torch.rand(1).item()}", 3) for _ in knowledge]

    random.seed(1)
    one = evaluate(Random(), FakeBackbone(), FakeBenchmark(2))
    random.seed(2)
    np.random.seed(2)
    torch.manual_seed(2)
    two = evaluate(Random(), FakeBackbone(), FakeBenchmark(2))
    other = evaluate(Random(), FakeBackbone(), FakeBenchmark(2), seed=1)
    assert timeless(one.records()) == timeless(two.records()) != timeless(other.records())


@pytest.mark.parametrize("make", EDITORS.values())
def test_the_weights_are_bit_identical_afterwards(make: Callable[[], Editor]) -> None:
    backbone = FakeBackbone()
    before = backbone.fingerprint()
    evaluate(make(), backbone, FakeBenchmark(3))
    assert backbone.fingerprint() == before


# -- resuming ------------------------------------------------------------------------------------------------------------


def test_a_finished_run_is_a_no_op_that_generates_and_fits_nothing(tmp_path: Path) -> None:
    first = evaluate(editors() | {"fits": Fits()}, FakeBackbone(), FakeBenchmark(3), out=tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*.json*")}
    backbone, fits = FakeBackbone(), Fits()
    again = evaluate(editors() | {"fits": fits}, backbone, FakeBenchmark(3), out=tmp_path / "run")
    assert backbone.calls == []
    assert not fits.fitted
    assert lines(again) == lines(first)
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*.json*")} == before


@pytest.mark.parametrize(("kind", "asked"), [(AddNoise, ["other 1 en?", "far 1 en?"]), (Lookup, [])])
def test_a_half_stored_case_asks_only_what_is_missing(tmp_path: Path, kind: type[Editor], asked: list[str]) -> None:
    first = evaluate({"x": kind()}, FakeBackbone(), FakeBenchmark(2), out=tmp_path / "run")
    file = records_file(tmp_path / "run", "x")
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:-2]))
    backbone = FakeBackbone()
    again = evaluate({"x": kind()}, backbone, FakeBenchmark(2), out=tmp_path / "run")
    assert lines(again) == lines(first)
    assert [r.question for call in backbone.calls for r in call] == asked  # unrouted requests have the cached base answer


def test_records_left_out_of_place_by_a_kill_are_put_in_place_by_the_next_run(tmp_path: Path) -> None:
    first = evaluate([Lookup()], FakeBackbone(), FakeBenchmark(2), out=tmp_path / "run")
    file = records_file(first.path, "lookup")
    whole = file.read_bytes()
    rows = whole.splitlines(keepends=True)
    file.write_bytes(b"".join(rows[4:] + rows[:4]))
    evaluate([Lookup()], FakeBackbone(), FakeBenchmark(2), out=tmp_path / "run")
    assert file.read_bytes() == whole


def test_another_configuration_refuses_and_changes_nothing(tmp_path: Path) -> None:
    first = evaluate({"x": AddNoise()}, FakeBackbone(), FakeBenchmark(2), out=tmp_path / "run")
    for changed in ({"seed": 1}, {"limit": 1}, {"max_new_tokens": 8}, {"plain": True}, {"tasks": "single"}):
        with pytest.raises(StoreError, match="->"):
            evaluate({"x": AddNoise()}, FakeBackbone(), FakeBenchmark(2), out=tmp_path / "run", **changed)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=r"size: 0\.1 -> 0\.3"):
        evaluate({"x": AddNoise(size=0.3)}, FakeBackbone(), FakeBenchmark(2), out=tmp_path / "run")
    with pytest.raises(StoreError, match="revision"):
        evaluate({"x": AddNoise()}, FakeBackbone(), FakeBenchmark(2, revision="r2"), out=tmp_path / "run")
    backbone = FakeBackbone()
    backbone.model[0].weight.data[0, 0] += 1
    with pytest.raises(StoreError, match="fingerprint"):
        evaluate({"x": AddNoise()}, backbone, FakeBenchmark(2), out=tmp_path / "run")
    assert lines(Run.load(tmp_path / "run")) == lines(first)


def run_and_die(folder: Path, at: int) -> int:
    """A run in a child process whose disk takes 40 bytes at a time and which is killed at the at-th write; its exit code."""
    child = os.fork()
    if child == 0:
        write, count = os.write, [0]

        def slow(descriptor: int, data: bytes) -> int:
            count[0] += 1
            if count[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return write(descriptor, data[:40])

        os.write = slow
        try:
            evaluate(editors() | {"fits": Fits()}, FakeBackbone(), FakeBenchmark(3), out=folder, cache_dir=folder / "cache")
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_killed_at_random_moments_and_resumed_the_run_is_the_same(tmp_path: Path) -> None:
    whole = evaluate(editors() | {"fits": Fits()}, FakeBackbone(), FakeBenchmark(3), cache_dir=tmp_path / "other")
    rng = random.Random(7)
    killed = 0
    while killed < 10:
        folder = tmp_path / f"run{killed}"
        while (code := run_and_die(folder, rng.randint(20, 700))) == -signal.SIGKILL:
            killed += 1
        assert code == 0
        assert lines(Run.load(folder)) == lines(whole)


# -- failures ------------------------------------------------------------------------------------------------------------


def test_a_missing_image_fails_its_case_and_no_other_and_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    benchmark = FakeBenchmark(4, images={1: ImageRef(path=str(file))})
    run = evaluate(editors(), FakeBackbone(), benchmark, tasks="single", out=tmp_path / "run")
    assert [(f["editor"], f["case"], f["stage"]) for f in run.failures] == [(name, "s1", "base") for name in EDITORS]
    assert "image.png" in run.failures[0]["error"]
    assert {r.case for r in run.records()} == {"s0", "s2", "s3"}
    file.write_bytes(b"here now")
    # the image is part of the request, its content not of the configuration: a new object, the same benchmark
    again = evaluate(
        editors(), FakeBackbone(), FakeBenchmark(4, images={1: ImageRef(path=str(file))}), tasks="single", out=tmp_path / "run"
    )
    assert again.failures == []
    assert [r.case for r in again.records("noise")] == [f"s{n}" for n in range(4) for _ in range(4)]


def test_a_failure_is_made_good_although_the_run_that_did_it_was_killed_before_it_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "image.png"
    benchmark = FakeBenchmark(2, images={1: ImageRef(path=str(file))})
    assert len(evaluate(DoNothing(), FakeBackbone(), benchmark, tasks="single", out=tmp_path / "run").failures) == 1
    file.write_bytes(b"here now")
    benchmark = FakeBenchmark(2, images={1: ImageRef(path=str(file))})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kedit.store.RunStore.succeed", killed)
        with pytest.raises(KeyboardInterrupt):
            evaluate(DoNothing(), FakeBackbone(), benchmark, tasks="single", out=tmp_path / "run")
    assert len(Run.load(tmp_path / "run").failures) == 1
    assert evaluate(DoNothing(), FakeBackbone(), benchmark, tasks="single", out=tmp_path / "run").failures == []


def failing(kind: type[Editor], method: str, error: BaseException) -> Editor:
    """An editor whose method fails in case 1 alone."""

    class Failing(kind):  # type: ignore[misc, valid-type]
        def __getattribute__(self, name: str) -> Any:
            if name == method and any("1 zh?" in k.request.question for k in self.edits_.values()):
                raise error
            return super().__getattribute__(name)

    return Failing()


@pytest.mark.parametrize(("kind", "method"), [(AddNoise, "generate"), (Prepend, "rewrite"), (Lookup, "route")])
@pytest.mark.parametrize("error", [RuntimeError("no"), RequestError("no"), TypeError("no"), OSError("no")])
def test_an_editor_that_fails_in_one_case_loses_that_case_only(kind: type[Editor], method: str, error: Exception) -> None:
    backbone = FakeBackbone()
    before = backbone.fingerprint()
    run = evaluate({"x": failing(kind, method, error)}, backbone, FakeBenchmark(3), tasks="single")
    assert [(f["case"], f["stage"], f["error"]) for f in run.failures] == [("s1", "generate", f"{type(error).__name__}: no")]
    assert {r.case for r in run.records()} == {"s0", "s2"}
    assert backbone.fingerprint() == before


class BrokenInsert(AddNoise):
    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        if knowledge.answer == "红 1":
            raise RuntimeError("diverged")
        return super().deltas(knowledge)


def test_an_insert_that_fails_in_the_middle_of_a_chain_leaves_nothing_behind(tmp_path: Path) -> None:
    backbone = FakeBackbone()
    before = backbone.fingerprint()
    run = evaluate({"x": BrokenInsert()}, backbone, FakeBenchmark(2), tasks="sequential", out=tmp_path)
    assert [(f["case"], f["stage"]) for f in run.failures] == [("c1-en-zh-ar", "insert"), ("c1-ar-zh-en", "insert")]
    assert {r.case for r in run.records()} == {"c0-en-zh-ar", "c0-ar-zh-en"}
    assert backbone.fingerprint() == before
    evaluate({"x": BrokenInsert()}, backbone, FakeBenchmark(2), tasks="sequential", out=tmp_path)
    assert len((tmp_path / "failures.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("no"), torch.OutOfMemoryError("no"), StoreError("no")])
@pytest.mark.parametrize(("kind", "method"), [(AddNoise, "generate"), (Lookup, "route")])
def test_what_concerns_the_whole_run_passes_through_and_leaves_the_weights_clean(
    kind: type[Editor], method: str, error: BaseException
) -> None:
    backbone = FakeBackbone()
    before = backbone.fingerprint()
    with pytest.raises(type(error)):
        evaluate(failing(kind, method, error), backbone, FakeBenchmark(3))
    assert backbone.fingerprint() == before
    assert "generate" not in vars(backbone)


def test_a_full_disk_stops_the_run_which_resumes_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(editors(), FakeBackbone(), FakeBenchmark(3))
    append, room = jsonl.append, [12]

    def full(path: Path, rows: Any) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise StoreError(f"cannot append to {path}: {os.strerror(errno.ENOSPC)}")
        append(path, rows)

    with monkeypatch.context() as patch:
        patch.setattr(jsonl, "append", full)
        with pytest.raises(StoreError, match="No space left"):
            evaluate(editors(), FakeBackbone(), FakeBenchmark(3), out=tmp_path / "run", cache_dir=tmp_path / "c")
    again = evaluate(editors(), FakeBackbone(), FakeBenchmark(3), out=tmp_path / "run", cache_dir=tmp_path / "c")
    assert lines(again) == lines(whole)


# -- broken promises -----------------------------------------------------------------------------------------------------


class Leaks(AddNoise):
    def revert(self) -> None:
        self.deltas_.clear()


class NoReset(Lookup):
    def revert(self) -> None:
        if self.edits_:
            raise RuntimeError("stuck")


class TooFew(Lookup):
    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        return super().generate(requests)[1:]


class WrongType(Lookup):
    def generate(self, requests: Sequence[Request]) -> list[Any]:
        return [None] * len(requests)


class NoRequest(Prepend):
    def rewrite(self, request: Request) -> Any:
        return request.question


class Fits(Prepend):
    needs_fit = True

    def fit(self, cases: Sequence[Case]) -> Fits:
        self.pool_ = [case.chain[0].answer for case in cases]
        self.fitted_ = True
        return self

    def rewrite(self, request: Request) -> Request:
        return replace(super().rewrite(request), system=self.pool_[0])


class Saves(Fits):
    def save(self, path: str | Path) -> None:
        super().save(path)
        write_json(Path(path) / "pool.json", self.pool_)

    def load(self, path: str | Path) -> Saves:
        super().load(path)
        self.pool_, self.fitted_ = read_json(Path(path) / "pool.json"), True
        return self


class TrainsTheBackbone(Fits):
    def fit(self, cases: Sequence[Case]) -> Fits:
        self.backbone_.model[0].weight.data += 1
        return super().fit(cases)


@pytest.mark.parametrize(
    ("editor", "promise"),
    [
        (Leaks(), r"leaks: reset\(\) after case s0 left weights changed: 1.weight"),
        (NoReset(), r"noreset: reset\(\) failed after case s0 \(RuntimeError: stuck\)"),
        (TooFew(), r"toofew: generate\(\) gave 3 answers to 4 requests"),
        (WrongType(), r"wrongtype: generate\(\) gave a NoneType"),
        (NoRequest(), r"norequest: rewrite\(\) gave a str; give a Request"),
        (TrainsTheBackbone(), r"trainsthebackbone: fit\(\)"),
    ],
)
def test_a_broken_promise_stops_the_run_and_is_named(editor: Editor, promise: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=promise):
        evaluate(editor, FakeBackbone(), FakeBenchmark(2), out=tmp_path / "run")
    assert Run.load(tmp_path / "run").records() == []


def test_a_reset_that_fails_before_the_run_is_a_broken_promise_too() -> None:
    backbone = FakeBackbone()
    editor = NoReset().attach(backbone)
    editor.insert(Knowledge(Request("q?", (), "en"), "a"))
    with pytest.raises(ContractError, match=r"reset\(\) failed after what was inserted before the run \(RuntimeError: stuck\)"):
        evaluate(editor, backbone, FakeBenchmark(1))


def test_a_context_editor_that_touches_weights_is_found_out() -> None:
    class Sly(Prepend):
        def rewrite(self, request: Request) -> Request:
            self.backbone_.model[1].bias.data += 1
            return super().rewrite(request)

    with pytest.raises(ContractError, match=r"1\.bias"):
        evaluate(Sly(), FakeBackbone(), FakeBenchmark(1))


# -- fitting and naming --------------------------------------------------------------------------------------------------


def test_an_editor_that_learns_is_fitted_on_the_train_split_once() -> None:
    editor, backbone = Fits(), FakeBackbone()
    evaluate(editor, backbone, FakeBenchmark(1))
    assert editor.pool_ == ["红钟1000", "红钟1001", "红钟1002"]
    editor.pool_ = ["kept"]
    evaluate(editor, backbone, FakeBenchmark(1))
    assert editor.pool_ == ["kept"]


def test_an_editor_already_attached_is_not_built_again() -> None:
    class Builds(Fits):
        def build(self) -> None:
            self.pool_ = ["untrained"]

    backbone = FakeBackbone()
    editor = Builds().attach(backbone).fit([])
    editor.pool_ = ["trained"]
    evaluate(editor, backbone, FakeBenchmark(1), max_new_tokens=9)
    assert editor.pool_ == ["trained"]


def test_editors_come_alone_in_a_sequence_or_named() -> None:
    assert evaluate(Lookup(), FakeBackbone(), FakeBenchmark(1)).editors == ["lookup"]
    assert evaluate([Lookup(), Prepend()], FakeBackbone(), FakeBenchmark(1)).editors == ["lookup", "prepend"]
    named = {"small": AddNoise(size=0.1), "a/large": AddNoise(size=9.0)}
    run = evaluate(named, FakeBackbone(), FakeBenchmark(1))
    assert run.editors == ["small", "a/large"]
    assert [r.output for r in run.records("small")] != [r.output for r in run.records("a/large")]


def test_two_editors_of_one_name_need_a_mapping() -> None:
    with pytest.raises(StoreError, match=r"two editors are called 'addnoise'; name them by a mapping"):
        evaluate([AddNoise(), AddNoise(size=2.0)], FakeBackbone(), FakeBenchmark(1))


def test_a_class_in_place_of_an_instance_is_explained() -> None:
    with pytest.raises(ContractError, match=r"MyEditor\(\)"):
        evaluate([Lookup], FakeBackbone(), FakeBenchmark(1))  # type: ignore[list-item]


def test_a_misspelt_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'single'"):
        evaluate(Lookup(), FakeBackbone(), FakeBenchmark(1), tasks="singel")


def test_the_limit_counts_raw_cases() -> None:
    run = evaluate(DoNothing(), FakeBackbone(), FakeBenchmark(9), limit=2)
    assert {r.tags["raw"] for r in run.records()} == {"0", "1"}


# -- the run -------------------------------------------------------------------------------------------------------------


def test_a_run_without_a_folder_lives_as_long_as_it_is_held() -> None:
    run = evaluate(DoNothing(), FakeBackbone(), FakeBenchmark(1))
    path = run.path
    assert path.exists() and len(run.records()) == 34
    del run
    assert not path.exists()


def test_scores_of_a_run_have_a_row_per_task_and_editor_and_know_failures_and_gains() -> None:
    benchmark = FakeBenchmark(4, images={1: ImageRef(path="/none.png")})
    run = evaluate(editors(), FakeBackbone(), benchmark)
    rows = run.scores(base="nothing")
    assert [(row.task, row.editor) for row in rows] == [(t, e) for t in ("single", "sequential") for e in EDITORS]
    nothing, lookup = rows[0], rows[3]
    assert nothing.failures == 1 and rows[4].failures == 2
    assert nothing.gain is not None and {e.mean for e in nothing.gain.values() if e} == {0.0}
    assert lookup.gain is not None and lookup.gain["reliability"] is not None and lookup.gain["reliability"].mean > 40
    assert [row.order for row in rows[4:]] == ["en-zh-ar"] * 4
    assert run.scores("sequential", order="ar-zh-en")[0].order == "ar-zh-en"


def test_scores_by_a_tag_split_the_cases() -> None:
    run = evaluate({"x": Lookup()}, FakeBackbone(), FakeBenchmark(5))
    rows = run.scores("single", by="topic_group")
    assert [(row.group, row.cases) for row in rows] == [("religious", 2), ("social", 3)]


def test_a_chain_starts_from_the_first_order_of_the_benchmark_whatever_failed_first() -> None:
    run = evaluate({"x": BrokenFirst()}, FakeBackbone(), FakeBenchmark(1), tasks="sequential")
    assert {r.tags["order"] for r in run.records()} == {"ar-zh-en"}
    assert run.scores()[0].order == "en-zh-ar"
    assert run.scores()[0].cases == 0


class BrokenFirst(ContextEditor):
    def rewrite(self, request: Request) -> Request:
        if next(iter(self.edits_.values())).request.language == "en":
            raise RuntimeError("no")
        return request


def test_a_run_shows_its_report_as_text_and_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    report = ModuleType("kedit.report")
    report.run_text = lambda run: f"text of {run.editors}"  # type: ignore[attr-defined]
    report.run_html = lambda run: f"<table>{run.tasks}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kedit.report", report)
    run = evaluate(DoNothing(), FakeBackbone(), FakeBenchmark(1))
    assert repr(run) == "text of ['donothing']"
    assert run._repr_html_() == "<table>['single', 'sequential']"
