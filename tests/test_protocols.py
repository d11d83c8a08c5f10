from __future__ import annotations

from fakes import FakeBenchmark

from kedit.protocols import Ask, Insert, final, retention
from kedit.types import Case

CHAIN = FakeBenchmark(1).cases("sequential")[0]


def test_final_inserts_the_whole_chain_and_asks_every_probe_once_after_it() -> None:
    events = list(final(CHAIN))
    assert events[:-1] == [Insert(step, knowledge) for step, knowledge in enumerate(CHAIN.chain, 1)]
    assert events[-1] == Ask(3, tuple(range(9)))


def test_retention_asks_the_reliability_of_every_step_after_every_insert() -> None:
    asks = [event for event in retention(CHAIN) if isinstance(event, Ask)]
    assert [ask.after for ask in asks] == [1, 2, 3]
    assert asks[0].probes == asks[1].probes == (0, 3, 6)
    assert {CHAIN.probes[p].step for p in asks[0].probes} == {1, 2, 3}


def test_the_last_row_of_retention_is_what_final_asks() -> None:
    assert list(retention(CHAIN))[-1] == list(final(CHAIN))[-1]


def test_inserts_come_in_the_order_of_the_chain_and_before_their_questions() -> None:
    events = list(retention(CHAIN))
    assert [type(event) for event in events] == [Insert, Ask] * 3
    assert [event.knowledge for event in events if isinstance(event, Insert)] == list(CHAIN.chain)


def test_a_chain_of_one_is_the_same_under_both_protocols() -> None:
    single = FakeBenchmark(1).cases("single")[0]
    assert list(final(single)) == list(retention(single))


def test_an_empty_chain_asks_the_unedited_model_under_final() -> None:
    assert list(final(Case("c", (), CHAIN.probes[:1]))) == [Ask(0, (0,))]
