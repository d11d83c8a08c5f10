"""The training loop: which items, which gradient, what is validated, kept, logged and refused."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad_norm_
from toy_learner import Line

from kedit import jsonl
from kedit.errors import ContractError, DataError, DivergedError, StoreError
from kedit.training import Training, train
from kedit.training.checkpoint import read
from kedit.training.randomness import permutation


def test_every_epoch_takes_every_item_once_in_an_order_of_its_own() -> None:
    learner = Line(items=7)
    train(learner, Training(epochs=2, batch_size=2, accumulate=2, seed=3))
    assert [len(batch) for batch in learner.batches] == [2, 2, 2, 1] * 2
    first, second = sum(learner.batches[:4], []), sum(learner.batches[4:], [])
    assert sorted(first) == sorted(second) == list(range(7))
    assert (first, second) == (permutation(7, 3, 0), permutation(7, 3, 1))
    assert first != second
    assert first != permutation(7, 4, 0)


@pytest.mark.parametrize(("batch_size", "accumulate"), [(4, 1), (2, 2), (1, 4), (3, 2)])
def test_a_step_follows_the_mean_over_its_items_however_they_are_split(batch_size: int, accumulate: int) -> None:
    learner, plain = Line(items=7), Line(items=7)
    values: list[Mapping[str, float]] = []
    train(learner, Training(3, batch_size, accumulate, clip=0.5), progress=lambda _step, _total, found: values.append(found))

    groups = [{"params": g.parameters, "lr": g.lr, "weight_decay": g.weight_decay} for g in plain.groups()]
    optimiser = torch.optim.AdamW(groups)
    losses = []
    for epoch in range(3):
        order, size = permutation(7, 0, epoch), batch_size * accumulate
        for items in (order[at : at + size] for at in range(0, 7, size)):
            optimiser.zero_grad()
            loss = torch.stack([plain.error(item) for item in items]).mean()
            loss.backward()
            clip_grad_norm_([plain.weight, plain.bias], 0.5)
            optimiser.step()
            losses.append(loss.item())
    assert [found["loss"] for found in values] == pytest.approx(losses, rel=1e-4)
    torch.testing.assert_close(learner.weight, plain.weight, rtol=1e-4, atol=1e-5)
    assert learner.spare.tolist() == [1.0, 1.0]  # what has no gradient stays


def test_training_lowers_the_loss_and_reports_every_step() -> None:
    seen: list[tuple[int, int, float]] = []
    train(
        Line(), Training(epochs=30, batch_size=4), progress=lambda step, total, values: seen.append((step, total, values["loss"]))
    )
    assert [(step, total) for step, total, _ in seen] == [(step, 60) for step in range(1, 61)]
    assert sum(loss for *_, loss in seen[-4:]) < 0.5 * sum(loss for *_, loss in seen[:4])


def test_the_best_state_is_kept_and_is_there_at_the_end() -> None:
    learner = Line()
    scores = iter([1.0, 5.0, 5.0, 2.0])
    states: list[list[float]] = []

    def validate() -> float:
        states.append(learner.weight.flatten().tolist())
        return next(scores)

    train(learner, Training(epochs=5, batch_size=4, validate_every=3), validate=validate)  # after 3, 6, 9 and the last, 10
    assert next(scores, None) is None
    assert learner.weight.flatten().tolist() == states[1]  # of equal ones the first
    assert states[1] != states[2]


def test_without_a_validation_the_last_state_stays() -> None:
    learner = Line()
    weights: list[torch.Tensor] = []
    train(learner, Training(epochs=2, validate_every=1), progress=lambda *_: weights.append(learner.weight.detach().clone()))
    assert torch.equal(learner.weight, weights[-1])
    assert not torch.equal(weights[-1], weights[-2])


def test_a_validation_without_a_number_is_refused() -> None:
    with pytest.raises(ContractError, match="validate"):
        train(Line(), Training(), validate=lambda: float("nan"))


def test_a_diverging_training_names_the_step_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    learner = Line(poison=5)
    before: list[torch.Tensor] = []
    with pytest.raises(DivergedError, match="step 6"):
        train(
            learner,
            Training(epochs=2, save_every=1),
            out=tmp_path,
            progress=lambda *_: before.append(learner.weight.detach().clone()),
        )
    assert torch.equal(learner.weight, before[-1])
    found = read(tmp_path / "last.safetensors")
    assert found is not None and found.step == 5
    assert torch.equal(found.state["weight"], learner.weight)
    assert all(p.grad is None for p in (learner.weight, learner.bias))


def test_the_callers_random_numbers_go_on_as_if_nothing_had_been_trained() -> None:
    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = draw()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    train(Line(noise=True), Training())
    assert draw() == expected


def test_it_trains_where_gradients_are_switched_off_and_leaves_none_behind() -> None:
    learner = Line()
    with torch.no_grad():
        train(learner, Training())
    assert not torch.equal(learner.weight, Line().weight)
    assert learner.weight.grad is None


def test_a_folder_holds_safetensors_and_json_only_and_one_checkpoint(tmp_path: Path) -> None:
    train(Line(), Training(epochs=2, save_every=1), out=tmp_path)
    held = {path.name for path in tmp_path.iterdir() if path.is_file()} - {".lock"}
    assert held == {"last.safetensors", "log.jsonl"}
    rows = list(jsonl.read(tmp_path / "log.jsonl"))
    assert [row["step"] for row in rows] == list(range(1, 15))
    assert all({"loss", "gradient_norm", "epoch"} <= row.keys() for row in rows)


def test_a_value_that_is_no_number_does_not_break_the_log(tmp_path: Path) -> None:
    learner = Line()
    plain = learner.step
    learner.step = lambda *words: {**plain(*words), "share": float("nan")}  # type: ignore[method-assign]
    train(learner, Training(batch_size=7), out=tmp_path)
    (row,) = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert row["share"] is None and row["loss"] > 0


@pytest.mark.parametrize(("name", "value"), [("epochs", 0), ("batch_size", -1), ("accumulate", 0), ("clip", 0.0)])
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Training(**{name: value})  # type: ignore[arg-type]


def test_nothing_to_train_on_is_said_so() -> None:
    with pytest.raises(DataError, match="no items"):
        train(Line(items=0), Training())


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    def again(*_: object) -> None:
        with pytest.raises(StoreError, match="in use"):
            train(Line(), Training(), out=tmp_path)

    train(Line(), Training(batch_size=7), out=tmp_path, progress=again)


def test_it_trains_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    train(Line(), Training(), out=tmp_path)
    assert not (tmp_path / "events").exists()


def test_tensorboard_gets_every_value_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def stop(step: int, *_: object) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Line(), Training(save_every=3), out=tmp_path, progress=stop)
    train(Line(), Training(save_every=3), out=tmp_path)
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    rows = list(jsonl.read(tmp_path / "log.jsonl"))
    assert [event.step for event in events.Scalars("loss")] == list(range(1, 8))
    assert [event.value for event in events.Scalars("loss")] == pytest.approx([row["loss"] for row in rows])
    before = sorted(path.name for path in (tmp_path / "events").iterdir())
    assert len({name.split(".")[3] for name in before}) == 2  # of one second, they would be read in any order
    train(Line(), Training(save_every=3), out=tmp_path)  # complete: nothing is written again
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == before
