"""Pooled features are read once per request, kept, shared, and never those of edited weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
import torch
from fakes import FakeBackbone

from kedit.backbone import HFBackbone
from kedit.errors import ContractError, StoreError
from kedit.features import PooledFeatures, shared_features
from kedit.types import Request

REQUESTS = [Request(f"What is number {n}?") for n in range(5)]


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


@pytest.mark.parametrize("backbone", ["internvl", "qwen3_5"], indirect=True)
def test_features_are_the_means_over_question_tokens_and_over_visual_tokens(backbone: HFBackbone, tmp_path: Path) -> None:
    requests = [*samples.WITH_IMAGES, samples.TEXT[4]]
    found = PooledFeatures(backbone, cache_dir=tmp_path)(requests)
    for row, (request, states) in enumerate(zip(requests, backbone.hidden(requests), strict=True)):
        spans = backbone.token_spans(request)
        assert torch.allclose(found.question[row], states[list(spans.question)].mean(0), atol=1e-5)
        if request.images:
            assert torch.allclose(found.visual[row], states[list(spans.visual)].mean(0), atol=1e-5)
        else:
            assert not found.visual[row].any()
    assert found.question.dtype == torch.float32
    assert (found.question.std(0) > 0.05).any(), "the features are too alike to prove anything"


def test_another_layer_has_other_features(backbone: HFBackbone, tmp_path: Path) -> None:
    last = PooledFeatures(backbone, cache_dir=tmp_path)(samples.TEXT[:2])
    first = PooledFeatures(backbone, layer=0, cache_dir=tmp_path)(samples.TEXT[:2])
    assert not torch.allclose(first.question, last.question, atol=1e-2)


def test_a_second_reader_and_a_repeated_request_read_nothing(tmp_path: Path) -> None:
    first = PooledFeatures(FakeBackbone(), cache_dir=tmp_path)
    found = first([*REQUESTS, REQUESTS[0]])
    assert (first.extracted, first.reused) == (5, 1)
    first(REQUESTS[::-1])
    assert (first.extracted, first.reused) == (5, 6)
    second = PooledFeatures(FakeBackbone(), cache_dir=tmp_path)  # as another process would
    again = second([*REQUESTS, REQUESTS[0]])
    assert (second.extracted, second.reused) == (0, 6)
    assert torch.equal(again.question, found.question)
    assert torch.equal(again.visual, found.visual)


def test_readers_of_one_backbone_share_what_is_in_memory(tmp_path: Path) -> None:
    backbone = FakeBackbone()
    one = shared_features(backbone, cache_dir=tmp_path)
    assert shared_features(backbone, cache_dir=tmp_path) is one
    assert shared_features(backbone, layer=0, cache_dir=tmp_path) is not one
    assert shared_features(FakeBackbone(), cache_dir=tmp_path) is not one
    backbone.model[0].weight += 1
    assert shared_features(backbone, cache_dir=tmp_path) is not one, "another state of the weights has other features"


def test_other_weights_and_other_layers_are_kept_apart(tmp_path: Path) -> None:
    PooledFeatures(FakeBackbone(), cache_dir=tmp_path)(REQUESTS)
    other = FakeBackbone()
    other.model[0].weight += 1
    for reader in (PooledFeatures(other, cache_dir=tmp_path), PooledFeatures(FakeBackbone(), layer=0, cache_dir=tmp_path)):
        reader(REQUESTS[:2])
        assert reader.extracted == 2


def test_edited_weights_are_refused_even_where_the_answer_would_be_new(tmp_path: Path) -> None:
    backbone = FakeBackbone()
    features = PooledFeatures(backbone, cache_dir=tmp_path)
    features(REQUESTS[:1])
    backbone.model[1].bias += 1
    with pytest.raises(ContractError, match=r"1 of its weights are edited \(1\.bias\)"):
        features(REQUESTS)
    with pytest.raises(ContractError, match="edited"):
        features.take(REQUESTS[1:2], backbone.hidden(REQUESTS[1:2]))
    features(REQUESTS[:1])  # what was read before is still what the unedited backbone says
    backbone.model[1].bias -= 1


def test_weights_edited_before_the_first_request_are_refused(tmp_path: Path) -> None:
    backbone = FakeBackbone()
    features = PooledFeatures(backbone, cache_dir=tmp_path)
    backbone.model[1].bias += 1
    with pytest.raises(ContractError, match="edited"):
        features(REQUESTS)
    assert not files(tmp_path)


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty"])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: str) -> None:
    found = PooledFeatures(FakeBackbone(), cache_dir=tmp_path)(REQUESTS)
    [path] = files(tmp_path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes({"torn": bytes(data[: len(data) // 2]), "flipped": bytes(data), "empty": b""}[damage])
    second = PooledFeatures(FakeBackbone(), cache_dir=tmp_path)
    assert torch.equal(second(REQUESTS).question, found.question)
    assert second.extracted == 5
    third = PooledFeatures(FakeBackbone(), cache_dir=tmp_path)
    third(REQUESTS)
    assert third.extracted == 0


def test_what_another_process_reads_meanwhile_is_not_read_again(tmp_path: Path) -> None:
    here, there = (PooledFeatures(FakeBackbone(), cache_dir=tmp_path) for _ in range(2))
    here(REQUESTS[:1])
    there(REQUESTS[1:4])
    here(REQUESTS)
    assert (here.extracted, there.extracted) == (2, 3)


def test_processes_that_train_together_begin_at_different_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kedit.features._CHUNK", 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    orders = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        backbone = FakeBackbone()
        read: list[Request] = []
        hidden = backbone.hidden

        def noted(requests: list[Request], *, layer: int = -1, read: list[Request] = read, hidden: object = hidden) -> object:
            read.extend(requests)
            return hidden(requests, layer=layer)  # type: ignore[operator]

        monkeypatch.setattr(backbone, "hidden", noted)
        PooledFeatures(backbone, cache_dir=tmp_path / rank)(REQUESTS)
        orders.append([REQUESTS.index(request) for request in read])
    assert orders[0] == [0, 1, 2, 3, 4]
    assert orders[1][0] == 2
    assert sorted(orders[1]) == orders[0]


def test_many_small_files_are_put_together_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kedit.features._MANY", 3)
    writer = PooledFeatures(FakeBackbone(), cache_dir=tmp_path)
    for request in REQUESTS:
        writer([request])
    assert len(files(tmp_path)) == 5
    for _ in range(2):
        reader = PooledFeatures(FakeBackbone(), cache_dir=tmp_path)
        reader(REQUESTS)
        assert reader.extracted == 0
        assert len(files(tmp_path)) == 1


def test_states_from_a_pass_that_was_needed_anyway_are_kept(tmp_path: Path) -> None:
    backbone = FakeBackbone()
    expected = PooledFeatures(FakeBackbone(), cache_dir=tmp_path / "other")(REQUESTS)
    features = PooledFeatures(backbone, cache_dir=tmp_path)
    assert not features.knows(REQUESTS[0])
    features.take(REQUESTS, backbone.hidden(REQUESTS))
    features.take(REQUESTS, backbone.hidden(REQUESTS))
    assert features.knows(REQUESTS[0])
    assert torch.equal(features(REQUESTS).question, expected.question)
    assert (features.extracted, features.taken, features.reused) == (0, 5, 5)
    features.flush()
    assert PooledFeatures(FakeBackbone(), cache_dir=tmp_path).knows(REQUESTS[4])


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "features").write_text("in the way")
    with pytest.raises(StoreError, match="KEDIT_CACHE"):
        PooledFeatures(FakeBackbone(), cache_dir=tmp_path)(REQUESTS)


def test_no_requests_give_no_features(tmp_path: Path) -> None:
    assert PooledFeatures(FakeBackbone(), cache_dir=tmp_path)([]).question.shape[0] == 0
