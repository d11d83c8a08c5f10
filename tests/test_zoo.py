"""The embedded backbone: what it may learn from, how training resumes, and that the shipped files are what they claim."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from kedit.backbone import load_backbone
from kedit.benchmarks import scene
from kedit.errors import UnknownNameError
from kedit.rouge import MultilingualTokenizer
from kedit.types import Request
from kedit.wording import SYSTEM_PROMPTS
from kedit.zoo import catalogue, train
from kedit.zoo.encode import Encoder, Scrambler
from kedit.zoo.measure import request_of
from kedit.zoo.plan import Phase, Plan
from kedit.zoo.samples import Maker, Sample, draw_spec, scenarios

NAME = "tiny-internvl"


@pytest.fixture(scope="module")
def backbone():
    return load_backbone(NAME)


@pytest.fixture(scope="module")
def maker(backbone) -> Maker:
    rng = random.Random(7)
    images = {name: [draw_spec(rng, name) for _ in range(2)] for name in sorted(scenarios())}
    return Maker(images, Scrambler(backbone.processor.tokenizer))


def grams(text: str) -> set[tuple[str, ...]]:
    tokens = MultilingualTokenizer().tokenize(text)
    return {tuple(tokens[at : at + 6]) for at in range(len(tokens) - 5)}


def answers_of_all_scenarios() -> set[tuple[str, ...]]:
    """Six-token sequences of every culture-conditioned answer, cut at what names the drawn object, which is shared by right."""
    found: set[tuple[str, ...]] = set()
    for info in scenarios().values():
        for partition in info["partitions"].values():
            for answer in partition["answers"]:
                for part in answer.replace("{place}", "{object}").split("{object}"):
                    found |= grams(part)
    return found


def test_no_training_text_shares_six_tokens_with_a_culture_conditioned_answer(maker: Maker) -> None:
    forbidden = answers_of_all_scenarios()
    assert len(forbidden) > 5_000
    rng = random.Random(11)
    seen = 0
    for at in range(1_500):
        sample = maker.draw(rng, ("look", "read")[at % 2], at / 1_500)
        for text in [sample.answer, *(piece.text for piece in sample.pieces)]:
            shared = grams(text) & forbidden
            assert not shared, (sample.kind, shared)
            seen += len(grams(text))
    assert seen > 50_000


def test_questions_of_test_scenarios_are_never_trained_on(maker: Maker) -> None:
    rng = random.Random(13)
    held_out = {
        q
        for info in scenarios().values()
        if info["split"] != "single_train"
        for p in info["partitions"].values()
        for q in p["questions"]
    }
    held_out = {q for q in held_out if "{" not in q}
    asked = {maker.draw(rng, "read", 1.0).pieces[-1].text for _ in range(1_500)}
    assert len(held_out) > 100
    assert not asked & held_out


def test_training_shows_the_model_exactly_the_prompt_that_the_backbone_builds(backbone, maker: Maker) -> None:
    encoder = Encoder(backbone.processor, catalogue.recipe_of(NAME))
    rng = random.Random(17)
    samples = [maker.draw(rng, "read", 1.0) for _ in range(24)]
    for sample in [sample for sample in samples if sample.kind != "recall"]:
        ids = encoder(sample).ids
        prompt = backbone.prompts.encode(request_of(sample))["input_ids"][0].tolist()
        assert ids[: len(prompt)] == prompt
        answer = backbone.processor.tokenizer(sample.answer, add_special_tokens=False)["input_ids"]
        assert ids[len(prompt) :] == [*answer, backbone.processor.tokenizer.eos_token_id]


def test_loss_weights_lie_on_the_answer_and_on_repeated_facts_only(backbone, maker: Maker) -> None:
    encoder = Encoder(backbone.processor, catalogue.recipe_of(NAME))
    rng = random.Random(19)
    sample = next(s for s in iter(lambda: maker.referenced(rng, "copy", 1, 0, True), None))
    encoded = encoder(sample)
    fact_text = sample.pieces[0].text
    decode = backbone.processor.tokenizer.decode
    answered = decode([i for i, w in zip(encoded.ids, encoded.weights, strict=True) if w >= 1.0])
    repeated = decode([i for i, w in zip(encoded.ids, encoded.weights, strict=True) if 0 < w < 1.0])
    assert answered.strip() == sample.answer + "<|end|>"
    assert repeated.strip() == sample.answer
    assert fact_text.count(sample.answer) == 3  # demonstration: fact and repetition; then the fact itself


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the weights matter, what they can do is not measured."""
    monkeypatch.setattr(train, "_write_card", lambda *_: None)


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("name", [NAME, "tiny-qwen3.5"])
def test_a_stopped_training_resumes_to_the_same_weights(tmp_path: Path, name: str) -> None:
    phases = (Phase("look", 2, 2e-3, 2), Phase("read", 1, 1e-3, 1))
    inherit = {"eyes_imitate": 1, "layer_imitate": 1}
    plan = Plan(phases, corpus=50, images=1, vision_steps=2, vision_batch=8, budget=600, save_every=1, **inherit)
    whole = train.train(name, tmp_path / "whole", plan)
    real = train.save_checkpoint
    calls = []

    def stop_after_two(file: Path, model: object, optimiser: object, step: int) -> None:
        real(file, model, optimiser, step)
        calls.append(step)
        if step == 2 and calls.count(2) == 1:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "save_checkpoint", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            train.train(name, tmp_path / "stopped", plan)
    resumed = train.train(name, tmp_path / "stopped", plan)
    assert (whole / "model.safetensors").read_bytes() == (resumed / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_two_processes_take_the_same_steps_as_one(tmp_path: Path) -> None:
    plan = Plan((Phase("look", 2, 2e-3, 2),), corpus=50, images=1, vision_steps=1, vision_batch=8, budget=600, save_every=2)
    found = []
    for workers in (1, 2):
        folder = train.train(NAME, tmp_path / str(workers), plan, workers=workers)
        found.append(torch.load(folder.parent / train.LANGUAGE, weights_only=True)["model"])
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in sorted(catalogue.PRESETS) if catalogue.available(name)])
def test_shipped_weights_are_small_and_load_with_plain_transformers(name: str) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    folder = catalogue.folder(name)
    assert (folder / "model.safetensors").stat().st_size <= 8_000_000
    assert (folder / "README.md").exists()
    model = AutoModelForImageTextToText.from_pretrained(folder)
    assert 2_500_000 < sum(p.numel() for p in model.parameters()) < 4_500_000
    assert AutoProcessor.from_pretrained(folder).tokenizer.eos_token == "<|end|>"


