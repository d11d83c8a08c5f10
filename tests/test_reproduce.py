"""Tables and figures of papers: what is printed adds up, what is run stands beside it, and what differs is said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from fakes import AddNoise, FakeBackbone, FakeBenchmark, Lookup, Prepend

from kedit.artefacts import read_json, write_json
from kedit.benchmarks import BENCHMARKS, benchmark
from kedit.cli import main
from kedit.editor import Editor
from kedit.encoders import SentenceEncoder
from kedit.errors import DataError, StoreError, UnknownNameError
from kedit.judging import score_run
from kedit.judging.judges import WordCounter
from kedit.methods import EDITORS, editor
from kedit.protocols import final
from kedit.report.results import Results
from kedit.reproduce import Reproduction, paper, papers, plan, reproduce
from kedit.reproduce.claims import verdict
from kedit.reproduce.efficiency import besides, parameters
from kedit.reproduce.narrowed import Narrowed
from kedit.reproduce.planning import data, editors_for, presets
from kedit.reproduce.published import Claim, Paper
from kedit.reproduce.reading import Quantity, Reading
from kedit.run import Run
from kedit.types import Answer, Case, Request

ALL = [(key, what) for key in papers() for what in paper(key).artefacts]
CROSS, CROPE, VISCUIT = (paper(key) for key in ("crosscult", "crope", "kviscuit"))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


def stand_ins() -> dict[str, Editor]:
    """Editors without a model to learn, by the names of the paper's."""
    replaced = {name: Lookup() for name in ("serac", "mscke", "mcki")}
    return {"base": editor("base"), "finetune": AddNoise(), "ike": Prepend(), "mend": AddNoise(size=0.5), **replaced}


def made(what: str, out: Path, backbone: FakeBackbone | None = None, **more: Any) -> Reproduction:
    return reproduce(
        "crosscult",
        what,
        backbone or FakeBackbone(),
        **{"benchmarks": FakeBenchmark(2), "editors": stand_ins(), "out": out, **more},
    )


def notes(done: Reproduction) -> str:
    return "\n".join(note.text for note in done.table.notes)


def values(of: Paper, what: str, model: str) -> dict[tuple[str, str], float | None]:
    found = of.artefact(what)
    return {(r.label, c.label): found.corrected(model, r.label, c.label) for r in found.rows for c in found.columns}


# -- what is printed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "what"), ALL)
def test_every_table_and_figure_names_what_there_is_and_has_a_figure_for_each_column(key: str, what: str) -> None:
    found, of = paper(key).artefact(what), paper(key)
    for run in found.runs:
        spec = of.runs[run]
        assert set(spec.editors) <= set(EDITORS)
        assert set(of.benchmarks[spec.benchmark].names) <= set(BENCHMARKS)
    columns, rows = len(found.columns), {row.label for row in found.rows}
    for model, printed in found.published.items():
        assert model in of.models
        assert set(printed) <= rows
        assert {len(figures) for figures in printed.values()} == {columns}
    assert found.published or found.unreadable
    for claim in found.claims:
        named = [Quantity.parse(side) for side in (*claim.greater, *claim.less) if isinstance(side, str)]
        assert all(quantity.editor in (*of.runs[found.run].editors, "edited") for quantity in named)


@pytest.mark.parametrize(("what", "rows"), [("table2", 14), ("table3", 14)])
@pytest.mark.parametrize("score", ["ROUGE-L", "judge"])
def test_overall_is_the_mean_of_the_printed_dimensions_in_every_row(what: str, rows: int, score: str) -> None:
    seen = 0
    for model in CROSS.models:
        for label in [row.label for row in CROSS.artefact(what).rows]:
            found = {c: v for (r, c), v in values(CROSS, what, model).items() if r == label and c.endswith(score)}
            overall = found.pop(f"Overall, {score}")
            known = [value for value in found.values() if value is not None]
            assert overall == pytest.approx(sum(known) / len(found), abs=0.0101)  # each is rounded to two decimals
            seen += 1
    assert seen == rows


def test_the_columns_of_efficiency_are_those_of_all_editors_but_the_unedited_model() -> None:
    printed = CROSS.artefact("table4").published
    assert [len(rows) for rows in printed.values()] == [6, 6]
    assert printed["InternVL3.5-8B"]["FineTune"] == [None, 13954.3, 2002.0, None, 73.6, 8.53]


def test_the_majority_row_is_what_always_no_gets_once_it_is_under_the_right_headings() -> None:
    yes, no = 376, 684
    recall, precision = 50.0, 100 * no / (yes + no) / 2
    f1 = 100 * 2 * no / (2 * no + yes) / 2
    found = values(CROPE, "table1", "Majority class (No)")
    expected = {"F1": f1, "Precision": precision, "Recall": recall, "Yes %": 0, "Consistency": 0}
    assert {c: found["CROPE", c] for c in expected} == pytest.approx(expected, abs=0.005)
    assert found["POPE, adversarial", "F1"] == pytest.approx(100 / 3, abs=0.005)  # balanced
    assert CROPE.artefact("table1").printed("Majority class (No)", "CROPE", "F1") == 32.26


