"""The miniature of K-Viscuit: read by the same code, sound as data, and answered better with its documents in view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from kedit.benchmark import Benchmark
from kedit.benchmarks import benchmark, buildable
from kedit.benchmarks.kviscuit import KViscuit
from kedit.benchmarks.mini_kviscuit import MiniKViscuit, scenes
from kedit.editor import ContextEditor, Editor
from kedit.errors import DataError
from kedit.evaluate import evaluate
from kedit.images import open_image
from kedit.methods import nothing
from kedit.scoring.letters import letter
from kedit.types import Case, Request
from kedit.wording import with_facts
from kedit.zoo.catalogue import available


class Told(ContextEditor):
    """Puts what was inserted before a request, in the words that embedded backbones were taught."""

    def rewrite(self, request: Request) -> Request:
        facts = [(k.request.question, k.answer) for k in self.edits_.values()]
        return replace(request, context=(with_facts(facts),)) if facts else request


def test_it_needs_no_path_and_has_a_document_for_every_row() -> None:
    found = benchmark("mini-kviscuit")
    assert isinstance(found, Benchmark)
    cases = found.cases("retrieval")
    assert len(cases) == len(found.cases("test")) == 36
    assert Counter(case.tags["question_type"] for case in cases) == {"1": 14, "2": 22}
    assert len({case.tags["category"] for case in cases}) == 9
    assert len({case.id for case in cases}) == 36
    assert Counter(case.probes[0].reference for case in cases) == {"A": 9, "B": 9, "C": 9, "D": 9}


def test_it_holds_an_id_twice_as_the_published_file_does() -> None:
    assert Counter(Counter(item.id for item in MiniKViscuit().items).values()) == {1: 34, 2: 1}


def _documented() -> Iterator[tuple[Case, tuple[str, ...]]]:
    bench = MiniKViscuit()
    for item, case in zip(bench.items, bench.cases("test"), strict=True):
        yield case, item.choice.options


def test_every_document_holds_the_right_option_of_each_of_its_questions_and_no_other() -> None:
    for case, options in _documented():
        assert letter(case.chain[0].text, options) == case.probes[0].reference, case.id
        assert sum(option.lower() in case.chain[0].text.lower() for option in options) == 1, case.id


def test_what_type_two_questions_ask_is_said_to_be_made_up() -> None:
    asked = [item for item in MiniKViscuit().items if item.type == "2"]
    assert all("made-up town" in item.choice.question for item in asked)


def test_every_scene_is_shown_and_drawn_the_same_every_time() -> None:
    bench = MiniKViscuit()
    assert {item.image for item in bench.items} == set(scenes())
    first, again = (MiniKViscuit().cases("test")[0].probes[0].request.images[0] for _ in range(2))
    assert first.read() == again.read()
    assert open_image(first).size == (224, 224)


def test_the_folder_that_is_built_is_read_as_the_published_data_are(tmp_path: Path) -> None:
    folder = MiniKViscuit().build(tmp_path / "mini")
    mini = MiniKViscuit()
    read = KViscuit(folder, prompt=mini.prompt, documents=folder / "documents.jsonl")
    assert read.missing == []
    for a, b in zip(read.cases("test"), mini.cases("test"), strict=True):
        assert (a.id, a.tags, a.probes[0].reference) == (b.id, b.tags, b.probes[0].reference)
        assert a.probes[0].request.key == b.probes[0].request.key
        assert a.chain[0].text == b.chain[0].text
    with pytest.raises(DataError, match="not an empty folder"):
        buildable("mini-kviscuit").build(folder)


def test_the_contact_sheet_shows_every_scene(tmp_path: Path) -> None:
    with Image.open(MiniKViscuit().sheet(tmp_path / "sheet.png")) as sheet:
        assert sheet.size == (750, 516)


@pytest.mark.slow
@pytest.mark.skipif(not available("tiny-internvl"), reason="the embedded backbone's weights are not on this machine")
def test_an_embedded_backbone_names_what_it_sees_and_knows_the_rest_only_from_documents(tmp_path: Path) -> None:
    from kedit.backbone import load_backbone

    editors: dict[str, Editor] = {"none": nothing(), "told": Told()}
    backbone = load_backbone("tiny-internvl", device="cpu")
    run = evaluate(editors, backbone, MiniKViscuit(), tasks=["test"], limit=18, max_new_tokens=32, cache_dir=tmp_path)
    found = {(s.editor, s.group): s.overall.mean for s in run.scores("test", by="question_type") if s.overall}
    assert found["none", "1"] >= 70
    assert found["none", "2"] <= 25  # no better than guessing
    assert found["told", "2"] >= 60
