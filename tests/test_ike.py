"""In-context editing: which demonstrations, of which kind, in which order, word for word."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import samples
from fakes import FakeBackbone
from numpy.typing import NDArray

from kedit.encoders import minilm, text_encoder
from kedit.errors import DataError, NotFittedError
from kedit.methods import IKE
from kedit.methods.ike import shares
from kedit.types import Case, ImageRef, Knowledge, Probe, Request

NUMBERS = (3, 1, 9, 4, 7)


class ByNumber:
    """Encodes a text by the number in it, so that near numbers are near texts."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        self.calls.append(list(texts))
        angles = np.array([int("".join(filter(str.isdigit, text)) or 0) for text in texts]) / 20
        return np.stack([np.cos(angles), np.sin(angles)], axis=1) * 5  # not of unit length: IKE must normalise


def case(number: int, image: bool = False) -> Case:
    images = (samples.picture(number),) if image else ()
    others = (samples.picture(number + 50),) if image else ()
    request = Request(f"What is thing {number}?", images)
    probes = (
        Probe("reliability", request, "a gift"),
        Probe("generality", Request("And what is this?", others), "also a gift"),
        Probe("locality", Request("Who painted it, and when?", others), None),
    )
    return Case(str(number), (Knowledge(request, "a gift"),), probes)


def fitted(encoder: ByNumber | None = None, backbone: FakeBackbone | None = None, image: bool = False, **params: Any) -> IKE:
    backbone = backbone or FakeBackbone({"Who painted it, and when?": "as ever"})
    editor = IKE(**{"demos": 4, "encoder": encoder or ByNumber(), **params}).attach(backbone)
    return editor.fit([case(number, image) for number in NUMBERS])


EDIT = Knowledge(Request("Edit 5?"), "a hat")
ASKED = Request("Anything?", (samples.A,), system="Be brief.")
DEMONSTRATION = {
    "copy": "New Fact: What is thing {0}? a gift\nPrompt: What is thing {0}? a gift\n\n",
    "update": "New Fact: What is thing {0}? a gift\nPrompt: And what is this? also a gift\n\n",
    "retain": "New Fact: What is thing {0}? a gift\nPrompt: Who painted it, and when? as ever\n\n",
}


def test_the_prompt_is_demonstrations_with_the_nearest_last_then_the_edits_copy_then_the_fact() -> None:
    editor = fitted(kinds=(0, 1, 0))
    editor.insert(EDIT)
    # distances from 5 are 2, 4, 4, 1, 2 for 3, 1, 9, 4, 7: of equally near ones the first in the pool counts as nearer
    (text,) = editor.rewrite(ASKED).context
    assert text == (
        "New Fact: What is thing 1? a gift\nPrompt: And what is this? also a gift\n\n"
        "New Fact: What is thing 7? a gift\nPrompt: And what is this? also a gift\n\n"
        "New Fact: What is thing 3? a gift\nPrompt: And what is this? also a gift\n\n"
        "New Fact: What is thing 4? a gift\nPrompt: And what is this? also a gift\n\n"
        "New Fact: Edit 5? a hat\nPrompt: Edit 5? a hat\n\n"
        "New Fact: Edit 5? a hat\n"
        "Prompt:"
    )


def test_question_images_and_context_of_the_request_are_kept_behind_the_new_context() -> None:
    editor = fitted()
    editor.insert(EDIT)
    found = editor.rewrite(replace(ASKED, context=("As before.", samples.B)))
    assert found.context[1:] == ("As before.", samples.B)
    assert replace(found, context=()) == ASKED


@pytest.mark.parametrize("kind", ["copy", "update", "retain"])
def test_each_kind_of_demonstration_has_its_own_question_and_answer(kind: str) -> None:
    editor = fitted(kinds=tuple(int(kind == each) for each in DEMONSTRATION), demos=1)
    editor.insert(EDIT)
    assert str(editor.rewrite(ASKED).context[0]).startswith(DEMONSTRATION[kind].format(4))


def test_kinds_are_a_fixed_multiset_shuffled_by_the_seed_and_the_same_for_every_edit() -> None:
    def shown(seed: int, edit: Knowledge) -> list[str]:
        editor = fitted(seed=seed)
        editor.insert(edit)
        blocks = str(editor.rewrite(ASKED).context[0]).split("\n\n")[:4]
        said = {"a gift": "copy", "also a gift": "update", "as ever": "retain"}
        return [said[block.rpartition("? ")[2]] for block in blocks]

    orders = {tuple(shown(seed, EDIT)) for seed in range(8)}
    assert len(orders) > 1
    assert {tuple(sorted(order)) for order in orders} == {("copy", "retain", "retain", "update")}
    assert shown(3, EDIT) == shown(3, Knowledge(Request("Edit 8?"), "a clock"))


