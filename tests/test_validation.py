"""Validation while training: what is asked, what is scored, what is left as it was; and what is held out."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fakes import AddNoise, DoNothing, FakeBackbone, FakeBenchmark, Lookup, Prepend
from torch import Tensor

from kedit.errors import DataError, DivergedError, NotFittedError
from kedit.rouge import rouge_l
from kedit.types import Answer, Case, Knowledge, Probe, Request
from kedit.validation import Validation, split


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


class SlowLookup(Lookup):
    """The same answers through ``generate``, case by case."""

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        return super().generate(requests)


class SlowPrepend(Prepend):
    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        return super().generate(requests)


class Learning(Lookup):
    needs_fit = True


class Breaking(AddNoise):
    """Diverges at every second insert."""

    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        if knowledge.answer.endswith("1"):
            raise DivergedError("the loss is nan")
        return super().deltas(knowledge)


CASES = [*FakeBenchmark(size=2).cases("single"), *FakeBenchmark(size=1).cases("sequential")]


def by_hand(editor: Lookup, cases: Sequence[Case]) -> dict[str, float]:
    """Case by case, one question at a time, nothing remembered."""
    found: dict[str, list[float]] = {}
    for case in cases:
        base = [editor.backbone_.generate([p.request])[0].text if p.reference is None else p.reference for p in case.probes]
        for knowledge in case.chain:
            editor.insert(knowledge)
        for probe, reference in zip(case.probes, base, strict=True):
            score = rouge_l(editor.generate([probe.request])[0].text, reference)
            if score is not None:
                found.setdefault(probe.dimension, []).append(score)
        editor.reset()
    return {name: sum(scores) / len(scores) for name, scores in found.items()}


@pytest.mark.parametrize("kind", [Lookup, SlowLookup, Prepend, SlowPrepend, DoNothing])
def test_scores_are_those_of_inserting_and_asking_case_by_case(kind: type[Lookup]) -> None:
    editor = kind().attach(FakeBackbone())
    scores = Validation(editor, CASES).scores()
    assert scores == pytest.approx(by_hand(editor, CASES))
    assert Validation(editor, CASES)() == pytest.approx(sum(scores.values()) / len(scores))


def test_what_the_editor_only_rewrites_is_asked_in_one_call() -> None:
    backbone = FakeBackbone()
    Validation(Prepend().attach(backbone), CASES, max_new_tokens=32)()
    assert len(backbone.calls) == 2  # base answers, then all rewritten requests
    assert set(backbone.limits) == {32}


def test_base_answers_are_asked_once_and_before_any_insert() -> None:
    backbone = FakeBackbone()
    editor = AddNoise().attach(backbone)
    validation = Validation(editor, CASES, max_new_tokens=32)
    validation()
    kept = [probe.request for case in CASES for probe in case.probes if probe.reference is None]
    assert backbone.calls[0] == list(dict.fromkeys(kept))
    calls = len(backbone.calls)
    validation()
    assert len(backbone.calls) - calls == calls - 1
    assert set(backbone.limits) == {32}


def test_two_calls_agree_although_inserts_draw_random_numbers() -> None:
    validation = Validation(AddNoise().attach(FakeBackbone()), CASES)
    torch.manual_seed(1)
    first = validation()
    torch.manual_seed(2)
    state = random.getstate(), torch.get_rng_state()
    assert validation() == first
    assert random.getstate() == state[0] and torch.equal(torch.get_rng_state(), state[1])


def test_the_editor_is_reset_whatever_happens() -> None:
    backbone = FakeBackbone()
    before = backbone.fingerprint()
    editor = AddNoise().attach(backbone)
    editor.insert(CASES[0].chain[0])
    Validation(editor, CASES)()  # what was inserted before must not be taken for the unedited backbone
    assert backbone.fingerprint() == before and not editor.edits_
    broken = replace(CASES[0], probes=(Probe("reliability", Request(" "), "a"),))
    with pytest.raises(ValueError, match="empty question"):
        Validation(editor, [broken])()
    assert backbone.fingerprint() == before and not editor.edits_


def test_an_editor_counts_as_fitted_during_a_validation_and_only_then() -> None:
    editor = Learning().attach(FakeBackbone())
    with pytest.raises(NotFittedError):
        editor.insert(CASES[0].chain[0])
    assert Validation(editor, CASES).scores()["reliability"] == 100.0
    assert not editor.fitted


def test_a_case_whose_insert_diverges_scores_0() -> None:
    cases = FakeBenchmark(size=2).cases("single")
    editor = Breaking(size=0.0).attach(FakeBackbone({"q 0 zh?": "红钟0", "q 1 zh?": "红钟1"}))
    scores = Validation(editor, [replace(case, probes=case.probes[:1]) for case in cases]).scores()
    assert scores == {"reliability": 50.0}  # the first case's answer is right


def test_cases_without_a_word_to_score_are_refused() -> None:
    case = replace(CASES[0], probes=(Probe("reliability", CASES[0].chain[0].request, "?!"),))
    with pytest.raises(DataError, match="none of the 1"):
        Validation(Lookup().attach(FakeBackbone()), [case])()


# -- held out ----------------------------------------------------------------------------------------------------------


def cases(raws: int, scenarios: int, per_raw: int = 2) -> list[Case]:
    return [
        Case(f"{raw}-{part}", CASES[0].chain, CASES[0].probes, {"raw": str(raw), "scenario": f"s{raw % scenarios}"})
        for raw in range(raws)
        for part in range(per_raw)
    ]


@pytest.mark.parametrize(("raws", "scenarios"), [(20, 3), (20, 5), (29, 29), (2, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_raw_case_is_on_both_sides_and_none_is_lost(raws: int, scenarios: int, seed: int) -> None:
    given = cases(raws, scenarios)
    train, val = split(given, 0.1, seed)
    assert train and val
    assert not {case.tags["raw"] for case in train} & {case.tags["raw"] for case in val}
    assert sorted(case.id for case in [*train, *val]) == sorted(case.id for case in given)
    assert len({case.tags["raw"] for case in val}) >= 0.1 * raws
    shared = {case.tags["scenario"] for case in train} & {case.tags["scenario"] for case in val}
    assert bool(shared) == (scenarios < 5)


def test_what_is_held_out_depends_on_the_seed_and_keeps_the_order() -> None:
    given = cases(40, 1)
    assert split(given, 0.2, 0) == split(given, 0.2, 0)
    assert split(given, 0.2, 0) != split(given, 0.2, 1)
    train, val = split(given, 0.2, 0)
    assert len(val) == 16
    for part in (train, val):
        assert part == [case for case in given if case in part]


def test_nothing_is_held_out_when_nothing_is_asked_for_or_only_one_raw_case_is_there() -> None:
    assert split(cases(8, 8), 0.0, 0) == (cases(8, 8), [])
    assert split(cases(1, 1), 0.5, 0) == (cases(1, 1), [])
    assert split([], 0.5, 0) == ([], [])
    with pytest.raises(ValueError, match="share"):
        split(cases(2, 1), 1.0, 0)


def test_cases_without_tags_count_as_raw_cases_of_their_own() -> None:
    given = [replace(case, tags={}) for case in cases(10, 5, per_raw=1)]
    train, val = split(given, 0.3, 0)
    assert (len(train), len(val)) == (7, 3)
