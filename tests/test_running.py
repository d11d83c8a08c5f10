"""Statistics taken in batches, or over processes, are those taken row by row."""

from __future__ import annotations

import pytest
import torch
from teams import Alone, together
from torch import Tensor

from kedit.errors import DivergedError, NotFittedError
from kedit.hypernet.running import RunningMoments, moments


def row_by_row(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation by Welford's recurrence, one row at a time."""
    mean, squares = rows[0].clone(), torch.zeros_like(rows[0])
    for count, row in enumerate(rows[1:], 2):
        before = row - mean
        mean = mean + before / count
        squares = squares + before * (row - mean)
    return mean, (squares / (len(rows) - 1)).sqrt()


def deviation(found: RunningMoments) -> Tensor:
    return (found.squares / (found.count - 1)).sqrt()


@pytest.fixture
def rows() -> Tensor:
    """Far from zero in one dimension, wide in another, constant in a third, and drifting from batch to batch."""
    generator = torch.Generator().manual_seed(0)
    made = torch.randn(500, 5, generator=generator) * torch.tensor([1.0, 1e-6, 50.0, 0.0, 1.0])
    made += torch.tensor([0.0, 3e-6, 1000.0, 0.1, 0.0])
    made[:, 4] += torch.linspace(-5, 5, 500)
    return made


@pytest.mark.parametrize("sizes", [[500], [1] * 500, [1, 2, 7, 90, 400], [0, 250, 0, 250]])
def test_batches_of_any_size_give_the_statistics_of_the_row_by_row_definition(rows: Tensor, sizes: list[int]) -> None:
    found = RunningMoments(5)
    for batch in rows.split(sizes):
        found.merge(moments([batch], Alone())[0])
    mean, expected = row_by_row(rows.double())
    assert found.count == 500
    torch.testing.assert_close(found.mean, mean, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(deviation(found), expected, rtol=1e-7, atol=1e-12)


def test_the_recurrence_in_fp32_drifts_where_the_batched_statistics_do_not(rows: Tensor) -> None:
    found = RunningMoments(5)
    for batch in rows.split(50):
        found.merge(moments([batch], Alone())[0])
    _, exact = row_by_row(rows.double())
    _, single = row_by_row(rows)
    alive = exact > 0
    ours = ((deviation(found) - exact).abs() / exact)[alive].max()
    theirs = ((single - exact).abs() / exact)[alive].max()
    assert ours < 1e-7
    assert 10 * ours < theirs < 1e-4


@pytest.mark.parametrize("shares", [[250, 250], [499, 1], [0, 500], [100, 0, 400]])
def test_how_rows_are_spread_over_processes_makes_no_difference(rows: Tensor, shares: list[int]) -> None:
    parts = rows.split(shares)
    found = together(len(shares), lambda team: moments([parts[team.rank], -parts[team.rank]], team))
    alone = moments([rows, -rows], Alone())
    for process in found:
        for one, other in zip(process, alone, strict=True):
            assert one.count == 500
            torch.testing.assert_close(one.mean, other.mean, rtol=1e-12, atol=1e-15)
            torch.testing.assert_close(one.squares, other.squares, rtol=1e-7, atol=1e-15)


def test_normalised_rows_have_mean_zero_and_deviation_one_and_a_constant_stays_finite(rows: Tensor) -> None:
    found = RunningMoments(5)
    found.merge(moments([rows], Alone())[0])
    normalised = found.normalise(rows)
    assert normalised.dtype == torch.float32
    torch.testing.assert_close(normalised.mean(0), torch.zeros(5), rtol=0, atol=2e-3)
    # a dimension of deviation 1e-6 feels the 1e-7 that is added to it
    torch.testing.assert_close(normalised.std(0)[[0, 2, 4]], torch.ones(3), rtol=1e-3, atol=0)
    torch.testing.assert_close(normalised.std(0)[1], torch.tensor(1 / 1.1), rtol=0.01, atol=0)
    assert normalised[:, 3].abs().max() == 0


def test_statistics_that_were_saved_go_on_instead_of_starting_anew(rows: Tensor) -> None:
    first, second = rows.split(250)
    whole, stopped, resumed = RunningMoments(5), RunningMoments(5), RunningMoments(5)
    for batch in (first, second):
        whole.merge(moments([batch], Alone())[0])
    stopped.merge(moments([first], Alone())[0])
    resumed.load_state_dict(stopped.state_dict())
    resumed.merge(moments([second], Alone())[0])
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in whole.state_dict().items())


def test_fewer_than_two_rows_have_no_deviation_and_say_so(rows: Tensor) -> None:
    found = RunningMoments(5)
    with pytest.raises(NotFittedError, match="0 row.*train first"):
        found.normalise(rows)
    found.merge(moments([rows[:1]], Alone())[0])
    with pytest.raises(NotFittedError, match="1 row"):
        found.normalise(rows)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused_in_every_process(rows: Tensor, bad: float) -> None:
    parts = [rows[:250], rows[250:].clone()]
    parts[1][3, 2] = bad

    def refused(team: object) -> bool:
        with pytest.raises(DivergedError, match="statistics were not changed"):
            moments([parts[team.rank]], team)  # type: ignore[attr-defined, arg-type]
        return True

    assert together(2, refused) == [True, True]