def test_the_means_over_prompts_are_the_f1_of_the_table_of_models() -> None:
    both = CROPE.artefact("table1").published.keys() & CROPE.artefact("table9").published.keys()
    assert len(both) == 14
    for model in both:
        assert values(CROPE, "table9", model)["Zero-shot", "F1, mean"] == values(CROPE, "table1", model)["CROPE", "F1"]
        assert (
            values(CROPE, "fig4", model)["Visual context", "F1"] == values(CROPE, "table9", model)["Visual context", "F1, mean"]
        )


def hits(value: float | None, of: int) -> int:
    assert value is not None
    found = round(value * of / 100)
    assert abs(100 * found / of - value) <= 0.005 + 1e-9
    return found


COUNTS = {
    "Food": 142, "Beverage": 52, "Game": 52, "Celebrations": 47, "Religion": 27, "Tool": 75, "Clothes": 37, "Heritage": 62,
    "Architecture": 109, "Agriculture": 54,
}  # fmt: skip


@pytest.mark.parametrize("model", VISCUIT.models)
def test_accuracies_by_category_and_by_type_add_up_once_the_exchanged_entries_are_put_right(model: str) -> None:
    by_category, by_type = values(VISCUIT, "table2", model), values(VISCUIT, "table3", model)
    row = "read in words"
    whole = hits(by_category[row, "All"], 657)
    assert whole == sum(hits(by_category[row, name], n) for name, n in COUNTS.items())
    assert whole == hits(by_type[row, "Type 1"], 237) + hits(by_type[row, "Type 2"], 420) == hits(by_type[row, "All"], 657)
    changed = VISCUIT.artefact("table3").printed(model, row, "Type 2") != by_type[row, "Type 2"]
    assert changed == (model in ("Claude-3-opus", "Gemini-1.5-Pro"))


def test_accuracies_with_documents_are_shares_of_the_food_questions() -> None:
    cells = [v for model in VISCUIT.artefact("table7").published for v in values(VISCUIT, "table7", model).values()]
    assert [hits(value, COUNTS["Food"]) for value in cells]
    assert len(cells) == 24


def test_what_is_said_of_the_level_that_is_kept_agrees_with_the_papers_own_table_of_final_reliability() -> None:
    table = CROSS.artefact("table3")
    label = {row.editor: row.label for row in table.rows}
    seen = 0
    for figure in (CROSS.artefact("fig6"), CROSS.artefact("fig11")):  # those of the table's order
        assert figure.model is not None
        final_of = values(CROSS, "table3", figure.model)
        for claim in figure.claims:
            sides = [[Quantity.parse(s) for s in side if isinstance(s, str)] for side in (claim.greater, claim.less)]
            for a in [quantity for quantity in sides[0] if quantity.name == "kept"]:
                for b in [quantity for quantity in sides[1] if quantity.name == "kept"]:
                    more, less = (final_of[label[q.editor], "Final reliability, ROUGE-L"] for q in (a, b))
                    assert more is not None and less is not None and more > less, (figure.key, str(a), str(b))
                    seen += 1
    assert seen == 12


def test_what_the_caption_of_the_contexts_miscounts_is_an_erratum() -> None:
    found = {model: values(CROPE, "fig4", model) for model in CROPE.artefact("fig4").published}
    shown = {model: (v["Zero-shot", "F1"], v["Multimodal context", "F1"]) for model, v in found.items()}
    known = {model: (a, b) for model, (a, b) in shown.items() if a is not None and b is not None}
    better = [model for model, (a, b) in known.items() if b > a]
    assert (len(known), better) == (8, ["XGen-MM-Interleaved", "InternLM-XComposer-2.5", "Qwen2-VL-Instruct"])
    (erratum,) = CROPE.artefact("fig4").errata
    assert "Table 9 has 8 of them" in erratum.text and "75.82 after 74.06" in erratum.text
    assert known["Qwen2-VL-Instruct"] == (74.06, 75.82)


# -- settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["OpenGVLab/InternVL3_5-8B-HF", "/models/InternVL3_5-8B-HF/", "Qwen/Qwen3.5-9B"])
def test_a_backbone_of_the_paper_gets_the_papers_settings(id: str) -> None:
    artefact = CROSS.artefact("table2")
    found = editors_for(CROSS, artefact, id, data(CROSS, artefact))
    assert list(found) == ["base", "finetune", "ike", "mend", "serac", "mscke", "mcki"]
    for name, wanted in presets(CROSS, id).items():
        assert {key: found[name].get_params()[key] for key in wanted} == wanted
    small = {"O": "OpenGVLab/InternVL3_5-1B-HF", "/": "OpenGVLab/InternVL3_5-1B-HF", "Q": "Qwen/Qwen3.5-0.8B"}[id[0]]
    assert found["mscke"].get_params()["replacement"] == small
    assert found["mend"].get_params()["layers"] == (-3, -2, -1)
    gates = {name: (found[name].get_params()["threshold"], found[name].get_params()["calibration"]) for name in ("serac", "mcki")}
    assert gates == {"serac": (0.5, "fixed"), "mcki": (None, "accuracy")}  # Table 5: 0.5, and calibrated


