from __future__ import annotations

import time

import pytest

from kedit.timing import Timings, timing


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_a_lap_has_the_seconds_of_its_block(clock: list[float]) -> None:
    with timing("insert") as lap:
        clock[0] += 2.5
    assert (lap.stage, lap.seconds) == ("insert", 2.5)


def test_laps_are_not_cumulative(clock: list[float]) -> None:
    laps = Timings()
    for seconds in (1.0, 3.0):
        with laps.timing("insert"):
            clock[0] += seconds
    assert laps.laps == {"insert": [1.0, 3.0]}


def test_a_block_that_fails_is_timed_too(clock: list[float]) -> None:
    laps = Timings()
    with pytest.raises(ValueError, match="broken"), laps.timing("insert"):
        clock[0] += 4.0
        raise ValueError("broken")
    assert laps.laps == {"insert": [4.0]}


def test_queued_cuda_work_is_waited_for_before_and_after(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    import torch

    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waited.append(str(device)))
    with timing("ask", torch.device("cuda", 0)):
        assert waited == ["cuda:0"]
    assert waited == ["cuda:0", "cuda:0"]
    with timing("ask", torch.device("cpu")):
        pass
    assert len(waited) == 2
