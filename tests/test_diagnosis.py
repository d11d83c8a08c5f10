"""Diagnosis: nothing inserted, everything with a reference asked once, scores by group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import FakeBackbone, FakeBenchmark

from kedit.benchmark import Dimension, Task
from kedit.cli import main
from kedit.diagnosis import Unedited, diagnose, figures, groups, tables, write
from kedit.errors import DataError, UnknownNameError
from kedit.protocols import final, unedited
from kedit.report.results import Results
from kedit.types import Case, Knowledge, Probe, Request


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


def test_only_what_has_a_reference_is_asked_and_nothing_is_inserted() -> None:
    run = diagnose(FakeBackbone(), FakeBenchmark(3))
    assert [d.name for d in run.dimensions("single")] == ["reliability", "generality"]
    assert {r.asked_at for r in run.records()} == {0}
    assert not any(r.from_base for r in run.records())
    assert len(run.records(task="single")) == 6
    assert len(run.records(task="sequential")) == 3 * 6, "of a chain in two orders one is asked"
    assert run.config["identity"]["tasks"]["single"]["protocol"] == f"kedit.protocols.{unedited.__name__}"


def test_questions_are_asked_together() -> None:
    backbone = FakeBackbone()
    diagnose(backbone, FakeBenchmark(20), tasks="single")
    assert len(backbone.calls) == 1 and backbone.asked == 40


def test_a_question_of_a_chain_belongs_to_the_partition_of_its_language() -> None:
    run = diagnose(FakeBackbone(), FakeBenchmark(2))
    found = {(r.language, r.tags["partition"]) for r in run.records(task="sequential")}
    assert found == {(p, p) for p in ("en", "zh", "ar")}
    assert {r.tags["partition"] for r in run.records(task="single")} == {"zh"}


def test_the_table_has_all_then_each_group_then_each_pair_and_its_numbers_are_those_of_the_records() -> None:
    benchmark = FakeBenchmark(4)
    script = {p.request.question: str(p.reference) for p in benchmark.cases("sequential")[0].probes if p.reference}
    run = diagnose(FakeBackbone(script), benchmark, tasks="sequential")
    (table,) = tables(run)
    keys = [row[:2] for row in table.rows]
    assert keys[0] == ("all", "all")
    assert keys[1:6] == [("religious", "all"), ("social", "all"), ("all", "ar"), ("all", "en"), ("all", "zh")]
    assert len(keys) == 6 + 6
    by_key = {row[:2]: row for row in table.rows}
    best = by_key["social", "en"]  # case 0, which the script knows, and case 2
    worst = by_key["religious", "en"]
    assert best[2] == 2 and best[-1].mean > worst[-1].mean and best[-1].mean >= 50  # type: ignore[union-attr]
    assert [c.key for c in table.columns] == ["topic_group", "partition", "cases", "reliability", "generality", "headline"]


def test_a_diagnosis_goes_on_where_it_stopped_and_asks_nothing_twice(tmp_path: Path) -> None:
    first = FakeBackbone()
    diagnose(first, FakeBenchmark(2), out=tmp_path / "run", cache_dir=tmp_path / "a")
    again = FakeBackbone()
    run = diagnose(again, FakeBenchmark(2), out=tmp_path / "run", cache_dir=tmp_path / "b")
    assert first.asked > 0 and again.asked == 0
    written = [path.relative_to(run.path).as_posix() for path in write(run)]
    assert written[:3] == ["diagnosis/diagnosis.md", "diagnosis/single_diagnosis.csv", "diagnosis/sequential_diagnosis.csv"]
    assert "diagnosis/single_diagnosis.png" in written
    assert "topic\\_group" not in (run.path / "diagnosis" / "diagnosis.md").read_text(encoding="utf-8")


def test_bars_are_as_high_as_the_table_says() -> None:
    run = diagnose(FakeBackbone(), FakeBenchmark(6), tasks="sequential")
    ((key, figure),) = figures(run)
    assert key == "sequential_diagnosis"
    tags, found = groups(Results(run), "sequential")
    wanted = sorted(round(g.headline.mean, 6) for g in found if g.headline and g.values[1] != "all")
    drawn = sorted(round(float(bar.get_height()), 6) for bar in figure.axes[0].patches)  # type: ignore[attr-defined]
    assert list(tags) == ["topic_group", "partition"]
    assert drawn == wanted and len(drawn) == 9


@dataclass(frozen=True)
class Plain:
    """A benchmark without groups, whose cases have nothing to insert, and one dimension."""

    referenced: bool = True
    name: str = "plain"
    revision: str = "1"

    @property
    def tasks(self) -> dict[str, Task]:
        return {"ask": Task("ask", final, (Dimension("reliability", "Rel."),), groups={})}

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        probes = (Probe("reliability", Request("Why?"), "red clock" if self.referenced else None),)
        return [Case(f"p{k}", (), probes) for k in range(limit or 3)]

    def train(self, limit: int | None = None) -> list[Case]:
        return []


def test_a_benchmark_without_groups_has_one_row() -> None:
    run = diagnose(FakeBackbone({"Why?": "red clock"}), Plain())
    (table,) = tables(run)
    assert [row[:2] for row in table.rows] == [("all", 3)]
    assert table.rows[0][2].mean == 100  # type: ignore[union-attr]
    assert len(list(figures(run))) == 1


def test_nothing_to_diagnose_and_misspelt_tasks_are_told() -> None:
    with pytest.raises(DataError, match="no question with a reference"):
        diagnose(FakeBackbone(), Plain(referenced=False))
    with pytest.raises(UnknownNameError, match="Did you mean 'single'"):
        diagnose(FakeBackbone(), FakeBenchmark(1), tasks="singel")


def test_a_partition_that_a_probe_or_a_case_names_is_kept() -> None:
    case = FakeBenchmark(1).cases("single")[0]
    named = replace(case.probes[0], tags={"partition": "other"})

    @dataclass
    class Named(FakeBenchmark):
        def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
            tags = {k: v for k, v in case.tags.items() if k != "partition"}
            return [Case("a", (Knowledge(case.probes[0].request, "x"),), (named, case.probes[1]), tags)]

    found = Unedited(Named(), ("single",)).cases("single")[0]
    assert [probe.tags["partition"] for probe in found.probes] == ["other", "zh"]
    assert found.chain == ()


def test_the_command_diagnoses_prints_and_writes(tmp_path: Path) -> None:
    words = ["diagnose", "--limit", "1", "--protocols", "single", "--max-new-tokens", "4", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "tiny-internvl without any insertion" in result.output
    assert (tmp_path / "run" / "diagnosis" / "single_diagnosis.svg").exists()
    refused = CliRunner().invoke(main, [*words[:-1], str(tmp_path / "no"), "--base-url", "http://localhost/v1"])
    assert refused.exit_code != 0 and "base_url" in refused.output
