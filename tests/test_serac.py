"""A scope classifier with a replacement model: who answers what, what is kept, and what the published mixture does instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from replaced import Words

from kedit.answers import limited
from kedit.backbone import HFBackbone, load_backbone
from kedit.errors import CheckpointError, DataError, NotFittedError, UnknownNameError
from kedit.methods import FineTune
from kedit.methods.serac import SERAC
from kedit.replacement.mixing import MixedLearner, MixedScope, Partners, mixed, write_mixed
from kedit.replacement.model import Lesson, Replacement
from kedit.routers.pairs import Entry, entries
from kedit.routers.scope import ScopeLearner
from kedit.routers.text_scope import TextScope
from kedit.testing import check_editor, toy_cases
from kedit.training import Training, train
from kedit.types import Knowledge

Paths = Callable[[str], Path]
CASES = toy_cases(3)
ENTRIES = [case.chain[0] for case in CASES]
GENERAL = [case.probes[1].request for case in CASES]
KEPT = [case.probes[at].request for case in CASES for at in (2, 3)]
LEARNS = {"router_lr": 3e-2, "router_epochs": 60, "replacement_lr": 1e-2, "replacement_epochs": 30}
SOFT = {"legacy": "soft_mixing"}


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def make(backbone: HFBackbone, family_path: Paths) -> Callable[..., SERAC]:
    backbone.generate(GENERAL[:1], max_new_tokens=1)  # transformers adds hooks of its own when a model first runs

    def made(**params: Any) -> SERAC:
        toy = {"encoder": Words(), "router_train": "head", "replacement": str(family_path("internvl"))}
        return SERAC(**{**toy, **params})

    return made


@pytest.fixture(scope="module")
def taught(make: Callable[..., SERAC], backbone: HFBackbone) -> SERAC:
    """Fitted on the toy cases until it knows them."""
    return make(**LEARNS).attach(backbone).fit(CASES)


def asked(editor: SERAC, requests: Any, tokens: int = 24) -> list[str]:
    with limited(editor.backbone_, tokens):
        return [answer.text for answer in editor.generate(requests)]


@pytest.mark.slow
def test_the_published_way_keeps_the_contract_too(make: Callable[..., SERAC], backbone: HFBackbone) -> None:
    before = backbone.fingerprint()
    check_editor(make(**SOFT), backbone, toy_cases(2))
    assert backbone.fingerprint() == before


def test_defaults_are_the_papers_and_parameters_are_json() -> None:
    params = SERAC().get_params()
    assert (params["encoder"], params["threshold"], params["router_lr"], params["replacement_lr"]) == ("minilm", 0.5, 1e-4, 1e-5)
    assert (params["router_epochs"], params["replacement_epochs"], params["replacement_layers"]) == (1, 1, (-1,))
    assert json.loads(json.dumps(params))["legacy"] is None


def test_every_parameter_reaches_the_part_that_it_is_for(make: Callable[..., SERAC]) -> None:
    editor = make(
        threshold=0.4, key_text="question+answer", calibration="youden", all_negatives=False, router_epochs=2,
        router_batch_size=3, router_lr=0.1, replacement="a", replacement_layers=None, stored_image=False,
        replacement_epochs=4, replacement_batch_size=5, replacement_lr=0.2, seed=7,
    )  # fmt: skip
    router, replacement = editor.make_router().get_params(), editor.make_replacement()
    wanted = {
        "train": "head", "threshold": 0.4, "key_text": "question+answer", "calibration": "youden", "all_negatives": False,
        "epochs": 2, "batch_size": 3, "lr": 0.1, "seed": 7,
    }  # fmt: skip
    assert {name: router[name] for name in wanted} == wanted
    assert (replacement.model, replacement.layers, replacement.stored_image) == ("a", None, False)
    assert (replacement.epochs, replacement.batch_size, replacement.lr, replacement.seed) == (4, 5, 0.2, 7)


def test_requests_in_scope_get_the_taught_answer_and_all_others_the_backbones(taught: SERAC) -> None:
    ids = [taught.insert(entry) for entry in ENTRIES]
    own = [entry.request for entry in ENTRIES]
    try:
        assert taught.route([*own, *GENERAL, *KEPT]) == [*ENTRIES, *ENTRIES, *[None] * len(KEPT)]
        assert asked(taught, own) == asked(taught, GENERAL) == [entry.answer for entry in ENTRIES]
        with limited(taught.backbone_, 24):
            base = [answer.text for answer in taught.backbone_.generate([*GENERAL, *KEPT])]
        assert asked(taught, KEPT) == base[3:]
        taught.remove(ids[1])
        left = asked(taught, GENERAL)
        assert (left[0], left[2]) == (ENTRIES[0].answer, ENTRIES[2].answer)
        assert left[1] != ENTRIES[1].answer
    finally:
        taught.reset()
    assert asked(taught, GENERAL) == base[:3]


def test_the_replacement_keeps_to_the_backbones_limit_of_new_tokens(taught: SERAC) -> None:
    taught.insert(ENTRIES[0])
    try:
        with limited(taught.backbone_, 3):
            (answer,) = taught.generate([ENTRIES[0].request])
        assert (answer.tokens, answer.truncated) == (3, True)
    finally:
        taught.reset()


def test_router_and_replacement_are_saved_and_loaded_without_the_rest_of_any_model(
    taught: SERAC, make: Callable[..., SERAC], backbone: HFBackbone, tmp_path: Path
) -> None:
    taught.save(tmp_path)
    loaded = make(**LEARNS).attach(backbone)
    with pytest.raises(NotFittedError):
        loaded.insert(ENTRIES[0])
    assert loaded.load(tmp_path).fitted
    for entry in ENTRIES:
        loaded.insert(entry)
    assert asked(loaded, GENERAL) == [entry.answer for entry in ENTRIES]
    model = loaded.replacement_.backbone_.model
    layer = sum(p.nbytes for p in loaded.replacement_.backbone_.layers[-1].parameters())
    stored = (tmp_path / "replacement" / "replacement.safetensors").stat().st_size
    assert layer <= stored < layer + 4096 < sum(p.nbytes for p in model.parameters())


@pytest.mark.parametrize(("legacy", "after"), [(None, 5), (None, 8), ("soft_mixing", 3)])  # in the router, in the replacement
def test_a_resumed_fit_equals_an_uninterrupted_one(
    after: int, legacy: str | None, make: Callable[..., SERAC], backbone: HFBackbone, tmp_path: Path
) -> None:
    params = {
        "router_epochs": 3,
        "router_batch_size": 1,
        "router_lr": 1e-2,
        "threshold": 0.3,
        "replacement_lr": 1e-3,
        "legacy": legacy,
    }
    steps = 0

    def stop(step: int, total: int, values: Mapping[str, float]) -> None:
        nonlocal steps
        steps += 1
        if steps == after:
            raise Stop

    cases = toy_cases(2)
    broken = make(**params).attach(backbone)
    with limited(backbone, 3):
        whole = make(**params).attach(backbone).fit(cases)
        with pytest.raises(Stop):
            broken.fit(cases, out=tmp_path, progress=stop)
        assert not broken.fitted
        again = make(**params).attach(backbone).fit(cases, out=tmp_path)
    for part in ("router_", "replacement_"):
        one, other = getattr(whole, part).state(), getattr(again, part).state()
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_attaching_again_forgets_what_was_fitted_and_loads_the_replacement_anew(
    make: Callable[..., SERAC], backbone: HFBackbone
) -> None:
    editor = make().attach(backbone).fit(toy_cases(1))
    first = editor.replacement_.state()
    assert editor.fitted
    editor.attach(backbone)
    assert not editor.fitted
    assert any(not torch.equal(first[name], weight) for name, weight in editor.replacement_.state().items())


def test_a_backbone_without_a_known_replacement_is_told_to_name_one(backbone: HFBackbone) -> None:
    with pytest.raises(CheckpointError, match="replacement="):
        SERAC().attach(backbone)
    with pytest.raises(UnknownNameError, match="soft_mixing"):
        SERAC(legacy="soft").attach(backbone)


# -- the published mixture -----------------------------------------------------------------------------------------------


def test_the_mixture_is_of_probabilities_not_of_logits() -> None:
    base, other = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.2, 0.8]]).log()
    assert mixed(base, other, 0.25).exp().tolist()[0] == pytest.approx([0.725, 0.275])  # 0.75 * 0.9 + 0.25 * 0.2
    assert mixed(base, other, 0.0).exp().tolist()[0] == pytest.approx([0.9, 0.1], abs=1e-6)
    assert mixed(base, other, 1.0).exp().tolist()[0] == pytest.approx([0.2, 0.8], abs=1e-6)
    with pytest.raises(DataError, match="vocabulary"):
        mixed(base, torch.zeros(1, 3), 0.5)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_mixture_of_one_is_that_models_own_greedy_answer(weight: float, backbone: HFBackbone, family_path: Paths) -> None:
    other = Replacement(model=str(family_path("internvl"))).attach(backbone)
    with torch.no_grad():
        for number, weights in enumerate(other.trained().values()):
            weights.add_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(number)) * 0.3)
    request, told = GENERAL[1], other.told(GENERAL[1], ENTRIES[1])
    found = write_mixed(backbone, request, other.backbone_, told, weight, 12)
    alone = [backbone.generate([request], max_new_tokens=12)[0], other.backbone_.generate([told], max_new_tokens=12)[0]]
    assert found == alone[round(weight)] != alone[1 - round(weight)]


def pull(router: TextScope, loss: torch.Tensor) -> float:
    """How much a step down a loss raises the similarity of the rephrased question to its entry, per unit of step."""
    keys, asked = router.vectors([router.key_view(ENTRIES[0])], [router.query_view(GENERAL[0])])
    nearer = torch.exp(-router.scale_ * (keys - asked).square().sum())
    (towards,) = torch.autograd.grad(nearer, [router.head_.map.weight])
    (slope,) = torch.autograd.grad(loss, [router.head_.map.weight])
    return -float((towards * slope).sum())


def test_the_mixture_pushes_the_router_away_where_the_replacement_is_still_worse_and_labels_never_do(
    backbone: HFBackbone, family_path: Paths
) -> None:
    """The same pair of question and entry, once with a backbone that needs no edit, once with a replacement that has learned."""
    path = str(family_path("internvl"))
    router = MixedScope(encoder=Words(), train="head").attach(backbone)
    (item,) = entries(CASES[:1])
    alone = Entry(item.knowledge, item.positives[1:], ())
    answers = {(item.knowledge, GENERAL[0]): "A gift."}
    wanted = [Lesson(item.knowledge, GENERAL[0], "A gift.")]

    def pulled(knowing: HFBackbone, replacement: Replacement, epochs: int) -> float:
        teaching = replacement.attach(backbone).begin(wanted)
        if epochs:
            train(teaching, Training(epochs=epochs))
        learner = MixedLearner(router, [alone], Partners(knowing, teaching, answers, {}))
        return pull(router, learner.parts(0)[0])

    knowing = load_backbone(path, device="cpu")
    FineTune(lr=1e-2).attach(knowing).insert(Knowledge(GENERAL[0], "A gift."))
    away = pulled(knowing, Replacement(model=path), 0)
    towards = pulled(backbone, Replacement(model=path, lr=1e-2), 25)
    labels = pull(router, ScopeLearner(router, [alone]).losses([0], [0])["positive"])
    assert away < 0 < towards < labels


def test_in_the_published_way_even_what_no_entry_concerns_is_answered_by_the_mixture(
    make: Callable[..., SERAC], backbone: HFBackbone
) -> None:
    editor = make(**SOFT).attach(backbone)
    with limited(backbone, 3):
        editor.fit(toy_cases(1))
        editor.insert(ENTRIES[0])
        editor.insert(ENTRIES[1])
        decided = editor.decide(KEPT)
        assert not any(decision.active for decision in decided)
        assert editor.route(KEPT) == [editor.edits_[str(decision.nearest)] for decision in decided]
        said = [answer.text for answer in editor.generate(KEPT[:1])]
    other, entry = editor.replacement_, editor.route(KEPT[:1])[0]
    assert entry is not None
    told = other.told(KEPT[0], entry)
    assert said == [write_mixed(backbone, KEPT[0], other.backbone_, told, decided[0].score, 3).text]
    editor.reset()
    assert editor.route(KEPT) == [None] * len(KEPT)


def test_models_that_split_answers_differently_cannot_be_mixed(
    make: Callable[..., SERAC], backbone: HFBackbone, family_path: Paths
) -> None:
    editor = make(**SOFT, replacement=str(family_path("llava"))).attach(backbone)
    with pytest.raises(DataError, match="one tokenizer|one vocabulary"):
        editor.fit(toy_cases(1))