def test_an_embedded_backbone_gets_the_settings_of_the_catalogue() -> None:
    artefact = CROSS.artefact("table2")
    found = editors_for(CROSS, artefact, "tiny-internvl", data(CROSS, artefact), ["base", "mcki"])
    assert (
        found["mcki"].get_params()
        == editor("mcki", {"wrap": "fact", "stored_image": False, "dim": 256, "epochs": 3}).get_params()
    )
    assert presets(CROSS, "tiny-internvl") == {}


def test_the_search_among_documents_has_all_of_them_so_that_it_can_fail() -> None:
    artefact = VISCUIT.artefact("table7")
    found = editors_for(VISCUIT, artefact, "tiny-internvl", data(VISCUIT, artefact))
    assert len(found["retrieved"].get_params()["documents"]) == 14


@pytest.mark.parametrize(
    ("id", "shown"), [("tiny-qwen3.5", "Qwen3.5-9B"), ("tiny-internvl", "InternVL3.5-8B"), ("x", "InternVL3.5-8B")]
)
def test_the_model_beside_a_backbone_is_itself_one_of_its_family_or_the_first(id: str, shown: str) -> None:
    assert CROSS.nearest(id, CROSS.artefact("table2")).name == shown
    assert CROSS.nearest(id, CROSS.artefact("fig6")).name == "Qwen3.5-9B"  # the only one that it shows
    assert VISCUIT.nearest("llava-hf/llava-v1.6-mistral-7b-hf", VISCUIT.artefact("table7")).name == "LLaVA-1.6-7B"


def test_a_plan_counts_what_is_asked_and_runs_nothing(tmp_path: Path) -> None:
    artefact, bench, backbone = CROSS.artefact("table3"), FakeBenchmark(3), FakeBackbone()
    found = data(CROSS, artefact, [bench])
    editors = {name: one for name, one in stand_ins().items() if name in ("base", "mcki")}
    told = plan(CROSS, artefact, "fake", found, editors, limit=1)
    run = made("table3", tmp_path, backbone, benchmarks=bench, editors=editors, limit=1).readings["sequential"].run
    before = {probe.request for case in bench.cases("sequential", limit=1) for probe in case.probes if probe.reference is None}
    assert told.generations == len(run.records()) + len(before)
    assert "sequential, 2 cases, each editor 6 inserts and 30 questions" in repr(told)
    speeds = plan(CROSS, artefact, "Qwen/Qwen3.5-9B", found, editors_for(CROSS, artefact, "Qwen/Qwen3.5-9B", found), limit=1)
    assert "At the paper's speeds" in repr(speeds)
    assert "At the paper's speeds" not in repr(told)


def test_a_plan_counts_the_unedited_model_where_it_was_not_named_for_it_is_asked_all_the_same(tmp_path: Path) -> None:
    artefact, bench, few = CROSS.artefact("table2"), FakeBenchmark(3), {"mcki": stand_ins()["mcki"]}
    told = plan(CROSS, artefact, "fake", data(CROSS, artefact, [bench]), few)
    run = made("table2", tmp_path, benchmarks=bench, editors=few).readings["single"].run
    assert run.editors == ["base", "mcki"]
    before = {probe.request for case in bench.cases("single") for probe in case.probes if probe.reference is None}
    assert told.generations == len(run.records()) + len(before)
    assert "the unedited model is asked too" in repr(told)
    assert "without those of learning" not in repr(told)
    learns = plan(CROSS, artefact, "fake", data(CROSS, artefact, [bench]), {"mcki": Learner()})
    assert "generations, without those of learning" in repr(learns)


def test_a_plan_of_costs_counts_the_unedited_answers_for_each_editor_that_is_measured(tmp_path: Path) -> None:
    artefact, bench, backbone = CROSS.artefact("table4"), Timed(4), FakeBackbone()
    few = {name: stand_ins()[name] for name in ("base", "finetune", "mend")}  # both ask the backbone everything
    told = plan(CROSS, artefact, "fake", data(CROSS, artefact, [bench]), few, limit=3)
    made("table4", tmp_path, backbone, benchmarks=bench, editors=few, limit=3)
    assert told.generations == backbone.asked
    assert "base:" not in repr(told)  # which the table does not have


