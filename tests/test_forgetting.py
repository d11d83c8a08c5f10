"""Forgetting, transfer and curves, as formulas on records whose outputs are their scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from fake_runs import EDITORS, config, make_run, record
from test_lifelong import chain
from test_metrics import mean, number
from test_metrics import record as scored

import kedit
from kedit.cli import main
from kedit.errors import DataError, UnknownNameError
from kedit.forgetting import curve, retention
from kedit.protocols import Ask, gap, milestones, together
from kedit.report import tables
from kedit.run import Run
from kedit.store import RunStore
from kedit.types import Record

LENGTH = 40
PROTOCOL = together(milestones(1, 10, sample=6), gap(0, 4, 16, sample=6))


def long(value: Callable[[int, int], float], case: str = "a") -> list[Record]:
    """Records of a chain whose reliability of the item of a step, asked after so many, is a function of both."""
    found = []
    for event in PROTOCOL(chain(LENGTH)):
        if isinstance(event, Ask):
            for probe in event.probes:
                step, dimension = chain(LENGTH).probes[probe].step, chain(LENGTH).probes[probe].dimension
                one = scored(case, dimension, value(step, event.after), step=step, after=event.after, probe=probe)
                found.append(one)
    return found


def test_the_matrix_has_the_rows_and_columns_that_were_asked_and_no_more() -> None:
    found = retention(long(lambda step, after: 100 * step + after), scorer=number)
    asked = [event.after for event in PROTOCOL(chain(LENGTH)) if isinstance(event, Ask)]
    assert (found.asked, found.length, found.complete) == (tuple(asked), LENGTH, False)
    assert found.means().shape == (len(asked), len(found.steps))
    for t, after in enumerate(found.asked):
        for i, step in enumerate(found.steps):
            cell = found.matrix[t][i]
            assert cell is None or cell.mean == 100 * step + after
    assert None not in found.last


def test_forgetting_is_first_minus_last_and_backward_transfer_its_negative() -> None:
    found = retention(long(lambda step, after: 100 - (after - step)), scorer=number)
    first = {step: min(t for t in found.asked if found.matrix[found.asked.index(t)][i]) for i, step in enumerate(found.steps)}
    wanted = [LENGTH - first[step] for step in found.steps if first[step] < LENGTH]
    lost, back = found.mean_forgetting, found.backward_transfer
    assert mean(lost) == pytest.approx(np.mean(wanted))
    assert lost is not None and back is not None
    assert (back.mean, back.low, back.high) == (-lost.mean, -lost.high, -lost.low)
    assert lost.n == len(wanted) and lost.low < lost.mean < lost.high, "of one chain the items are resampled"


def test_the_forward_effect_is_what_the_insert_just_before_did_to_what_is_yet_to_come() -> None:
    records = [
        scored(case, "reliability", 10.0 * step + after, step=step, after=after, probe=step)
        for case in ("a", "b")
        for after in (1, 2, 3)
        for step in (1, 2, 3)
    ]
    base = [scored(r.case, "reliability", 5.0, step=r.step, after=r.asked_at, probe=r.probe) for r in records]
    found = retention(records, base=base, scorer=number)
    assert mean(found.forward_effect) == pytest.approx(np.mean([10 * 2 + 1 - 5, 10 * 3 + 2 - 5]))
    assert retention(records, scorer=number).forward_effect is None
    assert found.complete


def test_the_curve_by_gap_has_a_point_per_gap_that_items_share() -> None:
    points = curve(long(lambda step, after: 100 - (after - step)), "gap", scorer=number)
    assert [(point.at, point.end) for point in points] == [(0, 0), (4, 4), (16, 16)]
    assert [point.value.mean for point in points] == [100, 96, 84]
    assert all(point.items >= 6 for point in points)


def test_gaps_that_no_items_share_are_put_together_in_ranges() -> None:
    records = [scored("a", "reliability", 7.0, step=step, after=40, probe=step) for step in (40, 39, 35, 12, 1)]
    points = curve(records, "gap", scorer=number)
    assert [(point.label, point.items) for point in points] == [("0", 1), ("1", 1), ("2 to 10", 1), ("11 to 100", 2)]


def test_the_curve_by_size_has_the_sizes_at_which_several_items_were_asked() -> None:
    points = curve(long(lambda step, after: after), "size", scorer=number)
    assert {1, 10, LENGTH} <= {point.at for point in points}
    assert all(point.value.mean == point.at for point in points)
    assert [point.items for point in points if point.at == 1] == [1]


def test_of_several_chains_the_chains_are_resampled() -> None:
    records = long(lambda step, after: 10.0, "a") + long(lambda step, after: 30.0, "b")
    (point, *_) = curve(records, "gap", scorer=number)
    assert (point.value.mean, point.value.n) == (20, 2)


def test_dimensions_have_curves_of_their_own() -> None:
    records = [
        r if r.dimension == "reliability" else scored("a", r.dimension, 3.0, step=r.step, after=r.asked_at, probe=r.probe)
        for r in long(lambda step, after: 50.0)
    ]
    assert {p.value.mean for p in curve(records, "size", dimension="locality", scorer=number)} == {3}


# -- of a run ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lifelong(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose keeper answers right up to 16 further inserts."""
    folder, case = tmp_path_factory.mktemp("runs") / "lifelong", chain(LENGTH)
    dimensions = [
        {"name": n, "label": label, "locality": n == "locality"} for n, label in (("reliability", "Rel"), ("locality", "Loc"))
    ]
    tasks = {"lifelong": {"protocol": "p", "dimensions": dimensions, "cases": 1, "order": "shuffled"}}
    with RunStore.open(folder, config(EDITORS, 1, tasks=tasks)) as store:
        for editor in EDITORS:
            said = []
            for event in PROTOCOL(case):
                for probe in event.probes if isinstance(event, Ask) else ():
                    kept = editor == "keeper" and event.after - case.probes[probe].step <= 16
                    said.append(record("lifelong", case, probe, event.after, "right" if kept else "wrong", "right"))
            store.append(editor, said)
    return Run.load(folder)


