"""The documentation says what is: its commands, options, links and snippets are those of the package."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from kedit.benchmarks import BENCHMARKS
from kedit.benchmarks.lifelong import Lifelong
from kedit.cli import main
from kedit.methods import EDITORS, editor

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
EXECUTED = sorted([DOCS / "tutorial.md", DOCS / "pitfalls.md", *DOCS.glob("concepts/*.md"), *DOCS.glob("howto/*.md")])
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:kedit|accelerate launch) [^`]+)`")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


class Command(NamedTuple):
    """A command as a page shows it; one in a block of its own is meant to be typed as it stands."""

    page: str
    words: tuple[str, ...]
    whole: bool


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """(language, text) of the fenced blocks of a page."""
    for _, language, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        yield language, textwrap.dedent(text)


def commands(page: Path) -> Iterator[Command]:
    for language, text in blocks(page):
        if language in ("", "bash", "sh", "console", "shell"):
            for line in text.replace("\\\n", " ").splitlines():
                if re.match(r"\s*(\$ )?(kedit|accelerate launch) ", line):
                    yield Command(name_of(page), tuple(shlex.split(line.strip().removeprefix("$ "), comments=True)), True)
    for text in _INLINE.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        yield Command(name_of(page), tuple(shlex.split(text)), False)


def typed(words: tuple[str, ...]) -> list[str]:
    """What follows the program's name."""
    return list(words[1:] if words[0] == "kedit" else words[words.index("kedit.cli") + 1 :])


def called(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words name, and the words after its name."""
    found: click.Command = main
    while isinstance(found, click.Group) and words and not words[0].startswith("-"):
        inner = found.get_command(click.Context(found), words[0])
        assert inner is not None, f"there is no command {words[0]!r} in {found.name!r}"
        found, words = inner, words[1:]
    return found, words


def given(found: click.Command, words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Values by option, and the other words; fails for an option that the command does not have."""
    options = {name: p for p in found.params if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)}
    values: dict[str, list[str]] = {}
    others, words = [], list(words)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            others.append(word)
            continue
        if name in ("--help", "-h", "--version"):
            continue
        assert name in options, f"{found.name!r} has no option {name}"
        option = options[name]
        takes = 0 if option.is_flag or option.count or equals else option.nargs
        values.setdefault(option.opts[0], []).extend([value] if equals else words[:takes])
        del words[:takes]
    return values, others


def editors_exist(values: dict[str, list[str]]) -> None:
    for listed in values.get("--editors", []):
        for spec in re.split(r",(?![^:,]*=)", listed):
            short = spec.partition(":")[0]
            assert short in EDITORS or ":" in spec, f"there is no editor {spec!r}"
    for setting in values.get("--set", []):
        short, _, parameter = setting.partition("=")[0].partition(".")
        if short in EDITORS:
            assert parameter in inspect.signature(type(editor(short))).parameters, f"{short} has no parameter {parameter!r}"
        elif short == "lifelong":
            assert parameter in [field.name for field in fields(Lifelong)], f"a long chain has no option {parameter!r}"


def shown(command: Command) -> str:
    return f"{command.page}: {' '.join(command.words)[:70]}"


@pytest.mark.parametrize("command", [c for page in PAGES for c in commands(page)], ids=shown)
def test_a_command_that_a_page_shows_exists_with_all_its_options(command: Command) -> None:
    found, words = called(typed(command.words))
    if isinstance(found, click.Group):
        assert not words or words[0].startswith("-")
        return
    values, others = given(found, words)
    if found.name in ("run", "matrix", "train"):
        editors_exist(values)
    for name in values.get("--benchmark", []):
        assert name.partition(":")[0] in BENCHMARKS or ".py:" in name or name.isupper(), f"there is no benchmark {name!r}"
    if command.whole:
        missing = [p.opts[0] for p in found.params if isinstance(p, click.Option) and p.required and p.opts[0] not in values]
        assert not missing, f"needs {missing}"
        needed = [p for p in found.params if isinstance(p, click.Argument) and p.required]
        assert len(others) >= len(needed), f"needs {[p.name for p in needed]}"


def test_the_check_of_commands_would_find_a_wrong_one() -> None:
    with pytest.raises(AssertionError, match="no command 'rum'"):
        called(["rum", "--out", "x"])
    found, words = called(["run", "--limits", "3"])
    with pytest.raises(AssertionError, match="no option --limits"):
        given(found, words)
    with pytest.raises(AssertionError, match="no parameter 'demo'"):
        editors_exist({"--set": ["ike.demo=4"]})
    with pytest.raises(AssertionError, match="no editor 'finetuned'"):
        editors_exist({"--editors": ["base,finetuned"]})


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_on_a_page_compiles(page: Path) -> None:
    for language, text in blocks(page):
        if language in ("python", "py"):
            compile(text, name_of(page), "exec")


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=name_of)
def test_python_on_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))  # what is shown is computed, not remembered
    names: dict[str, Any] = {"__name__": "page"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, name_of(page), "exec"), names)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_of_pages_outside_the_site_resolve(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        assert re.match(r"https?:", target) or (page.parent / target).exists(), target


# -- the site ----------------------------------------------------------------------------------------------------------


def navigation(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from navigation(inner)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = sorted(navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert listed == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_nothing_of_other_places(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= len(list(DOCS.rglob("*.md")))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loads = re.findall(
            r"<(?:script|img|iframe|source|link|video|audio|object|embed)\b[^>]*?\b(?:src|srcset|href|data)=\S+", text
        )
        assert not [tag for tag in loads if re.search(r"""=["']?(?:https?:)?//""", tag)], page
        assert len(re.findall(r"<h1\b", text)) == 1, f"{page}: one title; a line that begins with # may be meant as text"
        assert 'class="mermaid"' not in text, f"{page}: the theme would fetch what draws it"
    for file in site.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", file.read_text(encoding="utf-8")), file


@pytest.mark.slow
def test_the_api_says_what_docstrings_say(site: Path) -> None:
    text = (site / "api" / "run.html").read_text(encoding="utf-8")
    assert 'id="kedit.evaluate.evaluate"' in text
    assert "Insert, ask and record every case of a benchmark with every editor" in text


@pytest.mark.slow
def test_the_search_works_on_pages_opened_from_a_disk(site: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", f"--user-data-dir={tmp_path}"]
    address = f"{(site / 'index.html').as_uri()}?q=threshold"
    done = subprocess.run([browser, *flags, "--dump-dom", address], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.count("md-search-result__item") >= 3
