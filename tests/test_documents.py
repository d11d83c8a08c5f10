"""What the README shows is run, so that it stays true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_five_lines_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    code = next(block for block in blocks("python") if "kedit.evaluate(" in block).replace("limit=5", "limit=1")
    assert len([line for line in code.splitlines() if line.strip()]) <= 6  # the import and five lines
    scope: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert (tmp_path / "my-report" / "index.html").exists()
    assert "finetune" in repr(scope["run"])


def test_the_editor_of_the_readme_is_short() -> None:
    """It is the editor of a notebook, whose test runs it."""
    code = next(block for block in blocks("python") if "check_editor" in block)
    assert len([line for line in code.splitlines() if line.strip()]) <= 25


def test_commands_in_the_readme_exist() -> None:
    from click.testing import CliRunner

    from kedit.cli import main

    commands = set(
        re.findall(r"^\s*kedit ([a-z]+(?: [a-z]+)?)", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    assert {"run", "check"} <= {command.split()[0] for command in commands}
    for command in commands:
        group = command.split()[:1] if command.split()[0] not in ("data", "zoo") else command.split()
        result = CliRunner().invoke(main, [*group, "--help"])
        assert result.exit_code == 0, result.output
