"""Memory-conditioned insertion: what is shown to the model, when, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache as remembered
from pathlib import Path

import numpy as np
import pytest
import samples
import torch
from fakes import FakeBackbone, FakeBenchmark, delta
from torch import Tensor

import kedit.features
from kedit.answers import limited
from kedit.backbone import HFBackbone
from kedit.editor import Editor
from kedit.errors import NotFittedError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.methods.mcki import MCKI
from kedit.routers.base import Router, Vectors
from kedit.routers.contrastive import HiddenRouter
from kedit.testing import check_editor, toy_cases
from kedit.types import Answer, Case, Knowledge, Probe, Request
from kedit.wording import WRAPS, with_facts, wrapped

NEW = 6
SMALL = {"dim": 16, "epochs": 2}
QUESTION = "What is shown in this picture?"
FACT = Knowledge(Request(QUESTION, (samples.A,)), "A gift for the guest.")
OTHER = Knowledge(Request("这张图片里有什么?", (samples.B,), "zh"), "一顶绿色的帽子。")
CASES = [
    Case(
        f"c{n}",
        (Knowledge(Request(f"{text} {n}?", (image,), language), "A red clock."),),
        (
            Probe("generality", Request(f"{text} again {n}?", (other,), language), "A red clock."),
            Probe("locality", Request(f"{elsewhere} {n}?", (image,), language), None),
        ),
    )
    for n, (text, elsewhere, language, image, other) in enumerate(
        [
            ("What is shown", "Why would it matter", "en", samples.A, samples.B),
            ("一顶绿色的帽子", "送礼物给客人", "zh", samples.B, samples.C),
            ("A gift for a guest", "Which one", "en", samples.C, samples.A),
        ]
    )
]


class Worded(FakeBackbone):
    """States that tell the words of the question, so that other questions have other features."""

    def hidden(self, requests: Sequence[Request], *, layer: int = -1) -> list[Tensor]:
        return [self._states(request) for request in requests]

    def _states(self, request: Request) -> Tensor:
        return torch.stack([letter_state(letter) for letter in request.question])


@remembered
def letter_state(letter: str) -> Tensor:
    """(8,), another for every letter."""
    return delta(letter)[0]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for every test."""
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    kedit.features._SHARED.clear()
    return tmp_path / "cache"


def fitted(backbone: HFBackbone | Worded, **params: object) -> MCKI:
    editor = MCKI(**{**SMALL, **params}).attach(backbone)  # type: ignore[arg-type]
    return editor.fit(CASES)


def length(backbone: HFBackbone, request: Request) -> int:
    return int(backbone.prompts.encode(request)["input_ids"].shape[1])


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_a_request_that_an_entry_concerns_gets_it_before_image_and_question_and_others_come_back_as_they_are() -> None:
    editor = fitted(Worded(), threshold=0.999)
    asked = Request(QUESTION, (samples.A,), context=("Look.",))
    assert editor.rewrite(asked) is asked, "nothing is inserted"
    editor.insert(FACT)
    hit = editor.rewrite(FACT.request)
    text = wrapped(QUESTION, FACT.answer, "en")
    assert hit == Request(QUESTION, (samples.A,), context=(samples.A, text))
    assert QUESTION in text
    assert FACT.answer in text
    miss = Request("Something that is entirely different and long?")
    assert editor.rewrite_all([miss, FACT.request])[0] is miss
    never = fitted(Worded(), threshold=1.1)
    never.insert(FACT)
    assert never.rewrite(FACT.request) is FACT.request


def test_an_entry_precedes_what_the_request_brings_itself_and_its_image_can_stay_away() -> None:
    asked = Request(QUESTION, (samples.A,), context=("Look.",))
    for stored_image, images in ((True, (samples.A,)), (False, ())):
        editor = fitted(Worded(), threshold=-1.0, stored_image=stored_image)
        editor.insert(FACT)
        assert editor.rewrite(asked).context == (*images, wrapped(QUESTION, FACT.answer, "en"), "Look.")


