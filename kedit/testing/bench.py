"""What the checks of the Editor contract share: an editor's life on a backbone, and how a broken promise is told."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor

from kedit.backbone import Backbone
from kedit.editor import Editor
from kedit.generators import set_generators
from kedit.testing.modelstate import ModelState
from kedit.types import Answer, Case, Knowledge, Request


class Broken(Exception):
    """A promise is broken; the message says how, and what to do."""


class Bench:
    """What the checks share: copies of the editor, one of which is attached and fitted once, and what was seen so far."""

    def __init__(self, given: Editor, backbone: Backbone, cases: Sequence[Case], state: ModelState) -> None:
        self.given = given
        self.backbone = backbone
        self.cases = cases
        self.state = state
        self.facts: list[Knowledge] = list(dict.fromkeys(knowledge for case in cases for knowledge in case.chain))
        if len(self.facts) < 2:
            raise ValueError(f"the cases hold {len(self.facts)} item(s) of knowledge; give at least two different ones")
        asked = [case.chain[0].request for case in cases] + [probe.request for case in cases for probe in case.probes]
        self.requests: list[Request] = list(dict.fromkeys(asked))[:6]
        self.parameters = repr(given.get_params())

    @cached_property
    def editor(self) -> Editor:
        """The copy that lives through the checks."""
        return self.copy()

    @cached_property
    def base(self) -> list[str]:
        """What the unedited backbone says to ``requests``."""
        return [answer.text for answer in self.backbone.generate(self.requests)]

    @cached_property
    def first(self) -> tuple[list[str], dict[str, Tensor]]:
        """Answers and weights after the very first insert, which is the state in which this is first looked at."""
        return self.answers(), self.state.copy_weights()

    def copy(self) -> Editor:
        return type(self.given)(**self.given.get_params())

    def insert(self, fact: Knowledge, editor: Editor | None = None) -> str:
        """Insert with all generators at the same start, so that an editor that draws numbers draws the same."""
        set_generators(0)
        return (editor or self.editor).insert(fact)

    def reset(self) -> None:
        self.editor.reset()
        self.unchanged("reset()")

    def answers(self, editor: Editor | None = None, requests: Sequence[Request] | None = None) -> list[str]:
        requests = self.requests if requests is None else requests
        found = (editor or self.editor).generate(requests)
        hold(isinstance(found, list | tuple), f"generate() gave {type(found).__name__}; give a list of answers")
        got = f"generate() gave {len(found)} answers to {len(requests)} requests"
        hold(len(found) == len(requests), f"{got}; give one for each, in their order")
        wrong = next((answer for answer in found if not isinstance(answer, Answer | str)), None)
        hold(wrong is None, f"generate() gave {type(wrong).__name__} as an answer; give Answer(text) or a string")
        return [answer if isinstance(answer, str) else answer.text for answer in found]

    def unchanged(self, after: str) -> None:
        """The backbone is exactly as it was before the checks."""
        names = self.state.changed_weights()
        hold(not names, f"after {after} weights differ from before ({', '.join(names[:3])}); put back what you touch, in finally")
        self.rest_unchanged(after)

    def rest_unchanged(self, after: str) -> None:
        rest = self.state.changed_rest()
        hold(not rest, f"after {after} {'; '.join(rest[:3])}; leave the backbone as you found it, in finally")


def hold(condition: bool, detail: str) -> None:
    """Raise ``Broken`` unless the condition holds."""
    if not condition:
        raise Broken(detail)


def returns_self(found: object, editor: Editor, what: str) -> None:
    """Raise ``Broken`` unless a method gave back its editor."""
    hold(found is editor, f"{what} returned {type(found).__name__}; return self")


def raises(expected: type[Exception], use: Callable[[], Any], what: str) -> None:
    """Raise ``Broken`` unless ``use`` raises the expected error."""
    try:
        use()
    except expected:
        return
    except Exception as error:
        raise Broken(f"{what} raised {type(error).__name__} ({error}), expected {expected.__name__}") from error
    raise Broken(f"{what} raised nothing, expected {expected.__name__}; call the base class's method first")


def same_answers(found: Sequence[str], expected: Sequence[str], what: str, whose: str) -> None:
    """Raise ``Broken`` at the first answer that differs."""
    for at, (one, other) in enumerate(zip(found, expected, strict=True)):
        hold(one == other, f"answers {what} differ from {whose}: number {at} is {one!r}, expected {other!r}")


def no_pickles(folder: str) -> None:
    """Raise ``Broken`` when a file in the folder is a pickle, or a zip archive that holds one."""
    for file in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
        with file.open("rb") as opened:
            start = opened.read(2)
        pickled = len(start) == 2 and start[0] == 0x80 and 2 <= start[1] <= 5
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                pickled = any(name.endswith(".pkl") for name in archive.namelist())
        hold(not pickled, f"{file.name} is a pickle, which can run code when opened; use kedit.artefacts (safetensors and JSON)")


@contextmanager
def failing(backbone: Backbone, call: int) -> Iterator[None]:
    """Inside the block the ``call``-th pass through the last layer raises an error."""
    passes = 0

    def fail(*_: object) -> None:
        nonlocal passes
        passes += 1
        if passes == call:
            _fault()

    hook = backbone.layers[-1].register_forward_pre_hook(fail)
    try:
        yield
    finally:
        hook.remove()


def _fault() -> NoReturn:
    raise RuntimeError("an error made on purpose, to see what insert() leaves behind")
