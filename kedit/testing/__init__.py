"""The Editor contract as code: ``check_editor`` runs every promise; small cases and a small backbone to run it on."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from kedit.answers import limited
from kedit.backbone import Backbone
from kedit.editor import Editor
from kedit.errors import ContractError, KeditError, RequestError
from kedit.testing.bench import Bench, Broken
from kedit.testing.contract import CHECKS, Check
from kedit.testing.modelstate import ModelState
from kedit.types import Case, ImageRef, Knowledge, Probe, Request

_TOKENS = 8
"""New tokens per answer while checking: enough to tell answers apart."""
_QUESTIONS = {
    "en": ("What is this?", "Why is it here?", "Who brought it?", "What would you say?"),
    "zh": ("这是什么?", "它为什么在这里?", "是谁带来的?", "你会怎么说?"),
    "ar": ("ما هذا؟", "لماذا هو هنا؟", "من أحضره؟", "ماذا ستقول؟"),
}
_ANSWERS = {"en": "A gift, number {}.", "zh": "第{}件礼物。", "ar": "هدية رقم {}."}


@dataclass(frozen=True, repr=False)
class Report:
    """What was checked: promises that were kept, and those that do not concern this kind of editor."""

    editor: str
    kept: tuple[str, ...]
    not_concerned: tuple[str, ...] = ()

    def __repr__(self) -> str:
        lines = [f"{self.editor}: {len(self.kept)} promises kept", *(f"  kept: {text}" for text in self.kept)]
        return "\n".join([*lines, *(f"  does not concern it: {text}" for text in self.not_concerned)])


def check_editor(editor: Editor, backbone: Backbone | None = None, cases: Sequence[Case] | None = None) -> Report:
    """Run every promise of the Editor contract and return which were kept; raises ContractError naming the one that was not.

    The editor given is only looked at; copies made from its parameters are attached, fitted once and edited. ``backbone``
    defaults to ``toy_backbone()`` and is left as it was, whatever the editor does to it. ``cases`` (at least two items of
    knowledge in all, default ``toy_cases()``) are used to fit, to insert and to ask.
    """
    if not isinstance(editor, Editor):
        raise ContractError(f"expected an instance of a subclass of kedit.Editor, such as MyEditor(); got {editor!r}")
    backbone = toy_backbone() if backbone is None else backbone
    cases = _cases_for(backbone) if cases is None else cases
    state = ModelState(backbone)
    kept: list[str] = []
    not_concerned: list[str] = []
    try:
        with limited(backbone, _TOKENS):
            bench = Bench(editor, backbone, cases, state)
            for text, check in CHECKS:
                (not_concerned if _run(bench, text, check) else kept).append(text)
    finally:
        state.restore()
    return Report(repr(editor), tuple(kept), tuple(not_concerned))


def _run(bench: Bench, text: str, check: Check) -> bool:
    """Whether a promise does not concern the editor; raises ContractError where it is broken."""
    who = type(bench.given).__name__
    try:
        return check(bench) is False
    except Broken as broken:
        raise ContractError(f"{who} breaks the promise {text!r}: {broken}") from broken.__cause__
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ContractError(f"{who} breaks the promise {text!r}: it failed with {reason}") from error


def toy_cases(n: int = 3, *, images: bool = True) -> list[Case]:
    """``n`` cases of one item each, in English, Chinese and Arabic in turn, with images drawn in memory."""
    return [_toy_case(number, list(_QUESTIONS)[number % 3], images) for number in range(n)]


def _toy_case(number: int, language: str, images: bool) -> Case:
    shown = (_drawn(number),) if images else ()
    other = (_drawn(number + 100),) if images else ()
    inserted, again, elsewhere, further = _QUESTIONS[language]
    answer = _ANSWERS[language].format(number)
    request = Request(f"{inserted} ({number})", shown, language)
    probes = (
        Probe("reliability", request, answer),
        Probe("generality", Request(f"{again} ({number})", other, language), answer),
        Probe("locality", Request(f"{elsewhere} ({number})", other, language), None),
        Probe("locality", Request(f"{further} ({number})", (), language), None),
    )
    return Case(f"toy-{number}", (Knowledge(request, answer, title="a gift", text=answer),), probes, {"raw": f"toy-{number}"})


def _drawn(number: int) -> ImageRef:
    """A 48 x 48 picture with a coloured disc; another number, another picture."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (48, 48), (255 - number * 37 % 200, number * 91 % 256, number * 53 % 256))
    left = number % 20
    ImageDraw.Draw(image).ellipse((left, 8, left + 24, 32), fill=(number * 29 % 256, 200 - number * 17 % 200, 30))
    file = io.BytesIO()
    image.save(file, "PNG")
    return ImageRef(data=file.getvalue())


def toy_backbone() -> Backbone:
    """A new copy of the smallest embedded backbone, on the CPU in fp32; raises KeditError where its weights are not there."""
    from kedit.backbone import load_backbone
    from kedit.zoo import catalogue

    for name in catalogue.PRESETS:
        if catalogue.available(name):
            return load_backbone(name, dtype="float32", device="cpu")
    looked = ", ".join(str(catalogue.folder(name)) for name in catalogue.PRESETS)
    raise KeditError(f"no embedded backbone's weights at {looked}; pass a small one: check_editor(editor, load_backbone(path))")


def _cases_for(backbone: Backbone) -> list[Case]:
    """Toy cases with images where the backbone can see."""
    cases = toy_cases()
    try:
        backbone.generate([cases[0].chain[0].request], max_new_tokens=1)
    except RequestError:
        return toy_cases(images=False)
    return cases
