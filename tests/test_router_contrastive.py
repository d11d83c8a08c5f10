"""The contrastive router: equation 15 to the number, what is trained by it, and what one fit leaves behind."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from fakes import FakeBackbone
from numpy.typing import NDArray
from torch import Tensor

from kedit.errors import DataError, NotFittedError, UnknownNameError
from kedit.routers.calibration import calibrate
from kedit.routers.contrastive import ContrastiveLearner, Examples, HiddenRouter, Projection, contrastive_losses
from kedit.routers.pairs import entries
from kedit.training import Team
from kedit.types import Case, Knowledge, Probe, Request

# -- equation 15 -------------------------------------------------------------------------------------------------------


def losses(
    key: list[float], positives: list[list[float]], negatives: list[list[float]], weights: list[float], lam: float = 1.0
) -> float:
    found = contrastive_losses(
        torch.tensor([key]), torch.tensor(positives), torch.tensor(negatives).reshape(-1, len(key)),
        owners=(torch.zeros(len(positives), dtype=torch.long), torch.zeros(len(negatives), dtype=torch.long)),
        log_weights=torch.tensor(weights).log(), gamma=20.0, negative_loss_weight=lam,
    )  # fmt: skip
    return float(found[0])


def test_equation_15_by_hand() -> None:
    # logits: positives 20 and 12; negatives 0 + log 1.5 and 16 + log 1
    # log(e^20 + 1.5 + e^16) = 20 + log(1 + e^-4) = 20.01815; log(e^12 + 1.5 + e^16) = 16 + log(1 + e^-4) = 16.01815
    positives, negatives, weights = [[1.0, 0.0], [0.6, 0.8]], [[0.0, 1.0], [0.8, 0.6]], [1.5, 1.0]
    both = losses([1.0, 0.0], positives, negatives, weights)
    assert both == pytest.approx(((-20 + 20.01815) + (-12 + 16.01815)) / 2, abs=1e-4)
    half = losses([1.0, 0.0], positives, negatives, weights, lam=0.5)
    assert half == pytest.approx(((-20 + 20.01815 / 2) + (-12 + 16.01815 / 2)) / 2, abs=1e-4)
    # a negative exactly at the positive, of weight 1.5: log(1 + 1.5)
    assert losses([1.0, 0.0], [[0.6, 0.8]], [[0.6, 0.8]], [1.5]) == pytest.approx(math.log(2.5), abs=1e-5)
    assert losses([1.0, 0.0], [[0.6, 0.8]], [], []) == pytest.approx(0.0, abs=1e-6)


def equation_15(
    keys: NDArray[np.float64],
    positives: list[NDArray[np.float64]],
    negatives: list[NDArray[np.float64]],
    weights: list[NDArray[np.float64]],
    gamma: float,
    lam: float,
    others: NDArray[np.bool_] | None,
) -> list[float]:
    """As the paper writes it, one exponential at a time; with ``others``, their keys among the negatives."""
    found = []
    for j, key in enumerate(keys):
        total = 0.0
        for p in positives[j]:
            denominator = math.exp(gamma * float(p @ key))
            denominator += sum(w * math.exp(gamma * float(n @ key)) for n, w in zip(negatives[j], weights[j], strict=True))
            if others is not None:
                denominator += sum(math.exp(gamma * float(p @ keys[k])) for k in range(len(keys)) if others[j, k])
            total += -gamma * float(p @ key) + lam * math.log(denominator)
        found.append(total / len(positives[j]))
    return found


@pytest.mark.parametrize("in_batch", [False, True])
def test_equation_15_for_many_entries_at_once(in_batch: bool) -> None:
    rng = np.random.default_rng(0)

    def units(n: int) -> NDArray[np.float64]:
        rows = rng.standard_normal((n, 5))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    keys, positives, negatives = units(4), [units(n) for n in (1, 3, 2, 2)], [units(n) for n in (2, 0, 3, 1)]
    weights = [rng.uniform(0.5, 2, len(several)) for several in negatives]
    others = ~np.eye(4, dtype=bool) if in_batch else None
    if others is not None:
        others[1, 2] = others[2, 1] = False
    expected = equation_15(keys, positives, negatives, weights, 7.0, 0.8, others)
    found = contrastive_losses(
        torch.tensor(keys), torch.tensor(np.concatenate(positives)), torch.tensor(np.concatenate(negatives)),
        owners=tuple(torch.tensor([j for j, rows in enumerate(part) for _ in rows]) for part in (positives, negatives)),
        log_weights=torch.tensor(np.log(np.concatenate(weights))), gamma=7.0, negative_loss_weight=0.8,
        others=None if others is None else torch.tensor(others),
    )  # fmt: skip
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


def test_the_gradient_is_that_of_the_values_and_reaches_every_part() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, positives, negatives = (
        torch.nn.functional.normalize(torch.randn(n, 4, generator=generator, dtype=torch.float64), dim=-1).requires_grad_()
        for n in (3, 4, 3)
    )

    def loss(keys: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        return contrastive_losses(
            keys, positives, negatives, owners=(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 2])),
            log_weights=torch.tensor([0.0, 0.4, 0.4]), gamma=5.0, others=~torch.eye(3, dtype=torch.bool),
        ).sum()  # fmt: skip

    assert torch.autograd.gradcheck(loss, (keys, positives, negatives))
    loss(keys, positives, negatives).backward()
    assert all(part.grad is not None and (part.grad.abs().sum(-1) > 1e-8).all() for part in (keys, positives, negatives))


def test_the_projection_is_norm_and_map_per_part_one_map_of_both_and_length_1() -> None:
    torch.manual_seed(0)
    module = Projection(6, 4).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, dtype=torch.float64))
    state = {name: value.numpy() for name, value in module.state_dict().items()}
    question, visual = np.random.default_rng(0).standard_normal((2, 3, 6))
    visual[2] = 0.0  # a request without images
    found = module(torch.tensor(question), torch.tensor(visual)).detach().numpy()
    for row in range(3):
        halves = []
        for part, value in (("question", question[row]), ("visual", visual[row])):
            value = (value - value.mean()) / np.sqrt(value.var() + 1e-5)
            value = value * state[f"{part}_norm.weight"] + state[f"{part}_norm.bias"]
            halves.append(state[f"{part}.weight"] @ value + state[f"{part}.bias"])
        fused = state["fusion.weight"] @ np.concatenate(halves) + state["fusion.bias"]
        np.testing.assert_allclose(found[row], fused / np.linalg.norm(fused), rtol=1e-9)


# -- what is learned from ----------------------------------------------------------------------------------------------

DIM = 24


def vector(text: str, size: int) -> NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).standard_normal(size)


class Worded(FakeBackbone):
    """States of a request "topic variant": which topic (8 numbers, weak), which variant (12, strong), which language (4)."""

    def hidden(self, requests: Sequence[Request], *, layer: int = -1) -> list[Tensor]:
        rows = []
        for request in requests:
            topic, variant = request.question.split()
            parts = [vector(topic, 8), 2 * vector(topic + variant, 12), vector(request.language, 4)]
            rows.append(torch.tensor(np.concatenate(parts), dtype=torch.float32).expand(len(request.question), DIM))
        return rows


def case(topic: str, language: str = "zh", other: str = "en") -> Case:
    """An insert with one question that it answers and one, in another language, that it does not."""
    request = Request(f"{topic} own", language=language)
    probes = (
        Probe("reliability", request, "yes"),
        Probe("generality", Request(f"{topic} again", language=language), "yes"),
        Probe("locality", Request(f"{topic} own", language=other), None),
    )
    return Case(topic, (Knowledge(request, "yes"),), probes)


CASES = [case(f"topic{n}") for n in range(40)]


def router(cache: Path, **params: object) -> HiddenRouter:
    settings = {"dim": 16, "epochs": 30, "batch_size": 10, "lr": 3e-3, "cache_dir": cache, **params}
    return HiddenRouter(**settings).attach(Worded())


def test_only_in_batch_negatives_train_which_entry_a_request_finds(tmp_path: Path) -> None:
    found = {}
    for on in (True, False):
        fitted = router(tmp_path, in_batch_negatives=on).fit(CASES)
        facts = [c.chain[0] for c in CASES]
        nearest = fitted.score([c.probes[1].request for c in CASES], facts).argmax(1)
        gate = fitted.calibration_.value
        found[on] = (float((nearest == np.arange(len(CASES))).mean()), gate)
    assert found[True][0] >= 0.9, found
    assert found[False][0] <= 0.5, found
    assert min(gate for _, gate in found.values()) >= 0.95, "both learn when to fire at all"


def test_without_in_batch_negatives_a_batch_is_the_mean_of_its_entries_alone(tmp_path: Path) -> None:
    for on in (False, True):
        r = router(tmp_path, in_batch_negatives=on)
        learner = r._learner(CASES[:6])
        together = learner._losses(range(6), range(6))
        alone = torch.stack([learner._losses([j], [j])[0] for j in range(6)])
        assert torch.allclose(together, alone, atol=1e-5) is not on


def test_entries_that_share_a_request_are_no_negatives_of_each_other(tmp_path: Path) -> None:
    one, two, three = case("a"), case("b"), case("c")
    shared = Probe("generality", two.chain[0].request, "yes")
    one = Case("a", one.chain, (*one.probes, shared))
    examples = Examples.of(entries([one, two, three]), router(tmp_path))
    assert examples.unrelated([0, 1, 2]) == [[False, False, True], [False, False, True], [True, True, False]]
    twice = Examples.of(entries([case("a"), case("a")]), router(tmp_path))
    assert twice.unrelated([0, 1]) == [[False, False], [False, False]], "the same request inserted twice"


def test_negatives_weigh_by_language_and_other_members_of_a_chain_too(tmp_path: Path) -> None:
    chain = tuple(
        Knowledge(Request(f"t {language}{n}", language=language), "yes") for n, language in enumerate(("en", "zh", "en"))
    )
    kept = (Probe("locality", Request("far x", language="en"), None), Probe("locality", Request("far y", language="ar"), None))
    examples = Examples.of(entries([Case("c", chain, kept)]), router(tmp_path, language_weight=0.5, scenario_weight=3.0))
    weights = [
        {examples.requests[row].question: round(math.exp(w), 6) for row, w in zip(rows, logs, strict=True)}
        for rows, logs in zip(examples.negatives, examples.log_weights, strict=True)
    ]
    assert weights[0] == {"far x": 3.0, "far y": 0.5, "t zh1": 0.5, "t en2": 3.0}
    assert weights[1] == {"t en0": 0.5, "t en2": 0.5}


class Half:
    """One of two processes, for ``step`` alone."""

    def __init__(self, rank: int) -> None:
        self.rank, self.world = rank, 2

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        raise AssertionError("equation 15 needs no exchange within a step")


def gradients(learner: ContrastiveLearner, batch: list[int], own: list[int], team: Team) -> tuple[list[Tensor], float]:
    learner.module.zero_grad()
    value = learner.step(batch, own, team, 0)["loss"]
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in learner.module.parameters()], value


def test_the_parts_of_two_processes_sum_to_the_gradient_of_one(tmp_path: Path) -> None:
    learner = router(tmp_path)._learner(CASES)
    batch = [3, 1, 4, 0, 5]
    whole, loss = gradients(learner, batch, batch, Half(0))
    first, a = gradients(learner, batch, batch[0::2], Half(0))
    second, b = gradients(learner, batch, batch[1::2], Half(1))
    assert a + b == pytest.approx(loss, rel=1e-5)
    assert all(torch.allclose(x, y + z, atol=1e-5) for x, y, z in zip(whole, first, second, strict=True))
    nothing, zero = gradients(learner, batch[:1], [], Half(1))
    assert zero == 0.0
    assert not any(part.any() for part in nothing)


# -- a router's life ---------------------------------------------------------------------------------------------------


def test_fitting_again_or_with_another_seed_reads_no_request_again(tmp_path: Path) -> None:
    first = router(tmp_path, epochs=1).fit(CASES)
    assert first.features_.extracted == 120
    second = router(tmp_path, epochs=1, seed=1).fit(CASES)
    assert second.features_.extracted == 0
    again = router(tmp_path, epochs=1).fit(CASES).fit(CASES)
    facts = [c.chain[0] for c in CASES[:4]]
    assert np.array_equal(first.keys(facts), again.keys(facts)), "a fit depends on its seed and cases alone"
    assert not np.allclose(first.keys(facts), second.keys(facts), atol=1e-2)
    assert first.backbone_.fingerprint() == FakeBackbone().fingerprint()


def test_keys_are_unit_vectors_and_a_request_finds_its_own_entry_at_score_1(tmp_path: Path) -> None:
    fitted = router(tmp_path, epochs=1).fit(CASES)
    facts = [c.chain[0] for c in CASES[:5]]
    keys = fitted.keys(facts)
    assert keys.shape == (5, 16)
    assert keys.dtype == np.float32
    assert np.allclose(np.linalg.norm(keys, axis=1), 1, atol=1e-5)
    assert np.allclose(np.diag(fitted.score([fact.request for fact in facts], facts)), 1, atol=1e-5)
    assert fitted.queries([]).shape == (0, 16)


def test_the_threshold_comes_from_validation_cases_else_from_the_training_cases_else_from_the_user(tmp_path: Path) -> None:
    train, val = CASES[:20], CASES[20:]
    plain = router(tmp_path, epochs=5).fit(train)
    inside = [s for c in train for s in plain.score([c.probes[0].request, c.probes[1].request], c.chain).ravel()]
    outside = [s for c in train for s in plain.score([c.probes[2].request], c.chain).ravel()]
    assert plain.threshold_ == pytest.approx(calibrate(inside, outside).threshold, abs=1e-4)
    held_out = router(tmp_path, epochs=5).fit(train, val=val)
    assert held_out.calibration_.curve.positives == 40
    assert held_out.threshold_ != plain.threshold_
    assert router(tmp_path, epochs=1, threshold=0.25).fit(train).threshold_ == 0.25
    nothing = [Case("empty", (), ())]
    assert router(tmp_path, epochs=5).fit(train, val=nothing).threshold_ == plain.threshold_, "nothing there to calibrate on"


def test_cases_without_anything_to_leave_alone_need_a_threshold(tmp_path: Path) -> None:
    only_positive = [Case(c.id, c.chain, c.probes[:2]) for c in CASES[:4]]
    with pytest.raises(DataError, match="threshold of your own"):
        router(tmp_path, epochs=1).fit(only_positive)
    assert router(tmp_path, epochs=1, threshold=0.5).fit(only_positive).fitted
    with pytest.raises(DataError, match="0 cases hold no knowledge"):
        router(tmp_path).fit([])
    with pytest.raises(UnknownNameError, match="youden"):
        router(tmp_path, calibration="yuden").fit(CASES)


def test_a_saved_router_gives_the_same_vectors_and_holds_no_weight_of_the_backbone(tmp_path: Path) -> None:
    fitted = router(tmp_path / "cache", epochs=2).fit(CASES)
    fitted.save(tmp_path / "router")
    loaded = router(tmp_path / "cache").load(tmp_path / "router")
    facts = [c.chain[0] for c in CASES[:4]]
    assert np.array_equal(loaded.keys(facts), fitted.keys(facts))
    assert loaded.threshold_ == fitted.threshold_
    assert sum(tensor.numel() for tensor in fitted.state().values()) == 4 * DIM + 2 * (DIM * 16 + 16) + 2 * 16 * 16 + 16
    with pytest.raises(DataError, match="dim=8"):
        router(tmp_path / "cache", dim=8).load(tmp_path / "router")


def test_a_router_says_when_it_is_loaded_on_other_weights_and_refuses_another_layer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    router(tmp_path / "cache", epochs=1).fit(CASES).save(tmp_path / "router")
    router(tmp_path / "cache").load(tmp_path / "router")
    assert not caplog.records
    other = Worded()
    other.model[0].weight += 1
    HiddenRouter(dim=16, cache_dir=tmp_path / "cache").attach(other).load(tmp_path / "router")
    assert "fitted on other weights" in caplog.text
    with pytest.raises(DataError, match="reads layer -1, this router layer 0"):
        router(tmp_path / "cache", layer=0).load(tmp_path / "router")


def test_a_router_is_not_used_before_it_is_fitted_nor_on_states_of_another_width(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="fit"):
        router(tmp_path).queries([CASES[0].chain[0].request])
    fitted = router(tmp_path, epochs=1).fit(CASES[:4])
    fitted.attach(FakeBackbone())
    with pytest.raises(DataError, match="states of 24 numbers, this backbone has 8"):
        fitted.queries([Request("What?")])


def test_an_interrupted_fit_goes_on_where_it_stopped(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(step: int, total: int, values: object) -> None:
        if step == 5:
            raise Stop

    whole = router(tmp_path / "cache", epochs=2).fit(CASES, out=tmp_path / "whole")
    with pytest.raises(Stop):
        router(tmp_path / "cache", epochs=2).fit(CASES, out=tmp_path / "run", progress=stop)
    steps: list[int] = []
    resumed = router(tmp_path / "cache", epochs=2).fit(
        CASES, out=tmp_path / "run", progress=lambda step, total, values: steps.append(step)
    )
    assert steps[0] > 1
    facts = [c.chain[0] for c in CASES[:4]]
    assert np.array_equal(whole.keys(facts), resumed.keys(facts))
