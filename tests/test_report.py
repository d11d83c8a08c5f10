from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser
from fake_runs import EDITORS, config, make_run, picture, record
from fakes import FakeBenchmark
from PIL import Image

from kedit.bootstrap import Estimate
from kedit.casebook import Casebook
from kedit.errors import StoreError
from kedit.report import Report, report, run_html, run_text, tables
from kedit.report.browser import browser_data
from kedit.report.pack import packed, unpacked
from kedit.report.results import Results
from kedit.report.tables import Table, evenly_spaced
from kedit.report.text import cell_text, csv_text, markdown
from kedit.rouge import rouge_id, rouge_l
from kedit.run import Run
from kedit.scoring import Score, Scoring
from kedit.store import RunStore
from kedit.types import Case, Knowledge, Probe, Record, Request

POISON = [
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    "</script x><script >document.title='owned'</script >",
    "<!--<script >",
    "\x1b[31mred\x1b[0m \x9b2J \x07",
    "abc \u202egnp.exe\u202c",
    "javascript:document.title='owned'",
    "\ud800 lone",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def written(run: Run) -> Report:
    return report(run)


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose editor, case, questions, references and answers all are attacks."""
    folder = tmp_path_factory.mktemp("runs") / "poisoned"
    editors = {"unedited": None, POISON[0]: 0.5, "=1+1": 0.5}
    make_run(folder, size=1, editors=editors)
    with RunStore.open(folder, config(editors, 1)) as store:
        for number, text in enumerate(POISON):
            request = Request(text, (), "en", context=(text,))
            case = Case(
                f"{number} {text}", (Knowledge(request, text),), (Probe("reliability", request, text),), {"partition": text}
            )
            Casebook(folder).add("single", case)
            for name in editors:
                store.append(name, [record("single", case, 0, 1, text, text)])
    return Run.load(folder)


def by_key(run: Run) -> dict[str, Table]:
    return {table.key: table for table in tables(run)}


def column(table: Table, key: str) -> list[Any]:
    index = [c.key for c in table.columns].index(key)
    return [row[index] for row in table.rows]


def notes(table: Table, *, warning: bool | None = None) -> str:
    return "\n".join(note.text for note in table.notes if warning is None or note.warning == warning)


def append(run: Run, editor: str, records: list[Record]) -> None:
    with RunStore.open(run.path, run.config) as store:
        store.append(editor, records)


# -- which rows and columns ----------------------------------------------------------------------------------------------


def test_the_editor_that_does_nothing_is_first_and_has_no_gain_whatever_its_place_and_name(run: Run) -> None:
    assert run.editors[0] != "unedited"
    for table in tables(run):
        if table.kind == "scores":
            assert column(table, "editor") == ["unedited", "keeper", "forgetter"]
            assert [gain is None for gain in column(table, "gain")] == [True, False, False]


def test_cells_are_the_scores_of_the_run(run: Run) -> None:
    table = by_key(run)["single"]
    for scores in run.scores("single", base="unedited"):
        row = column(table, "editor").index(scores.editor)
        for name, estimate in scores.dimensions.items():
            assert column(table, name)[row] == estimate
        assert column(table, "overall")[row] == scores.overall
        assert column(table, "harmonic")[row] == scores.harmonic
        assert (column(table, "joint")[row].count, column(table, "joint")[row].of) == (scores.joint.joint, scores.joint.n)
        if scores.editor != "unedited":
            assert column(table, "gain")[row] == scores.gain["overall"]


def test_without_an_editor_that_does_nothing_gain_is_left_out_with_a_warning(tmp_path: Path) -> None:
    for table in tables(make_run(tmp_path / "run", size=2, editors={"keeper": 0.9})):
        assert "gain" not in [c.key for c in table.columns]
        if table.kind == "scores":
            assert "Gain over base is left out" in notes(table, warning=True)


def test_each_order_of_the_chains_has_its_own_tables_the_original_first(run: Run) -> None:
    keys = [table.key for table in tables(run)]
    sequential = [key for key in keys if key.startswith("sequential") and "_by_" not in key]
    assert sequential == ["sequential", "sequential_ar-zh-en", "sequential_retention", "sequential_ar-zh-en_retention"]
    assert "original" in by_key(run)["sequential"].title
    assert "the original is en-zh-ar" in notes(by_key(run)["sequential_ar-zh-en"])
    for order, key in (("en-zh-ar", "sequential"), ("ar-zh-en", "sequential_ar-zh-en")):
        expected = {s.editor: s.overall for s in run.scores("sequential", order=order)}
        assert dict(zip(column(by_key(run)[key], "editor"), column(by_key(run)[key], "overall"), strict=True)) == expected


def test_groups_are_scored_on_their_own_cases_beside_the_base(run: Run) -> None:
    table = by_key(run)["single_by_topic_group"]
    assert column(table, "topic_group") == ["religious"] * 3 + ["social"] * 3
    assert column(table, "editor") == ["unedited", "keeper", "forgetter"] * 2
    assert column(table, "cases") == [3] * 6
    expected = {(s.group, s.editor): s.dimensions["reliability"] for s in run.scores("single", by="topic_group")}
    found = zip(column(table, "topic_group"), column(table, "editor"), column(table, "reliability"), strict=True)
    assert {(group, editor): estimate for group, editor, estimate in found} == expected
    assert "single_by_partition" in by_key(run)
    assert "sequential_by_partition" not in by_key(run)  # a chain holds all partitions


def test_retention_has_the_base_row_each_step_and_what_was_forgotten(run: Run) -> None:
    table = by_key(run)["sequential_retention"]
    keeper = Results(run).retention("keeper", "sequential", "en-zh-ar")
    assert table.rows[0] == ("unedited", "before any insert", *keeper.base, None)
    assert [row[2:5] for row in table.rows[1:4]] == list(keeper.matrix)
    assert table.rows[4] == ("keeper", "forgetting", *keeper.forgetting, keeper.mean_forgetting)
    assert [c.label for c in table.columns[2:5]] == ["step 1 (en)", "step 2 (zh)", "step 3 (ar)"]


def test_a_long_chain_shows_some_steps_with_the_first_and_the_last() -> None:
    assert evenly_spaced(3) == [0, 1, 2]
    assert evenly_spaced(1000, 4) == [0, 333, 666, 999]
    assert evenly_spaced(5, 1) == [0]
    assert evenly_spaced(0) == []


def test_overall_is_missing_with_its_reason_where_a_dimension_has_no_value(tmp_path: Path) -> None:
    run = Run.load(_folder(tmp_path / "run", lambda r: r.dimension != "generality"))
    table = by_key(run)["single"]
    assert column(table, "overall") == [None] * 3
    assert "no Overall, because generality has no value" in notes(table, warning=True)
    assert run_text(run).count("–") > 3


def _folder(path: Path, keep: Any, change: Any = lambda r: r) -> Path:
    """The usual run with only some of its records, each changed."""
    source = make_run(path.with_name("source"), size=2)
    with RunStore.open(path, source.config) as store:
        for editor in source.editors:
            store.append(editor, [change(r) for r in source.records(editor) if keep(r)])
    return path


def test_a_run_without_records_is_rendered(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", config(EDITORS, 4)):
        pass
    run = Run.load(tmp_path / "run")
    assert "unfinished, 0 of 4" in run_text(run)
    assert "<table>" in run_html(run)
    assert report(run).page.exists()


# -- what stands under a table -------------------------------------------------------------------------------------------


def test_the_id_of_the_score_stands_beside_every_table_in_every_rendering(run: Run, written: Report) -> None:
    for table in tables(run):
        assert rouge_id() in notes(table)
        assert rouge_id() in markdown(table)
    assert run_text(run).count(rouge_id()) == sum(table.kind != "groups" for table in tables(run))
    assert run_html(run).count(rouge_id()) == sum(table.kind == "scores" for table in tables(run))
    assert written.page.read_text(encoding="utf-8").count(rouge_id()) >= len(tables(run))


def test_notes_say_what_was_the_reference_the_order_and_the_parameters(run: Run) -> None:
    said = notes(by_key(run)["single"])
    assert "Lang., Scen. against the unedited model's own answer" in said
    assert "Rel., Gen. against the benchmark's answer" in said
    assert "keeper: Keeper, steps=20, lr=0.001." in said
    assert "order en-zh-ar, the original" in notes(by_key(run)["sequential"])


@pytest.mark.parametrize(("dtype", "claim"), [("float32", "agree"), ("bfloat16", "may differ")])
def test_the_note_on_precision_promises_equal_tokens_only_in_fp32(tmp_path: Path, dtype: str, claim: str) -> None:
    backbone = {"id": "b", "fingerprint": "f", "dtype": dtype, "device": "cpu"}
    run = make_run(tmp_path / "run", size=1, backbone=backbone)
    assert f"in {dtype}, in which batched, cached and plain generation {claim}" in notes(by_key(run)["single"])


def test_what_not_to_trust_is_named_and_what_is_fine_is_not(tmp_path: Path) -> None:
    many = make_run(tmp_path / "many", size=20)
    assert "Fewer than" not in notes(by_key(many)["single"], warning=True)
    few = make_run(tmp_path / "few", size=2)
    assert "Fewer than 20 cases" in notes(by_key(few)["single"], warning=True)


def test_flags_on_more_than_one_answer_in_twenty_are_a_warning(tmp_path: Path) -> None:
    def some(r: Record) -> Record:
        return replace(r, flags=("truncated",)) if r.dimension == "reliability" else replace(r, flags=())

    table = by_key(Run.load(_folder(tmp_path / "run", lambda r: True, some)))["single"]
    assert "keeper: 25 % of answers (2 of 8) are flagged truncated" in notes(table, warning=True)
    assert column(table, "truncated") == [2, 2, 2]
    assert "flagged empty" not in notes(table)


def test_unscored_answers_failures_and_unfinished_tasks_are_counted_and_warned_of(tmp_path: Path) -> None:
    def blank(r: Record) -> Record:
        return replace(r, reference="...") if r.dimension == "generality" and r.case == "s0" else r

    run = Run.load(_folder(tmp_path / "run", lambda r: r.case != "s1", blank))
    with RunStore.open(run.path, run.config) as store:
        store.fail("keeper", "single", "s1", "insert", ValueError("broken"))
    table = by_key(run)["single"]
    assert column(table, "unscored") == [1, 1, 1]
    assert column(table, "failures") == [0, 1, 0]
    said = notes(table, warning=True)
    assert "keeper: 1 answers are unscored" in said
    assert "keeper: 1 cases failed" in said
    assert "forgetter: unfinished, 1 of 2 cases" in said
    assert "keeper: unfinished" not in said


def test_a_failed_chain_is_counted_in_its_own_order_only(tmp_path: Path) -> None:
    run = Run.load(_folder(tmp_path / "run", lambda r: r.case != "c1-ar-zh-en", lambda r: r))
    for case in FakeBenchmark(2).cases("sequential"):
        Casebook(run.path).add("sequential", case)
    with RunStore.open(run.path, run.config) as store:
        for editor in run.editors:
            store.fail(editor, "sequential", "c1-ar-zh-en", "insert", ValueError("broken"))
    found = by_key(run)
    assert column(found["sequential"], "failures") == [0, 0, 0]
    assert column(found["sequential_ar-zh-en"], "failures") == [1, 1, 1]
    assert not any("unfinished" in notes(found[key], warning=True) for key in ("sequential", "sequential_ar-zh-en"))


@pytest.mark.parametrize(("length", "columns"), [(1, []), (10, [10]), (100, [12, 2, 4, 0])])
def test_a_chain_of_any_length_is_reported(tmp_path: Path, length: int, columns: list[int]) -> None:
    request = Request("what?", (), "en")
    probes = tuple(Probe("reliability", request, "a red clock", step) for step in range(1, length + 1))
    order = "-".join(["en"] * length)
    case = Case("c", (Knowledge(request, "a red clock"),) * length, probes, {"raw": "c", "order": order})
    dimensions = [{"name": "reliability", "label": "Rel", "locality": False}]
    tasks = {"chain": {"protocol": "tests", "dimensions": dimensions, "cases": 1, "order": order}}
    after = range(1, length + 1) if length <= 10 else (1, length)
    with RunStore.open(tmp_path / "run", config(EDITORS, 1, tasks=tasks)) as store:
        for editor in EDITORS:
            said = [record("chain", case, k, t, "a clock", "a red clock") for t in after for k in range(length)]
            store.append(editor, said)
    made = report(Run.load(tmp_path / "run"))
    retention = [table for table in tables(Run.load(tmp_path / "run")) if table.kind == "retention"]
    assert [len([c for c in table.columns if c.kind == "estimate"]) for table in retention] == columns
    assert all(path.is_file() for path in (made.page, *made.tables, *made.plots))
    assert len(made.tables) == 1 + len(retention) and len(made.plots) == 2 * min(len(retention), 3)


def test_an_editor_that_cannot_be_told_from_doing_nothing_is_called_so(tmp_path: Path) -> None:
    table = by_key(make_run(tmp_path / "run", size=4, editors={"base": None, "idle": None, "keeper": 1.0}))["single"]
    said = notes(table, warning=True)
    assert "idle: Overall cannot be told from doing nothing" in said
    assert "keeper: Overall cannot" not in said
    assert re.search(r"Doing nothing already scores \d+\.\d in Rel\.", notes(table))


# -- renderings ----------------------------------------------------------------------------------------------------------


def test_numbers_have_one_decimal_the_interval_in_brackets_and_no_negative_zero(run: Run) -> None:
    estimate, gain = by_key(run)["single"].columns[1], by_key(run)["single"].columns[-10]
    assert gain.kind == "gain"
    assert cell_text(Estimate(71.26, 66.04, 76.5, 20), estimate) == "71.3 [66.0, 76.5]"
    assert cell_text(Estimate(-0.04, -0.02, 3.0, 20), gain) == "+0.0 [+0.0, +3.0]"
    assert cell_text(None, estimate) == "–"


def test_terminal_columns_are_aligned_also_under_wide_characters(tmp_path: Path) -> None:
    lines = run_text(make_run(tmp_path / "run", size=1, editors={"编辑器": 0.5, "x": None})).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("Editor"))
    rows = lines[first + 2 : first + 4]
    seen = [line.index("[") + line.count("编") * 3 for line in rows]
    assert seen[0] == seen[1]


def test_csv_gives_every_number_in_full_with_its_interval(run: Run) -> None:
    table = by_key(run)["single"]
    rows = list(csv.DictReader(io.StringIO(csv_text(table))))
    for row, editor, overall, joint in zip(rows, *(column(table, k) for k in ("editor", "overall", "joint")), strict=True):
        assert row["editor"] == editor
        found = [float(row[k]) for k in ("overall", "overall_low", "overall_high")]
        assert found == [overall.mean, overall.low, overall.high]
        assert [int(row["joint"]), int(row["joint_of"])] == [joint.count, joint.of]
    assert rows[0]["gain"] == ""


def test_csv_text_that_looks_like_a_formula_is_prefixed_and_numbers_are_not(poisoned: Run) -> None:
    rows = list(csv.reader(io.StringIO(csv_text(by_key(poisoned)["single"]))))
    assert "'=1+1" in [row[0] for row in rows]
    for row in rows:
        assert not any(cell[:1] in ("=", "+", "@", "\t", "\r") for cell in row)
        assert all(re.fullmatch(r"-[\d.e-]+", cell) for cell in row if cell.startswith("-"))


def test_markdown_cells_hold_no_markup_and_every_row_has_every_cell(poisoned: Run) -> None:
    for table in tables(poisoned):
        text = markdown(table)
        assert "<img" not in text
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(table.columns) + 1}


def test_the_terminal_gets_no_control_character(poisoned: Run) -> None:
    text = run_text(poisoned)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert repr(poisoned) == text


def test_the_notebook_table_is_escaped_and_has_no_script(poisoned: Run) -> None:
    shown = Nodes(run_html(poisoned))
    assert not shown.has("script") and not shown.has("img")
    assert html.escape(POISON[0], quote=True) in run_html(poisoned)
    assert poisoned._repr_html_() == run_html(poisoned)


# -- files ---------------------------------------------------------------------------------------------------------------


def test_a_report_writes_every_table_curves_and_the_page_and_returns_their_paths(run: Run, written: Report) -> None:
    assert written.folder == run.path / "report"
    assert [path.name for path in written.tables] == [f"{table.key}.csv" for table in tables(run)]
    assert {path.suffix for path in written.plots} == {".png", ".svg"}
    assert "sequential_retention_ar-zh-en.svg" in [path.name for path in written.plots]
    for path in (written.page, written.markdown, *written.tables, *written.plots):
        assert path.is_file() and path.stat().st_size > 0
    assert all(f"## {table.title}" in html.unescape(written.markdown.read_text()).replace("\\", "") for table in tables(run))


def test_the_same_run_gives_the_same_report(run: Run, written: Report, tmp_path: Path) -> None:
    again = report(run, tmp_path / "again")
    for path in written.folder.rglob("*.*"):
        assert (again.folder / path.relative_to(written.folder)).read_bytes() == path.read_bytes()


def test_a_folder_that_cannot_be_written_is_a_clear_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write the report"):
        report(run, tmp_path / "file")


def test_a_report_takes_no_model_library(run: Run, tmp_path: Path) -> None:
    code = (
        "import sys; from kedit.run import Run; from kedit.report import report\n"
        f"report(Run.load({str(run.path)!r}), {str(tmp_path / 'out')!r})\n"
        "print([m for m in ('torch', 'transformers', 'matplotlib.pyplot') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_style_and_script_of_the_page_are_packaged() -> None:
    root = Path(__file__).parent.parent
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["kedit"]
    packaged = {path for pattern in listed for path in (root / "kedit").glob(pattern)}
    assets = {path for path in (root / "kedit" / "report").iterdir() if path.suffix in (".css", ".js")}
    assert assets and assets <= packaged, "add report/*.css and report/*.js to [tool.setuptools.package-data]"


# -- the page ------------------------------------------------------------------------------------------------------------


class Nodes(HTMLParser):
    """Elements of a page with their attributes, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data

    def has(self, tag: str) -> bool:
        return any(found == tag for found, _ in self.found)


def harmless(nodes: Nodes) -> bool:
    """Two scripts, images of data only, no handler, nothing from elsewhere."""
    tags = [tag for tag, _ in nodes.found]
    sources = [
        str(value) for _, attributes in nodes.found for key, value in attributes.items() if key in ("src", "href", "srcset")
    ]
    handlers = [key for _, attributes in nodes.found for key in attributes if key.startswith("on")]
    return (
        tags.count("script") == 2
        and not {"iframe", "object", "embed", "link", "base"} & set(tags)
        and all(source.startswith(("data:image/", "#")) for source in sources)
        and not handlers
    )


def test_the_page_runs_one_script_known_by_its_hash_and_loads_nothing(written: Report) -> None:
    nodes = Nodes(written.page.read_text(encoding="utf-8"))
    policy = next(str(a["content"]) for tag, a in nodes.found if tag == "meta" and a.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(nodes.scripts[1].encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'")
    assert harmless(nodes)


def test_no_text_of_a_run_becomes_markup_of_the_page(poisoned: Run, tmp_path: Path) -> None:
    text = report(poisoned, tmp_path / "out").page.read_text(encoding="utf-8")
    nodes = Nodes(text)
    assert harmless(nodes)
    assert "<" not in nodes.scripts[0]
    held = json.loads(nodes.scripts[0])
    inside = [unpacked(held["index"]), *map(unpacked, held["parts"])]
    assert len(inside[0]["cases"]) == len(POISON) + 3
    for texts in (text, *(json.dumps(part, ensure_ascii=False) for part in inside)):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", texts)


def test_the_browser_joins_question_reference_and_each_answer_with_its_score(run: Run) -> None:
    data = browser_data(Results(run))
    case = next(c for c in data["cases"] if c["id"] == "s1")
    probe = case["probes"][0]
    first = next(r for r in run.records("keeper", "single") if r.case == "s1" and r.probe == 0)
    assert (probe["question"], probe["language"], probe["reference"]) == ("q 1 zh?", "zh", first.reference)
    assert list(probe["answers"]) == data["editors"] == ["unedited", "keeper", "forgetter"]
    assert probe["answers"]["keeper"][0]["text"] == first.output
    assert probe["answers"]["keeper"][0]["score"] == round(rouge_l(first.output, first.reference), 4)
    chain = next(c for c in data["cases"] if c["id"] == "c0-en-zh-ar")
    assert [item["language"] for item in chain["chain"]] == ["en", "zh", "ar"]
    assert [a["after"] for a in chain["probes"][0]["answers"]["keeper"]] == [1, 2, 3]


def test_images_are_on_the_page_once_each_and_small(run: Run) -> None:
    data = browser_data(Results(run))
    asked = {digest for c in data["cases"] for p in c["probes"] for digest in p["images"]}
    assert asked == set(data["images"]) == {picture(n).digest for n in range(6)}
    for uri in data["images"].values():
        head, _, body = uri.partition(";base64,")
        assert head in ("data:image/png", "data:image/jpeg")
        assert Image.open(io.BytesIO(base64.b64decode(body))).size == (384, 230)


def test_a_page_that_is_cut_says_so(run: Run) -> None:
    from kedit.report.page import page

    whole, cut = browser_data(Results(run)), browser_data(Results(run), most=5)
    assert (len(whole["cases"]), len(cut["cases"]), cut["total"]) == (18, 5, 18)
    assert "5 of 18 cases are on this page" in page(Results(run), [], [], cut)
    assert "All 18 cases." in page(Results(run), [], [], whole)


def test_a_run_without_a_casebook_still_shows_its_answers(tmp_path: Path) -> None:
    data = browser_data(Results(Run.load(_folder(tmp_path / "run", lambda r: True))))
    assert data["images"] == {}
    assert data["cases"][0]["probes"][0]["question"] is None
    assert data["cases"][0]["probes"][0]["answers"]["keeper"][0]["text"]


def dumped(page: Path, browser: Browser) -> str:
    """The page's document after its script has run, in headless Chromium."""
    browser.open(page)
    text: str = browser.run("document.documentElement.outerHTML")
    return text


def test_in_a_browser_attacks_stay_text_and_cases_are_shown(poisoned: Run, browser: Browser, tmp_path: Path) -> None:
    dom = dumped(report(poisoned, tmp_path / "out").page, browser)
    nodes = Nodes(dom)
    assert "<title>fake-bench on fake-vl</title>" in dom
    assert harmless(nodes)
    cases = [a for tag, a in nodes.found if tag == "article" and a.get("class") == "case"]
    assert len(cases) == len(POISON) + 3
    assert f"{len(POISON) + 3} cases with" in dom
    assert "&lt;img src=x onerror=" in dom


def test_in_a_browser_arabic_runs_from_right_to_left_and_languages_are_marked(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", size=1)
    nodes = Nodes(dumped(report(run).page, browser))
    texts = [a for tag, a in nodes.found if tag == "p" and "text" in str(a.get("class")).split()]
    directions = {(a["lang"], a["dir"]) for a in texts}
    assert directions == {("ar", "rtl"), ("zh", "auto"), ("en", "auto")}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_unscored_on_the_page_which_stays_json(value: float, run: Run) -> None:
    def scorer(record: Record) -> Score:
        return Score(value if record.dimension == "reliability" else 50.0)

    found = packed(browser_data(Results(run, Scoring("odd-1", "an odd score", scorer))))
    parts = [json.dumps(unpacked(part), allow_nan=False) for part in (found["index"], *found["parts"])]
    assert any(f"the score is {value}" in part for part in parts)
