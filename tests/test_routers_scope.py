"""The scope loss in numbers, its gradient far away, and its independence of how a batch is split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from kedit.routers.pairs import GENERALITY, INSERTED, Entry, Related
from kedit.routers.scope import EPS, LOSSES, ScopeLearner, View, bce_log, bce_prob, squared_distances
from kedit.training import Group
from kedit.training.team import Alone
from kedit.types import Knowledge, Request

torch.set_num_threads(1)
Vector = tuple[float, ...]


class Table:
    """A router that looks vectors up by text, so that every distance is known."""

    def __init__(self, vectors: Mapping[str, Vector], scale: float = 1.0) -> None:
        self.place = {text: at for at, text in enumerate(vectors)}
        self.vector = torch.tensor(list(vectors.values()), dtype=torch.float64, requires_grad=True)
        self.log_scale = torch.tensor(math.log(scale), dtype=torch.float64, requires_grad=True)

    def key_view(self, knowledge: Knowledge) -> View:
        return View(knowledge.request.question)

    def query_view(self, request: Request) -> View:
        return View(request.question)

    def vectors(self, keys: Sequence[View], queries: Sequence[View]) -> tuple[Tensor, Tensor]:
        return self.vector[[self.place[v.text] for v in keys]], self.vector[[self.place[v.text] for v in queries]]

    @property
    def scale_(self) -> Tensor:
        return self.log_scale.exp()

    def groups(self) -> list[Group]:
        return [Group([self.vector, self.log_scale], 0.1)]

    def state(self) -> dict[str, Tensor]:
        return {"vector": self.vector.detach(), "log_scale": self.log_scale.detach()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        raise NotImplementedError

    def gradient(self, text: str) -> list[float]:
        assert self.vector.grad is not None
        return list(self.vector.grad[self.place[text]].tolist())


def entry(own: str, *, also: Sequence[str] = (), never: Sequence[str] = (), answer: str | None = None, topic: str = "") -> Entry:
    return Entry(
        Knowledge(Request(own), f"a long answer to {own}" if answer is None else answer),
        (Related(Request(own), INSERTED), *(Related(Request(text), GENERALITY) for text in also)),
        tuple(Related(Request(text), "cross-scenario") for text in never),
        topic=topic,
    )


def parts(learner: ScopeLearner, batch: Sequence[int] | None = None, own: Sequence[int] | None = None) -> dict[str, float]:
    batch = range(len(learner)) if batch is None else batch
    return {name: float(part.detach()) for name, part in learner.losses(batch, batch if own is None else own).items()}


# -- the loss ----------------------------------------------------------------------------------------------------------


def test_a_related_pair_costs_its_scaled_squared_distance_and_an_unrelated_one_the_log_of_what_is_left() -> None:
    u = torch.tensor([0.1, math.log(2), 3.0, 60.0], dtype=torch.float64)
    assert bce_log(u, True).tolist() == u.tolist()
    expected = [-math.log(1 - math.exp(-0.1)), math.log(2), -math.log(1 - math.exp(-3.0)), -math.log1p(-math.exp(-60.0))]
    assert bce_log(u, False).tolist() == pytest.approx(expected, rel=1e-12)


def test_both_forms_are_the_same_number_where_a_probability_can_hold_it() -> None:
    u = torch.tensor([0.05, 0.5, 1.0, 5.0, 10.0], dtype=torch.float64)
    for related in (True, False):
        assert bce_prob(u, related).tolist() == pytest.approx(bce_log(u, related).tolist(), rel=1e-9)


def test_equal_vectors_of_unrelated_pairs_have_a_finite_loss_and_gradient() -> None:
    same = torch.tensor([[0.6, 0.8]], requires_grad=True)
    u = squared_distances(same, torch.tensor([[0.6, 0.8]]))
    assert u.item() == 0.0
    loss = bce_log(u, False).sum()
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(EPS), rel=1e-3)
    assert same.grad is not None and bool(torch.isfinite(same.grad).all())


def slope(form: str, u: float) -> float:
    distance = torch.tensor([u], requires_grad=True)
    LOSSES[form](distance, True).sum().backward()
    assert distance.grad is not None
    return distance.grad.item()


def test_the_gradient_of_a_related_pair_is_alive_at_squared_distance_60_and_dead_in_the_published_form() -> None:
    assert [slope("bce_log", u) for u in (0.5, 27.0, 60.0, 120.0)] == [1.0] * 4
    assert slope("bce_prob", 10.0) == pytest.approx(1.0, rel=1e-3)
    for u in (30.0, 40.0, 50.0, 60.0):
        assert slope("bce_prob", u) == pytest.approx(1e12 * math.exp(-u), rel=1e-3)
    assert slope("bce_prob", 60.0) < 1e-13
    assert slope("bce_prob", 120.0) == 0.0


@pytest.mark.parametrize("form", LOSSES)
def test_a_learner_pulls_far_positives_together_only_in_log_space(form: str) -> None:
    router = Table({"key": (1.0, 0.0), "far": (0.0, 1.0)}, scale=30.0)  # orthogonal unit vectors: u = 60
    learner = ScopeLearner(router, [entry("key", also=["far"])], loss=form)
    learner.step([0], [0], Alone(), 0)
    pull = max(map(abs, router.gradient("far")))
    assert pull == pytest.approx(30.0, rel=1e-6) if form == "bce_log" else pull < 1e-11


# -- several entries in memory -----------------------------------------------------------------------------------------

SQUARE = {"a": (1.0, 0.0), "b": (0.0, 1.0), "a2": (0.8, 0.6), "not a": (0.6, 0.8), "not b": (-1.0, 0.0)}
PAIR = [entry("a", also=["a2"], never=["not a"]), entry("b", never=["not b"])]


def far(u: float) -> float:
    return -math.log(1 - math.exp(-u))


def test_the_loss_of_a_batch_equals_the_hand_computed_one() -> None:
    found = parts(ScopeLearner(Table(SQUARE), PAIR))
    positive = ((0.0 + 0.4) / 2 + 0.0) / 2
    negative = (far(0.8) + far(2.0)) / 2
    # requests of a (a, a2, not a) with the key b; requests of b (b, not b) with the key a
    other = ((far(2.0) + far(0.8) + far(0.4)) / 3 + (far(2.0) + far(4.0)) / 2) / 2
    assert found == pytest.approx({"positive": positive, "negative": negative, "other": other}, rel=1e-9)


def test_the_scale_multiplies_squared_distances() -> None:
    found = parts(ScopeLearner(Table(SQUARE, scale=3.0), PAIR, all_negatives=False))
    assert found == pytest.approx({"positive": 0.3, "negative": (far(2.4) + far(6.0)) / 2, "other": 0.0}, rel=1e-9)


def test_without_all_negatives_nothing_depends_on_what_else_is_in_memory() -> None:
    learner = ScopeLearner(Table(SQUARE), PAIR, all_negatives=False)
    together, alone = parts(learner), [parts(learner, [at]) for at in (0, 1)]
    assert together == pytest.approx({name: (alone[0][name] + alone[1][name]) / 2 for name in together})
    all_of_them = parts(ScopeLearner(Table(SQUARE), PAIR))
    assert all_of_them["other"] > 0


def test_a_request_with_the_wrong_entry_nearest_is_pushed_away_from_it() -> None:
    router = Table({"a": (1.0, 0.0), "a2": (0.1, 0.995), "b": (0.0, 1.0)})
    learner = ScopeLearner(router, [entry("a", also=["a2"]), entry("b")])
    optimiser = torch.optim.Adam([router.vector], lr=0.05)
    for _ in range(40):
        optimiser.zero_grad()
        learner.step([0, 1], [0, 1], Alone(), 0)
        optimiser.step()
    keys, asked = router.vectors([View("a"), View("b")], [View("a2"), View("b")])
    assert squared_distances(asked, keys).argmin(1).tolist() == [0, 1]


@pytest.mark.parametrize(
    "second",
    [
        entry("a", never=["not b"], answer="another"),  # the same request under another entry
        entry("b", also=["a"]),  # answers the first one's request
        entry("b", also=["a2"]),  # shares a question that both answer
        entry("b", answer="a long answer to a"),  # the same knowledge, asked differently
    ],
)
def test_a_request_that_may_concern_the_other_entry_is_no_negative_of_it(second: Entry) -> None:
    first = entry("a", also=["a2"])
    learner = ScopeLearner(Table(SQUARE), [first, second])
    pairs = [*learner._others([0, 1], 0, 0), *learner._others([0, 1], 1, 0)]
    assert [pair for pair in pairs if pair[0] < len(second.positives)] == []


def test_a_negative_of_one_entry_that_another_answers_is_no_negative_of_the_other() -> None:
    learner = ScopeLearner(Table(SQUARE), [entry("a", never=["b", "not b"]), entry("b")])
    assert set(learner._others([0, 1], 0, 0)) == {(0, 1), (2, 1)}  # "a" and "not b" with the key of b, and not "b"


def test_entries_of_one_topic_and_language_are_no_sure_negatives_of_each_other() -> None:
    gift, other_gift, tea = entry("a", topic="gift"), entry("b", topic="gift"), entry("b", topic="tea")
    arabic = Entry(Knowledge(Request("b", language="ar"), "x"), (Related(Request("b"), INSERTED),), (), topic="gift")
    for second, pairs in ((other_gift, []), (tea, [(0, 1)]), (arabic, [(0, 1)])):
        assert list(ScopeLearner(Table(SQUARE), [gift, second])._others([0, 1], 0, 0)) == pairs


def test_a_negative_of_unknown_topic_is_used_with_its_own_entry_alone() -> None:
    items = [entry("a", never=["not a", "b"], topic="gift"), entry("b", topic="tea"), entry("c", topic="hats")]
    learner = ScopeLearner(Table(PLACES), items)
    assert set(learner._others([0, 1, 2], 0, 0)) == {(0, 1), (0, 2), (2, 2)}  # "b" is of the topic tea, "not a" of none known
    assert parts(learner)["negative"] > 0


# -- splits of a batch -------------------------------------------------------------------------------------------------

FOUR = [*PAIR, entry("c", also=["c2"]), entry("d", never=["c2", "a"])]
PLACES = {**SQUARE, "c": (-0.6, 0.8), "c2": (-0.8, 0.6), "d": (0.28, -0.96)}


def gradients(splits: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, dict[str, float]]:
    router = Table(PLACES, scale=2.0)
    learner = ScopeLearner(router, FOUR)
    values: dict[str, float] = {}
    for own in splits:
        for name, value in learner.step([3, 1, 0, 2], own, Alone(), 0).items():
            values[name] = values.get(name, 0.0) + value
    assert router.vector.grad is not None and router.log_scale.grad is not None
    return router.vector.grad, router.log_scale.grad, values


@pytest.mark.parametrize("splits", [[[3, 0], [1, 2]], [[3], [1], [0], [2]], [[3, 1, 0, 2], []], [[1], [], [3, 0, 2]]])
def test_gradients_and_values_of_own_parts_sum_to_those_of_the_whole_batch(splits: Sequence[Sequence[int]]) -> None:
    whole, split = gradients([[3, 1, 0, 2]]), gradients(splits)
    torch.testing.assert_close(split[0], whole[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(split[1], whole[1], rtol=1e-10, atol=1e-12)
    assert split[2] == pytest.approx(whole[2])
    assert whole[2]["loss"] == pytest.approx(sum(value for name, value in whole[2].items() if name != "loss"))


def test_the_mean_loss_weighs_a_short_last_batch_by_its_items() -> None:
    learner = ScopeLearner(Table(PLACES), FOUR)
    first, last = sum(parts(learner, [0, 1, 2]).values()), sum(parts(learner, [3]).values())
    assert learner.mean_loss(3) == pytest.approx((3 * first + last) / 4)
