"""Every editor works on every embedded backbone, with the settings that the catalogue suggests and with what ships."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from kedit.backbone import HFBackbone, load_backbone
from kedit.benchmarks.kibench_open import KIBenchOpen
from kedit.editor import Editor, WeightEditor
from kedit.methods import EDITORS, editor
from kedit.testing import check_editor
from kedit.types import Case
from kedit.zoo import catalogue

BACKBONES = [name for name, preset in catalogue.PRESETS.items() if preset.replacement]
QUICK = {"epochs": 1, "router_epochs": 1, "replacement_epochs": 1, "steps": 1, "pool": 4, "rank": 8}


@pytest.fixture(scope="module", params=BACKBONES)
def backbone(request: pytest.FixtureRequest) -> HFBackbone:
    found = load_backbone(request.param, device="cpu")
    found.generate([CASES[0].chain[0].request], max_new_tokens=1)  # the library hooks into a model at its first forward pass
    return found


CASES: list[Case] = list(KIBenchOpen().train(3))[:3]
FEW = [replace(case, probes=case.probes[:: len(case.probes) // 3][:3]) for case in CASES[:2]]
"""What keeps a promise or breaks it shows with three questions as with all."""


def suggested(name: str, backbone: HFBackbone, **params: Any) -> Editor:
    return editor(name, catalogue.editor_params(backbone.id, name), **params)


def quick(name: str, backbone: HFBackbone) -> Editor:
    takes = suggested(name, backbone).get_params()
    return suggested(name, backbone, **{key: value for key, value in QUICK.items() if key in takes})


@pytest.mark.slow
@pytest.mark.parametrize("name", EDITORS)
def test_every_editor_keeps_the_contract_on_every_embedded_backbone(name: str, backbone: HFBackbone) -> None:
    made = editor(name)
    if backbone.id != BACKBONES[0] and made.deferrable and not made.needs_fit:
        pytest.skip(f"what {name} does happens before the model sees the request; {BACKBONES[0]} is enough")
    before = backbone.fingerprint()
    assert len(check_editor(quick(name, backbone), backbone, FEW).kept) >= 19
    assert backbone.fingerprint() == before


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "inserts"), [("float32", 50), ("bfloat16", 15)])  # bfloat16 is slow on a CPU
@pytest.mark.parametrize("name", [name for name in EDITORS if issubclass(type(editor(name)), WeightEditor)])
def test_random_inserts_and_a_reset_leave_the_weights_bit_identical(
    name: str, dtype: str, inserts: int, backbone: HFBackbone
) -> None:
    model = load_backbone(backbone.id, device="cpu", dtype=dtype)
    before = model.fingerprint()
    made = quick(name, model).attach(model)
    with torch.random.fork_rng():
        made.fit(CASES[:1])
        facts = [fact for case in KIBenchOpen().train(25) for fact in case.chain]
        blind = [replace(fact, request=replace(fact.request, images=()), images=()) for fact in facts]
        rng = random.Random(4)
        for number in range(inserts):  # every fifth with its picture
            made.insert(rng.choice(blind if number % 5 else facts))
    made.reset()
    assert model.fingerprint() == before


@pytest.mark.parametrize("name", [name for name in EDITORS if editor(name).needs_fit])
def test_what_ships_was_fitted_with_the_settings_that_the_catalogue_suggests(name: str, backbone: HFBackbone) -> None:
    folder = catalogue.artefact(backbone.id, name)
    if folder is None:
        assert name == "ike", f"{name} has nothing that ships for {backbone.id}"  # it is fitted on first use
        return
    stored = json.loads((folder / "editor.json").read_text())["params"]
    made = suggested(name, backbone)
    assert stored == json.loads(json.dumps(made.get_params(), default=repr))
    made.attach(backbone).load(folder)
    assert made.fitted
    made.insert(CASES[0].chain[0])
    probes = [probe.request for probe in CASES[0].probes]
    assert len(made.generate(probes)) == len(probes)
    made.reset()


def test_all_that_ships_stays_under_sixty_megabytes() -> None:
    shipped = catalogue.folder(BACKBONES[0]).parent
    assert sum(file.stat().st_size for file in shipped.rglob("*") if file.is_file()) < 60e6
