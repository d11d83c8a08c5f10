"""The report page in a browser: its filters, sorting, addresses and case studies, and that texts of a run stay texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from chromium import Browser
from fake_runs import config, make_run, record

from kedit.casebook import CASES, IMAGES, Casebook
from kedit.judging.book import open_book
from kedit.judging.prompt import Inputs
from kedit.judging.scoring import judge_scoring
from kedit.judging.verdict import Verdict
from kedit.report import pack
from kedit.report.browser import browser_data
from kedit.report.escape import _acts
from kedit.report.page import page
from kedit.report.results import Results
from kedit.report.thumbnails import side
from kedit.rouge import rouge_l
from kedit.run import Run
from kedit.store import RunStore
from kedit.types import Case, Knowledge, Probe, Record, Request

ATTACK = "<img src=x onerror=\"document.title='owned'\"><b>bold</b>"
EDITORS: dict[str, float | None] = {"keeper": 0.9, "unedited": None, "forgetter": 0.5, ATTACK: 0.2}
JUDGE, PROMPT = "dummy-judge", "score-1"


class Asked(NamedTuple):
    """A question of the run and its records by editor, asked after the whole chain."""

    task: str
    case: str
    probe: int
    records: dict[str, Record]

    def score(self, editor: str) -> float | None:
        return rouge_l(self.records[editor].output, self.records[editor].reference)

    def fails(self, editor: str) -> bool:
        score, local = self.score(editor), "locality" in self.records[editor].dimension
        return score is not None and score < (80 if local else 50)


def altered(r: Record, editor: str) -> Record:
    """With what an editor that routes would have told, an answer without a word, and a reference without one."""
    if editor == ATTACK:
        used = r.dimension == "reliability"
        return replace(r, trace={"entry" if used else "nearest": ATTACK, "similarity": 0.75 if used else 0.25, "threshold": 0.5})
    if editor == "keeper" and r.case.startswith("s0") and r.dimension == "generality":
        return replace(r, output="", flags=("empty",))
    return replace(r, reference="...") if r.case.startswith("s1") and r.dimension == "generality" else r


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The usual run with traces of an editor, and judged: 7 for every answer of the keeper, no verdict for the forgetter's."""
    source = make_run(tmp_path_factory.mktemp("source") / "run", size=2, editors=EDITORS)
    path = tmp_path_factory.mktemp("runs") / "run"
    with RunStore.open(path, source.config) as store:
        for editor in source.editors:
            store.append(editor, [altered(r, editor) for r in source.records(editor)])
    shutil.copy(source.path / CASES, path / CASES)
    shutil.copytree(source.path / IMAGES, path / IMAGES)
    found = Run.load(path)
    questions = {(c["task"], c["id"]): c["probes"] for c in map(json.loads, (path / CASES).read_text("utf-8").splitlines())}
    with open_book(path, JUDGE, PROMPT) as book:
        for editor, verdict in (("keeper", Verdict(7, "", ATTACK)), ("forgetter", Verdict(None, "", "", "broken JSON"))):
            rows = {}
            for r in found.records(editor):
                asked = Inputs(r.language, questions[r.task, r.case][r.probe]["request"]["question"], r.reference, r.output)
                key = asked.key(JUDGE, PROMPT)
                rows[key] = book.row(key, verdict)
            book.add(list(rows.values()))
    return found


