"""Reports of tasks that are scored in other ways than free text: measures, headlines, groups of one's own, traces."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser
from fake_runs import config
from test_report import Nodes, by_key, column, dumped, harmless, notes

from kedit.casebook import Casebook
from kedit.errors import UnknownNameError
from kedit.metrics import measure, measures
from kedit.plots import reliability_plot, run_plots
from kedit.report import report, run_html, run_text, tables
from kedit.report.browser import browser_data
from kedit.report.results import Results
from kedit.report.text import csv_text
from kedit.rouge import rouge_id
from kedit.run import Run
from kedit.store import RunStore
from kedit.types import Case, Knowledge, Probe, Record, Request

EDITORS: dict[str, float | None] = {"careful": 0.9, "unedited": None, "hasty": 0.7}
ATTACK = "<img src=x onerror=\"document.title='owned'\">\x1b[31m"
TASKS: dict[str, dict[str, Any]] = {
    "asked": {
        "protocol": "tests",
        "dimensions": [{"name": "answer", "label": "Answers", "locality": False, "scoring": "yes-no"}],
        "cases": 24,
        "order": None,
        "headline": "f1",
        "groups": {"source": "source language"},
    },
    "chosen": {
        "protocol": "tests",
        "dimensions": [{"name": "option", "label": "Options", "locality": False, "scoring": "choice-official"}],
        "cases": 24,
        "order": None,
        "headline": "accuracy",
        "groups": {"source": "source language"},
    },
    "told": {
        "protocol": "tests",
        "dimensions": [
            {"name": "reliability", "label": "Rel.", "locality": False},
            {"name": "kept", "label": "Kept", "locality": True, "scoring": "yes-no"},
        ],
        "cases": 24,
        "order": None,
        "headline": "overall",
        "groups": {},
    },
}
OPTIONS = json.dumps(["Soup", "Rice", "Tea", "Bread"])


def case_of(task: str, number: int) -> Case:
    request = Request(f"{task} {number}?", (), "en")
    own = {"source": ("sw", "zh")[number % 2]}
    if task == "asked":
        group = {"consistency_group": str(number // 2)}
        reference = ("yes", "no", "no")[number % 3]
        probes = [Probe("answer", request, reference, tags={"prompt": str(p), **group}) for p in (1, 2)]
    elif task == "chosen":
        probes = [
            Probe("option", request, "ABCD"[(number - i) % 4], tags={"rotation": str(i), "options": OPTIONS}) for i in range(4)
        ]
    else:
        probes = [Probe("reliability", request, f"a red clock {number}"), Probe("kept", request, ("yes", "no")[number % 2])]
    return Case(f"{task}{number}", (Knowledge(request, "a thing"),) if task != "asked" else (), tuple(probes), own)


def said(case: Case, index: int, keep: float | None) -> str:
    reference = str(case.probes[index].reference)
    generator = random.Random(f"{case.id} {index} {keep}")
    if keep is not None and generator.random() < keep:
        return f"The answer is {reference}."
    return generator.choice(["no", "B", "I cannot tell"])


def make(folder: Path, size: int = 24, change: Any = lambda record: record, **tasks: Mapping[str, Any]) -> Run:
    chosen: dict[str, Any] = {name: {**row, **tasks.get(name, {})} for name, row in TASKS.items()}
    with RunStore.open(folder, config(EDITORS, size, tasks=chosen)) as store:
        for task in chosen:
            for case in (case_of(task, n) for n in range(size)):
                Casebook(folder).add(task, case)
                for name, keep in EDITORS.items():
                    store.append(name, [change(record(task, case, i, keep)) for i in range(len(case.probes))])
    return Run.load(folder)


def record(task: str, case: Case, index: int, keep: float | None) -> Record:
    probe = case.probes[index]
    trace: dict[str, str | float] = {} if keep is None else {"entry": ATTACK, "similarity": 0.8361234, "threshold": float("nan")}
    output, reference = said(case, index, keep), str(probe.reference)
    tags = {**case.tags, **probe.tags}
    after = len(case.chain)
    return Record(
        task, case.id, index, probe.dimension, 1, after, "en", output, reference, False, 3, 0.01, (), tags, trace, {"nll": 0.25}
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make(tmp_path_factory.mktemp("runs") / "run")


# -- headlines -----------------------------------------------------------------------------------------------------------


def test_the_headline_of_a_task_is_its_measure_or_its_overall(run: Run) -> None:
    results = Results(run)
    for editor in run.editors:
        assert results.headline(editor, "asked") == measure(run.records(editor, "asked"), run.dimensions("asked"), "f1")
        accuracy = measures(run.records(editor, "chosen"), run.dimensions("chosen"))["accuracy"]
        assert results.headline(editor, "chosen") == accuracy
        overall = {scores.editor: scores.overall for scores in run.scores("told")}
        assert results.headline(editor, "told") == overall[editor]
    assert [run.headline(task) for task in run.tasks] == ["f1", "accuracy", "overall"]
    assert [results.headline_label(task) for task in run.tasks] == ["F1 (macro)", "Accuracy", "Overall"]


def test_a_headline_that_no_scoring_has_is_a_clear_error(tmp_path: Path) -> None:
    broken = make(tmp_path / "run", size=2, asked={"headline": "f2"})
    with pytest.raises(UnknownNameError, match="'f2'"):
        Results(broken).headline("careful", "asked")


def test_a_run_that_does_not_name_headline_and_groups_has_the_usual_ones(tmp_path: Path) -> None:
    plain = {"protocol": "tests", "dimensions": [{"name": "a", "label": "A", "locality": False}], "cases": 1, "order": None}
    with RunStore.open(tmp_path / "run", config(EDITORS, 1, tasks={"old": plain})):
        pass
    old = Run.load(tmp_path / "run")
    assert old.headline("old") == "overall"
    assert old.groups("old") == {"topic_group": "topic group", "partition": "partition"}
    assert Results(old).headline("careful", "old") is None


# -- tables --------------------------------------------------------------------------------------------------------------


def test_measures_have_a_table_of_their_own_with_a_row_per_editor_and_the_gain_in_the_headline(run: Run) -> None:
    table = by_key(run)["asked_measures"]
    assert table.kind == "measures"
    assert column(table, "editor") == ["unedited", "careful", "hasty"]
    for row, editor in enumerate(column(table, "editor")):
        found = measures(run.records(editor, "asked"), run.dimensions("asked"))
        for name in ("accuracy", "precision", "recall", "f1", "f1_sd", "yes_share", "invalid", "consistency"):
            assert column(table, name)[row] == found[name]
    gains = column(table, "gain")
    assert gains[0] is None
    assert gains[1].mean == pytest.approx(column(table, "f1")[1].mean - column(table, "f1")[0].mean)


def test_a_measure_that_no_editor_has_a_value_of_has_no_column(run: Run) -> None:
    keys = [c.key for c in by_key(run)["chosen_measures"].columns]
    assert {"accuracy", "official_accuracy", "circular", "position_bias", "letter_d"} <= set(keys)
    assert "letter_e" not in keys  # there are four options
    assert "told_measures" in by_key(run)
    assert [t.key for t in tables(run) if t.key == "told_measures" and "consistency" in [c.key for c in t.columns]] == []


def test_a_table_says_how_it_was_scored_by_the_ids_of_its_own_task(run: Run) -> None:
    found = by_key(run)
    for key, own, foreign in (("asked", "yes-no/1", "choice"), ("chosen", "choice-official/1", "yes-no")):
        for table in (found[key], found[f"{key}_measures"], found[f"{key}_by_source"]):
            if table.kind != "groups" or table.notes:
                assert own in notes(table)
            assert foreign not in notes(table)
            assert "ROUGE" not in notes(table) and "Lang." not in notes(table)
    assert f"Rel.: ROUGE-L F-measure, 0 to 100 ({rouge_id()}); Kept: 100 where" in notes(found["told"])


def test_measures_of_several_readings_name_them_all(run: Run) -> None:
    assert "choice/1, choice-official/1; each over all cases" in notes(by_key(run)["chosen_measures"])


def test_a_task_of_one_dimension_shows_no_columns_that_repeat_it(run: Run) -> None:
    keys = {table.key: [c.key for c in table.columns] for table in tables(run)}
    assert not {"overall", "harmonic", "joint"} & {*keys["asked"], *keys["asked_by_source"], *keys["chosen"]}
    assert {"overall", "harmonic", "joint"} <= set(keys["told"])
    assert "Joint" not in notes(by_key(run)["asked"])
    assert "Overall" not in notes(by_key(run)["asked"])


def test_groups_are_those_that_the_task_names_and_show_its_headline(run: Run) -> None:
    assert [table.key for table in tables(run) if table.kind == "groups"] == ["asked_by_source", "chosen_by_source"]
    table = by_key(run)["asked_by_source"]
    assert table.title == "asked, by source language"
    assert [c.label for c in table.columns[:4]] == ["Source language", "Editor", "Cases", "F1 (macro)"]
    own = [r for r in run.records("careful", "asked") if r.tags["source"] == "zh"]
    row = next(row for row in table.rows if row[:2] == ("zh", "careful"))
    assert row[3] == measure(own, run.dimensions("asked"), "f1")


def test_what_always_the_same_answer_would_get_stands_under_the_measures(run: Run) -> None:
    records = [replace(r, output="no") for r in run.records("careful", "asked")]
    floor = measure(records, run.dimensions("asked"), "f1")
    assert floor is not None
    assert f"Always answering 'no' without looking would get {floor.mean:.1f} in F1 (macro)" in notes(
        by_key(run)["asked_measures"]
    )
    assert "would get 25.0 in Accuracy" in notes(by_key(run)["chosen_measures"])


def test_measures_that_their_label_does_not_explain_are_explained(run: Run) -> None:
    assert "Circular accuracy: every rotation" in notes(by_key(run)["chosen_measures"])
    assert "Consistency" not in notes(by_key(run)["told_measures"])  # it has no value there


def test_consistency_says_over_how_many_groups_it_is(run: Run) -> None:
    groups = {n // 2 for n in range(24) if {"yes", "no"} == {case_of("asked", m).probes[0].reference for m in (n, n ^ 1)}}
    assert f"over {len(groups)} groups by consistency_group, which are resampled whole" in notes(by_key(run)["asked_measures"])


# -- renderings ----------------------------------------------------------------------------------------------------------


def test_a_wide_table_of_measures_is_broken_into_lines_that_fit_a_terminal(run: Run) -> None:
    text = run_text(run)
    assert "asked: measures" in text
    block = text[text.index("chosen: measures") : text.index("told\n")]
    assert max(len(line) for line in block.splitlines()) <= 118
    for label in ("Accuracy (letter only)", "Circular accuracy", "Position bias", "D given - right"):
        assert label in block


def test_measures_are_in_the_notebook_the_csv_and_the_page(run: Run, tmp_path: Path) -> None:
    assert "F1 (macro)" in run_html(run)
    table = by_key(run)["asked_measures"]
    rows = list(csv.DictReader(io.StringIO(csv_text(table))))
    assert float(rows[1]["f1"]) == column(table, "f1")[1].mean
    written = report(run, tmp_path / "out")
    assert "asked_measures.csv" in [path.name for path in written.tables]
    page = written.page.read_text(encoding="utf-8")
    assert '<article class="measures">' in page
    assert f"yes-no/1, choice-official/1, {rouge_id()}" in page


def test_plots_draw_the_headline_of_a_task_without_reliability_and_name_its_scoring(run: Run) -> None:
    assert [key for key, _, _ in run_plots(Results(run))] == ["asked_source", "chosen_source"]
    figure = reliability_plot(run, "source", task="asked")
    ax = next(ax for ax in figure.axes if ax.get_title(loc="left") == "careful")
    assert ax.get_ylabel() == "F1 (macro) (0 to 100)\nyes-no/1"
    assert figure.get_suptitle() == "F1 (macro) by source language, asked"
    results = Results(run)
    expected = [results.group_headlines(name, "asked", "source")[g] for name in ("unedited", "careful") for g in ("sw", "zh")]
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([e.mean for e in expected if e is not None])


# -- what an editor did with a request -----------------------------------------------------------------------------------


def test_the_browser_shows_what_an_editor_did_and_what_was_measured_as_text(run: Run) -> None:
    data = browser_data(Results(run))
    case = next(c for c in data["cases"] if c["id"] == "asked1")
    answers = case["probes"][0]["answers"]
    assert answers["careful"][0]["trace"] == {
        "entry": ATTACK.replace("\x1b", "\\x1b"),
        "similarity": "0.8361",
        "threshold": "nan",
        "nll": "0.25",
    }
    assert answers["unedited"][0]["trace"] == {"nll": "0.25"}


def test_the_browser_keeps_a_questions_tags_apart_from_its_cases_and_filters_by_the_tasks_groups(run: Run) -> None:
    data = browser_data(Results(run))
    case = next(c for c in data["cases"] if c["id"] == "chosen1")
    assert case["tags"] == {"source": "zh"}
    assert [probe["tags"]["rotation"] for probe in case["probes"]] == ["0", "1", "2", "3"]
    assert data["groups"] == {"source": "source language"}


def test_in_a_browser_traces_are_shown_and_attacks_in_them_stay_text(run: Run, browser: Browser, tmp_path: Path) -> None:
    dom = dumped(report(run, tmp_path / "out").page, browser)
    nodes = Nodes(dom)
    assert "<title>fake-bench on fake-vl</title>" in dom
    assert harmless(nodes)
    assert len([a for tag, a in nodes.found if tag == "dl" and a.get("class") == "trace"]) > 10
    assert "&lt;img src=x onerror=" in dom and "0.8361" in dom
    assert "Source language" in dom