def test_the_nearest_entry_is_shown_in_words_of_the_language_of_the_request() -> None:
    editor = fitted(Worded(), threshold=-1.0)
    for fact in (FACT, OTHER):
        editor.insert(fact)
    context = editor.rewrite(OTHER.request).context
    assert context == (samples.B, wrapped(OTHER.request.question, OTHER.answer, "zh"))
    assert "参考" in str(context[1])


def test_wraps_exist_in_every_language_differ_and_hold_question_and_answer() -> None:
    texts = {language: wrapped("Q {answer}", "A {question}", language) for language in WRAPS}
    assert set(texts) == {"en", "zh", "ar"}
    assert len(set(texts.values())) == 3
    assert all(text.count("Q {answer}") == text.count("A {question}") == 1 for text in texts.values())
    assert wrapped("Q", "A", "fr") == wrapped("Q", "A", "en")
    assert wrapped("Q", "A", "zh", "fact") == with_facts([("Q", "A")])
    own = {"ar": "{answer} <- {question} {other}"}
    assert wrapped("Q", "A", "ar", own) == "A <- Q {other}"
    assert wrapped("Q", "A", "zh", own) == wrapped("Q", "A", "zh")
    with pytest.raises(UnknownNameError, match="fact"):
        wrapped("Q", "A", "en", "facts")


# -- the same answers at less cost -------------------------------------------------------------------------------------

families = pytest.mark.parametrize("backbone", ["internvl", "qwen3_5", "smolvlm", "qwen2_5_vl"], indirect=True)


@pytest.fixture
def brief(backbone: HFBackbone) -> Iterator[HFBackbone]:
    """The backbone with short answers."""
    with limited(backbone, NEW):
        yield backbone


@families
def test_reading_a_request_once_gives_the_answers_of_reading_it_for_routing_and_again_for_the_answer(
    brief: HFBackbone, cache: Path
) -> None:
    requests = [*samples.WITH_IMAGES, FACT.request, OTHER.request, *samples.TEXT[:3], FACT.request]
    probe = fitted(brief)
    probe.insert(FACT)
    probe.insert(OTHER)
    scores = sorted(decision.score for decision in probe.decide(requests))
    threshold = (scores[5] + scores[6]) / 2  # so that there are requests on either side
    answers: list[list[Answer]] = []
    for plain in (False, True):
        kedit.features._SHARED.clear()
        editor = MCKI(**SMALL, threshold=threshold, plain=plain).attach(brief)  # type: ignore[arg-type]
        editor.router_.cache_dir = cache / f"apart-{plain}"  # type: ignore[attr-defined]
        editor.router_.build()
        editor.fit(CASES)
        for fact in (FACT, OTHER):
            editor.insert(fact)
        assert [new is not old for new, old in zip(probe.rewrite_all(requests), requests, strict=True)].count(True) >= 3
        answers.append([])
        for again in range(2):  # the second time every request is known
            found = editor.generate(requests)
            assert not again or found == answers[-1]
            answers[-1] = found
        hits = [new is not old for new, old in zip(editor.rewrite_all(requests), requests, strict=True)]
        assert hits.count(False) >= 5
        assert hits.count(True) >= 3
    assert answers[0] == answers[1]


@families
def test_a_miss_costs_one_prompt_and_a_hit_two_and_what_was_read_before_one_less(brief: HFBackbone) -> None:
    counted = brief.counters
    asked = samples.WITH_IMAGES[1]
    for threshold, generations in ((1.1, 1), (-1.1, 1)):
        kedit.features._SHARED.clear()
        editor = fitted(brief, threshold=threshold)
        editor.insert(FACT)
        vision = 0 if threshold > 1 else 1
        rewritten = None if threshold > 1 else editor._with(FACT, asked)
        second = 0 if rewritten is None else length(brief, rewritten)
        key = asked.key
        editor.router_.features_._known.pop(key, None)  # type: ignore[attr-defined]
        editor.router_.features_.reused = 0  # type: ignore[attr-defined]
        counted.reset()
        first = editor.generate([asked])
        assert counted.prefill_tokens == length(brief, asked) + second
        assert (counted.generations, counted.vision_calls) == (generations, 1 + vision)
        counted.reset()
        assert editor.generate([asked]) == first
        assert counted.prefill_tokens == (second or length(brief, asked))
        assert counted.generations == 1


