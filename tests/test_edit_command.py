"""``kedit edit``: scripts with exit codes, a prompt that survives errors and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fakes
import pytest
from click.testing import CliRunner, Result
from fakes import FakeBackbone, Prepend
from samples import A

from kedit.cli import main
from kedit.commands.edit import Shell
from kedit.live.session import Session

EDITOR = f"{fakes.__file__}:Prepend"
Run = Callable[..., Result]


@pytest.fixture
def kedit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command on the fake backbone, in a folder of its own."""
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("kedit.backbone.load_backbone", lambda name, **_: FakeBackbone())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(A.read())

    def run(*words: str, script: str | bytes = "") -> Result:
        return CliRunner().invoke(main, ["edit", "--editor", EDITOR, *words], input=script)

    return run


def test_a_script_inserts_asks_lists_takes_back_and_saves(kedit: Run) -> None:
    done = kedit(
        script="""# what follows is a script

insert "What is it?" "A clock." --image a.png --title Clock
insert 送礼物？ 红钟。
ask What is shown here? --image a.png
list
remove 1
save kept
quit
ask never
"""
    )
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "  1  en  What is it? -> A clock.  [1 image]"
    assert lines[1] == "  2  zh  送礼物？ -> 红钟。"
    assert lines[2].startswith("before   ") and lines[3].startswith("after    ")
    assert lines[4:6] == lines[:2]
    assert lines[6] == "taken back:   1  en  What is it? -> A clock.  [1 image]"
    assert lines[7:] == ["1 entry saved to kept"]
    again = kedit("--load", "kept", "-c", "list", "-c", "undo")
    assert again.stdout.splitlines() == ["  2  zh  送礼物？ -> 红钟。", "there is no insert to take back"]


def test_an_error_is_told_with_its_line_and_the_script_goes_on_to_a_status_of_1(kedit: Run) -> None:
    script = 'insert "A?"\nask\nask "" \nfrobnicate\nask What\'s this\nremove x\nremove 7\nask hi --image gone.png\nlist\n'
    done = kedit(script=script)
    assert done.exit_code == 1 and "Traceback" not in done.output
    told = done.stderr.splitlines()
    assert [line.partition(": Error: ")[0] for line in told] == [f"line {n}" for n in range(1, 9)]
    reasons = ["not exist", "Missing", "empty", "frobnicate", "double quotes", "not a valid int", "no entry 7", "gone.png"]
    for line, said in zip(told, reasons, strict=True):
        assert said in line
    assert done.stdout == "nothing is inserted\n"
    stopped = kedit("--stop-on-error", script="frobnicate\nlist\n")
    assert stopped.exit_code == 1 and stopped.stdout == ""


def test_a_line_that_is_not_utf_8_is_an_error_and_not_a_question(kedit: Run) -> None:
    done = kedit(script="ask \u00e9t\u00e9\n".encode("latin-1") + b"list\n")
    assert done.exit_code == 1 and "not UTF-8" in done.stderr and done.stdout == "nothing is inserted\n"


def test_json_has_one_object_a_command(kedit: Run) -> None:
    done = kedit("--json", "-c", "insert A? a", "-c", "ask 'Which?'", "-c", "remove 3", "-c", "undo", "-c", "history")
    assert done.exit_code == 1
    inserted, asked, wrong, undone, history = map(json.loads, done.stdout.splitlines())
    assert inserted["inserted"][0]["number"] == 1 and undone["removed"][0]["answer"] == "a"
    assert asked["before"] != asked["after"] and asked["changed"] and asked["language"] == "en"
    assert "no entry 3" in wrong["error"] and wrong["at"] == "line 3"
    assert history["history"][:2] == ["insert A? a", "ask 'Which?'"]


def test_a_file_is_inserted_and_options_with_it_are_refused(kedit: Run, tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text('{"question": "A?", "answer": "a"}\n{"question": "B?", "answer": "b"}\n')
    done = kedit("-c", "insert new.jsonl", "-c", "insert new.jsonl --title x", "-c", "insert a b c")
    assert len(done.stdout.splitlines()) == 2 and "fields for them" in done.stderr and "got 3 texts" in done.stderr


def test_an_answer_cannot_steer_the_terminal(kedit: Run) -> None:
    done = kedit(script='insert "A?" "\x1b[31mred\u202e"\n')
    assert "\x1b" not in done.output and "\\x1b[31mred\\u202e" in done.output


def test_help_names_every_command(kedit: Run) -> None:
    done = kedit("-c", "help", "-c", "insert --help")
    assert done.exit_code == 0
    for word in ("ask", "help", "history", "insert", "list", "load", "remove", "reset", "save", "undo", "--image"):
        assert word in done.stdout


def test_an_editor_that_can_keep_what_single_removal_needs_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kedit.commands.live import _editor

    own = f"{fakes.__file__}:AddNoise"
    assert _editor(own, (), "fake", None).get_params()["removable"] is True
    assert _editor(f"{own}:removable=False,size=0.2", (), "fake", None).get_params()["size"] == 0.2
    assert _editor(own, (f"{own}.removable=False",), "fake", None).get_params()["removable"] is False


def test_the_prompt_survives_errors_and_ctrl_c_and_asks_before_unsaved_edits_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Prepend):
        def generate(self, requests: Any) -> Any:
            raise KeyboardInterrupt if "slow" in requests[0].question else RuntimeError("out of luck")

    typed: Iterator[Any] = iter(["insert A? a", "ask fast", "ask slow", KeyboardInterrupt(), "list", EOFError(), "quit"])
    sure = iter([False, True])

    def read(prompt: str) -> str:
        line = next(typed)
        if isinstance(line, BaseException):
            raise line
        return str(line)

    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path))
    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr("click.confirm", lambda *_, **__: next(sure))
    Shell(Session(FakeBackbone(), Broken())).converse()
    shown = capsys.readouterr()
    assert "RuntimeError: out of luck" in shown.err and shown.err.count("interrupted") == 2
    assert shown.out.count("A? -> a") == 2 and next(typed, None) is None


SLOW = """
import sys, time
sys.path.insert(0, {tests!r})
from fakes import FakeBackbone, Prepend
from kedit.commands.edit import Shell
from kedit.live.session import Session

class Slow(FakeBackbone):
    def generate(self, requests, *, max_new_tokens=64):
        if "slow" in requests[0].question:
            print("thinking", flush=True)
            while True:
                time.sleep(0.01)
        return super().generate(requests, max_new_tokens=max_new_tokens)

Shell(Session(Slow(), Prepend())).converse()
"""


def test_ctrl_c_at_a_terminal_ends_the_answer_and_not_the_session(tmp_path: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(KEDIT_CACHE=str(tmp_path), TERM="dumb")
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests that run in the background have been told to ignore it
        os.execv(sys.executable, [sys.executable, "-c", SLOW.format(tests=str(Path(__file__).parent))])
    seen = ""

    def until(text: str) -> None:
        nonlocal seen
        end = time.monotonic() + 120
        while text not in seen:
            assert time.monotonic() < end, seen
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 4096).decode()
        seen = seen.partition(text)[2]

    until("kedit> ")
    os.write(terminal, b"ask slow\n")
    until("thinking")
    os.write(terminal, b"\x03")
    until("interrupted")
    until("kedit> ")
    os.write(terminal, b"ask quick\n")
    until("after    ")
    os.write(terminal, b"quit\n")
    assert os.waitpid(child, 0)[1] == 0
    os.close(terminal)
