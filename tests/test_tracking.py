"""Trackers: told the same by runs and trainings, never a key, ended whatever happens."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from fakes import AddNoise, DoNothing, FakeBackbone, FakeBenchmark, Prepend

from kedit.cli import main
from kedit.errors import KeditError, MissingPackageError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.following import TrainingSteps, following
from kedit.tracking import Several, Tracker, open_trackers, without_secrets


class Notes:
    """A tracker that remembers what it was told, and fails where it should."""

    def __init__(self, fails: str = "") -> None:
        self.told: list[tuple[Any, ...]] = []
        self.fails = fails

    def _note(self, *what: Any) -> None:
        self.told.append(what)
        if what[0] == self.fails:
            raise OSError(f"{self.fails} failed")

    def start(self, config: Mapping[str, Any]) -> None:
        self._note("start", config)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._note("log", step, dict(values))

    def table(self, name: str, rows: Any) -> None:
        self._note("table", name, list(rows))

    def finish(self, *, failed: bool = False) -> None:
        self._note("finish", failed)


def of(notes: Notes, kind: str) -> list[Any]:
    return [told[1:] for told in notes.told if told[0] == kind]


# -- runs and trainings ------------------------------------------------------------------------------------------------


def test_a_run_tells_its_configuration_progress_and_final_scores(tmp_path: Path) -> None:
    notes = Notes()
    assert isinstance(notes, Tracker)
    editors = {"base": DoNothing(), "prepend": Prepend()}
    run = evaluate(editors, FakeBackbone(), FakeBenchmark(2), out=tmp_path, tracker=notes)
    assert of(notes, "start") == [(run.config["identity"],)]
    steps = [step for step, _ in of(notes, "log")]
    assert steps == sorted(steps) and steps[-1] == 2 * (2 + 4)
    assert (12, {"done/prepend/sequential": 1.0}) in of(notes, "log")
    [(name, rows)] = of(notes, "table")
    found = {(row["editor"], row["task"], row["score"]): row for row in rows}
    for scores in run.scores():
        for dimension, estimate in {**scores.dimensions, "overall": scores.overall}.items():
            row = found.pop((scores.editor, scores.task, dimension))
            assert (row["mean"], row["low"], row["high"], row["cases"]) == tuple(vars(estimate).values())
    assert name == "scores" and not found
    last = of(notes, "log")[-1]
    assert last[1]["score/base/single/reliability"] == rows[0]["mean"]
    assert notes.told[-1] == ("finish", False)


def test_a_tracker_changes_nothing_of_a_run(tmp_path: Path) -> None:
    plain = evaluate(Prepend(), FakeBackbone(), FakeBenchmark(2), tasks="single", out=tmp_path / "a")
    told = evaluate(Prepend(), FakeBackbone(), FakeBenchmark(2), tasks="single", out=tmp_path / "b", tracker=Notes())
    assert plain.config["identity"] == told.config["identity"]
    assert [(r.key, r.output) for r in plain.records()] == [(r.key, r.output) for r in told.records()]


def test_a_run_that_stops_is_finished_as_failed(tmp_path: Path) -> None:
    class Broken(AddNoise):
        def reset(self) -> None:
            raise RuntimeError("no way back")

    notes = Notes()
    with pytest.raises(KeditError, match="no way back"):
        evaluate(Broken(), FakeBackbone(), FakeBenchmark(1), out=tmp_path, tracker=notes)
    assert notes.told[-1] == ("finish", True) and not of(notes, "table")


def test_steps_of_a_training_in_several_parts_go_on() -> None:
    notes, shown = Notes(), []
    steps = TrainingSteps(notes, lambda step, total, values: shown.append((step, total)))
    for step in (1, 2, 3, 1, 2):
        steps(step, 3, {"loss": 0.5})
    steps.end({"reliability": 40.0})
    assert [(step, values.get("part")) for step, values in of(notes, "log")] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 2),
        (5, 2),
        (5, None),
    ]
    assert shown == [(1, 3), (2, 3), (3, 3), (1, 3), (2, 3)]
    assert of(notes, "table") == [("validation", [{"dimension": "reliability", "score": 40.0}])]


def test_the_train_command_tells_steps_and_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kedit.commands import train as training

    notes, backbone, benchmark = Notes(), FakeBackbone(), FakeBenchmark(2)
    learner = _Learner()
    held = (list(benchmark.train(2)), list(benchmark.train(1)))
    list(training.fit(learner, backbone, benchmark, held, tmp_path, tracker=notes, limit=2, seed=0, share=0.5))
    assert [step for step, values in of(notes, "log") if "loss" in values] == [1, 2]
    assert of(notes, "table")[0][0] == "validation" and notes.told[-1] == ("finish", False)
    assert of(notes, "start")[0][0]["cases"]["train"] == 2


class _Learner(Prepend):
    needs_fit = True

    def fit(self, cases: Any, *, progress: Any = None, **_: Any) -> _Learner:
        for step in range(1, len(cases) + 1):
            progress(step, len(cases), {"loss": 1.0 / step})
        self.fitted_ = True
        return self


# -- several, names, secrets -------------------------------------------------------------------------------------------


def test_several_are_told_the_same_and_those_started_are_ended_where_one_cannot_start() -> None:
    one, other = Notes(), Notes()
    both = Several([one, other])
    with following(both, {"a": 1}):
        both.log(1, {"x": 2.0})
        both.table("t", [{"y": 1}])
    assert one.told == other.told == [("start", {"a": 1}), ("log", 1, {"x": 2.0}), ("table", "t", [{"y": 1}]), ("finish", False)]
    one, other, never = Notes(), Notes("start"), Notes()
    with pytest.raises(OSError, match="start failed"), following(Several([one, other, never]), {}):
        pytest.fail("the work must not begin")
    assert one.told[-1] == ("finish", True) and never.told == []


@pytest.mark.parametrize("fails", ["log", "table", "finish"])
def test_a_tracker_that_fails_midway_is_told_no_more_and_neither_the_run_nor_the_others_stop(
    fails: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone, one, other, whole = Notes(fails), Notes(fails), Notes(), Notes()
    for name, tracker in (("a", alone), ("b", Several([one, other])), ("c", whole)):
        run = evaluate(Prepend(), FakeBackbone(), FakeBenchmark(2), tasks="single", out=tmp_path / name, tracker=tracker)
        assert len(run.records()) == 8
    assert other.told == whole.told
    for failed in (alone, one):
        assert len(of(failed, fails)) == 1 and failed.told[-1] == ("finish", False)
        assert failed.told[:-1] == whole.told[: len(failed.told) - 1]
    assert caplog.text.count(f"{fails} failed") == 4  # each time what was told, and why it failed


def test_what_a_tracker_raises_at_the_end_does_not_hide_why_the_work_stopped() -> None:
    with pytest.raises(KeyError, match="the cause"), following(Notes("finish"), {}):
        raise KeyError("the cause")


def test_no_key_reaches_a_tracker_and_settings_that_sound_alike_do() -> None:
    config = {
        "api_key": "sk-1",
        "apiKey": "sk-2",
        "nested": [{"Authorization": "Bearer 3", "auth-token": ["4"]}],
        "url": "https://me:five@host/v1",
        "max_new_tokens": 64,
        "tokens": "kept",
        "keyword": "kept",
        "key": 6,
        "query": "https://host/v1?n=1&api_key=sk-7&page=2",
        "command": "serve --token=sk-8 --max_tokens=64; monkey=9",
        "header": "x: bearer sk-9",
        "pwd": "sk-10",
    }
    found = without_secrets(config)
    assert not any(secret in repr(found) for secret in ("sk-", "Bearer", "'4'", "five"))
    assert found["url"] == "https://host/v1" and found["query"] == "https://host/v1?n=1&api_key=(left out)&page=2"
    assert found["command"] == "serve --token=(left out) --max_tokens=64; monkey=9"
    assert (found["max_new_tokens"], found["tokens"], found["keyword"], found["key"]) == (64, "kept", "kept", 6)


def test_a_wrong_name_or_a_missing_package_is_told_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_trackers((), tmp_path) is None
    with pytest.raises(UnknownNameError, match="Did you mean 'wandb'"):
        open_trackers(["wandbb"], tmp_path)
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingPackageError, match=rf"pip install 'kedit\[{name}\]'"):
            open_trackers([name], tmp_path)
    done = CliRunner().invoke(main, ["run", "--out", str(tmp_path / "run"), "--editors", "base", "--track", "mlflow"])
    assert done.exit_code == 1 and "kedit[mlflow]" in done.output
    assert list(tmp_path.iterdir()) == []


# -- the services, by modules that stand in for their packages ---------------------------------------------------------


def test_wandb_stays_offline_unless_told_and_gets_settings_steps_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    run = SimpleNamespace(
        log=lambda values, step=None: calls.append((values, step)), finish=lambda exit_code: calls.append(exit_code)
    )
    fake = SimpleNamespace(
        init=lambda **options: calls.append(options) or run,
        Settings=lambda **options: options,
        Table=lambda columns, data: (columns, data),
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)  # type: ignore[arg-type]
    monkeypatch.delenv("WANDB_MODE", raising=False)
    tell(open_trackers(["wandb"], tmp_path), failed=True)
    options, log, table, code = calls
    assert options["mode"] == "offline" and options["dir"] == str(tmp_path / "wandb")
    assert options["config"] == {"seed": 1, "api_key": "(left out)"}
    assert options["settings"]["console"] == "off" and options["settings"]["disable_git"]
    assert log == ({"loss": 0.5}, 3) and table == ({"scores": (["editor", "mean"], [["lora", 1.5]])}, None) and code == 1
    monkeypatch.setenv("WANDB_MODE", "online")
    tell(open_trackers(["wandb"], tmp_path))
    assert calls[4]["mode"] == "online" and calls[-1] == 0


class FakeClient:
    """As much of MLflow's client as is used."""

    made: list[FakeClient] = []

    def __init__(self, tracking_uri: str) -> None:
        self.uri, self.calls = tracking_uri, []  # type: ignore[var-annotated]
        self.made.append(self)

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str, artifact_location: str | None) -> str:
        self.calls.append(("experiment", name, artifact_location))
        return "7"

    def create_run(self, experiment: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run in {experiment}"))

    def log_dict(self, run: str, value: Any, file: str) -> None:
        self.calls.append(("dict", file, value))

    def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
        self.calls.append(("batch", [m[:2] + m[3:] for m in metrics], list(params)))

    def set_terminated(self, run: str, status: str) -> None:
        self.calls.append(("end", run, status))


def test_mlflow_writes_to_a_folder_unless_a_server_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entities = SimpleNamespace(Param=lambda *parts: parts, Metric=lambda *parts: parts)
    fake = SimpleNamespace(MlflowClient=FakeClient, entities=entities)
    monkeypatch.setitem(sys.modules, "mlflow", fake)  # type: ignore[arg-type]
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = open_trackers(["mlflow"], tmp_path)
    assert tracker is not None and list(tmp_path.iterdir()) == []
    tracker.start({"editors": {"lora:1": {"rank": 8}}, "token": "secret"})
    tracker.log(3, {"score/lora:1": 0.5, "loss": float("nan")})
    tracker.table("scores", [{"editor": "lora", "mean": 1.5}])
    tracker.finish()
    client = FakeClient.made[-1]
    assert client.uri == f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}"
    assert client.calls == [
        ("experiment", "kedit", (tmp_path / "mlflow" / "artifacts").as_uri()),
        ("dict", "config.json", {"editors": {"lora:1": {"rank": 8}}, "token": "(left out)"}),
        ("batch", [], [("editors.lora_1.rank", "8"), ("token", "(left out)")]),
        ("batch", [("score/lora_1", 0.5, 3)], []),
        ("dict", "scores.json", {"columns": ["editor", "mean"], "data": [["lora", 1.5]]}),
        ("end", "run in 7", "FINISHED"),
    ]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server")
    tell(open_trackers(["mlflow"], tmp_path / "other"), failed=True)
    client = FakeClient.made[-1]
    assert client.uri == "http://server" and client.calls[0] == ("experiment", "kedit", None)
    assert client.calls[-1][-1] == "FAILED" and not (tmp_path / "other").exists()


