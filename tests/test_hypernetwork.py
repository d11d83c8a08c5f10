"""The network that makes edits: what it is before it learns anything, and that it can learn."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from teams import Alone
from torch import Tensor, nn

from kedit.errors import DataError
from kedit.hypernet.network import Hypernetwork, ResidualBlock, Site
from kedit.weights.taps import Signal

SITES = {"low.up": Site(6, 10), "low.down": Site(10, 6), "high.up": Site(6, 10), "high.down": Site(10, 6)}


def made(**options: object) -> Hypernetwork:
    return Hypernetwork(SITES, **{"rank": 1920, "step_size": 1e-4, **options})  # type: ignore[arg-type]


@pytest.fixture
def rows() -> dict[str, Signal]:
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    return {name: Signal(draw(7, site.inputs) + 2, draw(7, site.outputs) * 1e-3) for name, site in SITES.items()}


def trained(network: Hypernetwork, rows: Mapping[str, Signal]) -> dict[str, Signal]:
    """The statistics are those of these very rows; the rows, normalised."""
    network.observe([rows], Alone())
    return network.normalise(rows)


def test_before_training_the_edit_is_the_mean_outer_product_of_normalised_rows_downhill(rows: dict[str, Signal]) -> None:
    network = made()
    factors = network(trained(network, rows))
    for name, (inputs, gradients) in rows.items():
        peers = [rows[other] for other in SITES if SITES[other] == SITES[name]]
        x, d = (torch.cat([peer[part] for peer in peers]) for part in (0, 1))
        a, b = (inputs - x.mean(0)) / (x.std(0) + 1e-7), (gradients - d.mean(0)) / (d.std(0) + 1e-7)
        expected = -1e-4 * torch.stack([torch.outer(b[row], a[row]) for row in range(7)]).mean(0)
        torch.testing.assert_close(factors[name].up @ factors[name].down, expected, rtol=1e-4, atol=1e-9)


def plainly(network: Hypernetwork, seen: list[dict[str, Signal]], name: str, lead: float) -> Tensor:
    """The edit of one weight as the paper writes it, a row at a time, in float64."""
    of_shape = [other for other in SITES if SITES[other] == SITES[name]]
    part = network.transforms[f"{SITES[name].inputs}x{SITES[name].outputs}"].double()
    mode = of_shape.index(name)

    def statistics(side: int) -> tuple[Tensor, Tensor]:
        count, mean, squares = 0, torch.zeros(SITES[name][side]).double(), torch.zeros(SITES[name][side]).double()
        for row in (row for rows in seen for other in of_shape for row in rows[other][side].double()):
            count += 1
            before = row - mean
            mean = mean + before / count
            squares = squares + before * (row - mean)
        return mean, (squares / (count - 1)).sqrt() + 1e-7

    (x_mean, x_sigma), (d_mean, d_sigma) = statistics(0), statistics(1)
    edit = torch.zeros(SITES[name].outputs, SITES[name].inputs).double()
    for x, d in zip(*(side.double() for side in seen[-1][name]), strict=True):
        z = torch.cat([(x - x_mean) / x_sigma, (d - d_mean) / d_sigma])
        for block in part.blocks:
            z = z + (block.scale[mode] * (block.up @ (block.down @ z) + block.bias) + block.shift[mode]).clamp(min=0)
        edit = edit + torch.outer(z[SITES[name].inputs :], z[: SITES[name].inputs]) / len(seen[-1][name].inputs)
    return lead * edit


def test_a_trained_network_edits_as_the_paper_writes_it_row_by_row(rows: dict[str, Signal]) -> None:
    generator = torch.Generator().manual_seed(1)
    network = made(rank=4).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    before = {name: Signal(*(torch.randn(5, width, generator=generator) for width in site)) for name, site in SITES.items()}
    network.observe([before], Alone())
    network.observe([rows], Alone())
    factors = network(network.normalise(rows))
    for at, name in enumerate(SITES):
        expected = plainly(network, [before, rows], name, -network.step_sizes[at].item())
        torch.testing.assert_close(factors[name].up @ factors[name].down, expected, rtol=1e-9, atol=1e-12)


def test_the_sum_over_rows_is_their_number_times_the_mean_and_ascent_is_its_opposite(rows: dict[str, Signal]) -> None:
    mean, total, ascent = made(), made(mean=False), made(sign=1.0)
    found = [network(trained(network, rows)) for network in (mean, total, ascent)]
    for name in SITES:
        one, seven, up = (factors[name].up @ factors[name].down for factors in found)
        torch.testing.assert_close(seven, 7 * one)
        torch.testing.assert_close(up, -one)


def test_a_step_size_gets_the_loss_gradient_along_minus_the_edits_direction(rows: dict[str, Signal]) -> None:
    network = made()
    normalised = trained(network, rows)
    factors = network(normalised)
    slopes = {name: torch.randn(site.outputs, site.inputs) for name, site in SITES.items()}
    loss = sum((slopes[name] * (pair.up @ pair.down)).sum() for name, pair in factors.items())
    (found,) = torch.autograd.grad(loss, [network.step_sizes])
    for at, name in enumerate(SITES):
        direction = -(factors[name].up @ factors[name].down) / network.step_sizes[at]
        torch.testing.assert_close(found[at], -(slopes[name] * direction).sum().detach(), rtol=1e-4, atol=1e-6)


def test_the_first_step_of_learning_has_a_gradient_although_everything_starts_at_the_maximums_corner() -> None:
    block = ResidualBlock(8, 4, 1, torch.Generator().manual_seed(0))
    rows = torch.randn(5, 8)
    assert torch.equal(block(rows, 0), rows)
    (block(rows, 0) * torch.randn(5, 8)).sum().backward()
    assert block.up.grad is not None and block.up.grad.abs().min() > 0
    assert block.bias.grad is not None and block.bias.grad.abs().min() > 0
    hidden = (rows @ block.down.T @ block.up.T + block.bias).detach().requires_grad_()
    nn.functional.relu(hidden).sum().backward()
    assert hidden.grad is not None and hidden.grad.abs().max() == 0, "a ReLU passes nothing there"


def test_what_the_block_adds_is_never_negative() -> None:
    block = ResidualBlock(8, 4, 1, torch.Generator().manual_seed(0))
    with torch.no_grad():
        block.bias.copy_(torch.tensor([-1.0, 2.0] * 4))
        rows = torch.randn(5, 8)
        torch.testing.assert_close(block(rows, 0) - rows, torch.tensor([0.0, 2.0] * 4).expand(5, 8))


def test_weights_of_one_shape_share_a_network_but_for_their_own_scale_and_shift(rows: dict[str, Signal]) -> None:
    network = made()
    normalised = trained(network, rows)
    assert sorted(network.transforms) == ["10x6", "6x10"]
    before = network(normalised)
    with torch.no_grad():
        network.transforms["6x10"].blocks[1].shift[1] += 1.0
    after = network(normalised)
    changed = {name for name in SITES if not torch.equal(before[name].down, after[name].down)}
    assert changed == {"high.up"}
    apart = made(shared=False)
    assert sorted(apart.transforms) == ["10x6-1", "10x6-3", "6x10-0", "6x10-2"]


@pytest.mark.parametrize("rank", [3, 1920])
def test_its_size_is_that_of_the_paper_with_the_rank_capped_by_the_width(rank: int) -> None:
    parameters = sum(parameter.numel() for parameter in made(rank=rank).parameters())
    n, r, shapes, weights = 16, min(rank, 16), 2, 2
    assert parameters == shapes * (2 * (2 * r * n) + 2 * n + weights * 2 * 2 * n) + len(SITES)


def test_a_seed_gives_the_same_network_everywhere() -> None:
    def values(network: Hypernetwork) -> Tensor:
        return torch.cat([parameter.flatten() for parameter in network.parameters()])

    torch.manual_seed(1)
    one = values(made(seed=3))
    torch.manual_seed(2)
    assert torch.equal(values(made(seed=3)), one)
    assert not torch.equal(values(made(seed=4)), one)


def test_a_state_of_other_shapes_is_refused_and_nothing_changes(rows: dict[str, Signal]) -> None:
    network, other = made(rank=3), made(rank=4)
    trained(other, rows)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(DataError, match=r"other weights: .*\(4, 16\) there and \(3, 16\) here"):
        network.load(other.state_dict(), "this file")
    with pytest.raises(DataError, match="none there"):
        network.load({}, "this file")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_the_saved_state_holds_the_statistics_so_that_a_loaded_network_edits_the_same(rows: dict[str, Signal]) -> None:
    network, loaded = made(), made(seed=5)
    normalised = trained(network, rows)
    loaded.load(network.state_dict(), "this file")
    found, expected = loaded(loaded.normalise(rows)), network(normalised)
    assert all(torch.equal(part, other) for name in SITES for part, other in zip(found[name], expected[name], strict=True))