def test_a_plan_counts_the_captions_by_which_documents_are_looked_up() -> None:
    artefact = VISCUIT.artefact("table7")
    found = data(VISCUIT, artefact)
    without, those = (
        plan(VISCUIT, artefact, "fake", found, {n: editor(n) for n in names})
        for names in (("base", "oracle"), ("base", "oracle", "retrieved"))
    )
    cases = found.by_run["documents"].cases("retrieval")
    images = {probe.request.images for case in cases for probe in case.probes}
    assert 0 < len(images) < len(cases)
    assert those.generations - without.generations == len(cases) + len(images)
    assert f"; {len(images)} captions of images" in repr(those)


# -- runs ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table2(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    folder = tmp_path_factory.mktemp("made")
    return made("table2", folder, cache_dir=folder / "cache")


def test_our_figures_are_those_of_the_run_and_the_difference_keeps_their_interval(table2: Reproduction) -> None:
    results = Results(table2.readings["single"].run)
    assert len(table2.cells) == 7 * 5
    cell = next(c for c in table2.cells if (c.row, c.column) == ("FineTune", "Generality, ROUGE-L"))
    assert cell.ours == results.scores("finetune", "single", None).dimensions["generality"]
    assert cell.ours is not None and cell.difference is not None
    assert cell.paper == 24.66
    assert cell.difference.mean == pytest.approx(cell.ours.mean - 24.66)
    assert cell.difference.high - cell.difference.low == pytest.approx(cell.ours.high - cell.ours.low)
    assert cell.inside == (cell.ours.low <= 24.66 <= cell.ours.high)
    overall = next(c for c in table2.cells if (c.row, c.column) == ("MCKI", "Overall, ROUGE-L"))
    assert overall.ours == results.scores("mcki", "single", None).overall


def test_what_is_made_is_written_as_text_as_numbers_and_as_data(table2: Reproduction, tmp_path: Path) -> None:
    written = table2.write(tmp_path)
    assert [path.name for path in written] == ["table2.md", "table2.csv", "table2.json"]
    kept = read_json(tmp_path / "table2.json")
    assert (kept["artefact"], kept["model"], len(kept["cells"])) == ("Table 2", "InternVL3.5-8B", 35)
    assert (tmp_path / "table2.csv").read_text().startswith("row,figure,ours,ours_low,ours_high,paper,difference")
    assert "FineTune" in repr(table2) and "in the paper's order" in repr(table2)


def test_the_order_of_rows_is_compared_where_no_figure_is_the_same(table2: Reproduction) -> None:
    same = total = 0
    cells = [c for c in table2.cells if c.column == "Overall, ROUGE-L"]
    for k, a in enumerate(cells):
        for b in cells[k + 1 :]:
            assert a.ours and b.ours and a.paper is not None and b.paper is not None
            total += 1
            same += (a.ours.mean > b.ours.mean) == (a.paper > b.paper) and a.ours.mean != b.ours.mean
    assert f"Overall, ROUGE-L {same} of {total}" in notes(table2)


def test_what_differs_is_read_off_the_run(table2: Reproduction, tmp_path: Path) -> None:
    said = notes(table2)
    for part in ("Other backbone: fake", "Other data: fake", "2 cases of fake single; the paper has 4,000", "rougeL/", "Wrap"):
        assert part in said
    own = FakeBackbone()
    own.id = "Qwen/Qwen3.5-9B"
    few = {name: stand_ins()[name] for name in ("base", "finetune")}
    bench = FakeBenchmark(30, name="kibench")
    other = notes(made("table2", tmp_path, own, benchmarks=bench, editors=few, limit=25, max_new_tokens=4))
    assert "25 cases of kibench single, the first 25 raw cases; the paper has 4,000" in other
    assert "up to 4 tokens; the paper's have up to 64" in other
    for part in ("Other backbone", "Other data", "Wrap", "Fewer than"):
        assert part not in other


def test_parameters_that_are_not_the_papers_are_named(tmp_path: Path) -> None:
    changed = editor("finetune", steps=7)
    changed.deltas = lambda knowledge: {}  # type: ignore[attr-defined,method-assign]
    said = notes(made("table2", tmp_path, editors={"base": editor("base"), "finetune": changed}))
    assert "Other settings than the paper's. finetune: steps 7 instead of 20." in said


class Gated(Lookup):
    """Has a threshold, as the papers' routers have."""

    def __init__(self, *, threshold: float | None = None) -> None:
        self.threshold = threshold


def test_a_threshold_of_ones_own_is_another_setting_than_a_calibrated_one(tmp_path: Path) -> None:
    few = {"base": editor("base"), "mcki": Gated(threshold=0.25)}
    assert "mcki: threshold 0.25 instead of None" in notes(made("table2", tmp_path / "a", editors=few))
    assert "instead of None" not in notes(made("table2", tmp_path / "b", editors={**few, "mcki": Gated()}))