@pytest.mark.parametrize("language", ["en", "zh", "ar"])
def test_it_answers_in_the_language_asked_and_stops(backbone, language: str) -> None:
    from kedit.flags import flags_of
    from kedit.types import ImageRef
    from kedit.zoo.words import GENERIC_QUESTIONS

    rng = random.Random(23)
    specs = [draw_spec(rng) for _ in range(12)]
    questions = [q for q in GENERIC_QUESTIONS[language] if "{" not in q][:12]
    requests = [
        Request(q, (ImageRef(data=scene.render(spec)),), language, SYSTEM_PROMPTS[language])
        for q, spec in zip(questions, specs, strict=True)
    ]
    flagged = [flags_of(a, language, reference_tokens=0, max_new_tokens=64) for a in backbone.generate(requests)]
    assert sum(bool(flags) for flags in flagged) <= 1, flagged


def test_catalogue_knows_its_presets_and_suggests_the_nearest_name() -> None:
    assert catalogue.resolve("OpenGVLab/InternVL3_5-8B-HF") is None
    with pytest.raises(UnknownNameError, match="tiny-internvl"):
        catalogue.folder("tiny-intervl")


def test_a_sample_without_context_is_a_plain_question(maker_without_model: Maker) -> None:
    sample: Sample = maker_without_model.plain(random.Random(3), naming=True)
    request = request_of(sample)
    assert len(request.images) == 1
    assert request.context == ()


@pytest.fixture(scope="module")
def maker_without_model() -> Maker:
    rng = random.Random(29)
    return Maker({name: [draw_spec(rng, name)] for name in sorted(scenarios())}, lambda r, language: r.choice(["ka", "lu", "mi"]))


def test_learning_rate_warms_up_and_falls() -> None:
    rates = [train.schedule(step, 100, 1.0, warmup=10) for step in range(100)]
    assert rates[0] < rates[9] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.05, abs=0.01)
    assert torch.tensor(rates[10:]).diff().max() <= 0