def test_mlflow_gets_no_name_or_number_of_things_that_a_server_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entities = SimpleNamespace(Param=lambda *parts: parts, Metric=lambda *parts: parts)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=FakeClient, entities=entities))  # type: ignore[arg-type]
    tracker = open_trackers(["mlflow"], tmp_path)
    assert tracker is not None
    tracker.start({"a:b": 1, "a;b": 2})
    tracker.log(1, {f"score/{n}": 0.5 for n in range(2500)} | {"a//../b": 1.0, "x" * 300: 1.0})
    sent = [call for call in FakeClient.made[-1].calls if call[0] == "batch"]
    assert sent[0][2] == [("a_b", "2")]
    assert [len(metrics) for _, metrics, _ in sent[1:]] == [1000, 1000, 502]
    assert [name for name, *_ in sent[-1][1]][-2:] == ["a/b", "x" * 250]


def tell(tracker: Tracker | None, failed: bool = False) -> None:
    assert tracker is not None
    tracker.start({"seed": 1, "api_key": "sk-1"})
    tracker.log(3, {"loss": 0.5})
    tracker.table("scores", [{"editor": "lora", "mean": 1.5}])
    tracker.finish(failed=failed)


def test_tensorboard_reads_back_what_it_was_told(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tell(open_trackers(["tensorboard"], tmp_path))
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(3, 0.5)]
    texts = {tag: found.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in found.Tags()["tensors"]}
    assert texts["scores/text_summary"] == "| editor | mean |\n| --- | --- |\n| lora | 1.5 |"
    assert '"seed": 1' in texts["config/text_summary"] and "sk-1" not in texts["config/text_summary"]
