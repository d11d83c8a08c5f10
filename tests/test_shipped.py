"""What an editor learned is taken where it ships, made where it does not, and a run says which."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from fakes import FakeBackbone, FakeBenchmark, Lookup
from torch import Tensor

import kedit
import kedit.features
from kedit.backbone import load_backbone
from kedit.benchmarks.kibench_open import KIBenchOpen
from kedit.editor import ContextEditor, Editor
from kedit.errors import DataError, NotFittedError, StoreError
from kedit.evaluate import evaluate
from kedit.methods import MCKI, fitted
from kedit.methods.ike import IKE
from kedit.run import Run
from kedit.types import Case, Request


class Worded(FakeBackbone):
    """States that tell the letters of the question."""

    def hidden(self, requests: Sequence[Request], *, layer: int = -1) -> list[Tensor]:
        def state(letter: str) -> Tensor:
            return torch.tensor(np.random.default_rng(ord(letter)).standard_normal(8), dtype=torch.float32)

        return [torch.stack([state(letter) for letter in request.question]) for request in requests]


class Untrained(FakeBenchmark):
    """A benchmark with nothing to learn from."""

    def train(self, limit: int | None = None) -> list[Case]:
        return []


class Learns(ContextEditor):
    """Forgets what it has learned when it is attached."""

    needs_fit: ClassVar[bool] = True

    def build(self) -> None:
        self.fitted_ = False

    def fit(self, cases: Sequence[Case], **options: Any) -> Learns:
        self.fitted_ = True
        return self

    def load(self, path: str | Path) -> Learns:
        super().load(path)
        self.fitted_ = True
        return self

    def rewrite(self, request: Request) -> Request:
        return request


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    kedit.features._SHARED.clear()


def small(**params: Any) -> MCKI:
    return MCKI(**{"dim": 16, "epochs": 1, "threshold": 0.9, **params})


@pytest.fixture
def ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What MCKI learned for the fake backbone, as if it came with it."""
    folder = tmp_path / "ships"
    small().attach(Worded()).fit(FakeBenchmark().train()).save(folder)
    for place in ("kedit.shipped.artefact", "kedit.zoo.catalogue.artefact"):
        monkeypatch.setattr(place, lambda backbone, editor: folder if (backbone, editor) == ("fake", "mcki") else None)
    return folder


def run(editor: Editor | dict[str, Editor], out: Path, backbone: FakeBackbone | None = None) -> Run:
    return evaluate(editor, backbone or Worded(), FakeBenchmark(2), tasks="single", out=out)


def learned(found: Run) -> str:
    (row,) = found.config["identity"]["editors"].values()
    return str(row["learned"])


# -- in a run ----------------------------------------------------------------------------------------------------------


