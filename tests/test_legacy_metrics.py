"""Teacher-forced metrics: hand-computed values, what editors change, and that they stay out of runs that do not ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import samples
import torch
from click.testing import CliRunner
from fakes import FakeBackbone, FakeBenchmark
from replaced import Words
from teams import Alone
from torch import Tensor

from kedit.backbone import HFBackbone
from kedit.benchmark import Dimension, Task
from kedit.cli import main
from kedit.editor import Editor, Hit, ReplacementEditor, WeightEditor
from kedit.errors import StoreError
from kedit.evaluate import evaluate
from kedit.forcing import Forced
from kedit.methods import Base, FineTune
from kedit.methods.lora import LoRA
from kedit.methods.mend import MEND
from kedit.methods.serac import SERAC
from kedit.protocols import final
from kedit.scoring import legacy
from kedit.seal import overlaid
from kedit.testing import toy_cases
from kedit.types import Answer, Case, Knowledge, Probe, Record, Request

REQUEST = Request("What is shown in this picture?", (samples.A,))
KNOWN = Knowledge(REQUEST, "A red clock.")
DIMENSIONS = (
    Dimension("reliability", "Rel"),
    Dimension("generality", "Gen"),
    Dimension("cross_scenario_locality", "Loc", True),
)


@pytest.fixture
def unedited(backbone: HFBackbone) -> Iterator[HFBackbone]:
    before = backbone.fingerprint()
    yield backbone
    assert backbone.fingerprint() == before
    assert overlaid(backbone.model) == {}


def forced(top: Sequence[Sequence[int]], answer: Sequence[int], finite: bool = True) -> Forced:
    return Forced(torch.tensor(top), torch.tensor(answer, dtype=torch.long), finite)


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_token_accuracy_counts_the_answers_own_positions_and_neither_the_prompts_nor_the_end() -> None:
    # prompt of 3 tokens, answer of 2: rows 2 and 3 predict the answer, row 4 what follows it
    found = forced([[7], [8], [50], [99], [51]], [50, 51])
    assert found.predicted.tolist() == [50, 99]
    assert found.accuracy() == 0.5


def test_an_answer_without_tokens_and_logits_that_are_not_finite_are_unscored() -> None:
    assert forced([[7], [8]], []).accuracy() is None
    assert forced([[7], [8]], [8], finite=False).accuracy() is None
    assert forced([[7], [8]], [8], finite=False).agreement(forced([[7], [8]], [8]), 1) is None


def test_agreement_goes_rank_by_rank_so_that_a_swap_of_two_ranks_is_two_misses() -> None:
    before = forced([[1, 2, 3], [4, 5, 6]], [9])
    after = forced([[1, 2, 3], [4, 6, 5]], [9])
    assert after.agreement(before, 3) == pytest.approx(4 / 6)
    assert after.agreement(before, 1) == 1.0


def test_agreement_of_prompts_of_two_lengths_cuts_the_beginning_of_the_longer() -> None:
    before = forced([[1], [2], [3]], [9])
    after = forced([[8], [8], [1], [2], [4]], [9])
    assert after.agreement(before, 1) == before.agreement(after, 1) == pytest.approx(2 / 3)


def test_ids_of_two_tokenizers_are_not_compared() -> None:
    assert forced([[1], [2]], [9]).agreement(forced([[1], [2]], [9, 9]), 1) is None
    assert forced([[1], [2]], [9]).agreement(forced([[1], [2]], [8]), 1) is None


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["internvl", "qwen3_5", "text_base"], indirect=True)
def test_every_prediction_is_the_next_token_that_the_model_would_choose_after_what_was_fed_to_it(backbone: HFBackbone) -> None:
    request = samples.asked(backbone.structure.image_token_id is None)[0]
    found = backbone.forced([request], ["A red clock."], k=3)[0]
    inputs, ids = backbone._batch([request]), found.answer.tolist()
    with torch.no_grad():
        chosen = [int(backbone.forward(backbone.extended(inputs, ids[:n])).logits[0, -1].argmax()) for n in range(len(ids))]
    assert len(ids) > 1 and found.predicted.tolist() == chosen
    assert found.top.shape == (inputs["input_ids"].shape[1] + len(ids), 3)
    assert found.accuracy() == sum(a == b for a, b in zip(chosen, ids, strict=True)) / len(ids)


def test_forced_predictions_are_those_of_the_plain_forward_pass(backbone: HFBackbone) -> None:
    taught = backbone.teach(REQUEST, "A red hat.")
    with torch.no_grad():
        wanted = backbone.logits(backbone.forward(taught.inputs, rows=taught.rows), taught.rows).argmax(-1)[:-1]
    found = backbone.forced([REQUEST], ["A red hat."], k=10)[0]
    assert found.predicted.tolist() == wanted.tolist()
    assert found.answer.tolist() == taught.targets[:-1].tolist()
    assert found.finite


def test_a_models_nan_is_seen(backbone: HFBackbone) -> None:
    weight = backbone.layers[-1].mlp.down_proj.weight
    kept = weight[0, 0].item()
    with torch.no_grad():
        weight[0, 0] = float("nan")
    try:
        assert not backbone.forced([REQUEST], ["A red hat."])[0].finite
    finally:
        with torch.no_grad():
            weight[0, 0] = kept


# -- editors -----------------------------------------------------------------------------------------------------------


def accuracy(editor: Editor) -> float:
    found = editor.forced([REQUEST], [KNOWN.answer])[0]
    assert found is not None
    value = found.accuracy()
    assert value is not None
    return value


@pytest.mark.parametrize("editor", [FineTune(steps=40, lr=5e-3), LoRA(steps=40, lr=1e-2)], ids=["weights", "adapter"])
def test_an_insert_raises_the_token_accuracy_of_what_was_inserted_and_reset_takes_it_back(
    unedited: HFBackbone, editor: WeightEditor
) -> None:
    editor.attach(unedited)
    before = accuracy(editor)
    editor.insert(KNOWN)
    after = accuracy(editor)
    editor.reset()
    assert before < 0.5 < after
    assert accuracy(editor) == before


def test_an_edit_that_lives_in_hooks_is_seen(unedited: HFBackbone) -> None:
    editor = MEND(rank=8, edit_lr=3e-2).attach(unedited)
    editor.network_.observe([editor.editing_.signals(KNOWN)], Alone())
    editor.fitted_ = True
    before = editor.forced([REQUEST], [KNOWN.answer], 10)[0]
    editor.insert(KNOWN)
    after = editor.forced([REQUEST], [KNOWN.answer], 10)[0]
    editor.reset()
    assert before is not None and after is not None and after.agreement(before, 10) != 1.0


def test_a_context_editor_is_forced_on_the_rewritten_prompt(backbone: HFBackbone) -> None:
    class Told(Base):
        def rewrite(self, request: Request) -> Request:
            return replace(request, context=("A red clock.",))

    editor = Told().attach(backbone)
    plain, told = backbone.forced([REQUEST, Told().rewrite(REQUEST)], ["A hat."] * 2, 10)
    found = editor.forced([REQUEST], ["A hat."], 10)[0]
    assert found is not None and torch.equal(found.top, told.top) and len(found.top) > len(plain.top)


class Own(WeightEditor):
    """Answers in a way of its own, of which the base class knows nothing."""

    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        return {}

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        return [Answer("A gift.")] * len(requests)


class Routes(ReplacementEditor):
    """Sends all requests with an image to a replacement that cannot be forced."""

    def route(self, requests: Sequence[Request]) -> list[Knowledge | None]:
        return [KNOWN if request.images else None for request in requests]

    def replace(self, requests: Sequence[Request], knowledge: Sequence[Knowledge]) -> list[Answer]:
        return [Answer("A gift.")] * len(requests)


def test_what_cannot_be_told_is_none_and_never_the_backbones(backbone: HFBackbone) -> None:
    text = Request("Why?")
    assert Own().attach(backbone).forced([REQUEST], ["A hat."]) == [None]
    missed, hit = Routes().attach(backbone).forced([text, REQUEST], ["A hat."] * 2)
    assert missed is not None and hit is None
    assert Base().attach(FakeBackbone()).forced([text], ["A hat."]) == [None]


def test_a_routed_request_is_forced_through_the_replacement_that_is_told_the_entry(backbone: HFBackbone) -> None:
    editor = SERAC(encoder=Words(), replacement=backbone.id).attach(backbone)
    hit, own = Hit(REQUEST, KNOWN), editor.replacement_
    found = editor.forced_hit(hit, "A hat.", 5)
    wanted = own.backbone_.forced([own.told(REQUEST, KNOWN)], ["A hat."], 5)[0]
    assert found is not None and torch.equal(found.top, wanted.top)
    mixing = SERAC(encoder=Words(), replacement=backbone.id, legacy="soft_mixing").attach(backbone)
    assert mixing.forced_hit(hit, "A hat.", 5) is None


# -- runs --------------------------------------------------------------------------------------------------------------


@dataclass
class Toy:
    """Toy cases with a locality question about an image, and one in words alone."""

    size: int = 3
    name: str = "toy"
    revision: str = "1"

    @property
    def tasks(self) -> dict[str, Task]:
        return {"single": Task("single", final, DIMENSIONS)}

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        return [self._case(k, case.chain[0]) for k, case in enumerate(toy_cases(limit or self.size))]

    def _case(self, k: int, knowledge: Knowledge) -> Case:
        request = replace(knowledge.request, images=(samples.A,))
        other = replace(request, question="Which one would you choose?", images=(samples.B,))
        probes = (
            Probe("reliability", request, knowledge.answer),
            Probe("generality", replace(request, question="And this one?"), knowledge.answer, tags={"slot": "rephrase"}),
            Probe("generality", replace(request, images=(samples.C,)), knowledge.answer, tags={"slot": "image_rephrase"}),
            Probe("cross_scenario_locality", other, None, tags={"forced_answer": "A green hat."}),
            Probe("cross_scenario_locality", replace(other, images=()), None),
        )
        return Case(f"t{k}", (Knowledge(request, knowledge.answer),), probes, {"raw": str(k)})

    def train(self, limit: int | None = None) -> list[Case]:
        return []


def test_the_locality_of_doing_nothing_is_exactly_one_and_an_edit_moves_what_it_should(
    unedited: HFBackbone, tmp_path: Path
) -> None:
    editors = {"base": Base(), "ft": FineTune(steps=30, lr=5e-3)}
    run = evaluate(editors, unedited, Toy(), out=tmp_path, cache_dir=tmp_path / "c", legacy=True, max_new_tokens=4)
    base, tuned = run.records("base"), run.records("ft")
    assert not run.failures and len(base) == len(tuned) == 15
    kept = [r for r in base if r.from_base]
    assert [dict(r.measured) for r in kept] == [{"top10": 1.0}, {"top1": 1.0}] * 3
    assert all(r.measured.keys() == {"token_accuracy", "exact_match"} for r in base if not r.from_base)
    means = {m.name: value(m, tuned) for m in legacy.measures(tuned, DIMENSIONS)}
    floor = {m.name: value(m, base) for m in legacy.measures(base, DIMENSIONS)}
    assert means["legacy_reliability_token_accuracy"] > floor["legacy_reliability_token_accuracy"] + 20
    assert means["legacy_cross_scenario_locality_top10"] < 100 == floor["legacy_cross_scenario_locality_top10"]


def value(measure: legacy.Measure, records: Sequence[Record]) -> float:
    import numpy as np

    cases = {record.case: [r for r in records if r.case == record.case] for record in records}
    rows = [measure.counts(members) for members in cases.values()]
    return float(measure.value({name: np.array([sum(row.get(name, 0.0) for row in rows)]) for name in ("sum", "n")})[0])


def test_the_plain_way_measures_the_same(unedited: HFBackbone, tmp_path: Path) -> None:
    runs = [
        evaluate(
            Base(),
            unedited,
            Toy(2),
            out=tmp_path / str(plain),
            cache_dir=tmp_path / "c",
            legacy=True,
            plain=plain,
            max_new_tokens=4,
        )
        for plain in (False, True)
    ]
    assert [r.measured for r in runs[0].records("base")] == [r.measured for r in runs[1].records("base")]


def test_records_hold_no_legacy_metric_unless_asked_for_and_the_switch_belongs_to_the_runs_identity(tmp_path: Path) -> None:
    backbone, bench = FakeBackbone(), FakeBenchmark(2)
    run = evaluate(Base(), backbone, bench, out=tmp_path / "run", cache_dir=tmp_path / "c")
    assert all(not record.measured for record in run.records("base"))
    assert legacy.measures(run.records("base"), DIMENSIONS) == ()
    assert "legacy_metrics" not in run.config["identity"]
    with pytest.raises(StoreError, match="legacy_metrics"):
        evaluate(Base(), backbone, bench, out=tmp_path / "run", cache_dir=tmp_path / "c", legacy=True)


def test_a_backbone_without_logits_leaves_the_metrics_out_and_finishes_the_run(tmp_path: Path) -> None:
    run = evaluate(Base(), FakeBackbone(), FakeBenchmark(2), out=tmp_path, cache_dir=tmp_path / "c", legacy=True)
    assert not run.failures and run.records("base")
    assert all(not record.measured for record in run.records("base"))
    assert run.config["identity"]["legacy_metrics"] == legacy.ID


def test_a_request_that_cannot_be_forced_costs_its_case_alone(backbone: HFBackbone, tmp_path: Path) -> None:
    class Broken(Base):
        def forced(self, requests: Sequence[Request], answers: Sequence[str], k: int = 1) -> list[Forced | None]:
            if any(request.question == "Why?" for request in requests):
                raise ValueError("no logits for this one")
            return super().forced(requests, answers, k)

    class Bench(Toy):
        def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
            first, second, *_ = super().cases(task)
            return [replace(first, probes=(Probe("generality", Request("Why?"), "A hat."),)), second]

    run = evaluate(Broken(), backbone, Bench(), out=tmp_path, cache_dir=tmp_path / "c", legacy=True, max_new_tokens=4)
    assert [failure["case"] for failure in run.failures] == ["t0"]
    assert len(run.records("broken")) == 5


def test_the_command_line_has_the_switch() -> None:
    assert "--legacy-metrics" in CliRunner().invoke(main, ["run", "--help"]).output


# -- measures ----------------------------------------------------------------------------------------------------------


def record(case: str, dimension: str, measured: Mapping[str, float], slot: str = "") -> Record:
    tags = {"slot": slot} if slot else {}
    return Record("single", case, 0, dimension, 1, 1, "en", "", "", False, 1, 0.0, tags=tags, measured=measured)


def test_measures_are_means_in_points_one_for_each_of_a_dimensions_questions_and_skip_what_was_not_measured() -> None:
    records = [
        record("a", "reliability", {"token_accuracy": 1.0, "exact_match": 1.0}),
        record("b", "reliability", {"token_accuracy": 0.5, "exact_match": 0.0}),
        record("c", "reliability", {}),
        record("a", "generality", {"token_accuracy": 0.25}, "rephrase"),
        record("a", "generality", {"token_accuracy": 0.75}, "image_rephrase"),
        record("a", "cross_scenario_locality", {"top1": 1.0}, "loc"),
        record("b", "cross_scenario_locality", {"top10": 0.4}, "m_loc"),
    ]
    found = {measure.name: value(measure, records) for measure in legacy.measures(records, DIMENSIONS)}
    assert found == pytest.approx({
        "legacy_reliability_token_accuracy": 75.0,
        "legacy_generality_token_accuracy_rephrase": 25.0,
        "legacy_generality_token_accuracy_image_rephrase": 75.0,
        "legacy_cross_scenario_locality_top1": 100.0,
        "legacy_cross_scenario_locality_top10": 40.0,
    })  # fmt: skip
    exact = {m.name: value(m, records) for m in legacy.measures(records, DIMENSIONS, exact=True)}
    assert exact["legacy_reliability_exact_match"] == 50.0
    assert len({m.label for m in legacy.measures(records, DIMENSIONS, exact=True)}) == len(exact)
