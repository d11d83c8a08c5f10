"""``kedit train`` and ``kedit run --fitted``: trained, saved, continued, loaded, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import toy_editor
from click.testing import CliRunner, Result
from fakes import FakeBackbone, FakeBenchmark

import kedit.backbone
import kedit.cli
from kedit.artefacts import load_tensors
from kedit.commands import train as training
from kedit.types import Case, ImageRef, Knowledge, Request
from kedit.validation import overlap

HERE = Path(__file__).parent
SPEC = "toy_editor:Trained"


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(kedit.cli.main, [str(word) for word in words])


def train(out: Path, *words: str | Path, editor: str = SPEC, benchmark: str = "Six") -> Result:
    return command("train", editor, "--benchmark", f"toy_editor:{benchmark}", "--out", out, *words)


@pytest.fixture(autouse=True)
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A backbone that is there at once; how it was asked for."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kedit.backbone, "load_backbone", lambda name, **words: calls.append(words) or FakeBackbone())
    return calls


def test_training_saves_the_artefact_and_says_what_was_kept_and_how_good_it_is(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = train(out, "--val-share", "0.3", "--set", f"{SPEC}.epochs=3", "--seed", "4")
    assert done.exit_code == 0, done.output
    assert "training: 12 steps, kept the best" in done.output  # 3 epochs of the 4 cases that are left
    assert "learned from 4 cases" in done.output and "validation on 2 held-out cases" in done.output
    info = json.loads((out / "editor.json").read_text())
    assert info["params"] == {"epochs": 3, "lr": 0.05, "layers": [-1], "seed": 4}
    facts = json.loads((out / "train.json").read_text())
    assert set(facts["validation"]) == {
        "reliability",
        "generality",
        "cross_language_locality",
        "cross_scenario_locality",
    }
    assert (out / "line.safetensors").exists() and (out / "training" / "log.jsonl").exists()


def test_what_is_held_out_shares_no_raw_case_with_what_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[toy_editor.Trained] = []
    plain = training.make
    monkeypatch.setattr(training, "make", lambda *words: made.append(plain(*words)) or made[-1])
    assert train(tmp_path / "out", "--val-share", "0.4").exit_code == 0
    learned, held = made[0].saw_
    assert len(learned) == 3 and len(held) == 3
    assert not {case.tags["raw"] for case in learned} & {case.tags["raw"] for case in held}


def test_the_same_command_continues_and_another_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    assert train(whole).exit_code == 0

    def stopped(*words: Any, **more: Any) -> None:
        def stop(step: int, *_: object) -> None:
            if step == 7:
                raise KeyboardInterrupt

        kedit.training.train(*words, **{**more, "progress": stop})

    with monkeypatch.context() as patch:
        patch.setattr(toy_editor, "train", stopped)
        assert train(out).exit_code != 0
    assert not (out / "editor.json").exists()
    assert train(out).exit_code == 0
    for name in ("line.safetensors", "training/last.safetensors", "training/log.jsonl", "train.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    refused = train(out, "--set", f"{SPEC}.lr=0.1")
    assert refused.exit_code != 0 and "lr: 0.05 -> 0.1" in refused.output


def test_an_editor_whose_fit_takes_only_cases_is_trained_too(tmp_path: Path) -> None:
    done = train(tmp_path, "--val-share", "0", editor="toy_editor:Plain")
    assert done.exit_code == 0, done.output
    assert "learned from 6 cases" in done.output and "validation" not in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"benchmark": "Leaking"}, "have their answer in its train split"),
        ({"benchmark": "Untrainable"}, "no train split"),
        ({"editor": "fakes:Prepend"}, "learns nothing"),
        ({"editor": "toy_editor:Traned"}, "Did you mean 'Trained'"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(
    tmp_path: Path, loaded: list[dict[str, Any]], words: dict[str, str], said: str
) -> None:
    done = train(tmp_path / "out", **words)  # type: ignore[arg-type]
    assert done.exit_code != 0 and said in done.output
    assert not loaded and not (tmp_path / "out").exists()


def test_a_misspelt_setting_or_share_is_refused(tmp_path: Path, loaded: list[dict[str, Any]]) -> None:
    assert "Did you mean 'epochs'" in train(tmp_path, "--set", f"{SPEC}.epoch=2").output
    assert "expected EDITOR.PARAM=VALUE" in train(tmp_path, "--set", "other.epochs=2").output
    assert train(tmp_path, "--val-share", "1").exit_code != 0
    assert not loaded


def test_the_options_of_loading_reach_the_backbone(tmp_path: Path, loaded: list[dict[str, Any]]) -> None:
    assert train(tmp_path, "--dtype", "float32", "--device", "cpu").exit_code == 0
    assert loaded[0]["dtype"] == "float32" and loaded[0]["device"] == "cpu"


# -- run --fitted ------------------------------------------------------------------------------------------------------


def run(out: Path, *words: str | Path) -> Result:
    return command("run", "--benchmark", "fakes:FakeBenchmark", "--editors", SPEC, "--limit", "1", "--out", out, *words)


def test_a_run_takes_the_artefact_with_its_parameters_instead_of_fitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = tmp_path / "fitted"
    assert train(fitted, "--set", f"{SPEC}.lr=0.2", "--set", f"{SPEC}.layers=(-2,-1)").exit_code == 0
    used: list[toy_editor.Trained] = []
    rewrite = toy_editor.Trained.rewrite
    monkeypatch.setattr(toy_editor.Trained, "rewrite", lambda self, request: used.append(self) or rewrite(self, request))
    monkeypatch.setattr(toy_editor.Trained, "fit", None)  # would fail if it were called
    done = run(tmp_path / "run", "--fitted", f"{SPEC}={fitted}", "--set", f"{SPEC}.epochs=9")
    assert done.exit_code == 0, done.output
    assert used[0].get_params() == {"epochs": 9, "lr": 0.2, "layers": (-2, -1), "seed": 0}
    saved = load_tensors(fitted / "line.safetensors")["weight"]
    assert used[0].learner_.weight.equal(saved)
    assert "artefact" in (tmp_path / "run" / "run.json").read_text()


def test_a_folder_without_an_artefact_or_an_unknown_editor_is_refused_before_any_work(
    tmp_path: Path, loaded: list[dict[str, Any]]
) -> None:
    assert "kedit train" in run(tmp_path / "run", "--fitted", f"{SPEC}={tmp_path}").output
    assert "expected EDITOR=FOLDER" in run(tmp_path / "run", "--fitted", f"other={tmp_path}").output
    assert not loaded and not (tmp_path / "run").exists()


# -- leaks -------------------------------------------------------------------------------------------------------------


def case(answer: str, question: str = "q?", image: bytes = b"a") -> Case:
    return Case("c", (Knowledge(Request(question, (ImageRef(data=image),)), answer),), ())


@pytest.mark.parametrize(
    ("train_case", "test_case", "leaks"),
    [
        (case("one two three four five"), case("one two three four five ", "other?"), True),
        (case("one two three four five"), case("one two three four six"), False),
        (case("red"), case("red", "other?"), False),
        (case("red"), case("red", image=b"b"), False),
        (case("red"), case("red"), True),
        (case("blue"), case("red"), False),
    ],
)
def test_a_sentence_leaks_wherever_it_stands_and_a_label_only_with_its_question_and_image(
    train_case: Case, test_case: Case, leaks: bool
) -> None:
    assert overlap([train_case], [test_case]) == (["c"] if leaks else [])


def test_an_answer_that_only_a_probe_shows_leaks_too() -> None:
    test = FakeBenchmark(size=1).cases("single")
    shown = FakeBenchmark(size=1)._chain(0, ("zh",))
    assert overlap([shown], test) == []
    probe = test[0].probes[1]
    leaked = Case("x", (Knowledge(probe.request, str(probe.reference)),), ())
    assert overlap(test, [leaked]) == ["x"]
