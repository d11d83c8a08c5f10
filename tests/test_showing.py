"""Progress as one line: in a terminal, in a notebook's cell, and nowhere else; and what shows itself in a notebook."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from samples import picture

import kedit
from kedit.plots.shown import Shown
from kedit.showing import Line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_in_a_terminal_the_line_is_written_over_and_ends_when_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    line = Line()
    line("mcki", "single", 0, 2)
    line("mcki", "single", 2, 2)
    assert sys.stderr.getvalue() == "\r\x1b[Kmcki single: 0 of 2\r\x1b[Kmcki single: 2 of 2\n"  # type: ignore[attr-defined]


def test_in_a_file_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    Line()("mcki", "single", 0, 2)
    assert sys.stderr.getvalue() == ""


def test_a_training_is_told_with_its_values_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    told: list[str] = []
    line = Line()
    monkeypatch.setattr(line, "_show", lambda text, whole: told.append(text))
    line(1, 5, {"loss": 0.51234, "epoch": 1.0})
    line(2, 5, {"loss": 0.25, "epoch": 1.0})
    assert told == ["step: 1 of 5, loss 0.512", "step: 2 of 5, loss 0.25, 6 s left"]


def test_what_comes_fast_is_shown_now_and_then_but_the_end_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 1.0)
    told: list[str] = []
    line = Line()
    monkeypatch.setattr(line, "_show", lambda text, whole: told.append(text))
    for done in range(4):
        line("base", "single", done, 3)
    assert told == ["base single: 0 of 3", "base single: 3 of 3"]


def test_a_cell_of_a_notebook_has_one_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[str]] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Any:
        made.append([data["text/plain"]])
        return SimpleNamespace(update=lambda data, raw, at=made[-1]: at.append(data["text/plain"]))

    shell = SimpleNamespace(execution_count=1, kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    line = Line()
    line("base", "single", 0, 1)
    line("base", "single", 1, 1)
    shell.execution_count = 2
    line("base", "single", 0, 1)
    assert made == [["base single: 0 of 1", "base single: 1 of 1"], ["base single: 0 of 1"]]


def test_an_image_shows_itself_in_its_own_format() -> None:
    drawn = picture(1)
    assert drawn._repr_png_() == drawn.read() and drawn._repr_jpeg_() is None
    photograph = kedit.ImageRef(data=b"\xff\xd8\xff\xe0")
    assert photograph._repr_jpeg_() == photograph.read() and photograph._repr_png_() is None


def test_a_figure_that_pyplot_did_not_make_shows_itself() -> None:
    figure = Shown(figsize=(1, 1))
    figure.subplots().plot([1, 2])
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_an_editor_for_a_backbone_has_the_parameters_that_it_asks_for() -> None:
    tiny, other = SimpleNamespace(id="tiny-internvl"), SimpleNamespace(id="someone/else")
    assert kedit.editor("mcki", tiny).dim == 256
    assert kedit.editor("mcki", tiny, dim=8).dim == 8
    assert kedit.editor("mcki", other).get_params() == kedit.editor("mcki").get_params()