@pytest.mark.parametrize(
    ("demos", "expected"), [(32, [4, 12, 16]), (16, [2, 6, 8]), (8, [1, 3, 4]), (4, [1, 1, 2]), (1, [0, 0, 1])]
)
def test_kinds_keep_the_originals_proportions(demos: int, expected: list[int]) -> None:
    assert shares(demos, (4, 12, 16)) == expected
    assert sum(expected) == demos


def test_what_stays_as_ever_is_the_backbones_own_answer_asked_only_when_shown_and_once() -> None:
    backbone = FakeBackbone({"Who painted it, and when?": "as ever"})
    editor = fitted(backbone=backbone, kinds=(0, 0, 1))
    editor.insert(EDIT)
    assert backbone.asked == 0
    editor.rewrite(ASKED)
    editor.rewrite(replace(ASKED, question="Other?"))
    editor.insert(EDIT)
    editor.rewrite(ASKED)
    assert [request.question for call in backbone.calls for request in call] == ["Who painted it, and when?"]
    editor.reset()
    editor.insert(EDIT)
    assert "as ever" in str(editor.rewrite(ASKED).context[0])
    assert backbone.asked == 1


def test_the_pool_is_encoded_once_and_an_insert_encodes_one_text() -> None:
    encoder = ByNumber()
    editor = fitted(encoder)
    assert encoder.calls == [[f"What is thing {number}? a gift" for number in NUMBERS]]
    editor.insert(EDIT)
    for question in ("One?", "Two?"):
        editor.rewrite(Request(question))
    editor.reset()
    editor.insert(EDIT)
    assert encoder.calls[1:] == [["Edit 5? a hat"], ["Edit 5? a hat"]]
    assert editor.pool_.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(editor.pool_.vectors, axis=1), 1, rtol=1e-6)


def test_with_several_edits_all_facts_follow_oldest_first_and_demonstrations_are_the_newest_edits() -> None:
    editor = fitted(demos=1, kinds=(1, 0, 0))
    newer = Knowledge(Request("Edit 8?"), "a clock")
    first = editor.insert(EDIT)
    second = editor.insert(newer)
    (text,) = editor.rewrite(ASKED).context
    assert text == DEMONSTRATION["copy"].format(9) + (
        "New Fact: Edit 5? a hat\nPrompt: Edit 5? a hat\n\n"
        "New Fact: Edit 8? a clock\nPrompt: Edit 8? a clock\n\n"
        "New Fact: Edit 5? a hat\nNew Fact: Edit 8? a clock\nPrompt:"
    )
    editor.remove(second)
    alone = editor.rewrite(ASKED)
    assert str(alone.context[0]).startswith(DEMONSTRATION["copy"].format(4))
    editor.remove(first)
    assert editor.rewrite(ASKED) is ASKED


def test_without_an_edit_the_request_itself_comes_back() -> None:
    editor = fitted()
    assert editor.rewrite(ASKED) is ASKED
    editor.insert(EDIT)
    editor.reset()
    assert editor.rewrite(ASKED) is ASKED


def test_images_of_demonstrations_precede_their_text_when_asked_for() -> None:
    editor = fitted(image=True, demo_images=True, demos=2, kinds=(0, 1, 0))
    fact = Knowledge(Request("Edit 5?", (samples.C,)), "a hat")
    editor.insert(fact)
    context = editor.rewrite(ASKED).context
    pictures = [samples.picture(3), samples.picture(53), samples.picture(4), samples.picture(54), samples.C]
    assert [part for part in context if not isinstance(part, str)] == pictures
    assert context[0] == pictures[0]
    assert context[1] == pictures[1]
    assert context[2] == DEMONSTRATION["update"].format(3)
    assert context[-1] == "New Fact: Edit 5? a hat\nPrompt: Edit 5? a hat\n\nNew Fact: Edit 5? a hat\nPrompt:"
    assert all(not isinstance(a, str) or not isinstance(b, str) for a, b in itertools.pairwise(context))
    plain = fitted(image=True, demos=2)
    plain.insert(fact)
    assert all(isinstance(part, str) for part in plain.rewrite(ASKED).context)


def test_the_edits_own_copy_can_be_left_out() -> None:
    editor = IKE(demos=0, copy_edit=False).attach(FakeBackbone())
    editor.insert(EDIT)
    assert editor.rewrite(ASKED).context == ("New Fact: Edit 5? a hat\nPrompt:",)


def test_without_demonstrations_nothing_is_fitted_encoded_or_asked() -> None:
    backbone, encoder = FakeBackbone(), ByNumber()
    editor = IKE(demos=0, encoder=encoder).attach(backbone)
    editor.insert(EDIT)
    assert editor.rewrite(ASKED).context == (
        "New Fact: Edit 5? a hat\nPrompt: Edit 5? a hat\n\nNew Fact: Edit 5? a hat\nPrompt:",
    )
    assert (encoder.calls, backbone.asked) == ([], 0)
    with pytest.raises(NotFittedError, match="fit"):
        IKE(demos=1, encoder=encoder).attach(backbone).insert(EDIT)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_pool_smaller_than_demos_gives_as_many_as_there_are(count: int) -> None:
    editor = IKE(demos=16, encoder=ByNumber()).attach(FakeBackbone()).fit([case(number) for number in NUMBERS[:count]])
    editor.insert(EDIT)
    assert str(editor.rewrite(ASKED).context[0]).count("Prompt:") == count + 2


