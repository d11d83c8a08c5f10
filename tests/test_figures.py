"""Figures that can be printed: what they show, in which fonts, and that the same run gives the same bytes."""

from __future__ import annotations

import contextlib
import json
import re
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from click.testing import CliRunner, Result
from fake_runs import make_run
from fakes import FakeBackbone, FakeBenchmark
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from kedit.bootstrap import Estimate
from kedit.cli import main
from kedit.comparison import Comparison, compare
from kedit.errors import DataError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.figures import KINDS, figures, matrix_figure, write_figures
from kedit.judging import open_judge, score_run
from kedit.metrics import final_records
from kedit.plots import (
    MissingFontWarning,
    bars_plot,
    dimension_plot,
    fonts,
    forest_plot,
    headline_heatmap,
    retention_heatmap,
    save_plot,
)
from kedit.plots.style import DOUBLE, PAGE, SINGLE
from kedit.report.results import Results
from kedit.run import Run
from kedit.store import records_file

ARABIC, CHINESE, LONG = "متوسط السياق", "视觉上下文", "multimodal-context-with-retrieved-documents"


def trace(run: Run, editor: str) -> None:
    """Give an editor's records the decisions of a router: of three questions one left alone, one own entry, one another's."""
    file = records_file(run.path, editor)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for k, row in enumerate(rows):
        told = {"similarity": 0.7, "threshold": 0.5}
        if k % 3:
            told["entry"] = f"edit-{row['step'] + k % 3 - 1}"
        row["trace"] = told
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    found = make_run(tmp_path_factory.mktemp("figures") / "run", size=4)
    trace(found, "keeper")
    return found


@pytest.fixture(scope="module")
def results(run: Run) -> Results:
    return Results(run)


@pytest.fixture(scope="module")
def every(results: Results) -> dict[str, Figure]:
    return dict(figures(results, [kind for kind in KINDS if kind != "comparison"]))


@pytest.fixture(scope="module")
def compared(run: Run) -> Comparison:
    return compare(run, against="unedited")


