"""The text scope classifier: what it sees, where its threshold lies, and that training touches its own encoder alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kedit.encoders import minilm
from kedit.errors import DataError, FamilyError, NotFittedError, StoreError, UnknownNameError
from kedit.memory import Memory
from kedit.routers.pairs import entries
from kedit.routers.text_scope import TextScope
from kedit.types import Case, Knowledge, Probe, Request

torch.set_num_threads(1)
THINGS = ["clock", "hat", "tea", "lamp", "knife", "shoes"]
GIFT, COLOUR = "What does it mean to bring a {} as a gift?", "Which colour has the {} here?"


def case(thing: str) -> Case:
    """A question on a gift, another on it, and one of the same length and thing that has nothing to do with it."""
    own = Knowledge(Request(GIFT.format(thing)), f"It means {thing}.")
    also, never = Request(f"Is a {thing} a good gift for a guest?"), Request(COLOUR.format(thing))
    return Case(thing, (own,), (Probe("generality", also, own.answer), Probe("locality", never, None)))


CASES = [case(thing) for thing in THINGS]


class Bag:
    """Counts words; unseen before, they get the next place."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        self.asked += texts
        rows = np.zeros((len(texts), 40), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split():
                row[self.words.setdefault(word, len(self.words)) % 40] += 1
        return rows

    def __repr__(self) -> str:
        return "Bag()"


def head(**params: Any) -> TextScope:
    return TextScope(**{"encoder": Bag(), "train": "head", "epochs": 40, "batch_size": 6, "lr": 1e-2, **params})


def shares(router: TextScope) -> tuple[float, float]:
    """Share of positives and of negatives in scope of their own entry."""
    positives, negatives = router.own_scores(entries(CASES))
    return float((positives > router.threshold_).mean()), float((negatives > router.threshold_).mean())


# -- the threshold -----------------------------------------------------------------------------------------------------


def test_half_is_a_cosine_of_0_6534_for_unit_vectors_at_scale_1() -> None:
    cosine = 1 - math.log(2) / 2
    assert cosine == pytest.approx(0.6534, abs=5e-5)
    router = head()
    assert router.similarity(np.array([cosine, 1.0, 0.0, -1.0])) == pytest.approx([0.5, 1.0, math.exp(-2), math.exp(-4)])
    assert router.in_scope(float(router.similarity(np.array(cosine + 1e-6))))
    assert not router.in_scope(float(router.similarity(np.array(cosine - 1e-6))))


def test_a_score_at_the_threshold_is_out_of_scope() -> None:
    router = head().fit(CASES[:1])
    assert not router.in_scope(0.5)
    assert router.in_scope(math.nextafter(0.5, 1))


def test_a_cosine_of_one_and_a_rounding_error_is_a_similarity_of_one() -> None:
    assert head().similarity(np.array(1 + 1e-7)) == 1.0


# -- what is seen ------------------------------------------------------------------------------------------------------


def test_the_question_alone_is_seen_on_both_sides() -> None:
    router, fact = head(), CASES[0].chain[0]
    other = replace(fact, answer="Something else.", text="A document.", title="A title")
    assert np.array_equal(router.keys([fact]), router.keys([other]))
    assert np.array_equal(router.keys([fact]), router.queries([fact.request]))


def test_the_answer_is_part_of_a_key_where_asked_and_never_of_a_query() -> None:
    bag = Bag()
    router, fact = head(encoder=bag, key_text="question+answer"), CASES[0].chain[0]
    router.keys([fact])
    assert bag.asked[-1] == f"{fact.request.question} {fact.answer}"
    router.queries([fact.request])
    assert bag.asked[-1] == fact.request.question


def test_vectors_have_unit_length_and_are_the_encoders_own_before_training() -> None:
    texts = [fact.request.question for one in CASES for fact in one.chain]
    for train in ("head", "all"):
        keys = TextScope(train=train).keys([fact for one in CASES for fact in one.chain])
        assert keys.dtype == np.float32
        np.testing.assert_allclose(keys, minilm()(texts), atol=1e-6)


def test_a_text_is_encoded_once_over_all_epochs_and_calls() -> None:
    bag = Bag()
    router = head(encoder=bag, epochs=5).fit(CASES, val=CASES)
    router.queries([fact.request for one in CASES for fact in one.chain])
    asked = [text for text in bag.asked if text]
    assert len(asked) == len(set(asked)) == 3 * len(CASES)


def test_nothing_asked_gives_no_rows() -> None:
    assert head().keys([]).shape == head().queries([]).shape == (0, 40)


# -- learning ----------------------------------------------------------------------------------------------------------


def test_a_fitted_head_separates_what_it_could_not_before() -> None:
    router = head()
    before, after = shares(router), shares(router.fit(CASES))
    assert min(before[0], 1 - before[1]) < 0.7
    assert after == (1.0, 0.0)


def test_a_fitted_router_finds_the_right_entry_among_all() -> None:
    router, memory = head().fit(CASES), Memory()
    facts = [one.chain[0] for one in CASES]
    for fact, key in zip(facts, router.keys(facts), strict=True):
        memory.add(fact.answer, fact, key)
    found = router.decide([one.probes[0].request for one in CASES], memory)
    assert [(one.nearest, one.active) for one in found] == [(fact.answer, True) for fact in facts]
    assert not any(one.active for one in router.decide([case.probes[1].request for case in CASES], memory))


def test_fitting_again_gives_the_same_and_starts_anew() -> None:
    router = head(epochs=3)
    first = router.fit(CASES).state()
    second = router.fit(CASES).state()
    assert first.keys() == second.keys() == {"head.log_scale", "head.map.weight"}
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(tensor, head().state()[name]) for name, tensor in first.items())


