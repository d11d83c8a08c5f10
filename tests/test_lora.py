"""Low-rank edits: PEFT trains them, the model keeps no trace of PEFT, and plain PEFT loads what was saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import samples
import torch
from models import FAMILIES
from torch import nn

from kedit.backbone import HFBackbone, load_backbone
from kedit.errors import DataError, DivergedError
from kedit.methods import LoRA
from kedit.types import Knowledge
from kedit.weights.modules import matrices

every_family = pytest.mark.parametrize("backbone", FAMILIES, indirect=True)


def facts(backbone: HFBackbone) -> list[Knowledge]:
    requests = samples.asked(backbone.structure.image_token_id is None)
    return [Knowledge(requests[0], "A red clock. 绿色的帽子"), Knowledge(requests[1], "On the table.")]


def traces(model: nn.Module) -> list[str]:
    """What PEFT would leave in a model."""
    kinds = [name for name, module in model.named_modules() if type(module).__module__.startswith("peft")]
    names = [name for name, _ in model.named_parameters() if "lora" in name]
    return kinds + names + [name for name in ("peft_config", "_hf_peft_config_loaded") if getattr(model, name, False)]


@pytest.fixture
def unedited(backbone: HFBackbone) -> Iterator[HFBackbone]:
    """The shared backbone, which must be the same bits and the same modules afterwards."""
    before, modules = backbone.fingerprint(), dict(backbone.model.named_modules())
    yield backbone
    assert backbone.fingerprint() == before
    assert traces(backbone.model) == []
    assert list(backbone.model.named_modules()) == list(modules.items())
    assert all(p.grad is None and not p.requires_grad for p in backbone.model.parameters())


@every_family
def test_an_insert_takes_nine_tenths_of_the_loss_and_leaves_no_module_behind(unedited: HFBackbone) -> None:
    fact = facts(unedited)[0]
    before = unedited.loss(fact.request, fact.answer).item()
    editor = LoRA().attach(unedited)
    editor.insert(fact)
    assert traces(unedited.model) == []
    assert unedited.loss(fact.request, fact.answer).item() < 0.1 * before
    editor.reset()


# attention of three kinds, tied embeddings, and matrices stored the other way round
@pytest.mark.parametrize("backbone", ["internvl", "qwen3_5", "gemma3", "text_base"], indirect=True)
def test_plain_peft_loads_the_saved_edits_to_the_same_logits_and_answers(
    unedited: HFBackbone, family_path: Callable[[str], Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from peft import PeftModel

    editor = LoRA(steps=5).attach(unedited)
    requests = [fact.request for fact in facts(unedited)]
    without = unedited.generate(requests)
    for fact in facts(unedited):
        editor.insert(fact)
    expected, taught = unedited.generate(requests), unedited.teach(requests[0], "A red clock.")
    logits = unedited.forward(taught.inputs).logits
    editor.save_adapter(tmp_path / "adapter")
    editor.reset()
    assert expected != without

    family = request.node.callspec.params["backbone"]
    fresh = load_backbone(str(family_path(family)), device="cpu")
    loaded = PeftModel.from_pretrained(fresh.model, str(tmp_path / "adapter"))
    again = HFBackbone.wrap(loaded.base_model.model, fresh.processor, id="peft")
    torch.testing.assert_close(again.forward(taught.inputs).logits, logits, rtol=1e-4, atol=1e-4)
    assert again.generate(requests) == expected


def test_a_saved_adapter_has_the_summed_rank_and_scale_one(unedited: HFBackbone, tmp_path: Path) -> None:
    from peft import LoraConfig

    editor = LoRA(rank=4, alpha=32, steps=2, layers=(-1,)).attach(unedited)
    for fact in facts(unedited):
        editor.insert(fact)
    editor.save_adapter(tmp_path)
    config = LoraConfig.from_pretrained(str(tmp_path))
    assert (config.r, config.lora_alpha) == (8, 8)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    editor.reset()
    with pytest.raises(DataError, match="insert knowledge first"):
        editor.save_adapter(tmp_path)


def test_a_delta_is_the_scaled_product_of_factors_of_the_given_rank(unedited: HFBackbone) -> None:
    editor = LoRA(rank=3, steps=4, layers=(-2,), modules=("mlp",)).attach(unedited)
    found = editor.deltas(facts(unedited)[0])
    assert found.keys() == matrices(unedited, (-2,), ("mlp",)).keys()
    for delta in found.values():
        assert int(torch.linalg.matrix_rank(delta, rtol=1e-4)) == 3


def test_the_captured_trunk_gives_the_plain_loops_adapter(unedited: HFBackbone) -> None:
    fact = facts(unedited)[0]
    fast = LoRA(layers=(-1,)).attach(unedited).deltas(fact)
    plain = LoRA(layers=(-1,), plain=True).attach(unedited).deltas(fact)
    for name, delta in plain.items():
        assert (fast[name] - delta).norm() <= 1e-4 * delta.norm()


def test_the_seed_alone_decides_where_training_starts(unedited: HFBackbone) -> None:
    fact = facts(unedited)[0]
    torch.manual_seed(1)
    one = LoRA(steps=2).attach(unedited).deltas(fact)
    state = torch.get_rng_state()
    two = LoRA(steps=2).attach(unedited).deltas(fact)
    other = LoRA(steps=2, seed=1).attach(unedited).deltas(fact)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_any_edit_can_be_taken_back_also_after_loading(unedited: HFBackbone, tmp_path: Path) -> None:
    one, two = facts(unedited)
    editor = LoRA(steps=3).attach(unedited)
    editor.insert(one)
    alone = unedited.fingerprint()
    second = editor.insert(two)
    editor.save_edits(tmp_path)
    editor.remove(second)
    assert unedited.fingerprint() == alone
    editor.reset()
    editor.load_edits(tmp_path)
    editor.remove("edit-2")
    assert unedited.fingerprint() == alone
    editor.reset()


def test_an_error_while_training_takes_the_adapter_out_again(unedited: HFBackbone) -> None:
    with pytest.raises(DivergedError, match="lower lr than 1e"):
        LoRA(lr=1e30).attach(unedited).insert(facts(unedited)[0])
    with pytest.raises(OSError, match="nowhere"):
        LoRA().attach(unedited).insert(Knowledge(samples.Request("What?", (samples.ImageRef(path="nowhere.png"),)), "A hat."))
    assert traces(unedited.model) == []


def test_flags_of_parameters_that_the_user_set_are_kept(unedited: HFBackbone) -> None:
    chosen = next(unedited.model.parameters())
    chosen.requires_grad_(True)
    try:
        editor = LoRA(steps=1).attach(unedited)
        editor.insert(facts(unedited)[0])
        assert chosen.requires_grad
        assert chosen.grad is None
        editor.reset()
    finally:
        chosen.requires_grad_(False)
