"""Conditions and traces in runs: the embedded model on chains in three languages, and every kind of editor on definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import samples
import torch
from fakes import FakeBackbone

from kedit.answers import limited
from kedit.backbone import HFBackbone, load_backbone
from kedit.benchmark import Dimension, Task
from kedit.benchmarks.kibench_open import KIBenchOpen
from kedit.editor import Editor
from kedit.evaluate import evaluate
from kedit.methods import EDITORS, IKE, MCKI, editor
from kedit.protocols import final
from kedit.routers.base import Router, Vectors
from kedit.routers.recent import Recent
from kedit.types import Case, Knowledge, Probe, Request
from kedit.zoo import catalogue

CONDITIONS = ("zero-shot", "textual", "visual", "multimodal", "one-shot", "retrieved", "oracle")
READABLE: dict[str, dict[str, Any]] = {
    "textual": {"place": "before", "wrap": "fact"},
    "multimodal": {"wrap": "fact"},
    "one-shot": {"wrap": "fact", "repeat": False},
    "retrieved": {"wrap": "fact", "query": "question"},
    "oracle": {"wrap": "fact"},
}
"""Settings with which these conditions are in the words that the embedded model was taught."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def backbone() -> HFBackbone:
    torch.set_num_threads(1)
    return load_backbone("tiny-internvl", device="cpu", dtype="float32")


# -- chains in three languages -------------------------------------------------------------------------------------------


def test_every_condition_runs_on_single_inserts_and_on_chains(backbone: HFBackbone, tmp_path: Path) -> None:
    editors = {name: editor(name, READABLE.get(name, {})) for name in CONDITIONS}
    run = evaluate(editors, backbone, KIBenchOpen(), limit=1, out=tmp_path / "run", max_new_tokens=12)
    assert not run.failures
    base = {record.key: record for record in run.records("zero-shot")}
    assert {key[0] for key in base} == {"single", "sequential"}
    for name in CONDITIONS[1:]:
        records = {record.key: record for record in run.records(name)}
        assert records.keys() == base.keys()
        assert all(record.trace.get("entry") for record in records.values()), name
        differs = any(record.output != base[key].output for key, record in records.items())
        assert differs == (name in READABLE), name
    last = max(base.values(), key=lambda record: record.asked_at)
    shown = next(record for record in run.records("textual") if record.key == last.key)
    assert shown.trace["entry"] == "edit-3"
    assert shown.trace["entries"] == '["edit-3", "edit-2", "edit-1"]'
    assert not any(record.trace for record in base.values())


def test_a_chain_of_three_is_in_view_as_far_as_it_is_inserted_and_in_the_words_of_each_request() -> None:
    case = KIBenchOpen().cases("sequential", limit=1)[0]
    made = editor("multimodal").attach(FakeBackbone())
    for step, item in enumerate(case.chain, 1):
        made.insert(item)
        context = made.rewrite(case.probes[0].request).context  # type: ignore[attr-defined]
        assert len([part for part in context if not isinstance(part, str)]) == step
        text = "\n".join(part for part in context if isinstance(part, str))
        assert all(inserted.answer in text for inserted in case.chain[:step])
        assert not any(later.answer in text for later in case.chain[step:])


# -- every kind of editor on definitions and documents ---------------------------------------------------------------------


@dataclass
class Definitions:
    """Questions about a picture, each with a definition to insert that has a title, a text and images of its own."""

    name: str = "definitions"
    revision: str = "1"

    @property
    def tasks(self) -> dict[str, Task]:
        return {"test": Task("test", final, (Dimension("answer", "Answer"), Dimension("locality", "Loc.", locality=True)))}

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        return [self._case(n) for n in range(limit or 2)]

    def train(self, limit: int | None = None) -> Sequence[Case]:
        return KIBenchOpen().train(limit or 2)

    def _case(self, n: int) -> Case:
        shown = (samples.picture(n),)
        exemplars = ((samples.picture(10 + n), f"Thing {n}."), (samples.picture(20 + n), ""))
        summary = f"Thing {n} is made of wood and stands by the door."
        item = Knowledge(Request(f"What is thing {n}?"), summary, f"Thing {n}", summary, exemplars)
        probes = (
            Probe("answer", Request(f"Is there thing {n} in the picture?", shown), "yes", tags={"prompt": "1"}),
            Probe("locality", Request("What is in the picture?", shown), None),
        )
        return Case(f"d{n}", (item,), probes, {"raw": str(n)})


def made_for(name: str, backbone: HFBackbone) -> Editor:
    """With what ships for this model, and little work where nothing does."""
    quick = {"steps": 2, "pool": 2, "epochs": 1, "rank": 8} if name in ("finetune", "lora", "ike") else {}
    takes = editor(name).get_params()
    suggested = catalogue.editor_params(backbone.id, name)
    found = editor(name, {**suggested, **{key: value for key, value in quick.items() if key in takes}})
    folder = catalogue.artefact(backbone.id, name)
    return found if folder is None else found.attach(backbone).load(folder)


@pytest.mark.parametrize("name", [name for name in EDITORS if name not in ("base", "mend", "zero-shot")])
def test_editors_of_every_kind_work_on_definitions(name: str, backbone: HFBackbone) -> None:
    run = evaluate(made_for(name, backbone), backbone, Definitions(), max_new_tokens=8)
    assert not run.failures
    records = run.records()
    assert len([record for record in records if record.dimension == "answer"]) >= 2
    assert {record.reference for record in records if record.dimension == "answer"} == {"yes"}
    assert {record.tags["prompt"] for record in records if record.dimension == "answer"} == {"1"}