def test_nothing_inserted_costs_what_the_backbone_costs(brief: HFBackbone) -> None:
    editor = fitted(brief)
    brief.counters.reset()
    editor.generate([samples.TEXT[0]])
    assert brief.counters.prefill_tokens == length(brief, samples.TEXT[0])


def test_a_run_puts_its_questions_off_and_asks_the_backbone_only_what_is_new(tmp_path: Path) -> None:
    found = {}
    for plain in (False, True):
        backbone, benchmark = Worded(), FakeBenchmark(3)
        editor = MCKI(**SMALL, wrap="fact", stored_image=False)  # type: ignore[arg-type]
        run = evaluate(editor, backbone, benchmark, cache_dir=tmp_path / str(plain), plain=plain)
        found[plain] = [(r.key, r.output) for r in run.records("mcki")]
        if not plain:
            assert editor.deferrable
            assert max(map(len, backbone.calls)) > 8, "questions of several cases are asked together"
    assert found[False] == found[True]


# -- any router --------------------------------------------------------------------------------------------------------


class Words(Router):
    """Requests are near when they share words; nothing to learn."""

    fitted_ = True
    threshold_ = 0.5

    def keys(self, knowledge: Sequence[Knowledge]) -> Vectors:
        return self.queries([item.request for item in knowledge])

    def queries(self, requests: Sequence[Request]) -> Vectors:
        rows = np.zeros((len(requests), 97), np.float32)
        for row, request in zip(rows, requests, strict=True):
            for word in request.question.lower().split():
                row[sum(word.encode()) % 97] = 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def fit(self, cases: Sequence[Case], **options: object) -> Words:
        return self

    def state(self) -> dict[str, torch.Tensor]:
        return {"nothing": torch.zeros(1)}

    def load_state(self, state: object) -> None:
        pass


def test_another_router_with_this_answerer_is_one_line() -> None:
    editor = MCKI(router=Words(), wrap="fact", stored_image=False).attach(Worded())
    editor.insert(Knowledge(Request("Who brought the clock?"), "The guest."))
    near, far = Request("Who brought this clock?"), Request("Why would it matter?")
    assert editor.rewrite(near).context == (with_facts([("Who brought the clock?", "The guest.")]),)
    assert editor.rewrite(far) is far
    assert len(editor.generate([near, far])) == 2


def test_a_fitted_router_given_to_an_editor_needs_no_fit_and_stays_as_it_is() -> None:
    backbone = Worded()
    router = HiddenRouter(dim=16, epochs=1).attach(backbone).fit(CASES)
    keys = router.keys([FACT])
    editor = MCKI(router=router).attach(backbone)
    editor.insert(FACT)
    assert np.array_equal(editor.router_.keys([FACT]), keys)


def test_its_own_router_has_the_parameters_given() -> None:
    given = {"dim": 8, "gamma": 5.0, "in_batch_negatives": False, "scenario_weight": 2.0, "calibration": "balanced", "seed": 3}
    made = MCKI(**given).make_router()  # type: ignore[arg-type]
    assert isinstance(made, HiddenRouter)
    assert {name: getattr(made, name) for name in given} == given
    paper = MCKI().make_router().get_params()
    assert (paper["dim"], paper["gamma"], paper["lr"], paper["epochs"]) == (1024, 20.0, 1e-3, 1)
    assert (paper["language_weight"], paper["scenario_weight"], paper["negative_loss_weight"]) == (1.0, 1.5, 1.0)


