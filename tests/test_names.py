"""Names stay where they belong: a method's in its own file, a model family's in families.py, a benchmark's in its own file."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import kedit
from kedit.benchmarks import BENCHMARKS
from kedit.methods import EDITORS

ROOT = Path(kedit.__file__).parent
FAMILY_NAMES = ("internvl", "qwen", "llava", "smolvlm", "idefics", "gemma", "paligemma", "gpt2", "siglip")
UNSPECIFIC = {
    "base": "an everyday word: base answers, base class",
    "visual": "visual tokens, visual knowledge",
    "textual": "what is text",
    "oracle": "the document that a question is about",
    "retrieved": "what a search found",
}
"""Names that are also words of another meaning, which a search cannot tell apart."""
SETTINGS = "zoo/catalogue.py"
"""Says which settings of editors suit a model that is part of the package."""
CARD = "zoo/measure.py"
"""Writes the card of a shipped model, which says what the model was not trained on."""
DEFAULTS = {"cli.py", "commands/shared.py"}
"""Chooses what a command does when nothing is named, and shows examples."""


@cache
def sources() -> dict[str, str]:
    """The code of every file, without comments and docstrings, which may give examples."""
    return {path.relative_to(ROOT).as_posix(): code(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def code(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(part: ast.stmt) -> bool:
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)


def using(pattern: str, allowed: set[str]) -> list[str]:
    """Lines outside the allowed files that match, as "file: line"."""
    found = []
    for name, text in sources().items():
        if name not in allowed:
            found += [f"{name}: {line.strip()}" for line in text.splitlines() if re.search(pattern, line, re.IGNORECASE)]
    return found


def file_of(place: str) -> str:
    return place.rpartition(":")[0].removeprefix("kedit.").replace(".", "/") + ".py"


@pytest.mark.parametrize("name", sorted(EDITORS.keys() - UNSPECIFIC))
def test_a_methods_name_stands_only_in_its_own_file_and_in_the_list_of_editors(name: str) -> None:
    own = file_of(EDITORS[name])
    assert re.search(rf"\b{name}\b", sources()[own], re.IGNORECASE), "the search finds the name where it must be"
    assert using(rf"\b{name}\b", {own, "methods/__init__.py", SETTINGS, *DEFAULTS}) == []


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_a_benchmarks_name_stands_only_in_its_own_file_and_in_the_list_of_benchmarks(name: str) -> None:
    folder = {file for file in sources() if file.startswith("benchmarks/")}
    assert using(rf"\b{re.escape(name)}\b", {*folder, CARD, *DEFAULTS}) == []


def test_a_model_familys_name_stands_only_in_the_table_of_families() -> None:
    presets = {file for file in sources() if file.startswith("zoo/")}
    pattern = "|".join(FAMILY_NAMES)
    assert re.search(pattern, sources()["families.py"], re.IGNORECASE)
    assert using(pattern, {"families.py", *presets, *DEFAULTS}) == []
