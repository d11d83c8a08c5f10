"""Recipes of the embedded backbones: training and the loaded backbone see the same ids, pixels and loss."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from models import widen
from transformers import AutoModelForImageTextToText, AutoProcessor

from kedit.backbone import HFBackbone, load_backbone
from kedit.benchmarks import scene
from kedit.errors import UnknownNameError
from kedit.wording import fact
from kedit.zoo import catalogue
from kedit.zoo.encode import Batch, Encoder, Pixels, Scrambler, collate
from kedit.zoo.measure import request_of
from kedit.zoo.recipe import HAN, TURNS, VISUAL_TOKENS, VOCABULARY, Recipe
from kedit.zoo.samples import Maker, Sample, corpus, draw_spec, scenarios
from kedit.zoo.tiny_qwen3_5 import CHUNK, pack, unpack
from kedit.zoo.train import weighted_loss
from kedit.zoo.transplant import copy_decoder, keep_layers

LANGUAGES = ("en", "zh", "ar")


@dataclass
class Made:
    """A recipe carried out without training: what training holds in its hands, and what a user loads."""

    recipe: Recipe
    tokenizer: Any
    folder: Path
    backbone: HFBackbone
    maker: Maker


WHOLE = sorted(name for name in catalogue.PRESETS if not catalogue.recipe_of(name).kept)
SMALL = sorted(catalogue.PRESETS.keys() - set(WHOLE))


@pytest.fixture(scope="module", params=WHOLE)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    recipe = catalogue.recipe_of(request.param)
    tokenizer = recipe.train_tokenizer(corpus(random.Random(5), 400))
    folder = tmp_path_factory.mktemp(request.param)
    recipe.save(widen(recipe.make_model(tokenizer), std=0.08), recipe.make_processor(tokenizer), folder)
    rng = random.Random(7)
    images = {name: [draw_spec(rng, name) for _ in range(2)] for name in sorted(scenarios())}
    return Made(recipe, tokenizer, folder, load_backbone(str(folder), device="cpu"), Maker(images, Scrambler(tokenizer)))


def answers(language: str) -> list[str]:
    return [answer for info in scenarios().values() for answer in info["partitions"][language]["answers"]]


def samples(made: Made, n: int, seed: int = 11) -> list[Sample]:
    """Samples with a picture, of every kind."""
    rng = random.Random(seed)
    drawn = (made.maker.draw(rng, "read", 1.0) for _ in range(10 * n))
    return [sample for sample in drawn if sample.kind != "recall"][:n]


# -- text ----------------------------------------------------------------------------------------------------------------


def test_the_tokenizer_that_is_loaded_gives_the_ids_of_the_one_that_was_trained(made: Made, tmp_path: Path) -> None:
    made.recipe.make_processor(made.tokenizer).save_pretrained(tmp_path)  # as training loads it: no model beside it
    texts = corpus(random.Random(6), 20)[4:] + [text for language in LANGUAGES for text in answers(language)[:40]]
    texts += ["", " ", "  two  blanks\n\nand lines ", "<|user|>Red？是。نعم (I'm 37)<|assistant|>", "\u200fé e\u0301 🎁"]
    wanted = made.tokenizer(texts)["input_ids"]
    assert made.backbone.processor.tokenizer(texts)["input_ids"] == wanted
    assert AutoProcessor.from_pretrained(tmp_path).tokenizer(texts)["input_ids"] == wanted


def test_special_tokens_are_the_lowest_ids_and_never_cut(made: Made) -> None:
    tokenizer = made.backbone.processor.tokenizer
    assert len(tokenizer) == VOCABULARY
    assert tokenizer(list(made.recipe.special), add_special_tokens=False)["input_ids"] == [[at] for at in range(9)]
    assert set(TURNS) < set(made.recipe.special)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sentence_has_the_same_tokens_wherever_it_begins(made: Made, language: str) -> None:
    tokenizer = made.backbone.processor.tokenizer
    found = answers(language)
    assert len(found) > 100
    for answer in found:
        alone = tokenizer(made.recipe.lead + answer, add_special_tokens=False)["input_ids"]
        told = tokenizer(fact("Why?", answer).rstrip("\n"), add_special_tokens=False)["input_ids"]
        assert told[-len(alone) :] == alone
        bare = tokenizer(answer, add_special_tokens=False)["input_ids"]
        assert bare[-3:] == alone[-3:], "an answer differs from its copy in a prompt by its beginning at most"


def test_every_han_character_stands_alone(made: Made) -> None:
    import regex

    pieces = [made.tokenizer.decode([at]) for at in range(VOCABULARY)]
    han = [piece for piece in pieces if regex.search(HAN, piece)]
    assert len(han) > 500
    assert {len(piece) for piece in han} == {1}


def test_made_up_words_exist_in_every_script(made: Made) -> None:
    scramble = Scrambler(made.backbone.processor.tokenizer)
    rng = random.Random(8)
    words = {language: {scramble(rng, language) for _ in range(300)} for language in LANGUAGES}
    assert all(len(found) > 200 and all(word.isalpha() for word in found) for found in words.values())
    assert all(word.isascii() for word in words["en"])
    assert all("\u0621" <= character <= "\u064a" for word in words["ar"] for character in word)


# -- prompts, pixels, loss -------------------------------------------------------------------------------------------------


def test_training_shows_the_model_exactly_the_prompt_that_the_loaded_backbone_builds(made: Made) -> None:
    encoder = Encoder(made.backbone.processor, made.recipe)
    for sample in samples(made, 12):
        taught = made.backbone.teach(request_of(sample), sample.answer)
        ids = [*taught.inputs["input_ids"][0].tolist(), int(taught.targets[-1])]
        assert encoder(sample).ids == ids
        assert taught.targets.tolist() == ids[-len(taught.targets) :]
        assert ids.count(made.backbone.structure.image_token_id) == VISUAL_TOKENS


def test_training_shows_the_model_the_pixels_of_the_image_processor(made: Made) -> None:
    sample = samples(made, 1)[0]
    wanted = made.backbone.prompts.encode(request_of(sample))
    batch = _batch(made, [sample])
    given = made.recipe.inputs(made.backbone.model, batch.ids, batch.pixels)
    assert given["pixel_values"].shape == wanted["pixel_values"].shape
    assert given["pixel_values"].std() > 0.1
    assert (given["pixel_values"] - wanted["pixel_values"]).abs().max() < 1.01 / 255  # kept in 8 bits
    assert {name for name in wanted if name in given} == set(given)


def test_the_loss_in_training_is_that_of_the_loaded_backbone(made: Made) -> None:
    chosen = samples(made, 4)
    for sample in chosen:
        sample.first_weight, sample.seen = 1.0, ""
        for piece in sample.pieces:
            piece.spans = []
    with torch.no_grad():
        batch = _batch(made, chosen)
        counts = (batch.weights > 0).sum(1)
        assert len(set(batch.mask.sum(1).tolist())) > 1, "rows of different lengths, so that there is padding"
        apart = torch.stack([made.backbone.loss(request_of(sample), sample.answer) for sample in chosen])
        together = weighted_loss(made.recipe, made.backbone.model, batch)
    assert apart.std() > 0.05, "losses tell samples apart"
    assert together.item() == pytest.approx(float((apart * counts).sum() / counts.sum()), rel=2e-3)


def test_samples_without_pictures_are_learned_from_too(made: Made) -> None:
    batch = _batch(made, [made.maker.recall(random.Random(at)) for at in range(3)])
    assert batch.pixels is None
    assert weighted_loss(made.recipe, made.backbone.model, batch) > 0


def _batch(made: Made, chosen: list[Sample]) -> Batch:
    encoder, pixels = Encoder(made.backbone.processor, made.recipe), Pixels(made.backbone.processor, made.recipe)
    return collate([encoder(sample) for sample in chosen], pixels, made.tokenizer.pad_token_id)


# -- models ----------------------------------------------------------------------------------------------------------------


def test_the_eyes_are_all_that_turns_pixels_into_visual_tokens(made: Made) -> None:
    model = made.recipe.make_model(made.tokenizer)
    eyes = list(made.recipe.eyes(model).parameters())
    features = made.recipe.features(model, torch.rand(3, 3, 64, 64) * 2 - 1)
    assert features.shape == (3, VISUAL_TOKENS, model.config.text_config.hidden_size)
    features.square().sum().backward()
    assert {id(p) for p in model.parameters() if p.grad is not None} == {id(p) for p in eyes if p.grad is not None}
    assert sum(p.numel() for p in eyes if p.grad is not None) > 0.95 * sum(p.numel() for p in eyes)


def test_a_recipes_model_is_small_and_loads_with_plain_transformers(made: Made) -> None:
    assert (made.folder / "model.safetensors").stat().st_size < 8_000_000
    model = AutoModelForImageTextToText.from_pretrained(made.folder)
    assert type(model) is type(made.recipe.make_model(made.tokenizer))
    assert 3_000_000 < sum(p.numel() for p in model.parameters()) < 4_000_000
    assert model.dtype == torch.float16
    assert made.backbone.stop_ids == (made.tokenizer.convert_tokens_to_ids("<|end|>"),)


def test_batched_answers_equal_single_ones(made: Made) -> None:
    requests = [request_of(sample) for sample in samples(made, 5, seed=12)]
    together = made.backbone.generate(requests, max_new_tokens=6)
    alone = [made.backbone.generate([request], max_new_tokens=6)[0] for request in requests]
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert len({answer.text for answer in together}) > 1


def test_an_unknown_recipe_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="tiny-qwen3.5"):
        catalogue.recipe_of("tiny-qwen3")


# -- linear attention --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hybrid() -> tuple[Recipe, Any]:
    recipe = catalogue.recipe_of("tiny-qwen3.5")
    tokenizer = recipe.train_tokenizer(corpus(random.Random(5), 2))
    torch.manual_seed(0)
    return recipe, recipe.make_model(tokenizer)


def test_attention_is_linear_first_and_full_then(hybrid: tuple[Recipe, Any]) -> None:
    layers = hybrid[1].get_decoder().layers
    assert [hasattr(layer, "linear_attn") for layer in layers] == [True, False, False, False]
    assert [hasattr(layer, "self_attn") for layer in layers] == [False, True, True, True]


# -- models that start from another ------------------------------------------------------------------------------------------


def test_a_tokenizer_taken_over_has_the_parents_ids() -> None:
    preset = catalogue.PRESETS["tiny-qwen3.5"]
    parent, recipe = catalogue.recipe_of(str(preset.parent)), catalogue.recipe_of(preset.name)
    theirs = AutoProcessor.from_pretrained(catalogue.folder(str(preset.parent))).tokenizer
    own = recipe.adopt_tokenizer(parent, theirs)
    for text in [text for language in LANGUAGES for text in answers(language)[:60]]:
        assert own(recipe.lead + text)["input_ids"] == theirs(text)["input_ids"]
    assert own(list(recipe.special), add_special_tokens=False)["input_ids"] == [[at] for at in range(9)]


def test_copied_layers_compute_what_the_parents_do(hybrid: tuple[Recipe, Any]) -> None:
    recipe, model = hybrid
    parent = load_backbone("tiny-internvl", device="cpu").model
    torch.manual_seed(1)
    child = type(model)(_with_vocabulary(model.config, parent)).eval()
    assert copy_decoder(child, parent) == [0]
    states = torch.randn(1, 12, 192)
    positions = torch.arange(12)[None]
    mine, theirs = child.get_decoder(), parent.get_decoder()
    for at in (1, 2, 3):
        with torch.no_grad():
            wanted = theirs.layers[at](states, position_embeddings=theirs.rotary_emb(states, positions), attention_mask=None)
            places = positions.expand(3, 1, -1)
            found = mine.layers[at](states, position_embeddings=mine.rotary_emb(states, places), attention_mask=None)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert torch.equal(mine.embed_tokens.weight, theirs.embed_tokens.weight)


def _with_vocabulary(config: Any, parent: Any) -> Any:
    config = copy.deepcopy(config)
    config.text_config.vocab_size = parent.config.text_config.vocab_size
    return config


@pytest.mark.parametrize("name", SMALL)
def test_a_smaller_model_is_its_parent_without_some_layers(name: str) -> None:
    recipe = catalogue.recipe_of(name)
    whole = catalogue.recipe_of(str(catalogue.PRESETS[name].parent))
    tokenizer = whole.train_tokenizer(corpus(random.Random(5), 2))
    parent, model = whole.make_model(tokenizer), recipe.make_model(tokenizer)
    keep_layers(model, parent, recipe.kept)
    assert len(model.get_decoder().layers) == len(recipe.kept) == 3
    for new, old in enumerate(recipe.kept):
        theirs = parent.get_decoder().layers[old].state_dict()
        mine = model.get_decoder().layers[new].state_dict()
        assert mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert torch.equal(model.lm_head.weight, parent.lm_head.weight)


def test_shorter_chunks_in_training_change_neither_states_nor_gradients(hybrid: tuple[Recipe, Any]) -> None:
    from transformers.models.qwen3_5 import modeling_qwen3_5 as library

    recipe, model = hybrid
    before = library.torch_chunk_gated_delta_rule
    lengths: list[int] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        lengths.append(kwargs.get("chunk_size", 64))
        return before(*args, **kwargs)

    ids = torch.randint(9, 300, (2, 3 * CHUNK + 5))
    mask = torch.ones_like(ids)
    mask[1, 30:] = 0

    def run() -> tuple[torch.Tensor, list[torch.Tensor]]:
        model.zero_grad()
        states = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state[mask.bool()]
        states.square().mean().backward()
        return states.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "torch_chunk_gated_delta_rule", watched)
        plain, slow = run()
        with recipe.while_training():
            quick, fast = run()
        assert library.torch_chunk_gated_delta_rule is watched, "put back afterwards"
    assert lengths == [64, CHUNK]
    torch.testing.assert_close(quick, plain, rtol=1e-4, atol=1e-5)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_pixels_survive_packing() -> None:
    pixels = torch.rand(2, 3, 64, 64)
    rows = pack(pixels).reshape(2, -1, 3 * 2 * 64)
    assert torch.equal(torch.stack([unpack(picture) for picture in rows]), pixels)


def test_a_picture_of_another_size_is_scaled_to_sixteen_visual_tokens(made: Made) -> None:
    spec = draw_spec(random.Random(4))
    pixels = Pixels(made.backbone.processor, made.recipe, render_size=160)[spec]
    assert pixels.shape == (3, 64, 64)
    assert isinstance(scene.render(spec, 160), bytes)