# -- what routed editors say they did ---------------------------------------------------------------------------------------


class Lengths(Router):
    """Requests are near when their questions are about as long; ``decisions`` and ``seen`` count the work."""

    fitted_ = True
    threshold_ = 0.99

    def build(self) -> None:
        self.seen_ = 0

    def keys(self, knowledge: Sequence[Knowledge]) -> Vectors:
        return self._vectors([item.request for item in knowledge])

    def queries(self, requests: Sequence[Request]) -> Vectors:
        self.seen_ += len(requests)
        return self._vectors(requests)

    def _vectors(self, requests: Sequence[Request]) -> Vectors:
        angles = np.array([len(request.question) / 50 for request in requests])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def fit(self, cases: Sequence[Case], **options: Any) -> Lengths:
        return self

    def state(self) -> dict[str, torch.Tensor]:
        return {"nothing": torch.zeros(1)}

    def load_state(self, state: object) -> None:
        pass


NEAR, FAR = Request("How long is it?"), Request("How long is this question, which goes on and on and on and on and on?")
FACT = Knowledge(Request("How long is he?"), "Short.", title="Length")


def test_a_routed_editor_says_which_entry_applied_or_which_was_nearest_and_how_near() -> None:
    made = MCKI(router=Lengths()).attach(FakeBackbone())
    made.postpone([NEAR])
    assert made.trace([NEAR]) == [{}], "nothing is inserted"
    made.insert(FACT)
    assert made.trace([NEAR]) == [{}], "not asked since"
    made.postpone([NEAR, FAR])
    hit, miss = made.trace([NEAR, FAR])
    assert hit == {"entry": "edit-1", "title": "Length", "similarity": pytest.approx(1.0), "threshold": 0.99}
    assert miss.keys() == {"nearest", "similarity", "threshold"}
    assert float(miss["similarity"]) < 0.99
    made.insert(replace(FACT, title=""))
    made.remove("edit-1")
    made.postpone([NEAR])
    assert made.trace([NEAR])[0].keys() == {"entry", "similarity", "threshold"}
    made.reset()
    assert made.trace([NEAR]) == [{}]


def test_a_trace_routes_nothing_again_however_the_questions_were_asked() -> None:
    for ask in ("postpone", "generate", "rewrite_all"):
        made = MCKI(router=Lengths()).attach(FakeBackbone())
        made.insert(FACT)
        requests = [NEAR, FAR, NEAR]
        getattr(made, ask)(requests)
        seen = made.router_.seen_  # type: ignore[attr-defined]
        assert seen == 3
        found = made.trace(requests)
        assert [bool(row.get("entry")) for row in found] == [True, False, True]
        assert made.router_.seen_ == seen  # type: ignore[attr-defined]


def test_a_trace_after_an_answer_read_once_costs_nothing(backbone: HFBackbone) -> None:
    made = made_for("mcki", backbone)
    asked = KIBenchOpen().cases("single", limit=1)[0]
    made.insert(asked.chain[0])
    requests = [probe.request for probe in asked.probes]
    with limited(backbone, 4):
        made.generate(requests)
    features = made.router_.features_  # type: ignore[attr-defined]
    work = (features.extracted, features.taken, features.reused)
    backbone.counters.reset()
    found = made.trace(requests)
    assert (features.extracted, features.taken, features.reused) == work
    assert (backbone.counters.prefill_tokens, backbone.counters.layer_token_forwards) == (0, 0)
    assert all({"similarity", "threshold"} <= row.keys() for row in found)
    assert [row.get("entry") is not None for row in found] == [
        decision.active
        for decision in made.decide(requests)  # type: ignore[attr-defined]
    ]
    made.reset()


def test_records_of_routed_editors_carry_the_trace_deferred_and_plain(backbone: HFBackbone, tmp_path: Path) -> None:
    for name in ("serac", "mcki"):
        found = {}
        for plain in (False, True):
            run = evaluate(
                made_for(name, backbone), backbone, KIBenchOpen(), tasks="single", limit=1, max_new_tokens=4, plain=plain
            )
            found[plain] = {record.key: dict(record.trace) for record in run.records(name)}
        assert found[False].keys() == found[True].keys()
        for key, row in found[False].items():
            assert row.keys() == found[True][key].keys()
            assert row["similarity"] == pytest.approx(found[True][key]["similarity"], abs=1e-4)
        assert any("entry" in row for row in found[False].values())


def test_in_context_editing_says_how_much_it_showed() -> None:
    made = IKE(demos=0).attach(FakeBackbone())
    assert made.trace([NEAR]) == [{}]
    made.insert(FACT)
    made.insert(replace(FACT, title=""))
    made.postpone([NEAR, FAR])
    assert made.trace([NEAR, FAR]) == [{"entry": "edit-2", "facts": 2, "demonstrations": 0}] * 2


def test_what_came_last_is_kept_and_no_more() -> None:
    kept: Recent[str, int] = Recent(2)
    kept.keep([("a", 1), ("b", 2)])
    kept.keep([("a", 3), ("c", 4)])
    assert list(kept.items()) == [("a", 3), ("c", 4)]
    kept.keep((str(n), n) for n in range(5))
    assert list(kept) == ["3", "4"]
