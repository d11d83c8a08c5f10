"""What ``import kedit`` gives, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


NAMES = ("benchmark", "editor", "evaluate", "report")


@pytest.mark.parametrize("before", ["", "import kedit.{0}", "from kedit.{0} import *"])
def test_functions_stay_functions_although_modules_share_their_names(before: str) -> None:
    lines = [before.format(name) for name in NAMES]
    shown = [f"print(type(kedit.{name}).__name__, type(kedit.{name}).__name__)" for name in NAMES]
    assert python("\n".join(["import kedit", *lines, *shown])).split() == ["function"] * 8


def test_importing_kedit_and_its_command_line_loads_nothing_heavy() -> None:
    heavy = "('torch', 'transformers', 'matplotlib', 'numpy', 'faiss')"
    code = f"import kedit, kedit.cli, sys\nprint([m for m in {heavy} if m in sys.modules])"
    assert python(code) == "[]"


def test_every_public_name_is_there() -> None:
    import kedit

    names = [name for name in dir(kedit) if not name.startswith("_")]
    assert {"Base", "FineTune", "LoRA", "IKE", "load_backbone", "Request"} <= set(names)
    for name in names:
        assert getattr(kedit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        _ = kedit.evalute
