"""The Hugging Face backbone keeps the Backbone contract on every family."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import samples
import torch
from models import FAMILIES, TEXT_ONLY
from torch import nn

from kedit.backbone import Backbone, HFBackbone, load_backbone
from kedit.batching import FiniteWatch
from kedit.errors import FamilyError, ImageError, KeditError, RequestError
from kedit.families import read_structure
from kedit.types import ImageRef, Request

every_family = pytest.mark.parametrize("backbone", FAMILIES, indirect=True)
every_vlm = pytest.mark.parametrize("backbone", [f for f in FAMILIES if f not in TEXT_ONLY], indirect=True)
NEW = 10


def sees(backbone: HFBackbone) -> bool:
    return backbone.structure.image_token_id is not None


def requests_for(backbone: HFBackbone) -> list[Request]:
    return samples.asked(not sees(backbone))


def uncached_greedy(backbone: HFBackbone, request: Request, steps: int) -> list[int]:
    """The plainest decoding there is: the whole model over everything so far, for every token."""
    inputs = backbone.teach(request, "").inputs
    kind = backbone.prompts.family.answer_type_id
    written: list[int] = []
    for _ in range(steps):
        written.append(int(backbone.forward(inputs).logits[0, -1].argmax()))
        if written[-1] in backbone.stop_ids:
            return written[:-1]
        more = {"input_ids": written[-1], "attention_mask": 1, "token_type_ids": kind, "mm_token_type_ids": 0}
        grown = {n: torch.cat([v, v.new_full((1, 1), more[n])], 1) for n, v in inputs.items() if n in more}
        inputs = {**inputs, **grown}
    return written


# -- generation --------------------------------------------------------------------------------------------------------


@every_family
def test_a_left_padded_batch_gives_the_same_tokens_as_one_by_one(backbone: HFBackbone) -> None:
    requests = requests_for(backbone)
    assert len(requests) >= 12
    together = backbone.generate(requests, max_new_tokens=NEW)
    alone = [backbone.generate([request], max_new_tokens=NEW)[0] for request in requests]
    assert together == alone
    assert len({answer.text for answer in together}) >= 8, "the answers are too alike to prove anything"
    assert all(answer.finite for answer in together)


@every_family
def test_cached_generation_gives_the_tokens_of_plain_forward_passes(backbone: HFBackbone) -> None:
    requests = requests_for(backbone)[:5]
    expected = [backbone.prompts.tokenizer.decode(uncached_greedy(backbone, r, NEW), skip_special_tokens=True) for r in requests]
    assert [a.text for a in backbone.generate(requests, max_new_tokens=NEW)] == [text.strip() for text in expected]


@every_vlm
def test_a_text_only_request_is_answered_alike_before_and_after_an_image(backbone: HFBackbone) -> None:
    before = backbone.generate(samples.TEXT[:2], max_new_tokens=NEW)
    backbone.generate(samples.WITH_IMAGES[:3], max_new_tokens=2)
    assert backbone.generate(samples.TEXT[:2], max_new_tokens=NEW) == before


@every_vlm
def test_every_image_of_a_request_changes_the_answer_state(backbone: HFBackbone) -> None:
    question = samples.WITH_IMAGES[4].question
    pairs = [(samples.A, samples.B), (samples.A, samples.C), (samples.C, samples.B)]
    last = [state[-1] for state in backbone.hidden([Request(question, pair) for pair in pairs])]
    assert not torch.allclose(last[0], last[1], atol=1e-3)
    assert not torch.allclose(last[0], last[2], atol=1e-3)


def test_no_requests_give_no_answers(backbone: HFBackbone) -> None:
    assert backbone.generate([]) == []
    assert backbone.hidden([]) == []


@pytest.mark.parametrize("question", ["", " \n\t"])
def test_an_empty_question_is_refused_before_anything_is_generated(backbone: HFBackbone, question: str) -> None:
    backbone.counters.reset()
    with pytest.raises(RequestError, match="question is empty"):
        backbone.generate([samples.TEXT[0], Request(question)])
    assert backbone.counters.generations == 0


def test_a_placeholder_in_a_text_is_refused(backbone: HFBackbone) -> None:
    with pytest.raises(RequestError, match="IMG_CONTEXT"):
        backbone.generate([Request("What is <IMG_CONTEXT>?", (samples.A,))])


def test_a_broken_image_is_named(backbone: HFBackbone, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"broken\.png"):
        backbone.generate([Request("What?", (ImageRef(path=str(tmp_path / "broken.png")),))])


@pytest.mark.parametrize("backbone", TEXT_ONLY, indirect=True)
def test_a_text_only_model_refuses_images(backbone: HFBackbone) -> None:
    with pytest.raises(RequestError, match="text only"):
        backbone.generate([samples.WITH_IMAGES[0]])


def test_an_answer_ends_at_the_first_stop_token_and_says_whether_it_was_cut(
    backbone: HFBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = samples.WITH_IMAGES[0]
    ids = uncached_greedy(backbone, request, 6)
    cut = backbone.generate([request], max_new_tokens=6)[0]
    assert (cut.tokens, cut.truncated) == (6, True)
    stop = next(i for i in range(1, 6) if ids[i] not in ids[:i])
    monkeypatch.setitem(backbone.__dict__, "stop_ids", (ids[stop],))
    ended = backbone.generate([request, samples.WITH_IMAGES[1]], max_new_tokens=6)[0]
    assert (ended.tokens, ended.truncated) == (stop, False)
    assert ended.text == backbone.prompts.tokenizer.decode(ids[:stop]).strip()


def test_sampling_and_penalties_of_the_checkpoint_are_not_used(backbone: HFBackbone, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = backbone.generate(samples.TEXT, max_new_tokens=NEW)
    config = backbone.model.generation_config
    for name, value in {"do_sample": True, "temperature": 2.0, "repetition_penalty": 3.0, "max_length": 5}.items():
        monkeypatch.setattr(config, name, value)
    assert backbone.generate(samples.TEXT, max_new_tokens=NEW) == plain
    assert backbone.model.generation_config is config


@pytest.mark.parametrize("backbone", ["text_chat"], indirect=True)
def test_only_the_answer_whose_logits_are_not_finite_is_marked(backbone: HFBackbone) -> None:
    token = backbone.prompts.tokenizer("Z", add_special_tokens=False)["input_ids"][-1]
    weight = backbone.model.get_input_embeddings().weight
    before = weight[token].clone()
    try:
        weight[token] = float("nan")
        answers = backbone.generate([Request("Why?"), Request("Z?"), Request("Who is it?")], max_new_tokens=3)
    finally:
        weight[token] = before
    assert [answer.finite for answer in answers] == [True, False, True]


def test_logits_after_the_end_of_an_answer_do_not_count() -> None:
    watch = FiniteWatch(prompt_length=2, stop_ids=[9])
    watch(torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, 5))
    watch(torch.tensor([[9, 0, 9], [9, 0, 1]]), torch.full((2, 5), float("nan")))
    assert watch.finite(2) == [True, False]


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_running_out_of_memory_halves_the_batch_and_says_so(
    backbone: HFBackbone, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: RuntimeError
) -> None:
    requests = requests_for(backbone)
    expected = backbone.generate(requests, max_new_tokens=4)
    generate, sizes = backbone.model.generate, []

    def small(**inputs: Any) -> Any:
        sizes.append(len(inputs["input_ids"]))
        if sizes[-1] > 2:
            raise error
        return generate(**inputs)

    monkeypatch.setattr(backbone.model, "generate", small)
    with caplog.at_level(logging.WARNING):
        assert backbone.generate(requests, max_new_tokens=4) == expected
    assert sizes == [6, 3, *[1] * len(requests)]
    assert "out of memory" in caplog.text


@pytest.mark.parametrize("limit, message", [(0, "out of memory"), (9, "something else")])
def test_one_prompt_too_large_and_other_errors_are_raised(
    backbone: HFBackbone, monkeypatch: pytest.MonkeyPatch, limit: int, message: str
) -> None:
    def fails(**inputs: Any) -> Any:
        raise torch.OutOfMemoryError(message) if limit == 0 else RuntimeError(message)

    monkeypatch.setattr(backbone.model, "generate", fails)
    with pytest.raises(RuntimeError, match=message):
        backbone.generate(samples.TEXT[:2])


# -- prompts -----------------------------------------------------------------------------------------------------------


@every_family
def test_system_prompt_context_and_question_reach_the_prompt_in_this_order(backbone: HFBackbone) -> None:
    text = backbone.prompts.text(samples.TEXT[4])
    places = [text.index(part) for part in ("Answer in one short", "A gift.\nA guest is here.\nWhich one would you choose?")]
    assert places == sorted(places)


@every_family
def test_the_end_of_sequence_token_is_what_closes_an_assistants_turn(backbone: HFBackbone) -> None:
    closing = {"<end_of_utterance>", "<end_of_turn>", "<|im_end|>", "</s>"}
    end = backbone.prompts.tokenizer.convert_ids_to_tokens(backbone.prompts.end_ids[0])
    assert end in (closing if backbone.prompts.templated else {backbone.prompts.tokenizer.eos_token})


@every_family
def test_a_prompt_has_one_beginning_of_sequence_token_where_the_model_has_one(backbone: HFBackbone) -> None:
    bos = backbone.prompts.tokenizer.bos_token_id
    for request in requests_for(backbone)[:4]:
        assert backbone.prompts.encode(request)["input_ids"][0].tolist().count(bos) == (0 if bos is None else 1)


@every_family
def test_token_spans_are_exactly_the_question_and_the_requests_own_image_tokens(backbone: HFBackbone) -> None:
    for request in requests_for(backbone):
        ids = backbone.prompts.encode(request)["input_ids"][0]
        spans = backbone.token_spans(request)
        assert backbone.prompts.tokenizer.decode(ids[list(spans.question)]).strip() == request.question
        assert list(spans.question) == sorted(spans.question)
        images = int((ids == backbone.structure.image_token_id).sum()) if sees(backbone) else 0
        context = Request(request.question, (), request.language, request.system, request.context)
        before = backbone.prompts.encode(context)["input_ids"][0]
        in_context = int((before == backbone.structure.image_token_id).sum()) if sees(backbone) else 0
        assert len(spans.visual) == images - in_context
        assert all(ids[i] == backbone.structure.image_token_id for i in spans.visual)
        assert not request.images or min(spans.visual) >= in_context


@every_family
@pytest.mark.parametrize("question", ["user", "assistant", "IMAGE", "A gift."])
def test_a_question_that_also_occurs_elsewhere_in_the_prompt_is_found_in_its_place(backbone: HFBackbone, question: str) -> None:
    request = Request(question, context=("A gift. user assistant",))
    ids = backbone.prompts.encode(request)["input_ids"][0]
    found = backbone.token_spans(request).question
    assert backbone.prompts.tokenizer.decode(ids[list(found)]).strip() == question
    assert found[0] > len(backbone.prompts.tokenizer("A gift. user assistant", add_special_tokens=False)["input_ids"]) - 1


def test_tokens_of_a_text_are_counted_without_special_tokens(backbone: HFBackbone) -> None:
    assert backbone.count_tokens("") == 0
    text = "What is shown?"
    assert backbone.count_tokens(text) == len(backbone.prompts.tokenizer.tokenize(text))


# -- loss and hidden states --------------------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("answer", ["A red clock.", "绿色的帽子", "ساعة حمراء", ""])
def test_loss_equals_the_cross_entropy_of_answer_and_end_computed_from_all_logits(backbone: HFBackbone, answer: str) -> None:
    request = requests_for(backbone)[0]
    prompt = backbone.prompts.encode(request)["input_ids"][0].tolist()
    targets = [*backbone.prompts.tokenizer(answer, add_special_tokens=False)["input_ids"], backbone.prompts.end_ids[0]]
    taught = backbone.teach(request, answer)
    assert taught.inputs["input_ids"][0].tolist() == [*prompt, *targets[:-1]]
    logits = backbone.forward(taught.inputs).logits[0].double().log_softmax(-1)
    by_hand = -sum(logits[len(prompt) - 1 + i, token] for i, token in enumerate(targets)) / len(targets)
    assert backbone.loss(request, answer).item() == pytest.approx(by_hand.item(), rel=1e-6)


@every_family
def test_loss_has_a_gradient_for_substituted_parameters_only(backbone: HFBackbone) -> None:
    top = next(parameter for parameter in backbone.layers[-1].parameters() if parameter.dim() == 2)
    name, weight = next((n, p) for n, p in backbone.model.named_parameters() if p is top)
    copy = weight.clone().requires_grad_()
    loss = backbone.loss(requests_for(backbone)[0], "A red clock.", parameters={name: copy})
    (gradient,) = torch.autograd.grad(loss, copy)
    assert gradient.abs().sum() > 0
    assert not backbone.loss(requests_for(backbone)[0], "A red clock.").requires_grad


@every_family
def test_the_last_hidden_states_give_the_logits(backbone: HFBackbone) -> None:
    requests = requests_for(backbone)
    for request, state in zip(requests, backbone.hidden(requests), strict=True):
        logits = backbone.forward(backbone.teach(request, "").inputs).logits[0]
        torch.testing.assert_close(backbone.model.get_output_embeddings()(state), logits, atol=2e-4, rtol=1e-4)


@every_family
def test_hidden_states_of_a_layer_are_that_layers_output(backbone: HFBackbone) -> None:
    requests, count = requests_for(backbone), len(backbone.layers)
    together = backbone.hidden(requests, layer=-2)
    alone = [backbone.hidden([request], layer=count - 2)[0] for request in requests]
    for state, single, request in zip(together, alone, requests, strict=True):
        assert state.shape[0] == backbone.prompts.encode(request)["input_ids"].shape[1]
        torch.testing.assert_close(state, single, atol=2e-4, rtol=1e-4)
    assert not torch.allclose(together[0], backbone.hidden(requests[:1], layer=0)[0], atol=1e-2)


def test_a_layer_outside_the_model_is_refused(backbone: HFBackbone) -> None:
    assert [backbone.layer_index(i) for i in (0, 2, -1, -3)] == [0, 2, 2, 0]
    for outside in (3, -4):
        with pytest.raises(ValueError, match="the model has 3"):
            backbone.layer_index(outside)


# -- the model as a whole ----------------------------------------------------------------------------------------------


@every_family
def test_the_backbone_keeps_the_contract_frozen_and_in_evaluation_mode(backbone: HFBackbone) -> None:
    assert isinstance(backbone, Backbone)
    assert not backbone.model.training
    assert not any(parameter.requires_grad for parameter in backbone.model.parameters())
    assert (backbone.dtype, backbone.device.type) == (torch.float32, "cpu")


@every_family
def test_the_fingerprint_changes_with_one_bit_of_one_weight_and_comes_back(backbone: HFBackbone) -> None:
    before = backbone.fingerprint()
    weight = next(iter(backbone.layers[-1].parameters())).view(-1).view(torch.int32)
    weight[0] ^= 1
    changed = backbone.fingerprint()
    weight[0] ^= 1
    assert changed != before
    assert backbone.fingerprint() == before
    assert len(before) == 64


@every_vlm
def test_counters_say_exactly_what_ran(backbone: HFBackbone) -> None:
    layers = len(backbone.layers)
    request = samples.WITH_IMAGES[0]
    length = backbone.prompts.encode(request)["input_ids"].shape[1]
    backbone.counters.reset()
    answer = backbone.generate([request], max_new_tokens=4)[0]
    written = answer.tokens + (0 if answer.truncated else 1)
    assert written > 1
    counted = backbone.counters
    assert counted.layer_token_forwards == layers * (length + written - 1)  # the last token is never read
    assert (counted.vision_calls, counted.prefill_tokens, counted.generations) == (1, length, 1)
    counted.reset()
    answer_length = backbone.count_tokens("A red clock.")
    backbone.loss(request, "A red clock.")
    assert (counted.layer_token_forwards, counted.generations) == (layers * (length + answer_length), 0)


def test_half_precision_checkpoints_become_fp32_on_a_cpu_and_other_dtypes_are_kept(
    backbone: HFBackbone, tmp_path: Path, family_path: Callable[[str], Path]
) -> None:
    loaded = load_backbone(str(family_path("internvl")), dtype="float16", device="cpu")
    assert loaded.dtype == torch.float16
    loaded.model.save_pretrained(tmp_path)
    loaded.processor.save_pretrained(tmp_path)
    assert load_backbone(str(tmp_path), device="cpu").dtype == torch.float32
    assert load_backbone(str(tmp_path), device="cpu", dtype=torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="float33"):
        load_backbone(str(tmp_path), dtype="float33")
    with pytest.raises(KeditError, match="unknown dtype 'int8'.*bfloat16"):
        load_backbone(str(tmp_path), dtype="int8")


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_read(device: str) -> None:
    with pytest.raises(KeditError, match=f"device '{device}' cannot be used here"):
        load_backbone("tiny-internvl", device=device)


def test_an_unreadable_model_is_refused_with_what_was_looked_for() -> None:
    class Odd(nn.Module):
        def get_decoder(self) -> nn.Module:
            return nn.Linear(2, 2)

    with pytest.raises(FamilyError, match="get_decoder"):
        read_structure(nn.Linear(2, 2))
    with pytest.raises(FamilyError, match=r"Linear\.layers, Linear\.h"):
        read_structure(Odd())