def kedit(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def drawn_points(ax: Axes) -> dict[int, float]:
    """By row, what is drawn with an interval."""
    lines = [container.lines[0] for container in ax.containers]
    return {int(line.get_ydata()[0]): float(line.get_xdata()[0]) for line in lines}


def numbers(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def hatched(ax: Axes) -> list[tuple[int, int]]:
    """Row and column of the cells that are marked as without a value."""
    cells = [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_hatch()]
    return [(round(cell.get_y() + 0.5), round(cell.get_x() + 0.5)) for cell in cells]


def texts(figure: Figure) -> Iterator[Text]:
    figure.draw_without_rendering()
    yield from (text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text())


# -- what is drawn -----------------------------------------------------------------------------------------------------


def test_a_run_has_every_kind_that_its_records_can_show(every: dict[str, Figure]) -> None:
    assert list(every) == [
        "single_dimensions",
        "sequential_dimensions",
        "single_topic_group",
        "single_partition",
        "sequential_topic_group",
        "sequential_retention_en-zh-ar",
        "sequential_retention_ar-zh-en",
        "sequential_retention_matrix_en-zh-ar",
        "sequential_retention_matrix_ar-zh-en",
        "single_joint",
        "sequential_joint",
        "single_router",
        "sequential_router",
    ]


def test_dimensions_are_the_scores_and_a_row_without_one_says_so(
    results: Results, every: dict[str, Figure], tmp_path: Path
) -> None:
    figure = every["single_dimensions"]
    rows = [results.scores(editor, "single", None) for editor in results.editors]
    for ax, dimension in zip(figure.axes, results.run.dimensions("single"), strict=False):
        assert ax.get_title(loc="left") == dimension.label
        assert drawn_points(ax) == {y: pytest.approx(row.dimensions[dimension.name].mean) for y, row in enumerate(rows)}
    assert drawn_points(figure.axes[-1]) == {y: pytest.approx(row.overall.mean) for y, row in enumerate(rows)}
    assert "0 to 100 (rougeL" in figure.get_supxlabel() and "n = 4 cases" in figure.get_supxlabel()
    silent = make_run(tmp_path / "run", size=1, editors={"base": None, "mute": 0.9})
    records_file(silent.path, "mute").write_text("", encoding="utf-8")
    assert all(numbers(ax) == ["no value"] for ax in dimension_plot(silent).axes)


def test_the_heatmap_is_the_retention_matrix_with_the_diagonal_framed(results: Results, every: dict[str, Figure]) -> None:
    found = results.retention("keeper", "sequential", "en-zh-ar")
    ax = every["sequential_retention_matrix_en-zh-ar"].axes[0]
    rows = [[e.mean for e in found.base], *found.means().tolist()]
    assert ax.images[0].get_array().tolist() == pytest.approx(np.array(rows))
    assert numbers(ax) == [f"{value:.0f}" for row in rows for value in row] and hatched(ax) == []
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["base", "1 en", "2 zh", "3 ar"]
    framed = {(round(p.get_y() + 0.44), round(p.get_x() + 0.44)) for p in ax.patches}
    assert framed == {(1, 0), (2, 1), (3, 2)}


def test_a_matrix_is_drawn_from_its_file_with_the_best_framed_and_gaps_hatched(tmp_path: Path) -> None:
    one, best = ({"mean": value, "low": value - 1, "high": value + 1, "n": 3} for value in (20.0, 80.0))
    part = {"benchmark": "b", "task": "single", "headline": "Overall, ROUGE-L", "scored": "x"}
    rows = {"base": [one, one], "ike": [best, None]}
    (tmp_path / "matrix.json").write_text(json.dumps({"backbone": "tiny", "columns": [part, part], "rows": rows}))
    ax = matrix_figure(tmp_path).axes[0]
    assert numbers(ax) == ["20", "20", "80"] and hatched(ax) == [(1, 1)]
    assert len([p for p in ax.patches if not p.get_fill()]) == 2, "one frame, dark in light"
    assert [path.name for path in write_figures(tmp_path, formats=["svg"])] == ["matrix.svg"]
    with pytest.raises(UnknownNameError, match="a run inside"):
        write_figures(tmp_path, only=["joint"])
    (tmp_path / "matrix.json").write_text("{}")
    with pytest.raises(DataError, match="write it anew"):
        matrix_figure(tmp_path)
    with pytest.raises(DataError, match="nothing to draw"):
        headline_heatmap("none", [], {})


def test_joint_outcomes_are_shares_of_the_cases_that_add_up(results: Results, every: dict[str, Figure]) -> None:
    ax = every["single_joint"].axes[0]
    widths = np.array([[bar.get_width() for bar in part] for part in ax.containers]).T
    for row, editor in zip(widths, results.editors, strict=True):
        found = results.scores(editor, "single", None).joint
        counts = [found.joint, found.under, found.over, found.both, found.n - found.reliable]
        assert row.tolist() == pytest.approx([100 * count / found.n for count in counts])
    assert widths.sum(axis=1).tolist() == pytest.approx([100.0] * 3)
    assert "local from 80 on" in ax.get_xlabel()


def test_router_outcomes_are_counted_from_the_records_of_editors_that_have_a_router(
    results: Results, every: dict[str, Figure]
) -> None:
    figure = every["sequential_router"]
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["keeper"]
    own, other, alone = ([bar.get_width() for bar in part] for part in figure.axes[0].containers)
    for k, dimension in enumerate(results.run.dimensions("sequential")):
        records = [r for r in final_records(results.records("keeper", "sequential", "en-zh-ar")) if r.dimension == dimension.name]
        entries = [(r.trace.get("entry"), f"edit-{r.step}") for r in records]
        counts = [sum(e == mine for e, mine in entries), sum(e not in (None, mine) for e, mine in entries)]
        assert [own[k], other[k]] == pytest.approx([100 * count / len(records) for count in counts])
        assert own[k] + other[k] + alone[k] == pytest.approx(100)
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["Rel.", "Gen.", "Loc. *"]


def test_the_forest_is_the_comparison_and_fills_what_is_told_apart(compared: Comparison) -> None:
    figure = forest_plot(compared, "single")
    rows = [row for row in compared.rows if row.task == "single"]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["keeper", "forgetter"]
    for ax in figure.axes:
        own = [row for row in rows if row.label == ax.get_title(loc="left")]
        assert drawn_points(ax) == {y: pytest.approx(row.difference.mean) for y, row in enumerate(own)}
        filled = [container.lines[0].get_markerfacecolor() != "white" for container in ax.containers]
        assert filled == [row.distinguishable for row in own]
        assert ax.get_xlim()[0] == -ax.get_xlim()[1]
    assert f"Holm over {compared.tests} tests" in figure.get_supxlabel()
    with pytest.raises(DataError, match="no comparison of task 'x'"):
        forest_plot(compared, "x")


def test_no_two_series_of_bars_look_alike_and_a_missing_one_is_marked() -> None:
    one = Estimate(50, 40, 60, 3)
    figure = bars_plot("t", "score", ["a", "b"], {f"editor {k}": [one, None if k == 3 else one] for k in range(15)})
    looks = {
        (part[0].get_facecolor(), part[0].get_hatch())
        for part in figure.axes[0].containers
        if len(part) and hasattr(part[0], "get_hatch")
    }
    assert len(looks) == 15
    assert "no value" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_figures_are_as_wide_as_a_column_or_two_and_fit_on_a_page(every: dict[str, Figure], tmp_path: Path) -> None:
    names = {"base": None, **{f"{LONG}-{k}": 0.8 for k in range(8)}}
    run = make_run(tmp_path / "run", size=1, editors=names)
    crowded = dict(figures(run, ["dimensions", "groups", "joint"]))
    for key, figure in [*every.items(), *crowded.items()]:
        width, height = figure.get_size_inches()
        assert SINGLE <= width <= DOUBLE and height <= PAGE, key
        assert min(text.get_fontsize() for text in figure.findobj(Text)) >= 6, key


def test_panels_of_long_names_do_not_run_into_each_other(tmp_path: Path) -> None:
    names = {"base": None, **{f"{LONG}-{k}": 0.8 for k in range(3)}}
    figure = retention_heatmap(make_run(tmp_path / "run", size=1, editors=names))
    figure.draw_without_rendering()
    titles = [t for ax in figure.axes for t in (ax.title, ax._left_title, ax._right_title) if t.get_text()]
    boxes = [title.get_window_extent() for title in titles]
    assert len(boxes) == 6
    assert not [(a, b) for k, a in enumerate(boxes) for b in boxes[k + 1 :] if a.overlaps(b)]


# -- letters -----------------------------------------------------------------------------------------------------------


def inflated(part: bytes) -> bytes:
    with contextlib.suppress(zlib.error):
        return zlib.decompress(part)
    return b""


def has_chinese() -> bool:
    return not fonts.missing(CHINESE)


def test_every_character_has_a_glyph_in_the_fonts_of_its_text(tmp_path: Path) -> None:
    if not has_chinese():
        pytest.skip("no font with Chinese characters here: apt-get install fonts-noto-cjk")
    run = make_run(tmp_path / "run", size=1, editors={"base": None, ARABIC: 0.9, CHINESE: 0.8})
    figure = dimension_plot(run)
    shown = list(texts(figure))
    assert {ARABIC, CHINESE} <= {text.get_text() for text in shown} or not fonts._shapes_itself()
    for text in shown:
        opened = [FT2Font(str(findfont(FontProperties(family=name)))) for name in text.get_fontfamily()]
        for c in text.get_text().replace("\n", "").replace("\\$", "$"):
            assert any(font.get_char_index(ord(c)) for font in opened), f"U+{ord(c):04X} in {text.get_text()!r}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Matplotlib warns of each glyph that it has not
        _, pdf = save_plot(figure, tmp_path / "plot", ["png", "pdf"])
    embedded = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf.read_bytes(), re.DOTALL)
    fonts_in_pdf = [data[:4] for part in embedded if (data := inflated(part))[:4] in (b"OTTO", b"\0\1\0\0")]
    assert fonts_in_pdf and b"OTTO" not in fonts_in_pdf, "a PostScript font would be embedded as TrueType"


def test_a_character_that_no_font_has_is_named_in_a_warning_and_drawn_as_its_code_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_latin = fonts._places()[:1]
    monkeypatch.setattr(fonts, "_places", lambda: only_latin)
    fonts._family.cache_clear()
    try:
        with pytest.warns(MissingFontWarning, match=r"no installed font has these Cjk characters: 视 \(U\+89C6\) 觉"):
            figure = bars_plot("t", "score", ["视觉 x"], {"a": [Estimate(50, 40, 60, 3)]})
        assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == [r"\u89c6\u89c9 x"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            save_plot(figure, tmp_path / "plot", ["png"])
    finally:
        fonts._family.cache_clear()


def test_arabic_letters_are_joined() -> None:
    figure = bars_plot("t", "score", ["عععع", "ع"], {"a": [Estimate(50, 40, 60, 3)] * 2})
    figure.set_dpi(400)
    figure.draw_without_rendering()
    word, letter = (tick.get_window_extent().width for tick in figure.axes[0].get_xticklabels())
    assert word < 3.6 * letter, "four letters that stand alone are as wide as four"


def test_where_matplotlib_does_not_shape_arabic_it_is_shaped_and_ordered_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_shapes_itself", lambda: False)
    assert fonts.plain("سلام") == "\ufee1\ufefc\ufeb3", "meem alone, lam-alef, seen at the beginning: from left to right"
    assert fonts.plain("IKE 中文") == "IKE 中文"
    monkeypatch.setattr(fonts, "_shapes_itself", lambda: True)
    assert fonts.plain("سلام") == "سلام"


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_same_run_gives_the_same_bytes_whatever_the_users_style_is(run: Run, tmp_path: Path) -> None:
    first = write_figures(run.path, tmp_path / "a", only=["joint"])
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "pdf.fonttype": 3, "savefig.dpi": 50}):
        second = write_figures(run.path, tmp_path / "b", only=["joint"])
    assert [path.name for path in first] == [path.name for path in second] and len(first) == 6
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_pdf_keeps_its_text_in_truetype_fonts_and_an_svg_is_outlines(every: dict[str, Figure], tmp_path: Path) -> None:
    pdf, svg = save_plot(every["single_dimensions"], tmp_path / "x", ["pdf", "svg"])
    data = pdf.read_bytes()
    assert b"/FontFile2" in data and b"/Type3" not in data and b"CreationDate" not in data
    assert b"<text" not in svg.read_bytes() and b"<dc:date>" not in svg.read_bytes()