def test_only_a_paper_that_says_how_it_decodes_is_told_to(tmp_path: Path) -> None:
    served, few = Letters(), {"base": editor("base")}
    served.strategy = "as the endpoint samples"  # type: ignore[attr-defined]
    assert "as the endpoint samples; the paper decodes greedily" in notes(made("table2", tmp_path / "a", served, editors=few))
    done = reproduce("kviscuit", "table3", served, limit=2, out=tmp_path / "b")
    assert "as the endpoint samples; the paper does not state its own" in notes(done)


def test_a_second_table_of_the_same_run_asks_nothing_again(tmp_path: Path) -> None:
    made("table3", tmp_path)
    again = FakeBackbone()
    done = made("fig6", tmp_path, again)
    assert again.asked == 0
    retention = Results(done.readings["sequential"].run).retention("finetune", "sequential", "en-zh-ar")
    assert next(c for c in done.cells if c.row == "FineTune").ours == retention.mean_forgetting
    assert len(done.tables) == 2
    assert [name for name, _ in done.figures()] == ["fig6"]
    reordered = made("fig12", tmp_path, again)
    assert reordered.readings["reordered"].order == "ar-zh-en"
    assert (tmp_path / "reordered").is_dir()
    with pytest.raises(StoreError, match="limit"):
        made("fig6", tmp_path, limit=1)


class Killed(FakeBackbone):
    """Is stopped from outside after so many calls."""

    left = 3

    def generate(self, requests: Sequence[Request], *, max_new_tokens: int = 64) -> list[Answer]:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().generate(requests, max_new_tokens=max_new_tokens)


def test_a_killed_command_goes_on_in_the_same_folder_with_the_same_result(tmp_path: Path, table2: Reproduction) -> None:
    with pytest.raises(KeyboardInterrupt):
        made("table2", tmp_path, Killed())
    kept = len(Run.load(tmp_path / "single").records())
    assert 0 < kept < len(table2.readings["single"].run.records())
    assert made("table2", tmp_path).cells == table2.cells


def test_a_judges_columns_are_shown_on_its_own_scale_once_it_has_judged(tmp_path: Path, table2: Reproduction) -> None:
    assert "judge's columns are left out" in notes(table2)
    few = {name: stand_ins()[name] for name in ("base", "mcki")}
    run = made("table2", tmp_path, editors=few).readings["single"].run
    with pytest.raises(UnknownNameError, match="kedit score"):
        made("table2", tmp_path, editors=few, judge="dummy")
    score_run(run, WordCounter())
    done = made("table2", tmp_path, editors=few, judge="dummy")
    cells = {(c.row, c.column): c for c in done.cells}
    assert len(cells) == 20
    judged = cells["MCKI", "Reliability, judge"]
    assert judged.ours is not None and judged.paper == 8.86
    assert (judged.ours.mean, cells["MCKI", "Reliability, ROUGE-L"].ours.mean) == (10.0, 100.0)  # type: ignore[union-attr]
    assert "Other judge" in notes(done)


def test_groups_are_drawn_and_claims_about_them_checked(tmp_path: Path) -> None:
    done = made("fig5", tmp_path, benchmarks=FakeBenchmark(4))
    assert [name for name, _ in done.figures()] == ["fig5-topic_group", "fig5-partition"]
    assert {v.claim.model for v in done.verdicts} == {"InternVL3.5-8B", None}
    assert all(v.holds is None for v in done.verdicts)  # there is no ethical case, nor an Arabic one
    assert "its values cannot be read" in notes(done)
    assert all(cell.paper is None and cell.difference is None for cell in done.cells)


@dataclass
class Named(FakeBenchmark):
    """Calls its topic groups as the paper's text does."""

    def _tags(self, n: int) -> dict[str, str]:
        groups = ("Social Values, Attitudes & Stereotypes", "Religious Values", "Ethical Values and Norms")
        return super()._tags(n) | {"topic_group": groups[n % 3]}


def test_topic_groups_by_their_names_in_full_are_those_of_the_figure(tmp_path: Path) -> None:
    done = made("fig5", tmp_path, benchmarks=Named(3), published="Qwen3.5-9B")
    found = {(c.row, c.column): c.ours for c in done.cells}
    for group in ("social", "religious", "ethical"):
        assert found["FineTune", f"Reliability, topic group {group}"] is not None
    assert next(v for v in done.verdicts if v.claim.model == "Qwen3.5-9B").holds is not None
    assert found["FineTune", "Reliability, partition ar"] is None


class Learner(Prepend):
    """Learns, and keeps what it learned."""

    needs_fit = True

    def fit(self, cases: Sequence[Case], **_: Any) -> Learner:
        self.fitted_ = True
        return self

    def load(self, path: str | Path) -> Learner:
        super().load(path)
        self.fitted_ = True
        return self


