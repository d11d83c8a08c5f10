from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from fake_runs import make_run
from matplotlib.axes import Axes

from kedit.errors import DataError
from kedit.plots import reliability_plot, retention_plot, run_plots, save_plot
from kedit.report.results import Results
from kedit.run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


def panel(axes: list[Axes], editor: str) -> Axes:
    return next(ax for ax in axes if ax.get_title(loc="left") == editor)


def curves(ax: Axes) -> list[tuple[str, str, list[float], list[float]]]:
    """Style, colour, steps and scores of each line that is drawn, markers left out."""
    lines = [line for line in ax.get_lines() if line.get_linestyle() != "None" and len(line.get_xdata())]
    return [(str(ln.get_linestyle()), str(ln.get_color()), list(ln.get_xdata()), list(ln.get_ydata())) for ln in lines]


def test_retention_has_a_panel_per_editor_that_does_something(run: Run) -> None:
    figure = retention_plot(run)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["keeper", "forgetter"]
    assert "order en-zh-ar" in figure.get_suptitle()


def test_the_points_are_the_retention_matrix_with_the_base_before_any_insert(run: Run) -> None:
    found = Results(run).retention("keeper", "sequential", "en-zh-ar")
    rows = [found.base, *found.matrix]
    lines = curves(panel(retention_plot(run).axes, "keeper"))
    for item in range(3):
        colour = sorted({line[1] for line in lines}, key=[line[1] for line in lines].index)[item]
        points = {x: y for _, c, xs, ys in lines if c == colour for x, y in zip(xs, ys, strict=True)}
        assert points == {t: pytest.approx(row[item].mean) for t, row in enumerate(rows)}


def test_a_line_is_dashed_until_its_item_is_inserted_and_solid_afterwards(run: Run) -> None:
    lines = curves(panel(retention_plot(run).axes, "keeper"))
    spans = [(style, min(xs), max(xs)) for style, _, xs, _ in lines]
    assert spans == [("--", 0, 1), ("-", 1, 3), ("--", 0, 2), ("-", 2, 3), ("--", 0, 3), ("-", 3, 3)]


def test_steps_are_labelled_by_language_in_the_order_of_insertion_and_axes_have_units(run: Run) -> None:
    for order, labels in (("en-zh-ar", ["base", "en", "zh", "ar"]), ("ar-zh-en", ["base", "ar", "zh", "en"])):
        ax = panel(retention_plot(run, order).axes, "keeper")
        assert [tick.get_text() for tick in ax.get_xticklabels()] == labels
        assert "ROUGE-L (0 to 100)" in ax.get_ylabel()
        assert ax.get_title(loc="right") == "n = 6 chains"


def test_a_language_has_the_same_colour_in_every_order_and_no_two_share_one(run: Run) -> None:
    def colours(order: str) -> dict[str, str]:
        ax = panel(retention_plot(run, order).axes, "keeper")
        return {str(ln.get_label())[3:]: str(ln.get_color()) for ln in ax.get_lines() if not str(ln.get_label()).startswith("_")}

    assert colours("en-zh-ar") == colours("ar-zh-en")
    assert len(set(colours("en-zh-ar").values())) == 3


def test_without_an_editor_that_does_nothing_curves_begin_after_the_first_insert(tmp_path: Path) -> None:
    figure = retention_plot(make_run(tmp_path / "run", size=2, editors={"keeper": 0.9}))
    assert min(x for _, _, xs, _ in curves(figure.axes[0]) for x in xs) == 1


def test_bars_are_base_and_edited_reliability_with_intervals(run: Run) -> None:
    ax = panel(reliability_plot(run, "topic_group").axes, "keeper")
    results = Results(run)
    base, edited = (results.groups(name, "single", "topic_group") for name in ("unedited", "keeper"))
    expected = [rows[g].dimensions["reliability"].mean for rows in (base, edited) for g in ("religious", "social")]
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(expected)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["religious\nn = 3", "social\nn = 3"]
    low = edited["religious"].dimensions["reliability"].low
    ends = np.concatenate([segment[:, 1] for c in ax.collections for segment in c.get_segments()])
    assert low == pytest.approx(ends[np.argmin(abs(ends - low))])


def test_base_bars_are_darker_than_edited_ones(run: Run) -> None:
    bars = panel(reliability_plot(run, "partition").axes, "keeper").patches
    assert sum(bars[0].get_facecolor()[:3]) < sum(bars[1].get_facecolor()[:3]) - 0.5


def test_plots_are_offered_for_every_order_and_group_that_the_run_has(run: Run) -> None:
    assert [key for key, _, _ in run_plots(Results(run))] == [
        "single_topic_group",
        "single_partition",
        "sequential_retention_en-zh-ar",
        "sequential_retention_ar-zh-en",
        "sequential_topic_group",
    ]


def test_what_cannot_be_drawn_is_a_clear_error(run: Run) -> None:
    with pytest.raises(DataError, match="no retention"):
        retention_plot(run, task="single")
    with pytest.raises(DataError, match="has the tag 'colour'"):
        reliability_plot(run, "colour")


def test_saving_gives_png_and_svg_the_same_bytes_each_time(run: Run, tmp_path: Path) -> None:
    first = save_plot(retention_plot(run), tmp_path / "a.b")
    second = save_plot(retention_plot(run), tmp_path / "c")
    assert [path.name for path in first] == ["a.b.png", "a.b.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert b"<script" not in first[1].read_bytes()


def test_a_name_with_dollars_or_control_characters_is_drawn_as_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", size=1, editors={"$\\frac{$\x1b": 0.9, "base": None})
    png, _ = save_plot(retention_plot(run), tmp_path / "plot")
    assert png.stat().st_size > 1000


def test_plots_leave_matplotlib_as_it_was_and_open_no_window(run: Run, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save_plot(reliability_plot(run, "topic_group"), tmp_path / "plot")
    assert dict(matplotlib.rcParams) == before
    code = "import sys, kedit.plots; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
