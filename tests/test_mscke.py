"""A scope classifier on question and image with a replacement model: pictures decide, entries do not move each other."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clips
import numpy as np
import pytest
import torch

from kedit.answers import limited
from kedit.backbone import HFBackbone
from kedit.errors import CheckpointError
from kedit.methods.mscke import MSCKE
from kedit.routers.pairs import entries
from kedit.testing import check_editor, toy_cases
from kedit.types import Case, Knowledge, Probe, Request

IMAGES = [case.chain[0].request.images for case in toy_cases(3)]
LEARNS = {"router_lr": 3e-2, "router_epochs": 150, "replacement_lr": 1e-2, "replacement_epochs": 30}


def case(number: int) -> Case:
    """Entries ask the same words about different pictures; what is left alone is another question, or another picture."""
    answer = ("A gift.", "A red clock.", "A hat.")[number]
    own, other = IMAGES[number], IMAGES[(number + 1) % 3]
    request = Request("what is this", own)
    probes = (
        Probe("reliability", request, answer),
        Probe("generality", Request("is it a gift", own), answer),
        Probe("locality", Request("when do i bring it", own), None),
        Probe("locality", Request("when do i bring it", other), None),
    )
    return Case(f"case-{number}", (Knowledge(request, answer),), probes)


CASES = [case(0), case(1)]
ENTRIES = [one.chain[0] for one in CASES]
GENERAL = [one.probes[1].request for one in CASES]
KEPT = [one.probes[at].request for one in CASES for at in (2, 3)]


@pytest.fixture(scope="module")
def make(backbone: HFBackbone, family_path: Callable[[str], Path], tmp_path_factory: Any) -> Callable[..., MSCKE]:
    backbone.generate(GENERAL[:1], max_new_tokens=1)  # transformers adds hooks of its own when a model first runs
    encoder = str(clips.write(tmp_path_factory.mktemp("clip")))

    def made(**params: Any) -> MSCKE:
        toy = {"encoder": encoder, "router_train": "head", "replacement": str(family_path("internvl"))}
        return MSCKE(**{**toy, **params})

    return made


def test_the_published_way_keeps_the_contract_too(make: Callable[..., MSCKE], backbone: HFBackbone) -> None:
    before = backbone.fingerprint()
    check_editor(make(fusion="dot_legacy", loss="bce_prob"), backbone, toy_cases(2))
    assert backbone.fingerprint() == before


def test_defaults_are_the_papers_and_parameters_are_json(backbone: HFBackbone) -> None:
    params = MSCKE().get_params()
    assert (params["encoder"], params["pretrained"], params["threshold"]) == ("ViT-L-14", "openai", 0.5)
    assert (params["router_lr"], params["replacement_lr"], params["router_epochs"]) == (1e-4, 1e-5, 1)
    assert json.loads(json.dumps(params))["fusion"] == "entry"
    with pytest.raises(CheckpointError, match="replacement="):
        MSCKE().attach(backbone)


def test_the_same_question_finds_the_entry_with_its_picture_and_other_questions_go_to_the_backbone(
    make: Callable[..., MSCKE], backbone: HFBackbone
) -> None:
    editor = make(**LEARNS).attach(backbone).fit(CASES)
    for entry in ENTRIES:
        editor.insert(entry)
    own = [entry.request for entry in ENTRIES]
    assert own[0].question == own[1].question
    assert editor.route([*own, *GENERAL, *KEPT]) == [*ENTRIES, *ENTRIES, *[None] * len(KEPT)]
    with limited(backbone, 16):
        answers = [answer.text for answer in editor.generate([*GENERAL, *KEPT])]
        base = [answer.text for answer in backbone.generate(KEPT)]
    assert answers == [*(entry.answer for entry in ENTRIES), *base]


def test_the_share_of_questions_that_the_encoder_cuts_is_told(make: Callable[..., MSCKE], backbone: HFBackbone) -> None:
    editor = make().attach(backbone).fit(CASES)
    editor.insert(ENTRIES[0])
    before = editor.router_.truncated_, editor.router_.queries_
    long = Request("is " * (clips.LENGTH + 1), IMAGES[0])
    editor.route([GENERAL[0], GENERAL[1], long, GENERAL[0]])
    assert (editor.router_.truncated_ - before[0], editor.router_.queries_ - before[1]) == (1, 4)
    notes = editor.notes()
    assert notes["share of questions cut"] == pytest.approx(editor.router_.truncated_ / editor.router_.queries_)
    assert notes["replacement model"] == editor.replacement


@pytest.mark.parametrize("fusion", ["entry", "dot_legacy"])
def test_a_second_entry_moves_what_is_said_of_the_first_only_in_the_published_fusion(
    fusion: str, make: Callable[..., MSCKE], backbone: HFBackbone
) -> None:
    editor = make(fusion=fusion, router_lr=0.0).attach(backbone).fit(CASES)
    with torch.no_grad():
        editor.router_.head_.log_scale.fill_(math.log(1e-3))  # the published vectors are long: similarities far from 0
    asked = GENERAL[0]
    first = editor.router_.score([asked], ENTRIES[:1])[0, 0]
    for others in ([ENTRIES[1]], [ENTRIES[1], case(2).chain[0]]):
        again = editor.router_.score([asked], [ENTRIES[0], *others])[0, 0]
        if fusion == "entry":
            assert again == pytest.approx(first, abs=1e-9)
        else:
            assert abs(again - first) > 1e-5


def test_a_pair_that_starts_far_apart_learns_only_with_the_loss_in_log_space(
    make: Callable[..., MSCKE], backbone: HFBackbone
) -> None:
    slopes = {}
    for loss in ("bce_log", "bce_prob"):
        router = make(loss=loss).attach(backbone).router_
        learner = router.learner(entries(CASES[:1]))
        keys, asked = router.queries([ENTRIES[0].request]), router.queries([GENERAL[0]])
        with torch.no_grad():
            router.head_.log_scale.fill_(math.log(60 / float(np.square(keys - asked).sum())))
        (slope,) = torch.autograd.grad(learner.losses([0], [0])["positive"], [router.head_.text_map.weight])
        slopes[loss] = float(slope.norm())
    assert slopes["bce_log"] > 1
    assert slopes["bce_prob"] < 1e-9 * slopes["bce_log"]
