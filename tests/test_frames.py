"""Results for other programs: data frames, Parquet, and LaTeX in which nothing is a command by accident."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner
from fake_runs import make_run

from kedit.bootstrap import Estimate
from kedit.cli import main
from kedit.errors import MissingPackageError, UnknownNameError
from kedit.frames import write_parquet
from kedit.report import report
from kedit.report.latex import latex, latex_text
from kedit.report.notes import Note
from kedit.report.results import Results
from kedit.report.tables import Column, Table, tables
from kedit.run import Run
from kedit.scoring import Score
from kedit.store import RunStore

RUDE = r"\input{/etc/passwd} 100% of $5 & #1_a^b~c <i>|`x' [1] *2 -- " "x" + "\n{\x1b[31m"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("run"), size=3)


# -- frames ------------------------------------------------------------------------------------------------------------


def test_a_frame_has_every_record_once_and_its_means_are_those_of_the_tables(run: Run) -> None:
    frame = run.to_frame()
    assert len(frame) == len(run.records())
    assert not frame.duplicated(["editor", "task", "case", "asked_at", "probe"]).any()
    scores = {(s.editor, d): e for s in run.scores("single") for d, e in s.dimensions.items()}
    means = frame[frame.task == "single"].groupby(["editor", "dimension"]).score.mean()
    for key, estimate in scores.items():
        assert estimate is not None and means[key] == pytest.approx(estimate.mean)
    first, record = frame.iloc[0], run.records()[0]
    assert (first.output, first.reference, first["tag.topic_group"]) == (
        record.output,
        record.reference,
        record.tags["topic_group"],
    )
    assert first.question == "q 0 zh?"


def test_a_frame_takes_one_task_another_scorer_and_says_why_there_is_no_score(run: Run) -> None:
    frame = run.to_frame("single", scorer=lambda record: Score(None, "not today") if record.probe else Score(7.0))
    assert set(frame.task) == {"single"}
    assert set(frame[frame.probe == 0].score) == {7.0} and frame[frame.probe == 0].unscored.isna().all()
    assert set(frame[frame.probe > 0].unscored) == {"not today"} and frame[frame.probe > 0].score.isna().all()
    with pytest.raises(UnknownNameError, match="singel"):
        run.to_frame("singel")


def test_traces_measured_values_and_flags_have_columns_of_their_own(run: Run, tmp_path: Path) -> None:
    told = replace(
        run.records("keeper", "single")[0],
        trace={"entry": "edit-1", "similarity": 0.5},
        measured={"acc": 1.0},
        flags=("a", "b"),
        output="x\ud800y",
    )
    with RunStore.open(tmp_path, run.config) as store:
        store.append("keeper", [told])
    row = Run.load(tmp_path).to_frame().iloc[0]
    assert (row["trace.entry"], row["trace.similarity"], row["measured.acc"], row["flags"]) == ("edit-1", 0.5, 1.0, "a b")
    assert row.output == "x\ufffdy"
    assert pandas.isna(row.question)  # no case was kept


def test_a_run_without_records_gives_an_empty_frame(run: Run, tmp_path: Path) -> None:
    RunStore.open(tmp_path, run.config).close()
    assert Run.load(tmp_path).to_frame().empty


def test_parquet_comes_back_equal_whatever_texts_and_kinds_a_column_holds(run: Run, tmp_path: Path) -> None:
    frame = run.to_frame()
    back = pandas.read_parquet(write_parquet(frame, tmp_path / "records.parquet"))
    assert back.output.tolist() == frame.output.tolist() and back.score.tolist() == pytest.approx(
        frame.score.tolist(), nan_ok=True
    )
    odd = pandas.DataFrame(
        {
            "text": ["a", None],
            "mixed": [1.5, "two"],
            "number": [1, 2],
            "truth": [True, 2],
            "large": [10**30, 1],
            "sure": [True, None],
        }
    )
    back = pandas.read_parquet(write_parquet(odd, tmp_path / "odd.parquet"))
    assert back.text.tolist()[0] == "a" and back.text.isna().tolist() == [False, True]
    assert back.mixed.tolist() == ["1.5", "two"] and back.number.tolist() == [1, 2]
    assert back.truth.tolist() == ["True", "2"] and back.large.tolist() == [str(10**30), "1"] and back.sure.tolist()[0] is True


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_a_missing_package_is_named_with_the_extra_before_anything_is_written(
    package: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=f"needs the package {package}.*pip install 'kedit"):
        report(run, tmp_path / "report", formats=["parquet"])
    assert not (tmp_path / "report").exists()


# -- latex -------------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """What LaTeX would show: fails for a special character that is not escaped and for braces that do not pair."""
    shown = text
    for command, c in (("textbackslash", "\\"), ("textasciitilde", "~"), ("textasciicircum", "^"), ("textless", "<")):
        shown = shown.replace(rf"\{command}{{}}", f"\0{ord(c)};")
    for command, c in (("textgreater", ">"), ("textbar", "|"), ("textasciigrave", "`")):
        shown = shown.replace(rf"\{command}{{}}", f"\0{ord(c)};")
    shown = shown.replace(r"{\char34}", "\x0034;")
    shown = re.sub(r"\\([{}$&#%_])", lambda found: f"\0{ord(found[1])};", shown)
    shown = re.sub(r"\{([\[*])\}", lambda found: f"\0{ord(found[1])};", shown)
    shown = re.sub(r"([-'])\{\}(?=\1)", "\\1\x01", shown)
    assert not re.search(r"[\\{}$&#%_~^<>|`\"\[*]|--|''", shown), shown
    return re.sub("\0(\\d+);", lambda found: chr(int(found[1])), shown).replace("\x01", "")


def test_every_special_character_is_shown_and_none_acts() -> None:
    shown = plain(latex_text(RUDE))
    assert shown == RUDE.replace("\n", r"\x0a").replace("\x1b", r"\x1b")
    assert plain(latex_text("هدية للضيف 红钟")) == "هدية للضيف 红钟"


def test_a_table_is_whole_and_shows_intervals_signs_notes_and_counts() -> None:
    table = Table(
        key="t",
        title="A & B",
        kind="scores",
        columns=(
            Column("editor", "Editor", "name"),
            Column("rel", "Rel. %", "estimate"),
            Column("gain", "Gain", "gain"),
            Column("empty", "Empty", "count"),
        ),
        rows=((RUDE, Estimate(61.25, -3.0, 64.0, 9), Estimate(-1.2, -2.0, 0.5, 9), 3), ("[b]", None, None, 0)),
        notes=(Note("Few cases: 100 % of _", warning=True),),
    )
    text = latex(table, label="t")
    for part in (
        r"\begin{table}[tb]",
        r"\caption{A \& B}",
        r"\label{tab:t}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"\bottomrule",
    ):
        assert part in text
    assert r"& 61.2 {\scriptsize [$-$3.0, 64.0]} & $-$1.2 {\scriptsize [$-$2.0, $+$0.5]} \\" in text
    assert r"{[}b] & -- & -- \\" in text
    assert r"Caution: Few cases: 100 \% of \_\par" in text.replace("\n", " ")
    assert "Empty 3." in text and text.count("Empty") == 1
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    assert [len(re.findall(r"(?<!\\)&", line)) for line in body.strip().splitlines()] == [2, 2]


@pytest.mark.parametrize(("name", "said"), [("ar: هدية", "ARABIC"), ("红钟", "CJK"), ("LoRA", None)])
def test_a_comment_says_which_scripts_need_another_compiler(name: str, said: str | None) -> None:
    table = Table("t", "Title", "groups", (Column("editor", "Editor", "name"),), ((name,),))
    comments = [line for line in latex(table, label="t").splitlines() if line.startswith("%")]
    assert (said in comments[1] and "XeLaTeX" in comments[1]) if said else len(comments) == 1


def test_a_report_writes_the_forms_asked_for_and_the_command_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["kedit.report.export"], "_plots", lambda results, folder: [])  # which take long
    written = report(run, tmp_path / "report", formats=["latex", "parquet"])
    names = [path.name for path in written.more]
    assert names == [f"{path.stem}.tex" for path in written.tables] + ["records.parquet"]
    assert len(pandas.read_parquet(written.more[-1])) == len(run.records())
    keys = [table.key for table in tables(Results(run))]
    assert len(keys) == len(set(keys)) == len(names) - 1
    with pytest.raises(UnknownNameError, match="latex"):
        report(run, tmp_path / "other", formats=["latx"])
    assert not (tmp_path / "other").exists()
    done = CliRunner().invoke(main, ["report", str(run.path), "--out", str(tmp_path / "c"), "--format", "latex"])
    assert done.exit_code == 0 and sorted(p.suffix for p in (tmp_path / "c" / "latex").iterdir()) == [".tex"] * len(keys)
