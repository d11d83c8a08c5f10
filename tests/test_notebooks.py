"""The notebooks run, are short, and are kept without outputs; the editor of one is used from the command line.

With KEDIT_WHOLE_NOTEBOOKS set they run as they stand, else on fewer cases, so that all take less than a minute.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kedit
from kedit.cli import main

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
IN_A_KERNEL = "02_train_a_router"
"""Run by a real kernel, since it draws through pyplot and through kedit's own figures; the others run in this process."""
SHORTER = {
    "limit=2": "limit=1",
    "limit=4": "limit=1",
    "limit=5": "limit=2",
    "limit=20": "limit=4",
    '"limit": 8': '"limit": 2',
    "epochs=6": "epochs=2",
    "kedit.FineTune()": "kedit.FineTune(steps=2)",
}
METHOD = ROOT / "notebooks" / "04_your_own_method.ipynb"


def read(notebook: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    return found


def code(notebook: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in read(notebook)["cells"] if cell["cell_type"] == "code"]


def shorter(source: str) -> str:
    if os.environ.get("KEDIT_WHOLE_NOTEBOOKS"):
        return source
    pattern = "|".join(rf"{re.escape(name)}(?!\d)" for name in SHORTER)
    return re.sub(pattern, lambda found: SHORTER[found.group()], source)


def stem(notebook: Path) -> str:
    return notebook.stem


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: notebooks ask the unedited model the same questions."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder, and a temporary one below it, so that everything that a notebook leaves can be seen."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("KEDIT_CACHE", str(cache))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    yield work
    assert {path.name for path in work.iterdir()} <= {"runs"}


def run_cell(source: str, scope: dict[str, Any], name: str) -> object:
    """Execute a cell as a notebook does; gives the value of its last expression."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), scope)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), scope)


def shown(value: object) -> str:
    """What a notebook would show of a value: its table, its picture, or its text."""
    picture = getattr(value, "_repr_png_", lambda: None)()
    assert picture is None or picture.startswith(b"\x89PNG")
    return getattr(value, "_repr_html_", lambda: "" if picture else repr(value))()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=stem)
def test_a_notebook_is_short_and_holds_no_outputs(notebook: Path) -> None:
    cells = read(notebook)["cells"]
    assert sum(bool(line.strip()) for cell in code(notebook) for line in cell.splitlines()) < 60
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    assert cells[0]["cell_type"] == "markdown" and "".join(cells[0]["source"]).startswith("# ")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=stem)
def test_a_notebook_needs_nothing_but_what_kedit_brings(notebook: Path) -> None:
    tops = set()
    for cell in code(notebook):
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.Import):
                tops |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                tops.add(str(node.module).partition(".")[0])
    assert tops <= {"kedit", "matplotlib", "PIL", "json", "tempfile", "pathlib", "dataclasses"}


@pytest.mark.slow
@pytest.mark.parametrize("notebook", [n for n in NOTEBOOKS if n.stem != IN_A_KERNEL], ids=stem)
def test_a_notebook_runs_from_any_folder_and_leaves_nothing_outside_runs(notebook: Path, folder: Path) -> None:
    scope: dict[str, Any] = {}
    texts = [shown(run_cell(shorter(cell), scope, notebook.name)) for cell in code(notebook)]
    assert any("<table" in text for text in texts)  # every notebook ends in a table somewhere


@pytest.mark.slow
def test_a_kernel_shows_progress_tables_and_figures_as_pictures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND")  # the kernel has its own, which draws into the notebook
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(ROOT / "notebooks" / f"{IN_A_KERNEL}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = shorter(cell.source) if cell.cell_type == "code" else cell.source
    progress = nbformat.v4.new_code_cell(
        "run = kedit.evaluate(kedit.Base(), backbone, bench, tasks='single', limit=1, progress=kedit.progress)\nrun"
    )
    notebook.cells.append(progress)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 3  # pyplot's, and two of kedit's own
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert any("text/markdown" in output.get("data", {}) for output in outputs)
    line, table = notebook.cells[-1]["outputs"]
    assert line["data"]["text/plain"] == "base single: 2 of 2"
    assert "<table>" in table["data"]["text/html"]


@pytest.mark.slow
def test_the_method_of_a_notebook_is_an_editor_on_the_command_line(folder: Path) -> None:
    cell = next(cell for cell in code(METHOD) if "class Reminder" in cell)
    method = cell[cell.index("class Reminder") :]
    assert len(method.splitlines()) <= 25
    (folder.parent / "my_editor.py").write_text(cell, encoding="utf-8")
    spec = "../my_editor.py:Reminder"
    checked = CliRunner().invoke(main, ["check", spec])
    assert checked.exit_code == 0 and re.match(r"Reminder\(header='Note:'\): \d+ promises kept", checked.output)
    words = ["run", "--editors", f"{spec},mcki", "--protocols", "sequential", "--limit", "1", "--out", "runs/mine"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    run = kedit.Run.load("runs/mine")
    rows = {line.split()[0] for line in repr(run).splitlines() if line.strip()}
    assert {"base", "reminder", "mcki"} <= rows
    assert [ax.get_title("left") for ax in kedit.retention(run).plot("step").axes] == ["reminder", "mcki"]


def test_the_methods_of_notebooks_and_of_the_readme_are_the_same() -> None:
    cell = next(cell for cell in code(METHOD) if "class Reminder" in cell)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert cell[cell.index("class Reminder") :].strip() in readme


def test_the_page_of_notebooks_names_each() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\d\d_\w+\.ipynb)`", page)) == {notebook.name for notebook in NOTEBOOKS}