def test_what_editors_learned_from_is_told_by_what_was_loaded(tmp_path: Path) -> None:
    few: dict[str, Editor] = {"base": editor("base"), "mcki": Learner()}
    here = notes(made("table2", tmp_path / "a", editors=few, train_limit=2))
    assert "Learned by mcki: here, from the first 2 raw cases of the train split of fake; the paper trains on 11,600" in here
    backbone = FakeBackbone()
    own = Learner().attach(backbone).fit([])
    own.save(tmp_path / "own")
    taught: dict[str, Editor] = {"base": editor("base"), "mcki": Learner().attach(backbone).load(tmp_path / "own")}
    assert "Learned by mcki: elsewhere (artefact" in notes(made("table2", tmp_path / "b", backbone, editors=taught))


class Stubborn(Prepend):
    """Cannot be fitted."""

    needs_fit = True

    def fit(self, cases: Sequence[Case], **_: Any) -> Stubborn:
        raise RuntimeError("no room for the head")


def test_an_editor_that_cannot_be_fitted_is_named_and_costs_no_other(tmp_path: Path) -> None:
    few = {**{name: stand_ins()[name] for name in ("base", "finetune")}, "mcki": Stubborn()}
    done = made("table2", tmp_path, editors=few)
    assert "mcki was left out: RuntimeError: no room for the head" in notes(done)
    found = {(c.row, c.column): c.ours for c in done.cells}
    assert found["MCKI", "Overall, ROUGE-L"] is None
    assert found["FineTune", "Overall, ROUGE-L"] is not None


@pytest.mark.parametrize(
    ("key", "what", "more", "said"),
    [
        ("crosscult", "table9", {}, "table or figure of CrossCult-KIBench"),
        ("crosscalt", "table2", {}, "Did you mean 'crosscult'"),
        ("crosscult", "table2", {"published": "Qwen3.5"}, "Did you mean 'Qwen3.5-9B'"),
        ("crosscult", "fig6", {"published": "InternVL3.5-8B"}, "model of Fig. 6"),  # which shows Qwen3.5-9B alone
        ("crosscult", "table2", {"benchmarks": "mini-crope"}, "benchmark for CrossCult-KIBench"),
        ("crosscult", "table2", {"editors": ["lora"]}, "editor of Table 2"),
    ],
)
def test_a_wrong_name_is_answered_with_what_there_is(key: str, what: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UnknownNameError, match=said):
        reproduce(key, what, FakeBackbone(), **more)


# -- the other papers ----------------------------------------------------------------------------------------------------


class YesNo(FakeBackbone):
    """Says yes to a third of what it is asked."""

    def _answer(self, request: Request, weights: str, limit: int) -> Answer:
        return Answer("yes" if len(request.question) % 3 == 0 else "no", 1)


def pope_file(folder: Path) -> str:
    rows = [
        {"question_id": k, "image": f"{k // 2}.jpg", "text": f"Is there a thing {k} in the image?", "label": ("yes", "no")[k % 2]}
        for k in range(6)
    ]
    from PIL import Image

    for k in range(3):
        Image.new("RGB", (32, 32), (60 * k, 20, 20)).save(folder / f"{k}.jpg")
    file = folder / "coco_pope_adversarial.json"
    file.write_text("\n".join(map(json.dumps, rows)))
    return f"pope:{file}"


def test_conditions_stand_beside_the_table_of_prompts_and_the_object_questions_come_with_their_files(tmp_path: Path) -> None:
    done = reproduce("crope", "fig4", YesNo(), limit=4, out=tmp_path / "a")
    assert [cell.row for cell in done.cells] == ["Zero-shot", "Textual context", "Visual context", "Multimodal context"]
    assert [cell.paper for cell in done.cells] == [74.06, 64.73, 77.25, 75.82]
    assert [name for name, _ in done.figures()] == ["fig4"]
    assert len(done.verdicts) == 3
    assert "mini-crope, a miniature" in notes(done)
    alone = reproduce("crope", "table1", YesNo(), limit=4, out=tmp_path / "a")
    assert {cell.row for cell in alone.cells} == {"CROPE"}
    assert "second --benchmark" in notes(alone)
    named = ["mini-crope", pope_file(tmp_path)]
    both = reproduce("crope", "table1", YesNo(), benchmarks=named, limit=6, out=tmp_path / "b", published="Idefics2")
    assert [(c.row, c.column, c.paper) for c in both.cells][:2] == [("POPE, adversarial", "F1", 84.13), ("CROPE", "F1", 70.56)]
    assert len(both.readings["objects"].run.records()) == 6 * 3  # every question in three wordings
    assert {r.tags["prompt"] for r in both.readings["objects"].run.records()} == {"1", "2", "3"}
    assert "majority row" in notes(both)


class Letters(FakeBackbone):
    """Chooses B, whatever is asked."""

    def _answer(self, request: Request, weights: str, limit: int) -> Answer:
        return Answer("B", 1)