def test_a_run_takes_what_ships_and_is_the_run_of_the_editor_that_was_loaded_by_hand(
    ships: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(MCKI, "fit", lambda *args, **options: pytest.fail("it was fitted"))
    taken = run(small(), tmp_path / "run")
    assert learned(taken).startswith("artefact ")
    assert not caplog.records
    loaded = small().attach(backbone := Worded()).load(ships)
    assert learned(run(loaded, tmp_path / "run", backbone)) == learned(taken), "the same run, which is complete"
    again = run(loaded, tmp_path / "again", backbone)
    assert [r.output for r in again.records()] == [r.output for r in taken.records()]


def test_other_parameters_are_fitted_with_a_warning_that_names_them(
    ships: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = run(small(dim=8), tmp_path / "run")
    assert learned(found) == "train split"
    (record,) = [r for r in caplog.records if r.name == "kedit.evaluate"]
    assert record.levelno == logging.WARNING
    assert "fitting it on the train split of fake (3 cases)" in record.message
    assert "(dim: 16 -> 8): kedit.fitted('mcki', backbone) takes it" in record.message


def test_an_editor_that_was_given_what_it_learned_keeps_it(ships: Path, tmp_path: Path) -> None:
    backbone = Worded()
    by_hand = small().attach(backbone).fit(FakeBenchmark().train(5))
    assert learned(run(by_hand, tmp_path / "hand", backbone)) == "by hand"


def test_nothing_to_learn_from_is_said_at_once_and_for_all_editors(ships: Path, tmp_path: Path) -> None:
    backbone = Worded()
    editors = {"lookup": Lookup(), "mine": Learns(), "mcki": small(dim=8)}
    with pytest.raises(NotFittedError, match=r"mine, mcki must learn .* fake has no train split\. .*--fitted .*dim: 16 -> 8"):
        evaluate(editors, backbone, Untrained(1), out=tmp_path / "run")
    assert not backbone.calls
    assert not (tmp_path / "run").exists()
    assert len(evaluate(small(), backbone, Untrained(1), tasks="single").records()) == 4, "what ships is enough"


def test_without_a_train_split_demonstrations_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    found = evaluate(IKE(), FakeBackbone(), Untrained(1), tasks="single")
    assert len(found.records()) == 4
    assert "none of 16 demonstrations will be shown" in caplog.text


# -- where it was learned ----------------------------------------------------------------------------------------------


def test_a_fit_by_hand_is_not_called_after_what_was_loaded_or_fitted_before(tmp_path: Path) -> None:
    backbone = FakeBackbone()
    editor = Learns().attach(backbone)
    editor.fit([])
    editor.save(tmp_path / "artefact")
    assert editor.load(tmp_path / "artefact").learned.startswith("artefact ")
    assert editor.fit([]).learned == "by hand"
    fresh = Learns()
    assert learned(run(fresh, tmp_path / "run", backbone)) == "train split"
    assert fresh.learned == "train split"
    assert fresh.fit([]).learned == "by hand"
    with pytest.raises(StoreError, match="by hand"):
        run(fresh, tmp_path / "run", backbone)


def test_what_is_lost_by_another_backbone_is_not_what_the_run_says(tmp_path: Path) -> None:
    editor = Learns().attach(FakeBackbone())
    editor.fit([])
    editor.save(tmp_path / "artefact")
    editor.load(tmp_path / "artefact")
    assert learned(run(editor, tmp_path / "run", FakeBackbone())) == editor.learned == "train split"


# -- by name -----------------------------------------------------------------------------------------------------------


def test_a_fitted_editor_by_name_has_the_parameters_it_was_fitted_with_and_those_given(ships: Path, tmp_path: Path) -> None:
    editor = fitted("mcki", Worded(), wrap="fact")
    assert editor.fitted
    assert (editor.get_params()["dim"], editor.get_params()["wrap"]) == (16, "fact")
    assert editor.learned.startswith("artefact ")
    other = tmp_path / "own"
    small(gamma=5.0).attach(Worded()).fit(FakeBenchmark().train()).save(other)
    assert fitted("mcki:index=numpy", Worded(), other).get_params() == small(gamma=5.0, index="numpy").get_params()
    with pytest.raises(DataError, match="dim=8"):
        fitted("mcki", Worded(), dim=8)


def test_a_fitted_editor_that_nowhere_is_says_how_to_get_one(ships: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match=r"nothing that 'serac' learned ships for 'fake'; fit it: kedit.editor\('serac'\)"):
        fitted("serac", Worded())
    with pytest.raises(NotFittedError, match=r"has no editor\.json"):
        fitted("mcki", Worded(), tmp_path)


def test_what_ships_for_an_embedded_backbone_answers_without_any_training(caplog: pytest.LogCaptureFixture) -> None:
    backbone = load_backbone("tiny-internvl", device="cpu")
    made = kedit.fitted("mcki", backbone)
    found = evaluate([made], backbone, KIBenchOpen(), tasks="single", limit=1, max_new_tokens=4)
    assert learned(found).startswith("artefact ")
    assert len(found.records()) == 8
    same = kedit.editor("mcki", kedit.zoo.catalogue.editor_params("tiny-internvl", "mcki"))
    again = evaluate([same], backbone, KIBenchOpen(), tasks="single", limit=1, max_new_tokens=4)
    assert learned(again) == learned(found)
    assert not caplog.records
