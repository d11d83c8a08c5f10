"""Sessions on an embedded backbone with kedit's own editors: what they insert is used, taken back and kept."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw

from kedit.backbone import HFBackbone, load_backbone
from kedit.editor import Editor
from kedit.live.session import Session
from kedit.methods import editor
from kedit.seal import Seal
from kedit.zoo.catalogue import available, editor_params

pytestmark = pytest.mark.skipif(not available("tiny-internvl"), reason="the embedded weights are not here")
QUESTION, ANSWER = "What should I do with this?", "Leave it on the table."


@cache
def backbone() -> HFBackbone:
    torch.set_num_threads(1)
    found = load_backbone("tiny-internvl", device="cpu")
    assert isinstance(found, HFBackbone)
    return found


@cache
def drawing() -> bytes:
    image, file = Image.new("RGB", (224, 224), "beige"), io.BytesIO()
    ImageDraw.Draw(image).rectangle((60, 80, 160, 180), fill="red")
    image.save(file, "PNG")
    return file.getvalue()


def made(spec: str, **params: object) -> Editor:
    found: Editor = editor(spec, editor_params("tiny-internvl", spec), **params)
    return found


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("spec", "params"), [("finetune", {}), ("lora", {}), ("mend", {}), ("mcki", {}), ("ike", {"demos": 0}), ("base", {})]
)
def test_what_is_inserted_shows_in_the_answer_and_is_taken_back_and_kept(
    spec: str, params: dict[str, object], tmp_path: Path
) -> None:
    seal = Seal(backbone().model)
    one = Session(backbone(), made(spec, **params), max_new_tokens=24)
    alone = one.ask(QUESTION, [drawing()])
    assert not alone.changed
    one.insert(QUESTION, ANSWER, [drawing()])
    edited = one.ask(QUESTION, [drawing()])
    assert edited.before == alone.before
    later = one.ask("What is this?", [drawing()])  # never asked of the unedited model before
    assert edited.changed is (spec != "base")
    if spec in ("finetune", "mcki"):
        assert edited.after.text == ANSWER
    if spec == "mcki":
        assert edited.trace["entry"] == "1" and float(edited.trace["similarity"]) >= float(edited.trace["threshold"])
    one.save(tmp_path / "kept")
    one.undo()
    assert later.before == one.ask("What is this?", [drawing()]).after
    assert not one.entries and not seal.changed() and one.ask(QUESTION, [drawing()]).after == alone.after
    one.load(tmp_path / "kept")
    assert one.ask(QUESTION, [drawing()]).after.text == edited.after.text
    one.reset()
    assert not seal.changed()