def test_figures_can_be_drawn_by_a_judge(run: Run, every: dict[str, Figure], tmp_path: Path) -> None:
    score_run(run, open_judge("dummy"), cache_dir=tmp_path / "cache")
    done = kedit("figures", run.path, "--judge", "dummy", "--only", "dimensions", "--format", "svg", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    from kedit.judging import judge_scoring

    judged = judge_scoring(run, "dummy")
    found = dict(figures(run, ["dimensions", "comparison"], judged=judged))
    assert list(found)[2:] == ["single_comparison", "sequential_comparison"]
    assert all(judged.id in figure.get_supxlabel().replace("\n", " ") for figure in found.values())
    plain = drawn_points(every["single_dimensions"].axes[0])
    assert drawn_points(found["single_dimensions"].axes[0]) != plain


def test_the_command_writes_what_was_asked_for_and_says_what_it_cannot(run: Run, tmp_path: Path) -> None:
    done = kedit("figures", run.path, "--out", tmp_path / "out", "--format", "svg", "--only", "joint", "--only", "router")
    assert done.exit_code == 0, done.output
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted(f"{t}_{k}.svg" for t in ("single", "sequential") for k in ("joint", "router"))
    for words, said in (
        (("--only", "joints"), "Did you mean 'joint'"),
        (("--only", "matrix"), "folder of a matrix"),
        (("--format", "eps"), "unknown format of figures 'eps'"),
        (("--judge", "nobody"), "kedit score"),
    ):
        failed = kedit("figures", run.path, "--out", tmp_path / "no", *words)
        assert failed.exit_code == 1 and said in failed.output, failed.output
    assert not (tmp_path / "no").exists()
    bare = make_run(tmp_path / "bare", size=1, editors={"base": None})
    none = kedit("figures", bare.path, "--only", "router")
    assert none.exit_code == 1 and "has no figure of router" in none.output


def test_a_run_without_editors_has_no_figures_and_says_so(tmp_path: Path) -> None:
    run = evaluate({}, FakeBackbone(), FakeBenchmark(1), out=tmp_path / "run", cache_dir=tmp_path / "cache")
    with pytest.raises(DataError, match="has no figure of"):
        write_figures(run.path, tmp_path / "figures")
