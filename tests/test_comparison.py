"""Comparisons of runs: pairs, shared cases, pooled seeds, what is said, and the command."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_runs import EDITORS, make_run

from kedit.cli import main
from kedit.comparison import Comparison, Row, compare
from kedit.errors import StoreError, UnknownNameError
from kedit.judging import judge_scorer, open_judge, score_run
from kedit.report.text import table_text
from kedit.run import Run
from kedit.scoring import Score
from kedit.statistics import holm
from kedit.types import Record

SEEDS = {"mine": 0.86, "mine-2": 0.84, "mine-3": 0.8, "other": 0.4, "unedited": None}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "one", size=12)


def changed(run: Run, change: Callable[[dict[str, Any]], None]) -> Run:
    """The run with another ``identity``."""
    config = json.loads((run.path / "run.json").read_text())
    change(config["identity"])
    (run.path / "run.json").write_text(json.dumps(config))
    return Run.load(run.path)


def seeded(folder: Path, editors: Mapping[str, float | None] = SEEDS, size: int = 8) -> Run:
    """A run in which ``mine``, ``mine-2`` and ``mine-3`` differ in their seed alone."""

    def seeds(identity: dict[str, Any]) -> None:
        for number, name in enumerate(name for name in editors if name.startswith("mine")):
            identity["editors"][name] |= {"class": "tests.Mine", "params": {"steps": 3, "seed": number}}

    return changed(make_run(folder, size=size, editors=editors), seeds)


def row(found: Comparison, a: str, b: str, dimension: str = "overall", task: str = "single") -> Row:
    return next(r for r in found.rows if (r.a, r.b, r.dimension, r.task) == (a, b, dimension, task))


def notes(found: Comparison) -> str:
    return "\n".join(note.text for note in found.table().notes)


def kedit(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_run_compares_all_pairs_in_every_task_and_dimension_and_its_means_are_those_of_the_table(run: Run) -> None:
    found = compare(run)
    assert [(r.a, r.b) for r in found.rows if (r.task, r.dimension) == ("single", "overall")] == [
        ("keeper", "unedited"),
        ("keeper", "forgetter"),
        ("unedited", "forgetter"),
    ]
    assert found.tests == len(found.rows) == 3 * (5 + 4)
    scores = {s.editor: s for s in run.scores("sequential")}
    one = row(found, "keeper", "forgetter", "locality", "sequential")
    means = [scores[name].dimensions["locality"].mean for name in ("keeper", "forgetter")]  # type: ignore[union-attr]
    assert [one.mean_a, one.mean_b] == pytest.approx(means)
    assert one.difference is not None
    assert one.difference.mean == pytest.approx(means[0] - means[1])
    assert one.difference.low < one.difference.mean < one.difference.high
    overall = row(found, "keeper", "unedited")
    assert overall.mean_a == pytest.approx(next(s for s in run.scores("single") if s.editor == "keeper").overall.mean)  # type: ignore[union-attr]


def test_verdicts_follow_the_corrected_p_values(run: Run) -> None:
    found = compare(run)
    assert [r.p_holm for r in found.rows] == holm([r.p for r in found.rows if r.p is not None])
    assert all(r.distinguishable == (r.p_holm is not None and r.p_holm <= 0.05) for r in found.rows)
    clear = row(found, "keeper", "unedited", "reliability")
    assert (clear.verdict, clear.cases, clear.units) == ("keeper higher", 12, 12)
    assert row(found, "keeper", "forgetter").verdict in ("keeper higher", "not told apart")
    assert f"{sum(r.distinguishable for r in found.rows)} distinguishable" in notes(found)


def test_fewer_tests_tell_smaller_differences_apart(run: Run) -> None:
    all_of_it = row(compare(run), "keeper", "forgetter", "reliability")
    found = compare(run, editors=["keeper", "forgetter"], tasks=["single"], dimensions=["reliability"])
    (alone,) = found.rows
    assert alone.p_holm == alone.p
    assert alone.smallest is not None and all_of_it.smallest is not None and alone.smallest < all_of_it.smallest
    against = compare(run, against="unedited", tasks=["single"], dimensions=["overall"])
    assert [(r.a, r.b, r.dimension) for r in against.rows] == [
        ("keeper", "unedited", "overall"),
        ("forgetter", "unedited", "overall"),
    ]


def test_editors_that_differ_in_their_seed_are_one_side_with_the_spread_between_seeds(tmp_path: Path) -> None:
    run = seeded(tmp_path / "r")
    found = compare(run, tasks=["single"])
    assert [arm.label for arm in found.arms] == ["mine", "other", "unedited"]
    pooled = row(found, "mine", "other", "reliability")
    apart = compare(run, tasks=["single"], pool=False)
    singles = [row(apart, name, "other", "reliability") for name in ("mine", "mine-2", "mine-3")]
    assert pooled.mean_a == pytest.approx(sum(r.mean_a or 0 for r in singles) / 3)
    assert pooled.seed_sd[0] is not None and pooled.seed_sd[0] > 0
    assert pooled.seed_sd[1] is None
    assert "Seeds pooled: mine: its seed 0, 1, 2 (mine, mine-2, mine-3)" in notes(found)
    assert "Seed sd" in repr(found)
    assert "One seed each: mine, mine-2, mine-3" in notes(apart)
    assert [a.label for a in compare(run, editors=["mine", "other"]).arms] == ["mine", "other"]
    two = compare(run, editors=["mine", "mine-2", "other"]).arms[0]
    assert [m.editor for m in two.members] == ["mine", "mine-2"]


def test_runs_that_differ_in_their_seed_are_pooled_and_others_are_not(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"s{seed}", size=5, seed=seed) for seed in (0, 1, 2)]
    found = compare(*runs, tasks=["single"])
    assert {arm.label: len(arm.members) for arm in found.arms} == {"keeper": 3, "unedited": 3, "forgetter": 3}
    assert row(found, "keeper", "forgetter").seed_sd == (0.0, 0.0), "the same answers three times"
    assert "the run's seed 0, 1, 2 (s0/keeper, s1/keeper, s2/keeper)" in notes(found)
    again = make_run(tmp_path / "again", size=5, seed=0)
    assert [arm.label for arm in compare(runs[0], again, editors=["keeper"]).arms] == ["keeper (s0)", "keeper (again)"]
    assert [arm.label for arm in compare(runs[0], Run.load(runs[0].path), tasks=["single"]).arms] == list(EDITORS)
    other = changed(again, lambda identity: identity["editors"]["keeper"]["params"].update(steps=21))
    assert len(compare(other, runs[1], editors=["keeper"]).arms) == 2


def test_two_runs_are_compared_on_shared_cases_alone_and_the_others_are_counted(tmp_path: Path) -> None:
    a = make_run(tmp_path / "a", size=8, benchmark={"name": "fake-bench", "revision": "r" * 64, "limit": 8})
    b = make_run(
        tmp_path / "b", size=6, editors={"keeper": 0.3}, benchmark={"name": "fake-bench", "revision": "s" * 64, "limit": 6}
    )
    book = b.path / "cases.jsonl"
    rows = [json.loads(line) for line in book.read_text().splitlines()]
    rows[0]["chain"][0]["request"]["question"] = "something else?"
    book.write_text("".join(json.dumps(one) + "\n" for one in rows))
    found = compare(a, b, tasks=["single"])
    (pair,) = {(r.a, r.b) for r in found.rows if r.a.startswith("keeper")}
    assert pair == ("keeper (a)", "keeper (b)")
    one = row(found, *pair, "reliability")
    assert one.cases == 5
    assert one.left_out == {"not answered by keeper (b)": 2, "another case under the same name": 1}
    said = notes(found)
    assert "2 not answered by keeper (b), 1 another case under the same name" in said
    assert "benchmark.limit: 8 -> 6" in said
    assert 'benchmark.revision: "rrrr' in said


def test_another_reference_under_the_same_name_is_another_case_but_another_models_own_answer_is_not(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, size=4, editors={"keeper": 0.8, "unedited": None}) for name in "ab"]
    for folder in (runs[0].path, runs[1].path):
        (folder / "cases.jsonl").unlink()
    records = runs[1].path / "records" / "keeper.jsonl"
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for line in lines:
        if line["from_base"] or line["case"] == "s0":
            line["reference"] += " else"
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = compare(*runs, editors=["keeper"], tasks=["single"])
    assert found.rows[0].left_out == {"another case under the same name": 1}
    assert found.rows[0].cases == 3


def test_another_decoding_is_warned_of_and_another_backbone_is_told(tmp_path: Path) -> None:
    decoding = {"strategy": "greedy", "max_new_tokens": 16, "plain": False}
    backbone = {"id": "larger-vl", "fingerprint": "e" * 64}
    found = compare(make_run(tmp_path / "a", size=3), make_run(tmp_path / "b", size=3, decoding=decoding, backbone=backbone))
    told = {note.text: note.warning for note in found.table().notes if "differ in" in note.text}
    assert [warns for text, warns in told.items() if "max_new_tokens: 64 -> 16" in text] == [True]
    assert [warns for text, warns in told.items() if '"fake-vl" -> "larger-vl"' in text] == [False]
    assert "f" * 20 not in "".join(told)


def test_what_one_side_has_no_score_of_is_left_out_and_counted(run: Run) -> None:
    def picky(record: Record) -> Score:
        if record.dimension == "reliability" and record.case in ("s1", "s2"):
            return Score(None, "not judged")
        return Score(float(len(record.output)))

    found = compare(run, editors=["keeper", "forgetter"], tasks=["single"], scorer=picky)
    assert row(found, "keeper", "forgetter", "reliability").cases == 10
    assert row(found, "keeper", "forgetter", "reliability").left_out == {"not scored for keeper": 2}
    assert row(found, "keeper", "forgetter", "generality").left_out == {}
    assert "(keeper - forgetter: Rel.): 2 not scored for keeper" in notes(found)
    assert "Points of picky" in notes(found)
    nothing = compare(run, editors=["keeper", "forgetter"], tasks=["single"], scorer=lambda record: Score(None, "no"))
    assert nothing.tests == 0 and not nothing.table().rows
    assert "nothing is compared" in notes(nothing)


def test_a_judge_can_be_what_scores(tmp_path: Path) -> None:
    run = make_run(tmp_path / "r", size=4)
    score_run(run, open_judge("dummy"), cache_dir=tmp_path / "cache")
    found = compare(run, tasks=["single"], scorer="judge:dummy")
    judged = run.scores("single", scorer=judge_scorer(run, "dummy"))
    assert row(found, "keeper", "unedited", "reliability").mean_a == pytest.approx(judged[0].dimensions["reliability"].mean)  # type: ignore[union-attr]
    assert "Points of judge:dummy" in notes(found)


def test_cases_of_one_raw_case_are_one_unit_unless_taken_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Run.records

    def in_pairs(self: Run, *names: str) -> list[Record]:
        return [
            replace(r, tags={**r.tags, "raw": str(int(r.case[1:]) // 2)}) if r.case[0] == "s" else r for r in read(self, *names)
        ]

    monkeypatch.setattr(Run, "records", in_pairs)
    options: dict[str, Any] = {"editors": ["keeper", "forgetter"], "tasks": ["single"], "dimensions": ["reliability"]}
    (together,), (alone,) = compare(run, **options).rows, compare(run, unit="case", **options).rows
    assert (together.cases, together.units, alone.units) == (12, 6, 12)
    assert together.mean_a == pytest.approx(alone.mean_a)
    assert "in 6 groups of one 'raw'" in notes(compare(run, **options))


def test_a_sample_that_cannot_show_anything_says_so(tmp_path: Path) -> None:
    found = compare(make_run(tmp_path / "few", size=4))
    assert found.least == 1.0
    assert "nothing could be distinguishable" in notes(found)
    assert not any(r.distinguishable for r in found.rows)
    assert "Fewer than 20 independent cases" in notes(found)


def test_it_shows_itself_as_text_markdown_html_csv_and_frame(tmp_path: Path) -> None:
    found = compare(make_run(tmp_path / "r", size=3, editors={"<b>bold</b>": 0.8, "=plain": 0.2}))
    assert repr(found) == table_text(found.table())
    assert "<b>" not in found._repr_html_() and "&lt;b&gt;" in found._repr_html_()
    assert "<b>" not in found.markdown() and found.markdown().startswith("## Comparison")
    rows = list(csv.DictReader(io.StringIO(found.csv())))
    assert rows[0]["b"] == "'=plain"
    assert float(rows[0]["difference"]) == found.rows[0].difference.mean  # type: ignore[union-attr]
    pandas = pytest.importorskip("pandas")
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(rows[0])
    assert len(frame) == len(found.rows) == len(rows)


def test_names_that_there_are_not_are_answered_with_the_nearest(run: Run) -> None:
    for wrong, said in (
        ({"editors": ["keper"]}, "Did you mean 'keeper'"),
        ({"tasks": ["singel"]}, "Did you mean 'single'"),
        ({"dimensions": ["overal"]}, "Did you mean 'overall'"),
        ({"against": "nobody"}, "Known: forgetter, keeper, unedited"),
        ({"scorer": "rogue"}, "Did you mean 'rouge'"),
    ):
        with pytest.raises(UnknownNameError, match=said):
            compare(run, **wrong)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="two editors are needed, and there is keeper"):
        compare(run, editors=["keeper"])
    with pytest.raises(ValueError, match="alpha is 5"):
        compare(run, alpha=5)


def test_the_command_prints_the_table_or_csv(run: Run, tmp_path: Path) -> None:
    options = ["--editors", "keeper,forgetter", "--task", "single", "--dimension", "reliability", "--scorer", "rouge"]
    shown = kedit("compare", run.path, *options)
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[0] == "Comparison, single"
    assert "forgetter" in shown.output and "corrected over 1 tests" in shown.output
    rows = list(csv.DictReader(io.StringIO(kedit("compare", run.path, *options, "--csv").output)))
    assert [(one["a"], one["b"], one["cases"]) for one in rows] == [("keeper", "forgetter", "12")]
    wrong = kedit("compare", tmp_path / "nowhere")
    assert wrong.exit_code == 1 and "is not a run" in wrong.output