def test_both_readings_of_an_answer_and_the_food_questions_alone(tmp_path: Path) -> None:
    done = reproduce("kviscuit", "table3", Letters(), limit=8, out=tmp_path)
    assert {cell.row for cell in done.cells} == {"read in words", "letter only"}
    records = done.readings["test"].run.records()
    right = 100 * sum(record.reference == "B" for record in records) / len(records)
    assert [c.ours.mean for c in done.cells if c.column == "All" and c.ours] == pytest.approx([right, right])
    assert "exchanged" in notes(done)
    food = reproduce("kviscuit", "table7", Letters(), out=tmp_path, editors={"base": editor("base"), "oracle": editor("oracle")})
    assert {r.tags["category"] for r in food.readings["documents"].run.records()} == {"Food"}
    assert [cell.row for cell in food.cells] == ["None", "Oracle"]


def test_the_drop_by_rotation_is_that_of_the_two_accuracies(tmp_path: Path) -> None:
    done = reproduce("kviscuit", "fig9", Letters(), limit=12, out=tmp_path)
    found = {cell.row: cell.ours for cell in done.cells}
    vanilla, circular, drop = found["Vanilla"], found["Circular"], found["Drop, % of vanilla"]
    assert vanilla is not None and circular is not None and drop is not None
    assert (circular.mean, drop.mean) == (0.0, 100.0)  # always the same letter is right in one rotation of four
    assert vanilla.mean > 0
    assert [v.holds for v in done.verdicts] == [True, True, False]


def test_data_without_the_documents_are_told_what_to_add(tmp_path: Path) -> None:
    folder = benchmark("mini-kviscuit").build(tmp_path / "data")  # type: ignore[attr-defined]
    (folder / "documents.jsonl").unlink()
    with pytest.raises(DataError, match="documents=FILE"):
        reproduce("kviscuit", "table7", Letters(), benchmarks=f"kviscuit:{folder}", out=tmp_path / "out", editors=["base"])


# -- parts ---------------------------------------------------------------------------------------------------------------


def test_a_narrowed_benchmark_keeps_the_cases_of_a_tag_or_all_and_says_so_in_its_revision() -> None:
    bench = FakeBenchmark(6)
    part = Narrowed(bench, "single", ("scenario", "scene1"))
    assert [case.id for case in part.cases("single", limit=2)] == ["s1", "s3"]
    assert part.revision == "r1+scenario=scene1"
    every = Narrowed(bench, "single", ("scenario", "nowhere"))
    assert (len(every.cases("single")), every.revision) == (6, "r1")
    with pytest.raises(DataError, match="no task 'double', only single, sequential. Name it."):
        Narrowed(bench, "double", hint="Name it.").check()


def test_wordings_ask_every_question_in_each_of_them() -> None:
    case = Narrowed(FakeBenchmark(1), "single", prompts=("A {question}", "{question} B")).cases("single")[0]
    assert [(p.request.question, p.tags["prompt"]) for p in case.probes[:2]] == [("A q 0 zh?", "1"), ("q 0 zh? B", "2")]
    assert len(case.probes) == 8


def test_a_claim_holds_only_if_every_pair_does_and_is_not_measured_where_one_is_missing() -> None:
    known: Mapping[str, float] = {"a of x": 3.0, "a of y": 2.0}
    number = lambda quantity: known.get(str(quantity))  # noqa: E731
    assert verdict(Claim("t", ("a of x",), ("a of y", 2.5)), number).holds is True
    assert verdict(Claim("t", ("a of x", "a of y"), (2.0,)), number).holds is False
    least = verdict(Claim("t", ("a of x", "a of y"), (2.0,), orequal=True), number)
    assert (least.holds, least.shown) == (True, "a of x 3.0, a of y 2.0 >= 2")
    missing = verdict(Claim("t", ("a of z",), (2.0,)), number)
    assert missing.holds is None
    assert str(missing) == "not measured: t; a of z has no value > 2"
    with pytest.raises(DataError, match="NAME of EDITOR"):
        Quantity.parse("forgetting")


def test_a_mean_over_editors_is_of_those_that_do_something(table2: Reproduction) -> None:
    reading = Reading(Results(table2.readings["single"].run), "single")
    each = [reading.number(Quantity("reliability", name)) for name in stand_ins() if name != "base"]
    assert reading.number(Quantity("reliability", "edited")) == pytest.approx(sum(v for v in each if v is not None) / 6)
    assert reading.estimate(Quantity("reliability", "nobody")) is None


# -- costs ---------------------------------------------------------------------------------------------------------------


@dataclass
class Timed(FakeBenchmark):
    """A benchmark of which nothing is a chain."""

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        return super().cases("single", limit=limit)


