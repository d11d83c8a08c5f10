"""The image-text scope classifier: fusion in numbers, keys that stand by themselves, and published ones that do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import clips
import numpy as np
import pytest
import torch
from samples import A, B, C
from torch import Tensor

from kedit.errors import ContractError, DataError, UnknownNameError
from kedit.image_encoders import PairEncoder, load_clip
from kedit.memory import Memory
from kedit.routers.image_text import ImageTextScope
from kedit.routers.pairs import entries
from kedit.types import Case, ImageRef, Knowledge, Probe, Request

torch.set_num_threads(1)
HAT, CLOCK, TEA = "is this a red hat", "when do i bring the clock", "what gift is it"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clips.write(tmp_path_factory.mktemp("clip"))


def fact(question: str, *images: ImageRef, answer: str = "an answer") -> Knowledge:
    return Knowledge(Request(question, images), answer)


def norm(vector: Tensor) -> Tensor:
    return vector / vector.norm()


def raw(encoder: PairEncoder, question: str, image: ImageRef | None) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        v = encoder.image_features([image])[0] if image is not None else encoder.blank_feature()
        return encoder.text_features([question])[0], v


# -- one entry by itself -----------------------------------------------------------------------------------------------


def test_a_vector_is_the_weighted_normalised_halves_normalised(folder: Path) -> None:
    router, encoder = ImageTextScope(encoder=str(folder)), load_clip(str(folder))
    with torch.no_grad():
        router.head_.text_weight.fill_(3.0)
    t, v = raw(encoder, HAT, A)
    expected = torch.cat([3 * norm(t), norm(v)]) / math.sqrt(10)
    np.testing.assert_allclose(router.keys([fact(HAT, A)])[0], expected, atol=1e-6)
    assert router.width == 2 * clips.WIDTH == len(expected)


def test_the_image_of_several_is_the_mean_of_their_unit_features(folder: Path) -> None:
    router, encoder = ImageTextScope(encoder=str(folder)), load_clip(str(folder))
    (t, a), (_, b) = raw(encoder, HAT, A), raw(encoder, HAT, B)
    expected = norm(torch.cat([norm(t), norm(norm(a) + norm(b))]))
    np.testing.assert_allclose(router.queries([Request(HAT, (A, B))])[0], expected, atol=1e-6)


def test_a_request_without_image_has_an_image_half_of_zeros(folder: Path) -> None:
    router = ImageTextScope(encoder=str(folder))
    bare, seen = router.queries([Request(HAT), Request(HAT, (A,))])
    assert not bare[clips.WIDTH :].any()
    assert np.linalg.norm(bare) == pytest.approx(1, abs=1e-6)
    assert float(router.similarity(np.array(bare @ seen))) == pytest.approx(0.5567, abs=1e-4)
    assert router.keys([fact(HAT)]).shape == (1, 2 * clips.WIDTH)


def test_the_answer_is_part_of_a_key_only_where_asked(folder: Path) -> None:
    router, with_answer = (ImageTextScope(encoder=str(folder), key_text=text) for text in ("question", "question+answer"))
    asked = router.queries([Request(HAT, (A,))])
    assert np.array_equal(router.keys([fact(HAT, A, answer="bring it")]), asked)
    assert not np.allclose(with_answer.keys([fact(HAT, A, answer="bring it")]), asked)
    assert np.array_equal(with_answer.queries([Request(HAT, (A,))]), asked)


def test_the_share_of_cut_questions_counts_every_request(folder: Path) -> None:
    router = ImageTextScope(encoder=str(folder))
    long = " ".join(["gift"] * clips.LENGTH)
    assert router.truncated_share == 0.0
    for _ in range(2):
        router.queries([Request(long, (A,)), Request(HAT, (A,))])
    assert (router.queries_, router.truncated_, router.truncated_share) == (4, 2, 0.5)


def test_cut_questions_that_begin_alike_are_one(folder: Path) -> None:
    router = ImageTextScope(encoder=str(folder))
    start = " ".join(["gift"] * (clips.LENGTH - 1))
    one, other = router.queries([Request(f"{start} hat", (A,)), Request(f"{start} clock", (A,))])
    assert np.array_equal(one, other)


# -- what else is stored and asked -------------------------------------------------------------------------------------


def stored(router: ImageTextScope, *facts: Knowledge) -> Memory:
    memory = Memory()
    for at, one in enumerate(facts):
        memory.add(str(at), one, router.keys([one])[0])
    return memory


def score(router: ImageTextScope, request: Request, *facts: Knowledge) -> float:
    return router.decide([request], stored(router, *facts))[0].score


def test_the_key_of_an_entry_does_not_move_when_another_is_added(folder: Path) -> None:
    router, near, other = ImageTextScope(encoder=str(folder)), fact(HAT, A), fact(CLOCK, B)
    assert np.array_equal(router.keys([near]), router.keys([near, other])[:1])
    asked = Request(TEA, (A,))
    alone, both = score(router, asked, near), router.score([asked], [near, other])
    assert both[0, 0] == pytest.approx(alone, abs=1e-6)


def published(encoder: PairEncoder, pairs: Sequence[tuple[str, ImageRef | None]]) -> Tensor:
    rows = [raw(encoder, question, image) for question, image in pairs]
    text, image = torch.stack([t for t, _ in rows]), torch.stack([v for _, v in rows])
    return torch.cat([text, torch.softmax(text @ image.T, -1) @ image], -1)


def test_with_the_published_fusion_it_does_and_by_the_published_numbers(folder: Path) -> None:
    router, encoder = ImageTextScope(encoder=str(folder), fusion="dot_legacy", scale=0.05), load_clip(str(folder))
    near, other, asked = fact(HAT, A), fact(CLOCK, B), Request(TEA, (A,))
    query = published(encoder, [(TEA, A)])
    for facts in ([near], [near, other]):
        keys = published(encoder, [(one.request.question, one.request.images[0]) for one in facts])
        expected = torch.exp(-0.05 * ((keys - query) ** 2).sum(-1))
        np.testing.assert_allclose(router.score([asked], facts)[0], expected, rtol=1e-4)
        assert score(router, asked, *facts) == pytest.approx(float(expected.max()), rel=1e-4)
    alone, both = router.score([asked], [near])[0, 0], router.score([asked], [near, other])[0, 0]
    assert abs(alone - both) > 1e-3 * alone


def test_the_published_fusion_mixes_requests_that_are_asked_together(folder: Path) -> None:
    own, legacy = (ImageTextScope(encoder=str(folder), fusion=fusion, scale=0.05) for fusion in ("entry", "dot_legacy"))
    requests = [Request(TEA, (A,)), Request(CLOCK, (C,))]
    for router, same in ((own, True), (legacy, False)):
        together = router.score(requests, [fact(HAT, A)])[:, 0]
        alone = [router.score([request], [fact(HAT, A)])[0, 0] for request in requests]
        assert np.allclose(together, alone, rtol=1e-4) is same


def test_the_published_fusion_of_one_is_both_features_side_by_side(folder: Path) -> None:
    router, encoder = ImageTextScope(encoder=str(folder), fusion="dot_legacy", scale=0.05), load_clip(str(folder))
    key, query = torch.cat(raw(encoder, HAT, A)), torch.cat(raw(encoder, HAT, None))
    np.testing.assert_allclose(router.keys([fact(HAT, A)])[0], norm(key), atol=1e-6)
    np.testing.assert_allclose(router.queries([Request(HAT)])[0], norm(query), atol=1e-6)
    expected = math.exp(-0.05 * float(((key - query) ** 2).sum()))
    assert router.score([Request(HAT)], [fact(HAT, A)])[0, 0] == pytest.approx(expected, rel=1e-4)


def test_the_published_fusion_has_no_similarity_of_a_cosine(folder: Path) -> None:
    with pytest.raises(ContractError, match="use score"):
        ImageTextScope(encoder=str(folder), fusion="dot_legacy").similarity(np.array(0.5))


def test_an_empty_memory_concerns_nothing(folder: Path) -> None:
    for fusion in ("entry", "dot_legacy"):
        decision = ImageTextScope(encoder=str(folder), fusion=fusion).decide([Request(HAT)], Memory())[0]
        assert (decision.nearest, decision.active) == (None, False)


# -- learning ----------------------------------------------------------------------------------------------------------


def case(question: str, image: ImageRef, other: ImageRef) -> Case:
    own = Knowledge(Request(question, (image,)), f"about {question}")
    also = Request(f"the {question}", (image,))
    return Case(question, (own,), (Probe("gen", also, own.answer), Probe("loc", Request(question, (other,)), None)))


CASES = [case(HAT, A, B), case(CLOCK, B, C), case(TEA, C, A)]


def sides(router: ImageTextScope) -> tuple[float, float]:
    positives, negatives = router.own_scores(entries(CASES))
    return float(positives.min()), float(negatives.max())


@pytest.mark.parametrize(
    ("train", "params"),
    [
        ("all", {"epochs": 40, "lr": 3e-3}),
        ("head", {"epochs": 80, "lr": 1e-2, "scale_lr": 3e-2}),
        ("weights", {"epochs": 200, "scale_lr": 1e-1}),
    ],
)
def test_fitting_separates_the_same_question_about_other_images(folder: Path, train: str, params: dict[str, Any]) -> None:
    shared = load_clip(str(folder)).text_features([HAT])
    router = ImageTextScope(encoder=str(folder), train=train, batch_size=3, **params)
    assert sides(router)[1] > 0.5  # the same words about another image count as the same
    before = sides(router)
    router.fit(CASES)
    after = sides(router)
    assert after[0] > 0.5 > after[1]
    assert after[0] - after[1] > before[0] - before[1]
    assert torch.equal(load_clip(str(folder)).text_features([HAT]), shared)


def test_the_published_fusion_can_be_trained_in_log_space_too(folder: Path) -> None:
    router = ImageTextScope(encoder=str(folder), fusion="dot_legacy", train="all", epochs=20, lr=1e-3, batch_size=3, scale_lr=0.0)
    learner = router.learner(entries(CASES))
    before = learner.mean_loss(3)
    router.fit(CASES)
    assert router.learner(entries(CASES)).mean_loss(3) < before
    assert router.scale_.item() == 1.0


def test_a_frozen_encoder_sees_every_text_and_image_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    router = ImageTextScope(encoder=load_clip(str(folder)), train="weights", epochs=3)
    seen: list[Any] = []
    for name in ("text_features", "image_features"):
        plain = getattr(router.encoder, name)
        monkeypatch.setattr(router.encoder, name, lambda items, plain=plain: (seen.extend(items), plain(items))[1])
    router.fit(CASES, val=CASES)
    copied = [replace(image, data=bytes(image.data or b"")) for image in (A, B, C)]
    router.queries([Request(HAT, (image,)) for image in copied])
    assert len(seen) == 6 + 3


def test_a_loaded_router_scores_as_the_saved_one_and_holds_only_what_was_learned(folder: Path, tmp_path: Path) -> None:
    names = {"all": 3 + len(load_clip(str(folder)).model.state_dict()), "head": 5, "weights": 3}
    requests, facts = [Request(HAT, (B,)), Request(TEA)], [one.chain[0] for one in CASES]
    for train, count in names.items():
        router = ImageTextScope(encoder=str(folder), train=train, epochs=1).fit(CASES)
        router.save(tmp_path / train)
        again = ImageTextScope(encoder=str(folder), train=train).load(tmp_path / train)
        np.testing.assert_allclose(again.score(requests, facts), router.score(requests, facts), rtol=1e-5)
        assert len(router.state()) == count
    with pytest.raises(DataError, match="fusion='entry'"):
        ImageTextScope(encoder=str(folder), train="weights", fusion="dot_legacy").load(tmp_path / "weights")


def test_a_misspelt_fusion_is_named(folder: Path) -> None:
    with pytest.raises(UnknownNameError, match="fusion"):
        ImageTextScope(encoder=str(folder), fusion="dot").keys([])
