"""Several processes train as one does: the same steps at the same global batch, the same checkpoint."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import toy_learner
from toy_learner import Line, files

from kedit.training import Training, gather_team, train
from kedit.training.checkpoint import read


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def as_rank(rank: int, world: int, port: int, work: Callable[[], None]) -> None:
    """What a launcher tells a process, then the work."""
    from accelerate import PartialState

    PartialState._reset_state()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), ACCELERATE_USE_CPU="true")
    torch.set_num_threads(1)
    work()
    torch.distributed.destroy_process_group()


def together(work: Callable[[], None], world: int = 2) -> None:
    port = free_port()
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=as_rank, args=(rank, world, port, work)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * world


def test_two_processes_leave_the_very_same_checkpoint_and_log_as_one(tmp_path: Path) -> None:
    toy_learner.main(str(tmp_path / "one"))
    together(lambda: toy_learner.main(str(tmp_path / "two")))
    assert files(tmp_path / "one") == files(tmp_path / "two")


@pytest.mark.parametrize(("world", "batch_size", "accumulate"), [(2, 5, 1), (3, 2, 2), (3, 1, 1)])
def test_shares_of_any_size_give_the_same_steps(tmp_path: Path, world: int, batch_size: int, accumulate: int) -> None:
    """Uneven shares, a last batch that is smaller, and processes without any item."""
    settings = Training(epochs=2, batch_size=batch_size, accumulate=accumulate)
    together(lambda: train(Line(), settings, out=tmp_path), world)
    learner = Line()
    train(learner, settings)
    found = read(tmp_path / "last.safetensors")
    assert found is not None
    for name, tensor in learner.state().items():
        torch.testing.assert_close(found.state[name], tensor.detach(), rtol=1e-4, atol=1e-5)


def test_what_two_processes_began_one_continues(tmp_path: Path) -> None:
    settings = Training(epochs=3, batch_size=2, save_every=1)

    def stopped() -> None:
        learner = Line(poison=7)
        with pytest.raises(ArithmeticError):
            train(learner, settings, out=tmp_path / "two")

    together(stopped)
    train(Line(), settings, out=tmp_path / "two")
    train(Line(), settings, out=tmp_path / "one")
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_every_process_ends_with_the_best_state_and_the_first_ones_score_decides(tmp_path: Path) -> None:
    def work() -> None:
        learner = Line()
        scores = iter([3.0, 1.0, 2.0] if gather_team().rank == 0 else [0.0, 9.0, 5.0])
        train(learner, Training(epochs=3, batch_size=7, validate_every=1), validate=lambda: next(scores))
        torch.save(learner.weight.detach(), tmp_path / f"{gather_team().rank}.pt")

    together(work)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    alone = Line()
    train(alone, Training(epochs=1, batch_size=7))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, alone.weight.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_accelerate_launch_trains_on_two_processes(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1"]
    port = ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", str(free_port())]
    done = subprocess.run(
        [*launch, *port, toy_learner.__file__, str(tmp_path / "two")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(toy_learner.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    toy_learner.main(str(tmp_path / "one"))
    assert files(tmp_path / "one") == files(tmp_path / "two")