def test_what_editors_cost_is_measured_once_and_kept(tmp_path: Path) -> None:
    few = {name: stand_ins()[name] for name in ("finetune", "mcki")}
    done = made("table4", tmp_path, benchmarks=Timed(4), editors=few, limit=3)
    found = {(c.row, c.column): c.ours for c in done.cells}
    assert len(found) == 12
    insert = found["FineTune", "Insert, ms per case"]
    assert insert is not None and insert.n == 3
    assert found["FineTune", "Train, ms per case"] is None  # it learns nothing
    assert found["FineTune", "Evaluation memory, GiB"] is None
    assert "none is in use here" in notes(done)
    assert "Other hardware: a CPU" in notes(done)
    again = FakeBackbone()
    assert made("table4", tmp_path, again, benchmarks=Timed(4), editors=few, limit=3).cells == done.cells
    assert again.asked == 0
    file = tmp_path / "efficiency" / "mcki.json"
    row = read_json(file)
    write_json(file, {**row, "identity": {**row["identity"], "machine": {"system": "another"}}})
    with pytest.raises(StoreError, match="measured otherwise"):
        made("table4", tmp_path, benchmarks=Timed(4), editors=few, limit=3)


def test_parameters_that_several_parts_share_count_once() -> None:
    backbone = FakeBackbone()
    one = Prepend().attach(backbone)
    alone = sum(p.numel() for p in backbone.model.parameters())
    assert sum(parameters(one, backbone).values()) == alone
    one.more_ = [backbone.model, {"extra": FakeBackbone().model}]  # type: ignore[attr-defined]
    assert sum(parameters(one, backbone).values()) == 2 * alone


def test_what_other_editors_have_loaded_is_not_in_the_memory_of_one() -> None:
    backbone, heavy, shared = FakeBackbone(), torch.nn.Linear(16, 4), torch.nn.Linear(3, 1)
    one, other = Prepend().attach(backbone), Prepend().attach(backbone)
    one.part_ = {"encoder": shared}  # type: ignore[attr-defined]
    other.part_ = [heavy, shared]  # type: ignore[attr-defined]
    assert besides(one, [other, other], backbone) == 4 * (16 * 4 + 4)
    assert besides(other, [one], backbone) == 0


def test_a_text_encoder_that_is_only_named_counts_among_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, encoder = FakeBackbone(), SentenceEncoder("a name")
    encoder.__dict__["model"] = torch.nn.Linear(10, 7)  # as once it was used
    monkeypatch.setattr("kedit.reproduce.efficiency.text_encoder", lambda name: encoder)
    one = Prepend().attach(backbone)
    alone = sum(parameters(one, backbone).values())
    one.encoder = "minilm"  # type: ignore[attr-defined]
    assert sum(parameters(one, backbone).values()) == alone + 77


def test_the_papers_hardware_is_known_by_the_name_that_its_driver_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kedit.reproduce.costing.accelerator", lambda backbone: "NVIDIA A100-SXM4-80GB")
    few = {"finetune": stand_ins()["finetune"]}
    assert "Other hardware" not in notes(made("table4", tmp_path, benchmarks=Timed(2), editors=few, limit=1))


# -- the command ---------------------------------------------------------------------------------------------------------


def kedit(*words: str) -> Result:
    return CliRunner().invoke(main, ["reproduce", *words])


def test_the_command_names_what_there_is_plans_and_asks_for_a_folder() -> None:
    assert "Table 4: Efficiency" in kedit().output
    assert kedit("crope").output.count("\n") == 4
    shown = kedit(
        "crosscult",
        "table2",
        "--plan",
        "--backbone",
        "OpenGVLab/InternVL3_5-8B-HF",
        "--limit",
        "1",
        "--set",
        "ike.demos=4",
        "--train-limit",
        "1",
    )
    assert shown.exit_code == 0, shown.output
    assert "replacement=OpenGVLab/InternVL3_5-1B-HF" in shown.output
    assert "demos=4" in shown.output
    assert "--out" in kedit("crosscult", "table2").output
    assert "Did you mean 'table2'" in kedit("crosscult", "tabel2", "--plan").output


def test_the_command_runs_on_an_embedded_backbone_and_writes_what_it_made(tmp_path: Path) -> None:
    done = kedit("kviscuit", "table3", "--limit", "2", "--out", str(tmp_path / "out"), "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "tiny-internvl is embedded" in done.output
    assert (tmp_path / "out" / "table3.csv").is_file()
    assert len(Run.load(tmp_path / "out" / "test").records()) == 2


def test_protocols_and_tags_of_a_case_survive_narrowing() -> None:
    case = FakeBenchmark(1).cases("single")[0]
    part = Narrowed(FakeBenchmark(1), "single")
    assert part.cases("single")[0] == case
    assert part.tasks["single"].protocol is final


@dataclass
class OneOrder(FakeBenchmark):
    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        return [case for case in super().cases(task, limit=limit) if case.tags.get("order") != "ar-zh-en"]


def test_chains_in_another_order_than_the_figures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Fig. 12 needs chains in the order ar-zh-en; those of fake are en-zh-ar"):
        made("fig12", tmp_path, benchmarks=OneOrder(1), editors={"base": editor("base"), "finetune": AddNoise()})