def test_a_run_gives_matrix_frame_and_means_by_editor(lifelong: Run) -> None:
    found = kedit.retention(lifelong)
    assert (found.task, found.order, found.editors) == ("lifelong", "shuffled", ["keeper", "forgetter"])
    assert found.matrix("keeper").shape == (len(found.of("keeper").asked), len(found.of("keeper").steps))
    assert mean(found.forgetting["keeper"]) > 0 == mean(found.forgetting["forgetter"])
    assert mean(found.backward_transfer["keeper"]) == -mean(found.forgetting["keeper"])
    frame = found.to_frame()
    assert set(frame.columns) == {"editor", "chain", "dimension", "language", "step", "asked_at", "gap", "score"}
    near = frame[(frame.editor == "keeper") & (frame.gap <= 16)]
    assert (set(near.score), len(frame)) == ({100.0}, len(lifelong.records()))
    with pytest.raises(DataError, match="name one of keeper, forgetter"):
        found.matrix()
    with pytest.raises(UnknownNameError):
        found.of("keepr")


def test_curves_of_a_run_are_drawn_by_size_and_by_gap_and_the_report_shows_them(lifelong: Run) -> None:
    found = kedit.retention(lifelong)
    for by, label in (("size", "items in memory"), ("gap", "inserts since the item's own")):
        figure = found.plot(by)  # type: ignore[arg-type]
        assert [ax.get_xlabel() for ax in figure.axes] == [label, label]
        drawn = [list(line.get_ydata()) for line in figure.axes[0].get_lines()]
        assert [point.value.mean for point in found.curve(by, "keeper")] in drawn  # type: ignore[arg-type]
    assert found.plot().axes[0].get_xlabel() == "items in memory"
    assert [table.key for table in tables(lifelong) if table.kind == "retention"] == [
        "lifelong_by_size",
        "lifelong_by_gap",
        "lifelong_transfer",
    ]


def test_the_command_prints_the_tables_and_writes_figures(lifelong: Run, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["retention", str(lifelong.path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "by memory size" in result.output and "Backward transfer" in result.output
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".csv", ".png", ".svg"}
    wrong = CliRunner().invoke(main, ["retention", str(lifelong.path), "--order", "shufled"])
    assert (wrong.exit_code, "shuffled" in wrong.output) == (1, True)


def test_short_chains_keep_their_matrix_and_their_lines(tmp_path: Path) -> None:
    found = kedit.retention(make_run(tmp_path / "run", size=2))
    assert [table.key for table in found.tables()] == ["sequential_retention"]
    assert found.plot().axes[0].get_xlabel() == "asked after inserting"
    assert found.matrix("keeper").shape == (3, 3)
    with pytest.raises(DataError, match="asked no reliability"):
        kedit.retention(make_run(tmp_path / "again", size=2), task="single")
