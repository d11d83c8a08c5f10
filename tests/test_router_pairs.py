"""What a router learns from: no request on both sides, topics of requests, and which entries may answer each other's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from fakes import FakeBackbone

from kedit.benchmarks.kibench_open import KIBenchOpen
from kedit.routers.contrastive import Examples, HiddenRouter
from kedit.routers.pairs import CROSS_LANGUAGE, CROSS_SCENARIO, GENERALITY, INSERTED, OTHER_MEMBER, Concern, entries, unrelated
from kedit.routers.scope import View, seen
from kedit.routers.text_scope import TextScope
from kedit.types import Case, Knowledge, Probe, Request

SENTENCE = "one gives it with both hands"


def zh(question: str) -> Request:
    return Request(question, language="zh")


def case(own: str, *probes: Probe, answer: str = SENTENCE, tags: Mapping[str, str] | None = None) -> Case:
    return Case(own, (Knowledge(zh(own), answer),), probes, tags or {})


def test_a_request_that_an_entry_answers_is_none_that_it_must_leave_alone() -> None:
    both = zh("both")
    (entry,) = entries([case("a", Probe("loc", both, None), Probe("gen", both, "so"), Probe("loc", zh("a"), None))])
    assert [(one.request, one.answer) for one in entry.positives] == [(zh("a"), SENTENCE), (both, "so")]
    assert entry.negatives == ()
    chain = Case("c", (Knowledge(zh("a"), "x"), Knowledge(zh("b"), "y")), (Probe("gen", zh("b"), "x", 1),))
    first, second = entries([chain])
    assert [(one.request, one.relation) for one in first.positives] == [(zh("a"), INSERTED), (zh("b"), GENERALITY)]
    assert first.negatives == ()
    assert [(one.request, one.relation) for one in second.negatives] == [(zh("a"), OTHER_MEMBER)]


def test_a_request_is_about_what_its_case_is_unless_its_probe_says_otherwise_or_nobody_knows() -> None:
    probes = (
        Probe("gen", zh("g"), "so"),
        Probe("lang", Request("l", language="ar"), None),
        Probe("scen", zh("told"), None, tags={"asked_scenario": "tea"}),
        Probe("scen", zh("untold"), None),
    )
    (entry,) = entries([case("a", *probes, tags={"scenario": "gift"})])
    found = {one.request.question: (one.relation, one.topic) for one in (*entry.positives, *entry.negatives)}
    assert found == {
        "a": (INSERTED, "gift"), "g": (GENERALITY, "gift"), "l": (CROSS_LANGUAGE, "gift"),
        "told": (CROSS_SCENARIO, "tea"), "untold": (CROSS_SCENARIO, ""),
    }  # fmt: skip


def test_the_open_replica_says_which_scenario_a_question_elsewhere_is_about() -> None:
    benchmark = KIBenchOpen()
    about = {
        raw.item(p).question: name for name, raws in benchmark.pool("single_train").items() for raw in raws[:10] for p in ("zh",)
    }
    found = [one for entry in entries(benchmark.train(20)) for one in entry.negatives if one.relation == CROSS_SCENARIO]
    assert len(found) == 40
    assert all(one.topic for one in found)
    checked = [about[one.request.question] == one.topic for one in found if one.request.question in about]
    assert len(checked) >= 15
    assert all(checked)
    assert all(not probe.tags for c in benchmark.train(20) for probe in c.probes if probe.dimension != "cross_scenario_locality")


OTHERS = {
    "nothing in common": (case("b", answer="something else altogether this is"), True),
    "the same question": (case("a", answer="something else altogether this is"), False),
    "a request that both answer": (case("b", Probe("gen", zh("g"), "so"), answer="something else altogether this is"), False),
    "the other one's own request": (case("b", Probe("gen", zh("a"), "so"), answer="something else altogether this is"), False),
    "the same sentence": (case("b"), False),
    "the same topic": (case("b", answer="something else altogether this is", tags={"scenario": "gift"}), False),
    "another topic": (case("b", answer="something else altogether this is", tags={"scenario": "tea"}), True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_all_routers_agree_on_which_entries_may_answer_each_others_requests(name: str, tmp_path: Path) -> None:
    other, expected = OTHERS[name]
    found = entries([case("a", Probe("gen", zh("g"), "so"), tags={"scenario": "gift"}), other])
    one, two = (seen(entry, TextScope(encoder=lambda texts: [])).concern for entry in found)  # type: ignore[arg-type]
    assert unrelated(one, two) is unrelated(two, one) is expected
    examples = Examples.of(found, HiddenRouter(cache_dir=tmp_path).attach(FakeBackbone()))
    assert examples.unrelated([0, 1]) == [[False, expected], [expected, False]]


def test_a_short_answer_does_not_make_two_entries_one() -> None:
    found = entries([case("a", answer="yes"), case("b", answer="yes")])
    one, two = (Concern.of(entry, View(entry.knowledge.request.question), ()) for entry in found)
    assert unrelated(one, two)
