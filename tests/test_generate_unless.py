"""A prompt read once serves both the decision whether to answer and the answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import samples
import torch
from models import TEXT_ONLY
from torch import Tensor

from kedit.answers import limited
from kedit.backbone import HFBackbone
from kedit.errors import ContractError
from kedit.types import Request

NEW = 8
families = pytest.mark.parametrize("backbone", ["internvl", "qwen3_5", "gemma3", "llava", "text_base"], indirect=True)


def mixed(backbone: HFBackbone) -> list[Request]:
    return samples.asked(backbone.structure.image_token_id is None)


def prompt_length(backbone: HFBackbone, request: Request) -> int:
    return int(backbone.prompts.encode(request)["input_ids"].shape[1])


def never(batch: Sequence[Request], states: Sequence[Tensor]) -> list[bool]:
    return [False] * len(batch)


@families
def test_requests_that_are_not_taken_get_the_answers_of_generate_and_the_others_none(backbone: HFBackbone) -> None:
    requests = mixed(backbone)
    plain = backbone.generate(requests, max_new_tokens=NEW)
    taken = {request.key for request in requests[::3]}
    found = backbone.generate_unless(requests, lambda batch, states: [r.key in taken for r in batch], max_new_tokens=NEW)
    assert found == [None if r.key in taken else answer for r, answer in zip(requests, plain, strict=True)]
    assert sum(answer is not None and answer.tokens > 2 for answer in found) >= 5, "the answers are too short to prove anything"
    assert backbone.generate_unless(requests, never, max_new_tokens=NEW) == plain


@families
@pytest.mark.parametrize("layer", [-1, 0])
def test_the_decision_sees_the_states_that_hidden_gives(backbone: HFBackbone, layer: int) -> None:
    requests = mixed(backbone)
    seen: dict[str, Tensor] = {}
    calls: list[int] = []

    def decide(batch: Sequence[Request], states: Sequence[Tensor]) -> list[bool]:
        calls.append(len(batch))
        seen.update({r.key: state for r, state in zip(batch, states, strict=True)})
        return [True] * len(batch)

    assert backbone.generate_unless(requests, decide, layer=layer, max_new_tokens=NEW) == [None] * len(requests)
    assert sum(calls) == len(requests), "each is decided once"
    for request, state in zip(requests, backbone.hidden(requests, layer=layer), strict=True):
        assert state.shape == (prompt_length(backbone, request), 64)
        assert torch.allclose(seen[request.key], state, atol=1e-4)


@families
def test_a_taken_request_costs_its_prompt_and_one_that_is_not_what_generate_costs(backbone: HFBackbone) -> None:
    layers, counted = len(backbone.layers), backbone.counters
    request = samples.TEXT[0] if backbone.structure.image_token_id is None else samples.WITH_IMAGES[0]
    length = prompt_length(backbone, request)
    counted.reset()
    backbone.generate_unless([request], lambda batch, states: [True], max_new_tokens=NEW)
    assert (counted.prefill_tokens, counted.layer_token_forwards, counted.generations) == (length, layers * length, 0)
    assert counted.vision_calls == (0 if backbone.structure.vision is None else 1)
    counted.reset()
    backbone.generate([request], max_new_tokens=NEW)
    plain = (counted.prefill_tokens, counted.layer_token_forwards, counted.generations, counted.vision_calls)
    counted.reset()
    backbone.generate_unless([request], never, max_new_tokens=NEW)
    assert (counted.prefill_tokens, counted.layer_token_forwards, counted.generations, counted.vision_calls) == plain


def test_a_run_limit_of_new_tokens_holds_here_too(backbone: HFBackbone) -> None:
    with limited(backbone, 3):
        found = backbone.generate_unless(samples.TEXT[:2], never)
    assert found == backbone.generate(samples.TEXT[:2], max_new_tokens=3)
    assert "generate_unless" not in vars(backbone)


def test_no_hook_stays_when_the_decision_fails(backbone: HFBackbone) -> None:
    def decide(batch: Sequence[Request], states: Sequence[Tensor]) -> list[bool]:
        raise ValueError("cannot decide")

    with pytest.raises(ValueError, match="cannot decide"):
        backbone.generate_unless(samples.TEXT[:1], decide)
    assert not backbone.structure.decoder._forward_hooks
    with pytest.raises(ContractError, match="gave 0 results for 1 requests"):
        backbone.generate_unless(samples.TEXT[:1], lambda batch, states: [])


def test_out_of_memory_halves_the_batch_and_decides_again(backbone: HFBackbone) -> None:
    sizes: list[int] = []

    def decide(batch: Sequence[Request], states: Sequence[Tensor]) -> list[bool]:
        sizes.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("made on purpose")
        return [False] * len(batch)

    requests = samples.TEXT[:4]
    assert backbone.generate_unless(requests, decide, max_new_tokens=3) == backbone.generate(requests, max_new_tokens=3)
    assert sizes == [4, 2, 2]


def test_no_requests_give_no_answers(backbone: HFBackbone) -> None:
    assert backbone.generate_unless([], never) == []


@pytest.mark.parametrize("backbone", TEXT_ONLY[:1], indirect=True)
def test_answers_that_are_not_finite_are_marked_as_in_generate(backbone: HFBackbone) -> None:
    token = backbone.prompts.tokenizer("Z", add_special_tokens=False)["input_ids"][-1]
    weight = backbone.model.get_input_embeddings().weight
    before = weight[token].clone()
    try:
        weight[token] = float("nan")
        answers = backbone.generate_unless([Request("Why?"), Request("Z?")], never, max_new_tokens=3)
    finally:
        weight[token] = before
    assert [answer.finite for answer in answers if answer is not None] == [True, False]
