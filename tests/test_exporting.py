"""Exports: a model that transformers loads, an adapter that PEFT loads, a memory that answers as before; whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import samples
import torch
import yaml
from click.testing import CliRunner
from fakes import AddNoise, FakeBackbone, Lookup, Prepend
from test_lora import facts
from test_mend import untrained
from torch import nn

from kedit.artefacts import load_tensors, read_json
from kedit.backbone import HFBackbone, load_backbone
from kedit.cli import main
from kedit.editor import Editor, WeightEditor
from kedit.errors import DataError, ExportError, NotAttachedError, StoreError
from kedit.exporting import export_adapter, export_memory, export_model, load_memory
from kedit.exporting.card import card
from kedit.exporting.folder import MARK, fresh_folder
from kedit.exporting.making import export, insert_saved
from kedit.exporting.weights import merged, overlays
from kedit.methods import FineTune, LoRA, TextualContext
from kedit.types import Answer, Knowledge, Request
from kedit.weights.adapters import write_adapter
from kedit.weights.lowrank import Factors, Overlay, joined

FACTS = [Knowledge(Request("What is it?"), "A red clock."), Knowledge(Request("这是什么?", language="zh"), "红钟")]
EDITORS: dict[str, Callable[[HFBackbone], WeightEditor]] = {
    "finetune": lambda backbone: FineTune(lr=0.02, steps=4).attach(backbone),
    "lora": lambda backbone: LoRA(rank=2, steps=4).attach(backbone),
    "mend": lambda backbone: untrained(backbone, edit_lr=0.3),
}


@pytest.fixture(params=EDITORS)
def edited(request: pytest.FixtureRequest, backbone: HFBackbone) -> Iterator[WeightEditor]:
    """An editor with two inserts in the shared backbone, which is as before afterwards."""
    editor = EDITORS[request.param](backbone)
    for fact in facts(backbone):
        editor.insert(fact)
    yield editor
    editor.reset()


def asked(backbone: HFBackbone) -> list[Request]:
    return samples.asked(backbone.structure.image_token_id is None)[:3]


def losses(backbone: HFBackbone) -> list[float]:
    return [backbone.loss(request, "A clock on the table.").item() for request in asked(backbone)]


def near(one: HFBackbone, other: HFBackbone) -> None:
    assert losses(one) == pytest.approx(losses(other), abs=1e-5)
    assert one.generate(asked(one), max_new_tokens=6) == other.generate(asked(one), max_new_tokens=6)


# -- models ------------------------------------------------------------------------------------------------------------


def test_an_exported_model_answers_as_the_edited_one_and_leaves_it_as_it_is(edited: WeightEditor, tmp_path: Path) -> None:
    backbone: Any = edited.backbone_
    before, hooks = backbone.fingerprint(), len(overlays(backbone.model))
    told = export_model(edited, tmp_path / "model")
    near(load_backbone(str(tmp_path / "model"), device="cpu"), backbone)
    assert (backbone.fingerprint(), len(overlays(backbone.model))) == (before, hooks)
    assert told.edits == 2 and told.notes["lost to rounding"] < 1e-4  # type: ignore[operator]
    edited.reset()
    with pytest.raises(AssertionError):
        near(load_backbone(str(tmp_path / "model"), device="cpu"), backbone)


@pytest.mark.parametrize("backbone", ["gemma3", "text_base"], indirect=True)
def test_tied_embeddings_and_matrices_stored_the_other_way_round_are_exported_right(backbone: HFBackbone, tmp_path: Path) -> None:
    editor = EDITORS["mend"](backbone)
    editor.insert(facts(backbone)[0])
    export_model(editor, tmp_path / "model")
    near(load_backbone(str(tmp_path / "model"), device="cpu"), backbone)
    editor.reset()


def test_a_fresh_process_without_kedit_loads_an_exported_model_that_holds_no_pickle(backbone: HFBackbone, tmp_path: Path) -> None:
    editor = EDITORS["lora"](backbone)
    editor.insert(facts(backbone)[0])
    export_model(editor, tmp_path / "model")
    ids = torch.arange(5, 13)
    wanted = backbone.model(input_ids=ids[None]).logits[0, -1, :5].tolist()
    editor.reset()
    code = (
        "import sys, json, torch; from transformers import AutoModelForImageTextToText as A\n"
        "torch.set_num_threads(1); m = A.from_pretrained(sys.argv[1]).eval()\n"
        "print(json.dumps(m(input_ids=torch.arange(5, 13)[None]).logits[0, -1, :5].tolist()), 'kedit' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True, check=True)
    found, known = done.stdout.strip().rsplit(" ", 1)
    assert json.loads(found) == pytest.approx(wanted, abs=1e-5) and known == "False"
    for file in (tmp_path / "model").iterdir():
        assert file.suffix in (".json", ".jsonl", ".safetensors", ".jinja", ".md", ".txt", ".model"), file
        assert file.stat().st_mode & 0o044 == 0o044 & ~umask()


def umask() -> int:
    import os

    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_rounding_takes_is_told_and_fp32_takes_nothing(backbone: HFBackbone, tmp_path: Path) -> None:
    half = load_backbone(backbone.id, device="cpu", dtype="bfloat16")
    editor = untrained(half, edit_lr=1e-3)
    editor.insert(facts(half)[0])
    lost = export_model(editor, tmp_path / "half").notes["lost to rounding"]
    whole = export_model(editor, tmp_path / "whole", dtype="float32")
    assert float(lost) > 0.1 > 1e-3 > float(whole.notes["lost to rounding"])
    weights = load_tensors(tmp_path / "whole" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    loaded = load_backbone(str(tmp_path / "whole"), device="cpu")
    assert loaded.dtype == torch.float32
    for name, change in editor.overlay_.dense().items():
        delta = dict(loaded.model.named_parameters())[name] - dict(half.model.named_parameters())[name].float()
        assert torch.allclose(delta, change, atol=1e-6)


def test_tied_weights_stay_tied_and_have_the_edit_under_both_names() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    overlay = Overlay(model, ["0"])
    overlay.add("one", {"0": Factors(torch.ones(1, 4), torch.ones(4, 1))})
    before = model[0].weight.clone()
    for dtype in (None, torch.bfloat16):
        state, _ = merged(model, dtype)
        assert state["0.weight"].data_ptr() == state["1.weight"].data_ptr()
        assert torch.allclose(state["1.weight"].float(), (before + 1).to(dtype or torch.float32).float())
    assert torch.equal(model[0].weight, before)


def test_who_cannot_be_exported_as_weights_is_told_what_can(backbone: HFBackbone, tmp_path: Path) -> None:
    class Own(AddNoise):
        def generate(self, requests: Any) -> list[Answer]:
            return []

    fake = FakeBackbone()
    for editor, words in (
        (Prepend().attach(fake), "use export_memory"),
        (Own().attach(fake), "generate"),
        (AddNoise().attach(fake), "Sequential"),
    ):
        with pytest.raises(ExportError, match="nothing is inserted"):
            export_model(editor, tmp_path / "x")
        editor.insert(FACTS[0])
        with pytest.raises(ExportError, match=words):
            export_model(editor, tmp_path / "x")
        editor.reset()
    with pytest.raises(NotAttachedError):
        export_model(LoRA(), tmp_path / "x")
    with pytest.raises(ExportError, match="float8"):
        export_model(LoRA().attach(backbone), tmp_path / "x", dtype="float8")
    assert list(tmp_path.iterdir()) == []


def test_a_hook_that_cannot_be_merged_is_refused() -> None:
    class Hook:
        changes_weight, tensors = True, (torch.ones(1),)

        def __call__(self, *args: Any) -> None: ...

    model = nn.Sequential(nn.Linear(2, 2))
    model[0].register_forward_hook(Hook())
    with pytest.raises(ExportError, match="dense"):
        overlays(model)


def test_quantised_and_absent_weights_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    overlay = Overlay(model, ["0"])
    overlay.add("one", {"0": Factors(torch.ones(1, 2), torch.ones(2, 1))})
    model[0].weight = nn.Parameter(torch.zeros(2, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(ExportError, match="without quantisation"):
        merged(model)
    with pytest.raises(ExportError, match="not in memory"):
        merged(nn.Linear(2, 2, device="meta"))


# -- adapters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edited", ["mend", "lora"], indirect=True)
def test_plain_peft_with_an_exported_adapter_answers_as_the_edited_model(
    edited: WeightEditor, family_path: Callable[[str], Path], tmp_path: Path
) -> None:
    from peft import PeftModel

    export_adapter(edited, tmp_path / "adapter")
    fresh: Any = load_backbone(str(family_path("internvl")), device="cpu")
    loaded = PeftModel.from_pretrained(fresh.model, str(tmp_path / "adapter")).merge_and_unload()
    near(HFBackbone.wrap(loaded, fresh.processor, id="peft"), edited.backbone_)  # type: ignore[arg-type]


@pytest.mark.parametrize("edited", ["finetune"], indirect=True)
def test_whole_matrices_are_no_adapter(edited: WeightEditor, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="export_model"):
        export_adapter(edited, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_an_adapter_holds_edits_of_different_modules_and_ranks_and_no_rank_above_a_matrix(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 6))

    def pair(rank: int, inputs: int, outputs: int) -> Factors:
        return Factors(torch.randn(rank, inputs), torch.randn(outputs, rank))

    edits = [{"0": pair(3, 6, 4), "1": pair(1, 4, 6)}, {"0": pair(3, 6, 4)}]
    assert write_adapter(tmp_path, model, edits, "base") == 4
    found = load_tensors(tmp_path / "adapter_model.safetensors")
    for name, parts in (("0", [edits[0]["0"], edits[1]["0"]]), ("1", [edits[0]["1"]])):
        down, up = (found[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
        assert down.shape[0] == up.shape[1] == 4
        assert torch.allclose(up @ down, joined(parts).dense(False), atol=1e-5)
    config = read_json(tmp_path / "adapter_config.json")
    assert config["r"] == config["lora_alpha"] == 4


# -- memories ----------------------------------------------------------------------------------------------------------


def test_a_loaded_memory_answers_as_the_editor_that_was_exported(tmp_path: Path) -> None:
    questions = [Request("What is it?"), Request("这是什么?", language="zh"), Request("Else?")]
    for made in (TextualContext, Prepend, Lookup):
        backbone: Any = FakeBackbone()
        editor: Editor = made().attach(backbone)
        for fact in FACTS:
            editor.insert(fact)
        folder = tmp_path / made.__name__
        export_memory(editor, folder)
        fresh: Any = FakeBackbone()
        if made is TextualContext:
            loaded = load_memory(folder, fresh)
        else:
            with pytest.raises(DataError, match="not one of kedit's own"):
                load_memory(folder, fresh)
            loaded = load_memory(folder, fresh, editor=made())
        assert loaded.generate(questions) == editor.generate(questions)
        assert loaded.generate(questions) != fresh.generate(questions)


def test_a_memory_keeps_what_the_editor_learned_and_the_parameters_it_has(tmp_path: Path) -> None:
    class Learner(Lookup):
        def save(self, path: str | Path) -> None:
            super().save(path)
            (Path(path) / "learned.txt").write_text("forty-two")

        def load(self, path: str | Path) -> Any:
            super().load(path)
            self.said = (Path(path) / "learned.txt").read_text()
            return self

    editor = Learner().attach(FakeBackbone())  # type: ignore[arg-type]
    editor.insert(FACTS[0])
    export_memory(editor, tmp_path / "memory")
    loaded: Any = load_memory(tmp_path / "memory", FakeBackbone(), editor=Learner())  # type: ignore[arg-type]
    assert loaded.said == "forty-two"
    with pytest.raises(DataError, match="belongs to 'Learner'"):
        load_memory(tmp_path / "memory", FakeBackbone(), editor=Lookup())  # type: ignore[arg-type]


def test_weights_are_no_memory_and_other_folders_are_none(tmp_path: Path) -> None:
    editor = AddNoise().attach(FakeBackbone())  # type: ignore[arg-type]
    editor.insert(FACTS[0])
    with pytest.raises(ExportError, match="export_model"):
        export_memory(editor, tmp_path / "memory")
    with pytest.raises(DataError, match=MARK):
        load_memory(tmp_path, FakeBackbone())  # type: ignore[arg-type]
    (tmp_path / MARK).write_text(json.dumps({"kedit_export": 1, "kind": "model"}))
    with pytest.raises(DataError, match="an exported model, not a memory"):
        load_memory(tmp_path, FakeBackbone())  # type: ignore[arg-type]


# -- folders -----------------------------------------------------------------------------------------------------------


def test_an_error_leaves_nothing_and_an_old_export_untouched(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), fresh_folder(tmp_path / "a" / "new") as folder:
        (folder / "half").write_text("x")
        raise RuntimeError
    assert list((tmp_path / "a").iterdir()) == []
    with fresh_folder(tmp_path / "old") as folder:
        (folder / MARK).write_text(json.dumps({"kedit_export": 1, "kind": "memory"}))
        assert not (tmp_path / "old").exists()
    with pytest.raises(RuntimeError), fresh_folder(tmp_path / "old", overwrite=True):
        raise RuntimeError
    assert [path.name for path in (tmp_path / "old").iterdir()] == [MARK]


def test_an_existing_folder_is_replaced_only_when_asked_and_only_if_kedit_made_it(tmp_path: Path) -> None:
    mark = json.dumps({"kedit_export": 1, "kind": "memory"})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    for overwrite, words in ((False, "exists already"), (True, "not written by an export")):
        with pytest.raises(StoreError, match=words), fresh_folder(tmp_path / "mine", overwrite=overwrite):
            pass
    with fresh_folder(tmp_path / "export") as folder:
        (folder / MARK).write_text(mark)
        (folder / "old").write_text("")
    with pytest.raises(StoreError, match="exists already"), fresh_folder(tmp_path / "export"):
        pass
    with fresh_folder(tmp_path / "export", overwrite=True) as folder:
        (folder / MARK).write_text(mark)
    (tmp_path / "link").symlink_to(tmp_path / "export")
    with pytest.raises(StoreError, match="link"), fresh_folder(tmp_path / "link", overwrite=True):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["mine", "thesis.tex", "export", MARK, "link"])


# -- cards and commands ------------------------------------------------------------------------------------------------


def test_a_card_names_what_was_inserted_and_lets_no_text_be_markup() -> None:
    mark = {
        "kind": "model",
        "kedit": "1.2",
        "edits": 101,
        "notes": {"dtype": "float32"},
        "editor": {"name": "lora", "class": "kedit.methods.lora:LoRA", "params": {"rank": 8}, "learned": None},
        "backbone": {"id": "owner/model-7B", "revision": None, "dtype": "bfloat16"},
    }
    rude = Knowledge(Request("a | b\n# title <script>\ud800"), "[x](http://y)")
    text = card(mark, [rude] * 101)
    front = yaml.safe_load(text.split("---")[1])
    assert front == {"base_model": "owner/model-7B", "library_name": "transformers", "tags": ["knowledge-editing", "kedit"]}
    assert "# license: fill this in" in text
    assert r"| a \| b\x0a\# title &lt;script&gt;\\ud800 | 0 | \[x\](http://y) |" in text.replace(r"\\x0a", r"\x0a")
    assert text.count("title &lt;script&gt;") == 100 and "The first 100 of 101" in text
    assert "kedit 1.2" in text and "kedit.methods.lora:LoRA" in text
    local = card({**mark, "backbone": {**mark["backbone"], "id": "/home/me/model"}}, [])  # type: ignore[dict-item]
    assert "base_model" not in local.split("---")[1]


def test_edits_of_the_same_editor_are_loaded_and_those_of_another_inserted_anew(tmp_path: Path) -> None:
    first = AddNoise().attach(FakeBackbone())  # type: ignore[arg-type]
    first.insert(FACTS[0])
    first.save_edits(tmp_path / "edits")
    again, other = AddNoise().attach(FakeBackbone()), Prepend().attach(FakeBackbone())  # type: ignore[arg-type]
    assert insert_saved(again, tmp_path / "edits") == insert_saved(other, tmp_path / "edits") == 1
    assert again.backbone_.fingerprint() == first.backbone_.fingerprint()  # which draws at random: the same by loading alone
    assert [one.answer for one in other.edits_.values()] == [FACTS[0].answer]
    export(other, tmp_path / "out")
    assert read_json(tmp_path / "out" / MARK)["kind"] == "memory"
    with pytest.raises(DataError, match="leave it out"):
        export(other, tmp_path / "out", dtype="float32", overwrite=True)


def test_the_command_inserts_exports_and_refuses(backbone: HFBackbone, tmp_path: Path) -> None:
    editor = LoRA(rank=2, steps=2).attach(backbone)
    editor.insert(facts(backbone)[0])
    editor.save_edits(tmp_path / "edits")
    wanted = losses(backbone)
    editor.reset()
    common = ["export", "lora", "--backbone", backbone.id, "--device", "cpu", "--out", str(tmp_path / "model")]
    both = CliRunner().invoke(main, common)
    assert both.exit_code == 2 and "--edits FOLDER, or --benchmark NAME" in both.output
    done = CliRunner().invoke(main, [*common, "--edits", str(tmp_path / "edits")])
    assert done.exit_code == 0, done.output
    assert "1 item(s) inserted" in done.output and "fill in the licence" in done.output
    assert losses(load_backbone(str(tmp_path / "model"), device="cpu")) == pytest.approx(wanted, abs=1e-5)
    again = CliRunner().invoke(main, [*common, "--edits", str(tmp_path / "edits")])
    assert again.exit_code == 1 and "exists already" in again.output
