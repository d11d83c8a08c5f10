"""The matrix: every editor on every benchmark, resumed, fitted once, and no failure that costs others."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import torch
from click.testing import CliRunner
from fakes import AddNoise, DoNothing, FakeBackbone, FakeBenchmark, Prepend

from kedit.artefacts import read_json, write_json
from kedit.cli import main
from kedit.editor import ContextEditor, Editor
from kedit.errors import ContractError, DataError, FamilyError, StoreError, UnknownNameError
from kedit.matrix import Matrix, matrix, names_of
from kedit.report.results import Results
from kedit.types import Case, Request


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


class Learner(ContextEditor):
    """Learns how many cases there were, and says so before every question."""

    needs_fit: ClassVar[bool] = True
    fits: ClassVar[list[int]] = []

    def __init__(self, *, word: str = "seen") -> None:
        self.word = word

    def fit(self, cases: Sequence[Case], **_: Any) -> Self:
        self.fits.append(len(cases))
        self.seen_ = len(cases)
        self.fitted_ = True
        return self

    def rewrite(self, request: Request) -> Request:
        return replace(request, context=(f"{self.word} {self.seen_}",)) if self.edits_ else request

    def save(self, path: str | Path) -> None:
        super().save(path)
        write_json(Path(path) / "seen.json", self.seen_)

    def load(self, path: str | Path) -> Self:
        super().load(path)
        self.seen_ = read_json(Path(path) / "seen.json")
        self.fitted_ = True
        return self


class Stubborn(Learner):
    """Cannot be fitted."""

    def fit(self, cases: Sequence[Case], **_: Any) -> Self:
        raise RuntimeError("no room for the head")


class Careless(Learner):
    """Breaks off its fitting with the model changed."""

    def fit(self, cases: Sequence[Case], **_: Any) -> Self:
        with torch.no_grad():
            next(iter(self.backbone_.model.parameters())).add_(1.0)
        raise RuntimeError("lost")


class Foreign(ContextEditor):
    """Does not go with any backbone."""

    def build(self) -> None:
        raise FamilyError("wants another model")

    def rewrite(self, request: Request) -> Request:
        return request


@dataclass
class Untaught(FakeBenchmark):
    name: str = "untaught"

    def train(self, limit: int | None = None) -> list[Case]:
        return []


@dataclass
class Torn(FakeBenchmark):
    name: str = "torn"

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        raise DataError("torn.jsonl, line 3: no question")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Learner.fits.clear()


def editors() -> dict[str, Editor]:
    return {"base": DoNothing(), "noise": AddNoise(), "prepend": Prepend(), "learner": Learner()}


def test_the_table_has_a_row_per_editor_and_the_headline_of_every_task(tmp_path: Path) -> None:
    done = matrix(editors(), FakeBackbone(), [FakeBenchmark(2), Untaught(3)], out=tmp_path)
    table = done.table()
    assert [row[0] for row in table.rows] == ["base", "noise", "prepend", "learner"]
    keys = ["fake/single", "fake/sequential", "untaught/single", "untaught/sequential"]
    assert [column.key for column in table.columns] == ["editor", *keys]
    assert "Overall" in table.columns[1].label and "ROUGE" in table.columns[1].label
    results = Results(done.runs["untaught"])
    assert table.rows[2][4] == results.headline("prepend", "sequential") is not None
    assert all(cell is not None for row in table.rows for cell in row)
    shown = [repr(done), done._repr_html_()]
    assert all("untaught sequential" in text and "learner" in text for text in shown)


def test_what_is_written_says_the_same_in_every_form(tmp_path: Path) -> None:
    done = matrix(editors(), FakeBackbone(), FakeBenchmark(2), out=tmp_path)
    names = [path.name for path in done.write(tmp_path)]
    assert names == ["matrix.md", "matrix.csv", "matrix.json", "matrix.png", "matrix.svg"]
    stored = json.loads((tmp_path / "matrix.json").read_text(encoding="utf-8"))
    rows = list(csv.DictReader((tmp_path / "matrix.csv").open(encoding="utf-8")))
    value = done.values["noise"][0]
    assert value is not None
    assert stored["rows"]["noise"][0]["mean"] == float(rows[1]["fake/single"]) == value.mean
    assert stored["columns"][0]["benchmark"] == "fake" and Path(stored["runs"]["fake"]) == tmp_path / "fake"


def test_a_learner_learns_once_for_all_benchmarks_also_for_those_without_a_train_split(tmp_path: Path) -> None:
    done = matrix([Learner()], FakeBackbone(), [Untaught(2), FakeBenchmark(2)], out=tmp_path)
    assert Learner.fits == [3]
    assert done.skipped == {} and list(done.runs) == ["untaught", "fake"]
    learned = {run.config["identity"]["editors"]["learner"]["learned"] for run in done.runs.values()}
    assert len(learned) == 1 and learned.pop().startswith("artefact ")


def test_a_matrix_goes_on_where_it_stopped_and_asks_and_learns_nothing_twice(tmp_path: Path) -> None:
    benchmarks = [FakeBenchmark(2), Untaught(2)]
    first = matrix(editors(), FakeBackbone(), benchmarks, out=tmp_path, cache_dir=tmp_path / "a")
    kept = {path: path.read_bytes() for path in tmp_path.rglob("records/*.jsonl")}
    again = FakeBackbone()
    second = matrix(editors(), again, benchmarks, out=tmp_path, cache_dir=tmp_path / "b")
    assert again.asked == 0 and Learner.fits == [3]
    assert kept == {path: path.read_bytes() for path in tmp_path.rglob("records/*.jsonl")} and len(kept) == 8
    assert first.values == second.values


def test_a_killed_fitting_is_done_again_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    whole = matrix([Learner()], FakeBackbone(), [FakeBenchmark(2)], out=tmp_path / "whole")
    stopped = tmp_path / "stopped"

    class Killed(Exception):
        pass

    def stop(benchmark: str, editor: str, task: str, done: int, total: int) -> None:
        if (editor, task, done) == ("learner", "sequential", 1):
            raise Killed

    with pytest.raises(Killed):
        matrix([Learner()], FakeBackbone(), [FakeBenchmark(2)], out=stopped, progress=stop)
    (stopped / "fitted-editors" / "learner.json").unlink()  # as if killed before the artefact was whole
    (stopped / "fitted-editors" / "learner" / "seen.json").unlink()
    done = matrix([Learner()], FakeBackbone(), [FakeBenchmark(2)], out=stopped)
    assert done.values == whole.values
    assert Learner.fits == [3, 3, 3]


def test_what_was_learned_otherwise_is_not_taken(tmp_path: Path) -> None:
    matrix([Learner()], FakeBackbone(), [FakeBenchmark(1)], out=tmp_path)
    with pytest.raises(StoreError, match="word"):
        matrix([Learner(word="known")], FakeBackbone(), [FakeBenchmark(1)], out=tmp_path)
    with pytest.raises(StoreError, match="limit"):
        matrix([Learner()], FakeBackbone(), [FakeBenchmark(1)], out=tmp_path, train_limit=2)


def test_an_editor_that_cannot_be_fitted_is_named_and_costs_no_other(tmp_path: Path) -> None:
    chosen = {**editors(), "stubborn": Stubborn()}
    done = matrix(chosen, FakeBackbone(), [FakeBenchmark(2)], out=tmp_path)
    assert done.skipped == {"stubborn": "RuntimeError: no room for the head"}
    assert done.values["stubborn"] == [None, None] and None not in done.values["learner"]
    assert "stubborn was left out: RuntimeError: no room for the head" in repr(done)
    nowhere = matrix([Learner(), Prepend()], FakeBackbone(), [Untaught(2)])
    assert list(nowhere.skipped) == ["learner"] and "train split" in nowhere.skipped["learner"]
    assert None not in nowhere.values["prepend"]


def test_a_fitting_that_breaks_off_with_the_model_changed_stops_everything() -> None:
    with pytest.raises(ContractError, match="left weights changed"):
        matrix([Careless()], FakeBackbone(), [FakeBenchmark(1)])


def test_an_editor_that_does_not_go_with_the_backbone_fails_alone() -> None:
    done = matrix([Foreign(), Prepend()], FakeBackbone(), [FakeBenchmark(2)])
    assert done.values["foreign"] == [None, None] and None not in done.values["prepend"]
    assert "foreign failed in 6 cases of fake" in repr(done)


def test_a_benchmark_that_cannot_be_read_is_named_and_costs_no_other() -> None:
    done = matrix([Prepend()], FakeBackbone(), [Torn(), FakeBenchmark(2)])
    assert list(done.runs) == ["fake"]
    assert done.skipped == {"torn": "torn.jsonl, line 3: no question"}


def test_a_matrix_without_any_run_still_says_why(tmp_path: Path) -> None:
    done = matrix([Prepend()], FakeBackbone(), [Torn()])
    assert isinstance(done, Matrix) and "torn was left out" in repr(done)
    assert [path.suffix for path in done.write(tmp_path)] == [".md", ".csv", ".json"]


@dataclass
class Files(FakeBenchmark):
    path: str = ""


class SingleOnly(FakeBenchmark):
    @property
    def tasks(self) -> dict[str, Any]:
        return {"single": super().tasks["single"]}


def test_tasks_are_run_where_a_benchmark_has_them_and_one_that_has_none_is_named() -> None:
    found = {"both": FakeBenchmark(1), "one": SingleOnly(1)}
    single = matrix(Prepend(), FakeBackbone(), found, tasks="single")
    assert {name: run.tasks for name, run in single.runs.items()} == {"both": ["single"], "one": ["single"]}
    chains = matrix(Prepend(), FakeBackbone(), found, tasks=["sequential"])
    assert {name: run.tasks for name, run in chains.runs.items()} == {"both": ["sequential"]}
    assert chains.skipped == {"one": "it has none of the tasks sequential"}
    with pytest.raises(UnknownNameError, match="sequential, single"):
        matrix(Prepend(), FakeBackbone(), found, tasks=["singel"])


def test_benchmarks_of_one_name_are_told_apart() -> None:
    several = [Files(path="/data/red"), Files(path="/data/blue"), Files(path="/other/red"), FakeBenchmark(), Untaught()]
    assert list(names_of(several)) == ["fake-red", "fake-blue", "fake-red-2", "fake", "untaught"]
    assert list(names_of([Files(path="/data/red")])) == ["fake"]
    assert list(names_of({"mine": FakeBenchmark()})) == ["mine"]


def test_a_headline_that_is_not_defined_for_so_few_cases_says_why() -> None:
    from kedit.benchmarks import benchmark

    done = matrix({"base": DoNothing()}, FakeBackbone(), {"crope": benchmark("mini-crope")}, tasks=["test"], limit=2)
    assert list(done.values["base"]) == [None]
    assert any("no value: not defined for these cases" in note.text for note in done.table().notes)


def test_the_row_of_the_unedited_model_is_always_there_and_progress_names_the_benchmark() -> None:
    seen = set()
    done = matrix([Prepend()], FakeBackbone(), [FakeBenchmark(1)], progress=lambda b, e, t, d, n: seen.add((b, e, t)))
    assert done.editors == ("base", "prepend")
    assert ("fake", "base", "single") in seen


def test_the_command_runs_prints_and_writes(tmp_path: Path) -> None:
    fakes = Path(__file__).parent / "fakes.py"
    out = tmp_path / "out"
    words = ["matrix", "--editors", f"{fakes}:Prepend", "--benchmarks", f"{fakes}:FakeBenchmark,{fakes}:FakeBenchmark"]
    words += ["--limit", "1", "--max-new-tokens", "4", "--out", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "Headlines on tiny-internvl" in result.stdout and "fake-2 sequential" in result.stdout
    assert {"fake", "fake-2", "matrix.md", "matrix.json"} <= {path.name for path in out.iterdir()}
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 0 and again.stdout == result.stdout
