"""Image-text encoders read safetensors only, count what they cut, and never share what is trained."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import clips
import open_clip
import pytest
import samples
import torch
from torch.testing import assert_close

from kedit.errors import CheckpointError, ImageError, UnknownNameError
from kedit.image_encoders import PairEncoder, load_clip
from kedit.images import open_image
from kedit.types import ImageRef

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clips.write(tmp_path_factory.mktemp("clip"))


def test_features_are_those_of_open_clip_itself(folder: Path) -> None:
    encoder = load_clip(str(folder))
    model, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    texts = ["red hat", "what is this gift"]
    pixels = torch.stack([preprocess(open_image(image)) for image in (samples.A, samples.B)])
    with torch.no_grad():
        assert_close(encoder.text_features(texts), model.eval().encode_text(tokenizer(texts)))
        assert_close(encoder.image_features([samples.A, samples.B]), model.encode_image(pixels))
        assert_close(encoder.blank_feature(), model.encode_image(torch.zeros(1, 3, 16, 16))[0])
    assert encoder.width == clips.WIDTH


def test_texts_are_cut_with_their_end_kept_and_counted_only_beyond_the_limit(folder: Path) -> None:
    encoder = load_clip(str(folder))
    fits, longer = " ".join(["red"] * (clips.LENGTH - 1)), " ".join(["red"] * clips.LENGTH)
    ids, cut = encoder.tokens(["", "red", fits, longer, longer + " hat"])
    assert ids.shape == (5, clips.LENGTH)
    assert cut == [False, False, False, True, True]
    assert ids[3, -1] == 1
    encoder.text_features([fits, longer, longer])
    assert (encoder.texts_, encoder.truncated_) == (3, 2)


def test_cut_texts_are_found_with_open_clips_own_byte_pair_tokenizer() -> None:
    encoder = PairEncoder("", None, None, open_clip.SimpleTokenizer())
    assert encoder.length == 77
    assert encoder.tokens(["a " * 75, "a " * 76, "a " * 77, "礼" * 60])[1] == [False, True, True, True]


def test_a_copy_shares_no_weight_and_starts_counting_anew(folder: Path) -> None:
    encoder = load_clip(str(folder))
    before = encoder.text_features(["red hat"])
    own = encoder.copy()
    assert (own.texts_, own.truncated_) == (0, 0)
    with torch.no_grad():
        for parameter in own.model.parameters():
            parameter.add_(1.0)
    assert torch.equal(load_clip(str(folder)).text_features(["red hat"]), before)


def test_a_loaded_model_is_frozen_in_evaluation_mode_and_fp32(folder: Path) -> None:
    model = load_clip(str(folder)).model
    assert not model.training
    assert all(p.dtype == torch.float32 and not p.requires_grad for p in model.parameters())


def test_weights_written_anew_are_read_anew(tmp_path: Path) -> None:
    clips.write(tmp_path, seed=0)
    first = load_clip(str(tmp_path)).text_features(["red hat"])
    clips.write(tmp_path, seed=1)
    assert not torch.equal(load_clip(str(tmp_path)).text_features(["red hat"]), first)


def test_an_embedded_encoder_is_found_by_name_in_a_folder_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clips.write(tmp_path / "tiny-clip")
    monkeypatch.setenv("KEDIT_ZOO", str(tmp_path))
    assert load_clip("tiny-clip").width == clips.WIDTH


def test_loading_says_nothing_of_random_weights(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    copied = clips.write(folder.parent / "quiet")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        load_clip(str(copied))
    assert caplog.records == []


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_folder_with_pickled_weights_only_is_refused(tmp_path: Path) -> None:
    clips.write(tmp_path)
    (tmp_path / "open_clip_model.safetensors").rename(tmp_path / "open_clip_pytorch_model.bin")
    with pytest.raises(CheckpointError, match="safetensors"):
        load_clip(str(tmp_path))


def test_safetensors_are_read_even_where_open_clip_would_take_the_pickle_beside_them(tmp_path: Path) -> None:
    clips.write(tmp_path, weights="model.safetensors")
    (tmp_path / "open_clip_pytorch_model.bin").write_bytes(b"not to be opened")
    assert load_clip(str(tmp_path)).width == clips.WIDTH


def test_a_pickled_file_is_refused_as_weights_of_an_architecture(tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    file.write_bytes(b"not to be opened")
    with pytest.raises(CheckpointError, match="safetensors"):
        load_clip("ViT-B-32", str(file))


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    config = clips.write(tmp_path) / "open_clip_config.json"
    config.write_text(config.read_text().replace(f'"embed_dim": {clips.WIDTH}', '"embed_dim": 7'))
    with pytest.raises(CheckpointError, match="size mismatch"):
        load_clip(str(tmp_path))


def test_a_misspelt_name_or_tag_lists_what_is_near() -> None:
    with pytest.raises(UnknownNameError, match="ViT-L-14"):
        load_clip("ViT-L14")
    with pytest.raises(UnknownNameError, match="'openai'"):
        load_clip("ViT-L-14", "openia")


def test_a_broken_image_names_itself(folder: Path) -> None:
    with pytest.raises(ImageError):
        load_clip(str(folder)).image_features([ImageRef(data=b"no image")])


def test_weights_get_the_activation_that_they_were_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def create(name: str, **options: Any) -> None:
        asked.update(options, name=name)
        raise RuntimeError("no network here")

    monkeypatch.setattr(open_clip, "create_model", create)
    with pytest.raises(CheckpointError, match="no network here"):
        load_clip()
    assert (asked["name"], asked["pretrained"], asked["force_quick_gelu"]) == ("ViT-L-14", "openai", True)
    with pytest.raises(CheckpointError):
        load_clip("ViT-L-14", "laion2b_s32b_b82k")
    assert asked["force_quick_gelu"] is False