def test_the_scale_stays_positive_whatever_is_learned() -> None:
    router = head(epochs=30, scale_lr=3.0).fit(CASES)
    assert router.scale_.item() > 0
    assert head(epochs=3, scale_lr=0.0, scale=2.0).fit(CASES).scale_.item() == pytest.approx(2.0)


def test_the_state_with_the_lowest_validation_loss_is_kept(tmp_path: Path) -> None:
    swapped = [
        replace(one, probes=(replace(one.probes[0], reference=None), replace(one.probes[1], reference="x"))) for one in CASES
    ]
    settled, stopped = head(epochs=1).fit(CASES), head(epochs=6).fit(CASES, val=swapped)
    assert all(torch.equal(settled.state()[name], stopped.state()[name]) for name in settled.state())


def test_a_calibrated_threshold_lies_between_the_sides_and_a_fixed_one_where_it_was_put() -> None:
    fixed, calibrated = head(epochs=3, threshold=0.4).fit(CASES), head(epochs=3, calibration="accuracy").fit(CASES)
    assert fixed.threshold_ == 0.4
    positives, negatives = calibrated.own_scores(entries(CASES))
    right = (positives > calibrated.threshold_).sum() + (negatives <= calibrated.threshold_).sum()
    assert right == max((positives > t).sum() + (negatives <= t).sum() for t in np.linspace(0, 1, 2001))
    assert calibrated.threshold_ != 0.5


def test_a_training_that_was_finished_is_taken_over_and_one_on_other_cases_refused(tmp_path: Path) -> None:
    steps: list[int] = []
    first, again = head(epochs=2), head(epochs=2)
    first.fit(CASES, out=tmp_path, progress=lambda step, total, values: steps.append(step))
    again.fit(CASES, out=tmp_path, progress=lambda step, total, values: steps.append(step))
    assert steps == [1, 2]
    assert all(torch.equal(first.state()[name], again.state()[name]) for name in first.state())
    with pytest.raises(StoreError, match="data"):
        head(epochs=2).fit([*CASES[1:], case("spoon")], out=tmp_path)


def test_the_whole_encoder_learns_in_a_copy_of_the_routers_own() -> None:
    texts = ["Is a clock a good gift for a guest?", "unseen words entirely"]
    shared = minilm()(texts)
    routers = [TextScope(epochs=4, lr=3e-4, batch_size=3).fit(CASES[:3]) for _ in range(1)] + [TextScope(seed=1)]
    assert np.array_equal(minilm()(texts), shared)
    assert not np.allclose(routers[0].queries([Request(text) for text in texts]), shared, atol=1e-3)
    np.testing.assert_allclose(routers[1].queries([Request(text) for text in texts]), shared, atol=1e-6)
    before, after = (router.own_scores(entries(CASES[:3])) for router in reversed(routers))
    assert after[0].min() - after[1].max() > before[0].min() - before[1].max() + 0.2
    assert not any(parameter.requires_grad for parameter in routers[0].own_.model.parameters())


def test_an_encoder_without_weights_to_train_is_refused() -> None:
    with pytest.raises(FamilyError, match="train='head'"):
        head(train="all").fit(CASES)


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(DataError, match="without any knowledge"):
        head().fit([])


@pytest.mark.parametrize("wrong", ["train", "key_text", "loss", "calibration"])
def test_a_misspelt_choice_is_named_on_first_use(wrong: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown {wrong} of TextScope 'x'"):
        head(**{wrong: "x"}).keys([])


# -- what was learned --------------------------------------------------------------------------------------------------


def test_a_loaded_router_decides_as_the_saved_one(tmp_path: Path) -> None:
    router = head(calibration="balanced").fit(CASES)
    router.save(tmp_path)
    again = head(encoder=router.encoder).load(tmp_path)
    assert again.threshold_ == router.threshold_
    requests = [probe.request for one in CASES for probe in one.probes]
    facts = [one.chain[0] for one in CASES]
    assert np.array_equal(again.score(requests, facts), router.score(requests, facts))


def test_a_trained_encoder_is_saved_whole_in_fp32_and_a_frozen_one_not_at_all(tmp_path: Path) -> None:
    router = TextScope(epochs=1, batch_size=2).fit(CASES[:2])
    router.save(tmp_path / "all")
    asked = [Request("What does it mean to bring a hat as a gift?")]
    assert np.array_equal(TextScope().load(tmp_path / "all").queries(asked), router.queries(asked))
    assert {tensor.dtype for name, tensor in router.state().items() if name.endswith("weight")} == {torch.float32}
    TextScope(train="head", epochs=1).fit(CASES[:2]).save(tmp_path / "head")
    sizes = [(tmp_path / name / "router.safetensors").stat().st_size for name in ("all", "head")]
    assert sizes[0] > 80_000_000 and sizes[1] < 700_000


def test_an_unfitted_router_is_not_saved_and_anothers_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        head().save(tmp_path)
    head(epochs=1).fit(CASES[:1]).save(tmp_path)
    with pytest.raises(DataError, match="key_text='question'"):
        head(key_text="question+answer").load(tmp_path)
    with pytest.raises(DataError, match="head.map.weight|map.weight"):
        head().load_state({"head.log_scale": torch.tensor(0.0), "head.map.weight": torch.eye(3)})


def test_the_cosine_threshold_is_where_the_score_is_the_threshold() -> None:
    for scale, threshold in ((1.0, 0.5), (1.7, 0.3)):
        router = head(scale=scale, threshold=threshold, epochs=1).fit(CASES[:2])
        assert float(router.similarity(np.asarray(router.cosine_threshold))) == pytest.approx(threshold)
    assert head(threshold=0.0).fit(CASES[:2]).cosine_threshold == -np.inf