@pytest.fixture(scope="module")
def html(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(Results(run), tmp_path_factory.mktemp("pages") / "page.html")


def written(results: Results, file: Path) -> Path:
    file.write_text(page(results, [], [], browser_data(results)), encoding="utf-8")
    return file


def questions(run: Run) -> list[Asked]:
    """In the order of the page: by task and case."""
    found: dict[tuple[str, str, int], dict[str, Record]] = {}
    for task in run.tasks:
        cases = list(dict.fromkeys(r.case for r in run.records(run.editors[0], task)))
        for case in cases:
            for editor in run.editors:
                for r in sorted(run.records(editor, task), key=lambda r: r.asked_at):
                    if r.case == case:
                        found.setdefault((task, case, r.probe), {})[editor] = r
    order = sorted(
        found, key=lambda key: (run.tasks.index(key[0]), list(dict.fromkeys(k[:2] for k in found)).index(key[:2]), key[2])
    )
    return [Asked(*key, found[key]) for key in order]


def address(**query: Any) -> str:
    return f"#cases?{urlencode(query)}"


def matching(browser: Browser, html: Path, **query: Any) -> list[int]:
    """Numbers of the questions that an address shows, after checking them against the sentence above the list."""
    browser.open(html, address(**query))
    found: list[int] = browser.run("matching")
    assert f" {len(found)} questions match" in browser.run("document.getElementById('count').textContent")
    return found


def wanted(run: Run, fits: Any) -> list[int]:
    return [number for number, asked in enumerate(questions(run)) if fits(asked)]


# -- filters and sorting -------------------------------------------------------------------------------------------------

FILTERS: dict[str, tuple[Mapping[str, str], Any]] = {
    "fails with an editor": ({"editor": "forgetter", "outcome": "fail"}, lambda q: q.fails("forgetter")),
    "fails with any editor": ({"outcome": "fail"}, lambda q: any(q.fails(e) for e in EDITORS)),
    "passes": ({"editor": "keeper", "outcome": "pass"}, lambda q: q.score("keeper") is not None and not q.fails("keeper")),
    "unscored": ({"editor": "keeper", "outcome": "unscored"}, lambda q: q.score("keeper") is None),
    "flag": ({"editor": "keeper", "outcome": "flag empty"}, lambda q: "empty" in q.records["keeper"].flags),
    "an entry applied": ({"outcome": "applied"}, lambda q: "entry" in q.records[ATTACK].trace),
    "no entry applied": ({"editor": ATTACK, "outcome": "untouched"}, lambda q: "nearest" in q.records[ATTACK].trace),
    "dimension": ({"dimension": "generality"}, lambda q: q.records["keeper"].dimension == "generality"),
    "partition": ({"tag partition": "zh"}, lambda q: q.records["keeper"].tags.get("partition") == "zh"),
    "task and order": (
        {"task": "sequential", "order": "ar-zh-en"},
        lambda q: q.task == "sequential" and q.records["keeper"].tags["order"] == "ar-zh-en",
    ),
    "text of a case": ({"text": "S1"}, lambda q: q.case.startswith("s1")),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_shows_exactly_the_questions_that_fit(name: str, run: Run, html: Path, browser: Browser) -> None:
    query, fits = FILTERS[name]
    expected = wanted(run, fits)
    assert 0 < len(expected) < len(questions(run))
    assert matching(browser, html, **query) == expected


def test_a_control_changes_the_list_and_the_address_and_reset_undoes_it(run: Run, html: Path, browser: Browser) -> None:
    browser.open(html)
    everything = browser.run("matching.length")
    browser.run("controls.editor.value = 'forgetter'; controls.editor.dispatchEvent(new Event('change'))")
    browser.run("controls.outcome.value = 'fail'; controls.outcome.dispatchEvent(new Event('change'))")
    expected = wanted(run, lambda q: q.fails("forgetter"))
    browser.until(f"matching.length === {len(expected)}")
    assert browser.run("matching") == expected
    assert "editor=forgetter&outcome=fail" in browser.run("location.hash")
    browser.run("document.getElementById('reset').click()")
    assert browser.run("matching.length") == everything == len(questions(run))


def test_questions_are_sorted_by_disagreement_between_the_editors_that_do_something(
    run: Run, html: Path, browser: Browser
) -> None:
    def spread(asked: Asked) -> float:
        scores = [s for e in EDITORS if e != "unedited" and (s := asked.score(e)) is not None]
        return round(max(scores) - min(scores), 3) if scores else float("-inf")

    every = questions(run)
    values = [spread(every[n]) for n in matching(browser, html, sort="spread")]
    assert values == sorted(values, reverse=True) and len(values) == len(every)
    assert browser.run("document.querySelector('.case h3 a').textContent") == every[browser.run("matching[0]")].case


@pytest.mark.parametrize(("sort", "sign"), [("low", 1), ("high", -1)])
def test_questions_are_sorted_by_the_score_of_an_editor_the_unscored_last(
    sort: str, sign: int, run: Run, html: Path, browser: Browser
) -> None:
    every = questions(run)
    scores = [every[n].score("forgetter") for n in matching(browser, html, sort=sort, editor="forgetter")]
    values = [float("inf") if score is None else sign * round(score, 3) for score in scores]
    assert values == sorted(values) and None in scores


def test_an_editor_can_be_left_out_of_the_view(html: Path, browser: Browser) -> None:
    browser.open(html)
    assert browser.run("document.querySelectorAll('.probe')[0].querySelectorAll('.answer:not(.reference)').length") == len(
        EDITORS
    )
    browser.run("controls.hidden[1].click()")
    browser.until("document.querySelectorAll('.probe')[0].querySelectorAll('.answer:not(.reference)').length === 3")
    assert "hidden=" in browser.run("location.hash")


def test_what_an_address_asks_for_and_the_page_does_not_have_is_left_out(run: Run, html: Path, browser: Browser) -> None:
    assert len(matching(browser, html, editor="nobody", outcome="constructor", hidden="[1,", page="-3", sort=ATTACK)) == len(
        questions(run)
    )


def test_text_is_found_in_answers_traces_and_reasons_of_any_part(
    run: Run, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "PART", 3000)
    html = written(Results(run), tmp_path / "page.html")
    answer = next(q for q in questions(run) if q.task == "single").records["forgetter"].output
    assert matching(browser, html, text=answer.upper()) == wanted(
        run, lambda q: q.task == "single" and any(r.output == answer for r in q.records.values())
    )
    assert matching(browser, html, text="0.75") == wanted(run, lambda q: "entry" in q.records[ATTACK].trace)
    assert len(matching(browser, html, text="broken json")) == len(questions(run))


# -- scores by a judge -----------------------------------------------------------------------------------------------------


def test_a_judges_score_and_reason_stand_beside_rouge(run: Run) -> None:
    data = browser_data(Results(run))
    answer = data["cases"][0]["probes"][0]["answers"]
    assert data["ways"] == ["ROUGE-L", f"judge {JUDGE}"]
    assert answer["keeper"][-1]["others"] == [{"score": 70.0, "why": ATTACK}]
    assert answer["forgetter"][-1]["others"] == [{"score": None, "why": "broken JSON"}]
    assert answer[ATTACK][-1]["others"] == [{"score": None, "why": "not judged yet"}]


def test_a_report_drawn_by_a_judge_shows_the_judge_first_and_rouge_beside_it(run: Run) -> None:
    data = browser_data(Results(run, judge_scoring(run, JUDGE)))
    answer = data["cases"][0]["probes"][0]["answers"]["keeper"][-1]
    plain = browser_data(Results(run))["cases"][0]["probes"][0]["answers"]["keeper"][-1]
    assert data["ways"] == [f"judge {JUDGE}", "ROUGE-L"]
    assert (answer["score"], answer["why"]) == (70.0, ATTACK)
    assert answer["others"] == [{"score": plain["score"], "why": ""}]


def test_outcomes_follow_the_score_that_is_chosen(run: Run, html: Path, browser: Browser) -> None:
    failed = matching(browser, html, way="1", editor="keeper", outcome="fail")
    assert failed == wanted(run, lambda q: "locality" in q.records["keeper"].dimension)  # 70 of the 80 that they need
    assert len(matching(browser, html, way="1", editor="forgetter", outcome="unscored")) == len(questions(run))
    assert "ROUGE-L" in browser.run("document.querySelector('.ways').textContent")


# -- one case alone --------------------------------------------------------------------------------------------------------


def test_the_address_of_a_case_opens_it_alone_with_every_question_and_editor(run: Run, html: Path, browser: Browser) -> None:
    browser.open(html)
    link = browser.run("[...document.querySelectorAll('.case h3 a')].find((a) => a.textContent.startsWith('s1')).hash")
    browser.open(html, link)
    case = browser.run("document.querySelector('#study h2 span').textContent")
    expected = [q for q in questions(run) if q.case == case]
    assert browser.run("document.querySelectorAll('table.study thead th').length") == len(expected)
    rows = browser.run("[...document.querySelectorAll('table.study tbody th')].map((th) => th.textContent)")
    assert rows == ["Question", "Reference", "unedited (unedited)", "keeper", "forgetter", ATTACK]
    text = browser.run("document.getElementById('study').textContent")
    for asked in expected:
        assert all(r.output in text and r.reference in text for r in asked.records.values())
    assert browser.run("getComputedStyle(document.getElementById('cases')).display") == "none"
    assert browser.run("document.querySelector('#study .item').textContent").startswith("Inserted at step 1")
    assert browser.run("document.activeElement.textContent").startswith(case)


def test_a_case_leads_to_the_next_of_its_list_and_back(run: Run, html: Path, browser: Browser) -> None:
    browser.open(html, address(outcome="fail", editor="forgetter", sort="low"))
    first, second = browser.run("[...new Set(matching.map((q) => index.case[q]))].map((c) => index.cases[c].id)")[:2]
    browser.run("document.querySelector('.case h3 a').click()")
    browser.until(f"document.querySelector('#study h2 span')?.textContent === {json.dumps(first)}")
    browser.run("[...document.querySelectorAll('.paths a')].find((a) => a.textContent === 'Next case').click()")
    browser.until(f"document.querySelector('#study h2 span').textContent === {json.dumps(second)}")
    browser.run("document.querySelector('.paths a').click()")
    browser.until("!document.body.classList.contains('alone')")
    assert browser.run("matching") == browser.run("sorted(candidates(outcome))")
    assert browser.run("controls.editor.value") == "forgetter"
    assert browser.run("document.activeElement.textContent") == second


def test_an_address_of_no_case_says_so(html: Path, browser: Browser) -> None:
    browser.open(html, f"#case?{urlencode({'task': 'single', 'id': ATTACK})}")
    assert f"This page has no case {ATTACK}." in browser.run("document.getElementById('study').textContent")
    assert browser.run("document.querySelector('#study img')") is None


def test_on_paper_a_case_alone_has_no_controls_and_its_table_is_a_table(html: Path, browser: Browser) -> None:
    browser.open(html)
    browser.open(html, browser.run("document.querySelector('.case h3 a').hash"))
    browser.size(703, 1000)
    try:
        browser.call("Emulation.setEmulatedMedia", media="print")
        assert browser.run("getComputedStyle(document.querySelector('.paths')).display") == "none"
        assert browser.run("getComputedStyle(document.querySelector('table.study')).display") == "table"
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
        browser.call("Emulation.clearDeviceMetricsOverride")


# -- texts stay texts, and nothing is loaded -------------------------------------------------------------------------------


@pytest.mark.parametrize("fragment", ["", "#case"])
def test_markup_in_names_titles_and_reasons_stays_text(fragment: str, html: Path, browser: Browser) -> None:
    browser.open(html)
    if fragment:
        browser.open(html, browser.run("document.querySelector('.case h3 a').hash"))
    text = browser.run("document.querySelector('main').textContent")
    assert text.count(ATTACK) > 5
    assert browser.run("document.title") == "fake-bench on fake-vl"
    assert browser.run("[...document.querySelectorAll('b')].filter((b) => b.textContent === 'bold').length") == 0
    assert browser.run("[...document.images].filter((i) => !i.src.startsWith('data:image/')).length") == 0
    assert browser.complaints == []
    assert [url.partition("#")[0] for url in browser.requested] == [html.as_uri()]


def test_every_control_has_a_name_and_can_be_reached_by_the_keyboard(html: Path, browser: Browser) -> None:
    browser.open(html)
    unnamed = "[...document.querySelectorAll('select, input')].filter((c) => !c.labels.length || !c.labels[0].textContent.trim())"
    assert browser.run(f"{unnamed}.length") == 0
    assert browser.run("[...document.querySelectorAll('[tabindex]')].filter((n) => n.tabIndex > 0).length") == 0
    assert browser.run("[...document.querySelectorAll('img')].filter((i) => !i.alt).length") == 0


def test_a_text_that_is_passed_without_a_look_at_each_character_holds_none_that_acts() -> None:
    assert not any(_acts(c) for c in map(chr, range(0x110000)) if c.isprintable())


# -- runs of any size ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One chain of 60 steps with two questions each."""
    path = tmp_path_factory.mktemp("long") / "run"
    requests = [Request(f"what is {n}?") for n in range(60)]
    chain = tuple(Knowledge(request, f"answer {n}") for n, request in enumerate(requests))
    probes = tuple(Probe(name, r, f"answer {n}", n + 1) for n, r in enumerate(requests) for name in ("reliability", "generality"))
    case = Case("long", chain, probes, {"raw": "long"})
    names = [{"name": n, "label": n, "locality": False} for n in ("reliability", "generality")]
    tasks = {"chain": {"protocol": "tests", "dimensions": names, "cases": 1, "order": None}}
    with RunStore.open(path, config({"keeper": 0.5}, 1, tasks=tasks)) as store:
        Casebook(path).add("chain", case)
        store.append("keeper", [record("chain", case, k, 60, f"answer {k}", str(p.reference)) for k, p in enumerate(case.probes)])
    return Run.load(path)


def parts(packed: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    starts = pack.unpacked(packed["index"])["starts"]
    yield from zip(starts, map(pack.unpacked, packed["parts"]), strict=True)


@pytest.mark.parametrize("size", [1, 3000, 1 << 18])
def test_parts_of_any_size_hold_every_question_with_what_was_inserted_for_it(
    size: int, run: Run, long_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "PART", size)
    for data in (browser_data(Results(run)), browser_data(Results(long_run))):
        packed = pack.packed(data)
        expected = [{**probe, "case": n} for n, case in enumerate(data["cases"]) for probe in case["probes"]]
        found = []
        for start, part in parts(packed):
            assert start == len(found)
            found += part["questions"]
            for question in part["questions"]:
                chain = data["cases"][question["case"]]["chain"]
                assert part["chains"][str(question["case"])][str(question["step"])] == chain[question["step"] - 1]
        assert found == expected
        assert packed["questions"] == len(expected)


def test_the_index_holds_the_last_score_of_every_editor(run: Run) -> None:
    index = pack.unpacked(pack.packed(browser_data(Results(run)))["index"])
    for at, editor in enumerate(["unedited", "keeper", "forgetter", ATTACK]):
        scores = [q.score(editor) for q in questions(run)]
        assert index["scores"][0][at] == [-1 if s is None else round(s, 4) for s in scores]


def test_a_long_list_is_shown_by_the_page_and_a_long_chain_by_its_steps(
    long_run: Run, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "PART", 2000)
    html = written(Results(long_run), tmp_path / "page.html")
    browser.open(html)
    assert browser.run("data.parts.length") > 5
    assert browser.run("document.querySelectorAll('.probe').length") == 24
    browser.run("[...document.querySelectorAll('#pager button')].find((b) => b.textContent === 'Next').click()")
    browser.until("document.querySelector('.probe .question').textContent === 'what is 12?'")
    browser.open(html, "#cases?page=99")
    assert browser.run("document.querySelector('.probe .question').textContent") == "what is 48?"
    browser.open(html, "#case?task=chain&id=long&step=10")
    assert browser.run("[...document.querySelectorAll('#study h3')].map((h) => h.textContent)") == [
        f"Questions of step {step}" for step in (10, 11, 12)
    ]
    assert "answer 9" in browser.run("document.querySelector('.chain').textContent")
    assert matching(browser, html, text="what is 5") == [10, 11, *range(100, 120)]


def test_the_more_images_the_smaller() -> None:
    assert [side(n) for n in (0, 100, 101, 1000, 4000, 4001)] == [384, 384, 192, 192, 128, 96]
