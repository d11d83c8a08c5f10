"""A training that is stopped, killed or damaged ends as one that never was."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from toy_learner import Line, files

from kedit.errors import StoreError
from kedit.training import Training, train

SETTINGS = Training(epochs=4, batch_size=2, accumulate=2, clip=1.0, seed=2, save_every=1, validate_every=3)


def run(folder: Path, pause: float = 0.0) -> Line:
    learner = Line(noise=True, pause=pause)
    train(learner, SETTINGS, out=folder, validate=learner.score)
    return learner


def stop_at(folder: Path, last: int, settings: Training = SETTINGS) -> None:
    learner = Line(noise=True)

    def stop(step: int, *_: object) -> None:
        if step == last:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(learner, settings, out=folder, validate=learner.score, progress=stop)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], Line]:
    """Files and learner of a training that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    learner = run(folder)
    return files(folder), learner


@pytest.mark.parametrize("last", range(1, 9))
def test_stopped_after_any_step_it_ends_bit_for_bit_as_if_it_had_not_been(
    tmp_path: Path, whole: tuple[dict[str, bytes], Line], last: int
) -> None:
    stop_at(tmp_path, last)
    learner = run(tmp_path)
    assert files(tmp_path) == whole[0]
    for name, tensor in whole[1].state().items():
        assert torch.equal(learner.state()[name], tensor)


def test_killed_at_random_moments_it_ends_bit_for_bit_as_if_it_had_not_been(
    tmp_path: Path, whole: tuple[dict[str, bytes], Line]
) -> None:
    rng = random.Random(0)
    killed = 0
    for _ in range(12):
        process = multiprocessing.get_context("fork").Process(target=run, args=(tmp_path, 0.002))
        process.start()
        time.sleep(rng.uniform(0.01, 0.08))
        if process.is_alive():
            os.kill(int(process.pid or 0), signal.SIGKILL)
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        assert process.exitcode in (0, -signal.SIGKILL)
    assert killed
    run(tmp_path)
    assert files(tmp_path) == whole[0]
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".part"]


def test_resuming_takes_only_the_steps_that_are_left(tmp_path: Path) -> None:
    stop_at(tmp_path, 5)
    learner = run(tmp_path)
    assert len(learner.batches) == 8  # of 16 micro-batches; step 5 was not saved, because it was stopped before that
    assert run(tmp_path).batches == []


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "missing"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    tmp_path: Path, whole: tuple[dict[str, bytes], Line], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    stop_at(tmp_path, 5)
    last = tmp_path / "last.safetensors"
    data = bytearray(last.read_bytes())
    data[-3] ^= 1
    if damage == "missing":
        last.unlink()
    else:
        last.write_bytes({"cut": data[:-40], "flipped": data, "empty": b""}[damage])
    learner = run(tmp_path)
    assert files(tmp_path) == whole[0]
    assert len(learner.batches) == 10
    assert damage == "missing" or "damaged" in caplog.text


def test_a_checkpoint_of_other_settings_is_refused_with_what_differs(tmp_path: Path) -> None:
    stop_at(tmp_path, 2)
    before = files(tmp_path)
    other = Training(epochs=4, batch_size=3, accumulate=2, clip=1.0, seed=2, validate_every=3)
    with pytest.raises(StoreError, match=r"settings\.batch_size: 2 -> 3") as error:
        train(Line(), other, out=tmp_path)
    assert "seed" not in str(error.value) and "remove" in str(error.value)
    with pytest.raises(StoreError, match="items: 7 -> 8"):
        train(Line(items=8), SETTINGS, out=tmp_path)
    with pytest.raises(StoreError, match=r"groups\.1\.lr: 0\.05 -> 0\.1"):
        train(Line(lr=0.1), SETTINGS, out=tmp_path)
    with pytest.raises(StoreError, match=r"data: \(absent\) -> \"abc\""):
        train(Line(), SETTINGS, out=tmp_path, identity={"data": "abc"})
    assert files(tmp_path) == before


def test_how_often_it_is_saved_may_change(tmp_path: Path, whole: tuple[dict[str, bytes], Line]) -> None:
    stop_at(tmp_path, 4, Training(epochs=4, batch_size=2, accumulate=2, clip=1.0, seed=2, validate_every=3))
    run(tmp_path)
    assert files(tmp_path) == whole[0]


def test_the_log_has_every_step_once(tmp_path: Path) -> None:
    for last in (3, 3, 5):
        stop_at(tmp_path, last)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')  # torn
    run(tmp_path)
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == list(range(1, 9))
