"""The embedded CLIP: that plain open_clip opens it, what it learned from, and that its training can stop and go on."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("open_clip")

from kedit.benchmarks import scene
from kedit.errors import CheckpointError
from kedit.zoo import catalogue, tiny_clip, train_clip
from kedit.zoo.captions import Told, caption, maker_of, question
from kedit.zoo.measure_clip import Towers, chosen, mean, phrase
from kedit.zoo.samples import draw_spec, scenarios
from kedit.zoo.train_clip import ClipPlan, Source, contrast, loss_of, train
from kedit.zoo.words import LANGUAGES

SHIPPED = Path(catalogue.__file__).parent / "weights" / tiny_clip.NAME
MINI = ClipPlan(images=1, steps=4, scenarios=3, pictures=1, save_every=2)


@pytest.fixture(scope="module")
def towers() -> Towers:
    return Towers(SHIPPED)


@pytest.fixture(scope="module")
def few() -> list[str]:
    return sorted(scenarios())[:3]


@pytest.fixture
def few_scenarios(monkeypatch: pytest.MonkeyPatch, few: list[str]) -> None:
    known = scenarios()
    monkeypatch.setattr("kedit.zoo.train.scenarios", lambda: {name: known[name] for name in few})


def test_plain_open_clip_opens_the_shipped_folder_offline_with_its_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    import open_clip

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model, _ = open_clip.create_model_from_pretrained(f"local-dir:{SHIPPED}")
    ids = open_clip.get_tokenizer(f"local-dir:{SHIPPED}")(["two red wall clocks", "两个红色挂钟", "كلمة " * 200])
    assert ids.shape == (3, 77)
    assert [int((row == 4).sum()) for row in ids] == [1, 1, 1], "every text has its end, a text that is cut as well"
    assert sum(p.numel() for p in model.parameters()) < 3_000_000
    assert (SHIPPED / "open_clip_model.safetensors").stat().st_size < 5_000_000
    assert (SHIPPED / "README.md").exists()


def test_pictures_find_their_phrase_far_above_chance_in_every_language(towers: Towers) -> None:
    rng = random.Random(31)
    specs = [draw_spec(rng, name) for name in sorted(scenarios())[::2]]
    seen = towers.see(specs)
    for language in LANGUAGES:
        read = towers.read([phrase(spec, language) for spec in specs])
        right = ((seen @ read.T).argmax(1) == torch.arange(len(specs))).double().mean()
        assert float(right) > 0.6 > 5 / len(specs), language


def test_pictures_tell_colours_and_counts_far_above_chance(towers: Towers) -> None:
    rng = random.Random(31)
    specs = [draw_spec(rng, name) for name in sorted(scenarios())[::3]]
    for options in (
        lambda s: [replace(s, colour=c) for c in scenarios()[s.scenario]["colours"]],
        lambda s: [replace(s, count=c) for c in scenarios()[s.scenario]["counts"]],
    ):
        rows = [(spec, vector, options(spec)) for spec, vector in zip(specs, towers.see(specs), strict=True)]
        rows = [row for row in rows if len(row[2]) > 1]
        right = mean(chosen(towers, vector, others, "en", placed=False) == spec for spec, vector, others in rows)
        assert right > 0.7 > mean(1 / len(others) for _, _, others in rows)


def test_questions_lie_nearer_to_others_of_their_language_than_to_translations(towers: Towers) -> None:
    rng = random.Random(37)
    maker = maker_of({}, towers.tokenizer.tokenizer)
    specs = [draw_spec(rng, name) for name in sorted(scenarios())]
    texts = {tongue: [question(maker, rng, s, tongue, telling=1.0).text for s in specs] for tongue in LANGUAGES}
    again = {tongue: [question(maker, rng, s, tongue, telling=1.0).text for s in specs] for tongue in LANGUAGES}
    same = (towers.read(texts["zh"]) * towers.read(again["zh"])).sum(-1).mean()
    assert float(same) > float((towers.read(texts["zh"]) * towers.read(again["ar"])).sum(-1).mean()) + 0.1


def test_features_of_short_rows_equal_those_of_padded_ones(towers: Towers) -> None:
    texts = ["a red bill", "左边的两个红色挂钟在这里合适吗？", "هل هذا مقبول؟ " * 60]
    padded = towers.tokenizer(texts)
    rows = [[i for i in row if i != 0] for row in padded.tolist()]
    with torch.no_grad():
        expected = towers.model.encode_text(padded, normalize=True)
        torch.testing.assert_close(tiny_clip.encode_ids(towers.model, rows), expected, rtol=0, atol=2e-6)


def test_the_image_tower_starts_as_the_eyes_of_the_elder_backbone(tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText

    tiny_clip.write_empty(tmp_path)
    model, _, _ = tiny_clip.load(tmp_path, weights=False)
    tiny_clip.open_eyes(model)
    elder = AutoModelForImageTextToText.from_pretrained(catalogue.folder(tiny_clip.ELDER), dtype=torch.float32)
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    with torch.no_grad():
        model.visual.proj.copy_(torch.eye(tiny_clip.WIDTH))
        expected = elder.model.vision_tower(pixels).last_hidden_state[:, 1:].mean(1)
        torch.testing.assert_close(model.encode_image(pixels), expected, rtol=0, atol=1e-5)


def test_no_text_of_a_test_scenario_but_names_and_general_questions_is_trained_on(towers: Towers) -> None:
    maker = maker_of({}, towers.tokenizer.tokenizer)
    rng = random.Random(41)
    held_out = [name for name, info in scenarios().items() if info["split"] != "single_train"]
    forbidden, seen = set(), set()
    for _ in range(600):
        spec, tongue = draw_spec(rng, rng.choice(held_out)), rng.choice(LANGUAGES)
        phrase = maker.words(spec, tongue)
        seen.add(caption(maker, rng, spec, tongue).text)
        partition = scenarios()[spec.scenario]["partitions"][tongue]
        forbidden |= {text.format(**phrase) for text in (*partition["questions"], *partition["answers"])}
    assert len(seen) > 300
    assert not seen & forbidden


def test_a_text_is_true_of_the_picture_it_was_made_for_and_of_no_other_scene(towers: Towers) -> None:
    maker = maker_of({}, towers.tokenizer.tokenizer)
    rng = random.Random(43)
    silent = 0
    for _ in range(300):
        spec = draw_spec(rng)
        found = caption(maker, rng, spec, rng.choice(LANGUAGES))
        assert found.told.fits(spec), found
        silent += found.told.scenario is None
        other = draw_spec(rng)
        assert found.told.scenario is None or other.scenario == spec.scenario or not found.told.fits(other)
    assert 0 < silent < 60
    assert not Told("bill", "red").fits(scene.SceneSpec("bill", "blue"))


def test_contrast_spreads_its_target_over_all_positives_and_skips_rows_without_one() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [5.0, 5.0, 5.0]])
    positive = torch.tensor([[True, True, False], [False, False, False]])
    total = torch.tensor([2.0, 1.0, 0.0]).exp().sum().log()
    assert float(contrast(logits, positive)) == pytest.approx(float(total - 1.5))
    masked = torch.tensor([[-torch.inf, 1.0, 0.0]])
    assert torch.isfinite(contrast(masked, torch.tensor([[False, True, False]])))
    assert float(contrast(logits, torch.zeros(2, 3, dtype=torch.bool))) == 0.0


@pytest.mark.usefixtures("few_scenarios")
def test_first_steps_are_the_same_from_the_same_seed_and_lower_the_loss(tmp_path: Path) -> None:
    def losses(seed: int) -> list[float]:
        tiny_clip.write_empty(tmp_path)
        torch.manual_seed(seed)
        model, preprocess, tokenizer = tiny_clip.load(tmp_path, weights=False)
        plan = ClipPlan(seed=seed, images=1, scenarios=3, pictures=1)
        source = Source(plan, preprocess, tokenizer, tmp_path / f"pixels{seed}.pt")
        optimiser = torch.optim.Adam(model.parameters(), 3e-4)
        found = []
        for _ in range(5):
            loss = loss_of(model, source.batch(0), plan)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            found.append(float(loss.detach()))
        return found

    first = losses(5)
    assert first == losses(5)
    assert all(map(math.isfinite, first))
    assert first != losses(6)
    assert first[-1] < first[0]


@pytest.mark.usefixtures("few_scenarios")
def test_a_stopped_training_resumes_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file

    whole = train(tmp_path / "whole", MINI, measure=0)
    real = train_clip.save_checkpoint

    def stop_after_two(file: Path, model: object, optimiser: torch.optim.Optimizer, step: int) -> None:
        real(file, model, optimiser, step)
        if step == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train_clip, "save_checkpoint", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "stopped", MINI, measure=0)
    assert not (tmp_path / "stopped" / tiny_clip.NAME / "open_clip_model.safetensors").exists()
    resumed = train(tmp_path / "stopped", MINI, measure=0)
    name = "open_clip_model.safetensors"
    assert (whole / name).read_bytes() == (resumed / name).read_bytes()
    assert all(tensor.isfinite().all() for tensor in load_file(whole / name).values())


def test_a_missing_tokenizer_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "folder", lambda name: tmp_path / name)
    with pytest.raises(CheckpointError, match="kedit zoo train"):
        tiny_clip.write_empty(tmp_path)
