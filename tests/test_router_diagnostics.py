"""A router's diagnosis counts what it says it counts: hand-made scores, memories of several sizes, chains."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from kedit.errors import DataError
from kedit.routers.base import Router
from kedit.routers.diagnostics import Diagnosis, Outcome, _Table, auc, diagnose
from kedit.routers.pairs import CROSS_LANGUAGE, CROSS_SCENARIO, GENERALITY, INSERTED, OTHER_MEMBER, entries
from kedit.routers.report import to_json, to_text, write
from kedit.types import Case, Knowledge, Probe, Request


class Angles(Router):
    """Texts to the angle (degrees) that they are mapped to."""

    def __init__(self, *, angles: dict[str, float], threshold: float = 0.9) -> None:
        self.angles = angles
        self.threshold = threshold
        self.threshold_ = threshold
        self.fitted_ = True

    def _unit(self, texts: Sequence[str]) -> Any:
        angle = np.deg2rad([self.angles[text] for text in texts])
        return np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)

    def keys(self, knowledge: Sequence[Knowledge]) -> Any:
        return self._unit([one.request.question for one in knowledge])

    def queries(self, requests: Sequence[Request]) -> Any:
        return self._unit([one.question for one in requests])

    def fit(self, cases: Sequence[Case], **options: Any) -> Angles:
        return self

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        return


def single(name: str, general: str, language: str, scene: str) -> Case:
    inserted = Request(name, language="zh")
    probes = (
        Probe("r", inserted, "answer"),
        Probe("g", Request(general, language="zh"), "other"),
        Probe("l", Request(language, language="en"), None),
        Probe("s", Request(scene, language="zh"), None),
    )
    return Case(name, (Knowledge(inserted, "answer"),), probes)


CASES = (single("a", "a2", "al", "as"), single("b", "b2", "bl", "bs"))
ANGLES = {"a": 0.0, "a2": 10.0, "al": 90.0, "as": 5.0, "b": 120.0, "b2": 60.0, "bl": 200.0, "bs": 300.0}
"""Threshold 0.9 is 25.8 degrees: ``as`` is activated though it must not be, ``b2`` is not though it should."""


def found(memories: Sequence[int | None] = (1, None), cases: Sequence[Case] = CASES, **angles: float) -> Diagnosis:
    return diagnose(Angles(angles={**ANGLES, **angles}), cases, memories=memories)


def row(diagnosis: Diagnosis, memory: int, relation: str) -> Outcome:
    return next(one for one in diagnosis.by("memory", "relation") if (one.memory, one.relation) == (memory, relation))


def test_entries_are_related_to_the_requests_of_their_step_and_to_other_members_of_their_chain() -> None:
    one, two = Request("q1", language="en"), Request("q2", language="zh")
    probes = (
        Probe("r", one, "x", 1),
        Probe("g", Request("g1", language="en"), "y", 1),
        Probe("s", Request("n1", language="en"), None, 1),
        Probe("r", two, "z", 2),
        Probe("l", Request("n2", language="ar"), None, 2),
    )
    first, second = entries([Case("c", (Knowledge(one, "x"), Knowledge(two, "z")), probes)])
    assert [(r.request.question, r.relation) for r in first.positives] == [("q1", INSERTED), ("g1", GENERALITY)]
    assert [(r.request.question, r.relation) for r in first.negatives] == [("n1", CROSS_SCENARIO), ("q2", OTHER_MEMBER)]
    assert [(r.request.question, r.relation) for r in second.negatives] == [("n2", CROSS_LANGUAGE), ("q1", OTHER_MEMBER)]


def test_outcomes_with_one_entry_are_those_worked_out_by_hand() -> None:
    diagnosis = found()
    assert (row(diagnosis, 1, INSERTED).right, row(diagnosis, 1, INSERTED).n) == (2, 2)
    general = row(diagnosis, 1, GENERALITY)
    assert (general.right, general.wrong, general.abstained, general.found) == (1, 0, 1, 2)
    assert (general.gate, general.retrieval) == (0.5, 1.0)
    scene = row(diagnosis, 1, CROSS_SCENARIO)
    assert (scene.right, scene.wrong, scene.abstained, scene.gate, scene.retrieval) == (0, 1, 1, 0.5, None)
    assert row(diagnosis, 1, CROSS_LANGUAGE).gate == 1.0


def test_a_larger_memory_shows_wrong_entries_that_one_entry_cannot() -> None:
    diagnosis = found(b2=22.0)  # nearer to a than to b
    assert (row(diagnosis, 1, GENERALITY).abstained, row(diagnosis, 1, GENERALITY).found) == (1, 2)
    everything = row(diagnosis, 2, GENERALITY)
    assert (everything.right, everything.wrong, everything.found) == (1, 1, 1)
    assert everything.gate == 1.0, "it opened, with the wrong entry: gate and retrieval are told apart"
    assert everything.retrieval == 0.5


def test_a_question_of_another_member_is_out_of_scope_only_while_that_member_is_away() -> None:
    one, two = Request("a", language="en"), Request("b", language="zh")
    chain = Case("c", (Knowledge(one, "x"), Knowledge(two, "y")), (Probe("r", one, "x", 1), Probe("r", two, "y", 2)))
    diagnosis = diagnose(Angles(angles=ANGLES), [chain], memories=(1, None))
    assert row(diagnosis, 1, OTHER_MEMBER).gate == 1.0
    assert row(diagnosis, 2, OTHER_MEMBER).gate == 1.0, "asked without that member"
    near = diagnose(Angles(angles={**ANGLES, "b": 5.0}), [chain], memories=(None,))
    assert (row(near, 2, OTHER_MEMBER).wrong, row(near, 2, INSERTED).wrong) == (2, 0)


def about(case: Case, topic: str, elsewhere: str = "") -> Case:
    """The case with its topic, and that of its question elsewhere."""
    probes = [replace(p, tags={"asked_scenario": elsewhere}) if p.dimension == "s" and elsewhere else p for p in case.probes]
    return replace(case, probes=tuple(probes), tags={"scenario": topic})


def test_a_question_elsewhere_is_asked_without_the_entries_of_its_topic() -> None:
    a, b = CASES
    angles: Any = {"as": 115.0}  # near b, and the router activates b
    plain = row(found(**angles), 2, CROSS_SCENARIO)
    assert (plain.n, plain.wrong, plain.gate) == (2, 1, 0.5), "nobody says that b may answer it"
    told = [about(a, "gift", "tea"), about(b, "tea", "hats")]
    for size in (1, 2):
        known = row(found(cases=told, **angles), size, CROSS_SCENARIO)
        assert (known.n, known.unsure, known.abstained, known.gate) == (2, 0, 2, 1.0)
    near = row(found(cases=told, bs=0.0), 2, CROSS_SCENARIO)
    assert (near.n, near.wrong) == (2, 2), "b's question about hats finds a, and a's own is near a: true mistakes are counted"


def test_a_question_of_unknown_topic_is_counted_only_where_no_entry_can_be_meant_for_it() -> None:
    a, b = CASES
    untold = found(cases=[about(a, "gift"), about(b, "tea")])
    assert row(untold, 1, CROSS_SCENARIO).n == 2, "alone with the entry that lists it, it is surely out of scope"
    unknown = row(untold, 2, CROSS_SCENARIO)
    assert (unknown.n, unknown.unsure, unknown.gate) == (0, 2, None)
    assert "| 2 | cross-scenario | 0 | 2 | - | - | - | - | - | - |" in to_text(untold)
    same = row(found(cases=[about(a, "gift"), about(b, "gift")]), 2, CROSS_SCENARIO)
    assert (same.n, same.unsure) == (2, 0), "it is not about what the entry that lists it is about"
    request = replace(b.chain[0].request, language="ar")
    arabic = replace(b, chain=(replace(b.chain[0], request=request),), probes=b.probes[2:])
    mixed = found(cases=[about(a, "gift"), about(arabic, "tea")])
    assert row(mixed, 2, CROSS_SCENARIO).unsure == 0, "no entry is in the language of the question"


def test_a_memory_has_as_many_entries_as_said_as_long_as_there_are_others() -> None:
    cases = [about(single(f"{n}", f"{n}g", f"{n}l", f"{n}s"), f"topic{n % 2}", f"topic{(n + 1) % 2}") for n in range(8)]
    names = [name for n in range(8) for name in (f"{n}", f"{n}g", f"{n}l", f"{n}s")]
    table = _Table.of(Angles(angles={name: float(at) for at, name in enumerate(names)}), entries(cases))
    elsewhere = [(at, column) for at, column, relation in table.asked if relation == CROSS_SCENARIO]
    for at, column in elsewhere:
        for size, wanted in ((1, 1), (3, 3), (4, 4), (6, 4), (8, 4)):
            held = table._memory(column, size, 0, table.wanted[at] | table.akin[at])
            assert len(held) == len(set(held)) == wanted
            assert column in held
            assert {c % 2 for c in held} == {column % 2}


def test_generality_that_finds_another_entry_of_its_topic_is_no_sure_mistake_and_an_inserted_question_is() -> None:
    a, b = CASES
    told = [about(a, "gift", "tea"), about(b, "gift", "tea")]
    diagnosis = found(cases=told, b2=22.0)  # nearer to a than to b
    general = row(diagnosis, 2, GENERALITY)
    assert (general.right, general.related, general.wrong, general.found, general.akin) == (1, 1, 0, 1, 1)
    assert (general.gate, general.retrieval) == (1.0, 1.0)
    apart = row(found(cases=[about(a, "gift", "tea"), about(b, "tea", "hats")], b2=22.0), 2, GENERALITY)
    assert (apart.right, apart.related, apart.wrong, apart.retrieval) == (1, 0, 1, 0.5)
    inserted = row(found(cases=told, b=0.0), 2, INSERTED)
    assert (inserted.right, inserted.related, inserted.wrong) == (1, 0, 1), "of two equal keys the first is found"


def test_shares_by_language_add_up_to_those_of_all() -> None:
    diagnosis = found()
    for whole in diagnosis.by("memory", "relation"):
        parts = [o for o in diagnosis.outcomes if (o.memory, o.relation) == (whole.memory, whole.relation)]
        assert whole.n == sum(part.n for part in parts) and whole.right == sum(part.right for part in parts)
    assert {o.language for o in diagnosis.outcomes} == {"zh", "en"}


def test_sizes_beyond_the_number_of_entries_stand_for_all_once() -> None:
    assert {o.memory for o in found((1, 10, 100, None)).outcomes} == {1, 2}


def test_the_area_under_the_curve_counts_pairs_with_ties_half() -> None:
    assert auc(np.array([0.9, 0.5]), np.array([0.5, 0.1])) == (2 + 1.5) / 4
    diagnosis = found()
    pairs = [(p > n) + (p == n) / 2 for p in diagnosis.positives for v in diagnosis.negatives.values() for n in v]
    assert diagnosis.auc == pytest.approx(float(np.mean(pairs)))


def test_the_curve_holds_the_point_in_use() -> None:
    diagnosis = found()
    at = int(np.searchsorted(diagnosis.curve.upper, diagnosis.threshold))
    assert diagnosis.curve.hits[at] == (diagnosis.positives >= 0.9).sum() == 3
    assert diagnosis.curve.negatives - diagnosis.curve.rejections[at] == 1


def test_cases_without_questions_out_of_scope_are_refused() -> None:
    request = Request("a", language="zh")
    with pytest.raises(DataError, match="locality"):
        diagnose(Angles(angles=ANGLES), [Case("c", (Knowledge(request, "x"),), (Probe("r", request, "x"),))])


def test_report_and_figures_are_written_and_say_the_same_as_the_diagnosis(tmp_path: Path) -> None:
    diagnosis = found()
    files = write(diagnosis, tmp_path)
    assert all(path.stat().st_size > 500 for path in files if path.suffix in (".png", ".svg"))
    assert len([path for path in files if path.suffix == ".png"]) == 4
    stored = json.loads((tmp_path / "router.json").read_text())
    assert stored == json.loads(json.dumps(to_json(diagnosis)))
    assert stored["outcomes"][0]["gate_accuracy"] == diagnosis.outcomes[0].gate
    assert f"| 1 | {GENERALITY} | 2 | 0 | 50.0 | 100.0 | 50.0 | 0.0 | 0.0 | 50.0 |" in to_text(diagnosis)