def test_an_example_without_the_question_for_its_kind_shows_a_copy() -> None:
    bare = replace(case(4), probes=())
    for kinds in ((0, 1, 0), (0, 0, 1)):
        editor = IKE(demos=1, kinds=kinds, encoder=ByNumber()).attach(FakeBackbone()).fit([bare])
        editor.insert(EDIT)
        assert str(editor.rewrite(ASKED).context[0]).startswith(DEMONSTRATION["copy"].format(4))


def test_a_chain_gives_one_example_per_step_and_a_repeated_one_counts_once() -> None:
    one, two = case(1), case(2)
    later = tuple(replace(probe, step=2) for probe in two.probes)
    chain = Case("chain", (*one.chain, *two.chain), (*one.probes, *later))
    editor = IKE(demos=4, encoder=ByNumber()).attach(FakeBackbone()).fit([chain, one, chain])
    assert [example.fact.request.question for example in editor.pool_.examples] == ["What is thing 1?", "What is thing 2?"]
    assert all(example.update is not None and example.retain is not None for example in editor.pool_.examples)


def test_a_saved_pool_gives_the_same_prompts_images_included(tmp_path: Path) -> None:
    editor = fitted(image=True, demo_images=True)
    editor.save(tmp_path)
    encoder = ByNumber()
    other = IKE(**{**editor.get_params(), "encoder": encoder}).attach(editor.backbone_).load(tmp_path)
    assert encoder.calls == []
    for each in (editor, other):
        each.insert(EDIT)
    assert other.rewrite(ASKED).key == editor.rewrite(ASKED).key
    assert not [path for path in tmp_path.rglob("*") if path.suffix not in {".json", ".jsonl", ".safetensors", ".png", ""}]


def test_a_pool_that_does_not_fit_its_files_is_refused(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    (tmp_path / "pool.json").write_text('[{"copy": 99, "update": null, "retain": null}]')
    with pytest.raises(DataError, match="pool.json"):
        IKE().attach(FakeBackbone()).load(tmp_path)


def test_without_demonstrations_there_is_no_pool_to_save_or_load(tmp_path: Path) -> None:
    IKE(demos=0).attach(FakeBackbone()).save(tmp_path)
    assert IKE(demos=0).attach(FakeBackbone()).load(tmp_path).fitted


def test_a_pool_of_another_encoder_is_refused(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with pytest.raises(DataError, match="encoded by .*ByNumber.* not by 'minilm'"):
        IKE().attach(FakeBackbone()).load(tmp_path)


def test_a_training_image_that_is_missing_costs_its_demonstration_and_no_insert(caplog: pytest.LogCaptureFixture) -> None:
    cases = [case(number) for number in NUMBERS]
    lost = Probe("locality", Request("Who painted it, and when?", (ImageRef(path="nowhere.png"),)), None)
    cases[0] = replace(cases[0], probes=(*cases[0].probes[:2], lost))
    backbone = FakeBackbone({"Who painted it, and when?": "as ever"})
    editor = IKE(demos=5, encoder=ByNumber(), kinds=(0, 0, 1)).attach(backbone).fit(cases)
    editor.insert(EDIT)
    text = str(editor.rewrite(ASKED).context[0])
    assert text.count("as ever") == 4 and DEMONSTRATION["copy"].format(NUMBERS[0]) in text
    assert "could not be asked" in caplog.text


@pytest.mark.parametrize("kinds", [(0, 0, 0), (-1, 1, 1)])
def test_impossible_proportions_are_refused(kinds: tuple[int, int, int]) -> None:
    editor = fitted(kinds=kinds)
    editor.insert(EDIT)
    with pytest.raises(ValueError, match="cannot share 4 demonstrations"):
        editor.rewrite(ASKED)


def test_minilm_finds_the_demonstration_that_means_the_same() -> None:
    encoder = minilm()
    assert encoder is text_encoder("minilm")
    assert encoder.model.max_seq_length == 512
    texts = ["How do I cook rice?", "What is the capital of France?", "Who repairs bicycles nearby?"]
    cases = [Case(str(i), (Knowledge(Request(text), "an answer"),), ()) for i, text in enumerate(texts)]
    editor = IKE(demos=2, kinds=(1, 0, 0)).attach(FakeBackbone()).fit(cases)
    assert editor.pool_.vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(editor.pool_.vectors, axis=1), 1, rtol=1e-5)
    editor.insert(Knowledge(Request("Where can my bike be fixed?"), "an answer"))
    nearest = str(editor.rewrite(ASKED).context[0]).split("\n\n")[1]
    assert "bicycles" in nearest