# -- life and artefacts ------------------------------------------------------------------------------------------------


def test_it_keeps_the_contract_of_editors() -> None:
    report = check_editor(MCKI(**SMALL), Worded(), toy_cases())  # type: ignore[arg-type]
    assert "inserting before fit() raises NotFittedError" in report.kept
    assert "remove() takes an edit back or raises NotRemovableError, and KeyError for an unknown id" in report.kept


def test_a_removed_edit_is_not_found_any_more() -> None:
    editor = fitted(Worded(), threshold=-1.0)
    first, second = editor.insert(FACT), editor.insert(OTHER)
    editor.remove(second)
    assert editor.rewrite(OTHER.request).context == (samples.A, wrapped(QUESTION, FACT.answer, "zh"))
    editor.remove(first)
    assert editor.rewrite(OTHER.request) is OTHER.request


def test_what_was_fitted_and_inserted_comes_back_without_reading_anything_on_the_same_backbone(tmp_path: Path) -> None:
    backbone = Worded()
    editor = fitted(backbone, wrap="fact")
    for fact in (FACT, OTHER):
        editor.insert(fact)
    editor.save(tmp_path / "editor")
    editor.save_edits(tmp_path / "edits")
    asked = [FACT.request, OTHER.request, samples.TEXT[0]]
    expected = editor.rewrite_all(asked)

    def elsewhere(backbone: Worded, name: str) -> MCKI:
        made = MCKI(**SMALL, wrap="fact").attach(backbone)  # type: ignore[arg-type]
        made.router_.cache_dir = tmp_path / name  # type: ignore[attr-defined]
        made.router_.build()
        made.load(tmp_path / "editor").load_edits(tmp_path / "edits")
        return made

    same = elsewhere(Worded(), "empty")
    assert same.router_.features_.extracted == 0  # type: ignore[attr-defined]
    assert list(same.edits_) == ["edit-1", "edit-2"]
    assert [r.key for r in same.rewrite_all(asked)] == [r.key for r in expected]
    same.remove("edit-1")
    assert len(same.memory_) == 1
    changed = Worded()
    changed.model[0].weight += 1
    other = elsewhere(changed, "empty too")
    assert other.router_.features_.extracted == 2, "other weights have other states"  # type: ignore[attr-defined]


def test_edits_are_loaded_only_into_a_fitted_editor(tmp_path: Path) -> None:
    editor = fitted(Worded())
    editor.insert(FACT)
    editor.save_edits(tmp_path)
    bare: Editor = MCKI(**SMALL).attach(Worded())  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        bare.load_edits(tmp_path)


# -- fitted or not -----------------------------------------------------------------------------------------------------


def test_attached_anew_it_is_as_fitted_as_its_router_is() -> None:
    editor = fitted(Worded())
    assert not editor.attach(Worded()).fitted, "it has a new router, which has learned nothing"
    with pytest.raises(NotFittedError, match="fit"):
        editor.insert(FACT)
    router = HiddenRouter(dim=16, epochs=1).attach(Worded()).fit(CASES)
    given = MCKI(router=router).attach(Worded())
    assert given.fitted
    given.insert(FACT)


def test_a_score_of_exactly_the_threshold_is_in_scope() -> None:
    editor = fitted(Worded())
    editor.insert(FACT)
    asked = CASES[1].probes[0].request
    (decision,) = editor.decide([asked])
    for threshold, active in ((decision.score, True), (np.nextafter(decision.score, 2), False)):
        editor.router_.threshold_ = float(threshold)
        assert editor.decide([asked])[0].active is active
        assert (editor.rewrite(asked) is asked) is not active


def test_any_index_of_the_memory_can_be_named() -> None:
    for index in ("auto", "ivf", "numpy"):
        editor = fitted(Worded(), index=index)
        editor.insert(FACT)
        editor.insert(OTHER)
        assert editor.memory_.index == index
        assert editor.decide([OTHER.request])[0].nearest == "edit-2"
