"""EasyEdit-style files: what each field becomes, dirt that real files hold, and errors that name file and row."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import samples
from fakes import AddNoise, DoNothing, FakeBackbone, Lookup, Prepend
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedit.benchmark import Benchmark
from kedit.benchmarks import benchmark
from kedit.benchmarks.easyedit import LONG, SHORT, SHORT_ANSWER, EasyEdit
from kedit.benchmarks.easyedit_rows import rephrased
from kedit.errors import DataError, UnknownNameError
from kedit.evaluate import evaluate
from kedit.protocols import final, retention
from kedit.types import Case, Probe

DATA = Path(os.environ.get("KEDIT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "mmedit"
real = pytest.mark.skipif(not (DATA / "vqa_eval.json").is_file(), reason="the real E-VQA file is not here (see KEDIT_DATA)")

VQA = {
    "src": "How many lamps are there?",
    "pred": "one",
    "rephrase": "What is the number of lamps?",
    "alt": "2",
    "image": "val/room.png",
    "image_rephrase": "val/room_again.png",
    "loc": "nq question: who draws maps",
    "loc_ans": "a cartographer",
    "m_loc": "val/street.png",
    "m_loc_q": "What drives here?",
    "m_loc_a": "a tram",
}
KINDS: dict[str, dict[str, Any]] = {
    "e-vqa": VQA,
    "e-ic": {**VQA, "src": "a photo of", "alt": " A lamp on a table.\n"},
    "vlkeb": {
        **VQA,
        "image": "m.01x/google_1.jpg",
        "port_new": [
            {"port_type": "1-hop", "Q&A": {"Question": "Who made the lamps?", "Answer": "A smith"}},
            {"port_type": "2-hop", "Q&A": {"Question": "Where does their maker live?", "Answer": "By the sea"}},
        ],
    },
    "mmke": {
        **VQA,
        "knowledge_type": "visual_knowledge",
        "image": "visual/wave/1.png",
        "image_rephrase_question": "What is meant by this hand?",
        "rel": "When is a hand raised?",
        "rel_ans": "To greet",
        "m_rel": "What does the hand do?",
        "m_rel_ans": "It greets",
        "one_hop_img": "visual/wave/2.png",
        "port_new": [{"port_type": "1-hop", "Q&A": {"Question": "Who answers?", "Answer": "The guest"}}],
    },
    "fgvedit": {
        **{key: VQA[key] for key in ("src", "alt", "rephrase", "image", "loc", "loc_ans")},
        "fg_gen_q": "Is the number of lamps even?",
        "fg_gen_a": "yes",
        "fg_loc_q": "Is it night?",
        "fg_loc_a": "no",
    },
    "ads": {
        **{key: value for key, value in VQA.items() if key != "pred"},
        "image": ["a.png", "b.png"],
        "image_rephrase": ["c.png"],
        "image_type": "multi-image",
        "data_type": "perception",
    },
    "comprehend": {
        "pid": 7,
        "question": "The lamp is left of the door.",
        "answer": 2,
        "rephrase": "Left of the door stands the lamp.",
        "image": "vsr/1.png",
        "locality_prompt": "who draws maps",
        "multimodal_locality_image": "vsr/2.png",
        "multimodal_locality_prompt": "What drives here?",
        "multimodal_locality_ground_truth": "a tram",
        "Category": "Spatial",
        "source": "VSR",
        "T_G_qs": "There is a lamp, left of the door.",
        "T_G_ans": "true",
        "port_T_qs": "Lamps give light.",
        "port_M_qs": "The lamp gives light.",
        "port_ans": "true",
    },
}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def bench(tmp_path: Path, kind: str, **options: Any) -> EasyEdit:
    name = "caption_eval_edit.json" if kind == "e-ic" else "eval.json"
    return EasyEdit(write(tmp_path / name, [KINDS[kind]]), **options)


def only(found: EasyEdit) -> Case:
    (case,) = found.cases("single")
    return case


def slots(case: Case) -> dict[str, Probe]:
    return {probe.tags["slot"]: probe for probe in case.probes}


def shown(probe: Probe) -> list[str]:
    return [Path(str(image.path)).name for image in probe.request.images]


# -- what fields become ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_is_recognised_and_keeps_the_contract_of_a_benchmark(tmp_path: Path, kind: str) -> None:
    found = bench(tmp_path, kind)
    assert isinstance(found, Benchmark)
    case = only(found)
    assert [source.kind for source in found.sources] == [kind]
    task = found.tasks["single"]
    assert task.protocol is final and {probe.dimension for probe in case.probes} == {d.name for d in task.dimensions}
    assert len(case.chain) == 1 and case.probes[0].request == case.chain[0].request
    for probe in case.probes:
        assert (probe.reference is None) == task.dimension(probe.dimension).locality


def test_a_mmedit_row_gives_two_generality_and_two_locality_questions(tmp_path: Path) -> None:
    case = only(bench(tmp_path, "e-vqa"))
    found = slots(case)
    assert [(p.dimension, p.tags["slot"]) for p in case.probes] == [
        ("reliability", "src"),
        ("generality", "rephrase"),
        ("generality", "image_rephrase"),
        ("cross_scenario_locality", "m_loc"),
        ("cross_scenario_locality", "loc"),
    ]
    assert case.chain[0].answer == "2" and all(found[s].reference == "2" for s in ("src", "rephrase", "image_rephrase"))
    assert shown(found["src"]) == shown(found["rephrase"]) == ["room.png"]
    assert found["rephrase"].request.question == VQA["rephrase"]
    assert found["image_rephrase"].request.question == VQA["src"] and shown(found["image_rephrase"]) == ["room_again.png"]
    assert shown(found["m_loc"]) == ["street.png"] and found["m_loc"].tags["forced_answer"] == "a tram"
    assert shown(found["loc"]) == [] and found["loc"].request.question == VQA["loc"]
    assert "scenario" not in case.tags


def test_fields_that_a_data_set_lacks_are_no_dimensions_and_this_is_said(tmp_path: Path) -> None:
    found = bench(tmp_path, "e-vqa")
    assert [d.name for d in found.tasks["single"].dimensions] == ["reliability", "generality", "cross_scenario_locality"]
    assert list(found.excluded) == ["cross_language_locality"]
    assert any("cross_language_locality is no dimension here" in note and "3 dimensions" in note for note in found.notes)
    other = bench(tmp_path, "fgvedit")
    assert other.excluded == {} and not any("no dimension" in note for note in other.notes)


def test_a_fgvedit_row_asks_other_questions_of_the_same_image(tmp_path: Path) -> None:
    case = only(bench(tmp_path, "fgvedit"))
    found = slots(case)
    assert (found["fg_gen"].dimension, found["fg_gen"].reference) == ("generality", "yes")
    assert (found["fg_loc"].dimension, found["fg_loc"].reference) == ("cross_language_locality", None)
    assert found["fg_loc"].request.images == found["fg_gen"].request.images == case.chain[0].request.images
    assert case.tags["scenario"] == "val/room.png"


def test_a_mmke_row_asks_relations_with_and_without_images_and_one_hop_of_its_own_image(tmp_path: Path) -> None:
    found = slots(only(bench(tmp_path, "mmke")))
    assert found["image_rephrase"].request.question == "What is meant by this hand?"
    assert (found["rel"].dimension, found["rel"].reference, shown(found["rel"])) == ("relation", "To greet", [])
    assert (found["m_rel"].dimension, shown(found["m_rel"])) == ("image_relation", ["1.png"])
    assert (found["m_rel_rephrase"].reference, shown(found["m_rel_rephrase"])) == ("It greets", ["room_again.png"])
    assert (found["port_1_hop"].reference, shown(found["port_1_hop"])) == ("The guest", ["2.png"])
    assert only(bench(tmp_path, "mmke")).tags["scenario"] == "visual_knowledge/visual/wave"


@pytest.mark.parametrize("spelling", ["rel_ans_{}", "rel_{}_ans"])
def test_both_spellings_of_mmkes_answers_are_read(tmp_path: Path, spelling: str) -> None:
    asked = {f"rel_{n}": f"What of {n}?" for n in (1, 2)} | {f"m_rel_{n}": f"What is {n} here?" for n in (1, 2)}
    answers = {f"{prefix}{spelling.format(n)}": f"{prefix}{n}" for n in (1, 2) for prefix in ("", "m_")}
    row = {**VQA, "knowledge_type": "entity_level", **asked, **answers}
    found = slots(only(EasyEdit(write(tmp_path / "entity_eval.json", [row]))))
    assert [found[f"rel_{n}"].reference for n in (1, 2)] == ["1", "2"]
    assert [found[f"m_rel_{n}"].reference for n in (1, 2)] == ["m_1", "m_2"]


def test_vlkebs_hops_are_all_asked_or_those_that_are_named(tmp_path: Path) -> None:
    case = only(bench(tmp_path, "vlkeb"))
    assert case.tags["scenario"] == "m.01x"
    ports = [p for p in case.probes if p.dimension == "portability"]
    assert [(p.tags["hop"], p.reference) for p in ports] == [("1", "A smith"), ("2", "By the sea")]
    second = only(bench(tmp_path, "vlkeb", hops=2))
    assert [p.tags["hop"] for p in second.probes if p.dimension == "portability"] == ["2"]
    with pytest.raises(DataError, match="holds no edit; no question of 3 hops \\(1\\)"):
        bench(tmp_path, "vlkeb", hops=3).cases("single")


def test_the_one_hop_files_other_shape_is_read_too(tmp_path: Path) -> None:
    port = {"port_edit_q": "Who made them?", "port_edit_a": "A smith", "port_q": "What is the maker?", "port_a": "Old"}
    found = slots(only(EasyEdit(write(tmp_path / "eval_edit_onehop.json", [{**VQA, "port_new": [port]}]), hops=1)))
    assert (found["port_1_hop"].request.question, found["port_1_hop"].reference) == ("What is the maker?", "Old")


def test_lists_of_images_are_shown_together(tmp_path: Path) -> None:
    case = only(bench(tmp_path, "ads"))
    found = slots(case)
    assert shown(found["src"]) == shown(found["rephrase"]) == ["a.png", "b.png"]
    assert shown(found["image_rephrase"]) == ["c.png"]
    assert case.tags["topic_group"] == "perception"
    assert bench(tmp_path, "ads").tasks["single"].groups == {"topic_group": "kind of data"}


def test_a_comprehendedit_row_is_read_with_its_numbers_its_descriptions_and_without_its_loaders_bug(tmp_path: Path) -> None:
    case = only(bench(tmp_path, "comprehend"))
    found = slots(case)
    assert case.chain[0].answer == "2"
    assert found["src"].request.question == "Is this description of the picture true or false? The lamp is left of the door."
    assert found["m_loc"].request.question == "What drives here?"
    assert found["t_g"].reference == "true" and shown(found["t_g"]) == ["1.png"]
    assert found["port_t"].request.images == () and shown(found["port_m"]) == ["1.png"]
    assert "forced_answer" not in found["loc"].tags, "the file gives no answer; the question itself is none"
    assert case.tags["topic_group"] == "Spatial"


def test_the_system_prompt_suits_the_answers_and_can_be_chosen(tmp_path: Path) -> None:
    assert only(bench(tmp_path, "e-vqa")).chain[0].request.system == SHORT
    assert only(bench(tmp_path, "e-ic")).chain[0].request.system == LONG
    assert only(bench(tmp_path, "e-vqa", system="")).chain[0].request.system is None
    assert only(bench(tmp_path, "e-vqa", system="Be brief.")).chain[0].request.system == "Be brief."


def test_a_template_is_put_around_what_is_asked_of_an_image_and_nothing_else(tmp_path: Path) -> None:
    found = slots(only(bench(tmp_path, "e-vqa", template=SHORT_ANSWER)))
    assert found["src"].request.question == "Question: How many lamps are there? Short answer:"
    assert found["m_loc"].request.question == "Question: What drives here? Short answer:"
    assert found["loc"].request.question == VQA["loc"]
    with pytest.raises(DataError, match=r"has no \{\} for the question"):
        list(bench(tmp_path, "e-vqa", template="Question:").cases("single"))


# -- dirt --------------------------------------------------------------------------------------------------------------


def test_blanks_around_an_answer_are_cut_and_the_raw_one_is_kept(tmp_path: Path) -> None:
    found = bench(tmp_path, "e-ic")
    case = only(found)
    assert case.chain[0].answer == case.probes[0].reference == "A lamp on a table."
    assert case.probes[0].tags["raw_answer"] == " A lamp on a table.\n"
    assert any("1 answers had blanks" in note for note in found.notes)
    assert "raw_answer" not in only(bench(tmp_path, "e-vqa")).probes[0].tags


def test_rows_without_an_answer_are_skipped_and_counted(tmp_path: Path) -> None:
    found = EasyEdit(write(tmp_path / "eval.json", [VQA, {**VQA, "alt": " "}, {**VQA, "alt": None}]))
    assert [case.id for case in found.cases("single")] == ["eval/1"]
    assert [where.rpartition(", ")[2] for where, _ in found.skipped] == ["row 2", "row 3"]
    assert any("skipped: the answer is empty (2)" in note for note in found.notes)


def test_a_field_that_is_missing_or_empty_costs_its_question_alone(tmp_path: Path) -> None:
    rows = [{**VQA, "image_rephrase": ""}, {k: v for k, v in VQA.items() if not k.startswith("m_loc")} | {"m_loc_q": None}]
    first, second = EasyEdit(write(tmp_path / "eval.json", rows)).cases("single")
    assert set(slots(first)) == {"src", "rephrase", "m_loc", "loc"}
    assert set(slots(second)) == {"src", "rephrase", "image_rephrase", "loc"}


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("What colour is it?", "What colour is it?"),
        ('"What colour is it?"', "What colour is it?"),
        ('Rewritten question: "What colour is it?"', "What colour is it?"),
        ('"Which colour?"\n\nRewritten as:\n"What colour is it?"', "What colour is it?"),
        ('"What colour is it?"\n\n"What hue is it?"', "What colour is it?"),
        ('"Which colour?" can be rewritten as "What colour is it?"', "What colour is it?"),
        ("I'm sorry, but I cannot rewrite this. As an AI language model I see no image.", ""),
        ('Which word is "red" in: red, blue?', 'Which word is "red" in: red, blue?'),
        ("What is written on the sign: stop or go?", "What is written on the sign: stop or go?"),
        ("Which colour?", "Which colour?"),
        ("a photo of,", "a photo of,"),
        ('""', ""),
    ],
)
def test_rephrases_are_cleaned_of_what_a_language_model_wrote_around_them_and_of_nothing_else(written: str, asked: str) -> None:
    assert rephrased(written, "Which colour?")[0] == asked
    assert (rephrased(written, "Which colour?")[1] == "") == (written == asked)


def test_a_refusal_is_not_asked_and_cleaning_can_be_turned_off(tmp_path: Path) -> None:
    path = write(tmp_path / "eval.json", [{**VQA, "rephrase": "I'm sorry, I cannot."}, {**VQA, "rephrase": '"How many?"'}])
    cleaned, raw = EasyEdit(path), EasyEdit(path, clean=False)
    assert "rephrase" not in slots(cleaned.cases("single")[0])
    assert slots(cleaned.cases("single")[1])["rephrase"].request.question == "How many?"
    assert [slots(case)["rephrase"].request.question for case in raw.cases("single")] == ["I'm sorry, I cannot.", '"How many?"']
    assert any("refusals" in note for note in cleaned.notes) and not any("refusals" in note for note in raw.notes)
    assert cleaned.revision != raw.revision


# -- chains ------------------------------------------------------------------------------------------------------------


def lamps(count: int, image: str = "val/room.png") -> list[dict[str, Any]]:
    return [{**VQA, "src": f"How many lamps in corner {n}?", "alt": str(n), "image": image} for n in range(count)]


def test_images_with_three_edits_or_more_are_chains_in_the_files_order(tmp_path: Path) -> None:
    rows = lamps(4) + lamps(2, "val/hall.png") + lamps(3, "val/yard.png")
    found = EasyEdit(write(tmp_path / "vqa_eval.json", rows), chains=True)
    cases = found.cases("chains")
    assert [[k.answer for k in case.chain] for case in cases] == [["0", "1", "2", "3"], ["0", "1", "2"]]
    assert found.tasks["chains"].protocol is final and len(found.cases("chains", limit=1)) == 1
    assert Counter(probe.step for probe in cases[1].probes) == {1: 5, 2: 5, 3: 5}
    assert len({case.id for case in cases}) == 2 and "chains" not in EasyEdit(tmp_path / "vqa_eval.json").tasks


def test_chains_of_one_length_are_asked_after_every_step(tmp_path: Path) -> None:
    rows = lamps(4) + lamps(2, "val/hall.png")
    found = EasyEdit(write(tmp_path / "vqa_eval.json", rows), chains=True, chain_length=2)
    assert [len(case.chain) for case in found.cases("chains")] == [2, 2]
    assert found.tasks["chains"].protocol is retention


def test_a_question_that_comes_again_is_one_edit_of_a_chain(tmp_path: Path) -> None:
    rows = [*lamps(2), {**lamps(2)[0], "alt": "9"}]
    found = EasyEdit(write(tmp_path / "vqa_eval.json", rows), chains=True, chain_length=2)
    assert [k.answer for k in found.cases("chains")[0].chain] == ["0", "1"]
    assert len(found.cases("single")) == 3


# -- files and images --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "train"),
    [
        ("vqa_eval.json", "vqa_train.json"),
        ("caption_eval_edit.json", "caption_train_edit.json"),
        ("eval_multihop.json", "train.json"),
        ("test_data.json", "train_data.json"),
        ("visual_eval.json", "visual_train.json"),
        ("ComprehendEdit_test.json", "ComprehendEdit_train.json"),
    ],
)
def test_the_train_file_beside_an_evaluation_file_is_found(tmp_path: Path, test: str, train: str) -> None:
    path = write(tmp_path / test, [VQA])
    assert len(EasyEdit(path).train()) == 0
    write(tmp_path / train, lamps(3))
    assert [case.chain[0].answer for case in EasyEdit(path).train()] == ["0", "1", "2"]
    assert len(EasyEdit(path).train(2)) == 2
    other = write(tmp_path / "else" / "mine.json", lamps(1))
    assert len(EasyEdit(path, train=other).train()) == 1


def test_a_folder_is_read_whole_with_its_splits_and_without_its_pools(tmp_path: Path) -> None:
    for name in ("entity", "visual"):
        row = {**VQA, "knowledge_type": name, "src": f"What {name}?"}
        write(tmp_path / "data_json" / name / "eval.json", [row, {**row, "src": f"And {name}?"}])
        write(tmp_path / "data_json" / name / "train.json", [row])
    write(tmp_path / "nq.json", [{"questions": "who", "answers": ["a"]}])
    found = EasyEdit(tmp_path)
    cases = found.cases("single")
    assert [case.tags["topic_group"] for case in cases] == ["entity", "visual"] * 2, "files take turns"
    assert [case.id for case in cases[:2]] == ["data_json/entity/eval/1", "data_json/visual/eval/1"]
    assert {case.tags["file"] for case in cases} == {"data_json/entity/eval.json", "data_json/visual/eval.json"}
    assert len({case.id for case in cases}) == 4 and len(found.train()) == 2
    assert set(found.tasks["single"].groups) == {"topic_group", "file"}


def test_a_folder_whose_files_hold_the_same_edits_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "eval.json", [KINDS["vlkeb"]])
    write(tmp_path / "eval_multihop.json", [KINDS["vlkeb"]])
    with pytest.raises(DataError, match="eval.json and .*eval_multihop.json hold the same edits"):
        EasyEdit(tmp_path).cases("single")


@pytest.mark.parametrize(
    "place", ["VLKEB_images/mmkb_images", "VLKEB_images", "mmkb_images", "datasets/VLKEB_images/mmkb_images"]
)
def test_images_are_found_below_what_instructions_and_mirrors_call_their_folder(tmp_path: Path, place: str) -> None:
    image = tmp_path / place / "m.01x" / "google_1.jpg"
    image.parent.mkdir(parents=True)
    image.write_bytes(samples.A.read())
    assert only(bench(tmp_path, "vlkeb")).chain[0].request.images[0].digest == samples.A.digest
    inside = EasyEdit(write(tmp_path / "data_json" / "entity" / "eval.json", [KINDS["vlkeb"]]))
    assert only(inside).chain[0].request.images[0].digest == samples.A.digest
    assert only(bench(tmp_path, "vlkeb", images=tmp_path / place)).chain[0].request.images[0].digest == samples.A.digest


def test_several_image_roots_are_tried_in_turn_and_a_missing_image_keeps_its_row(tmp_path: Path) -> None:
    for root, name in (("coco", "room.png"), ("rephrased", "room_again.png")):
        (tmp_path / root / "val").mkdir(parents=True)
        (tmp_path / root / "val" / name).write_bytes(samples.B.read())
    found = slots(only(bench(tmp_path, "e-vqa", images=[tmp_path / "coco", tmp_path / "rephrased"])))
    assert found["src"].request.images[0].digest == found["image_rephrase"].request.images[0].digest == samples.B.digest
    with pytest.raises(OSError):
        _ = found["m_loc"].request.images[0].digest


def test_what_evaluation_and_train_share_is_counted(tmp_path: Path) -> None:
    write(tmp_path / "vqa_train.json", [VQA])
    path = write(tmp_path / "vqa_eval.json", [VQA, {**VQA, "src": "Is it lit?", "image": "val/hall.png", "m_loc_q": "Who?"}])
    assert EasyEdit(path).leaks() == {"images": 1, "edits": 1, "locality questions": 2}


def test_the_revision_follows_the_files_and_how_they_are_asked(tmp_path: Path) -> None:
    first = bench(tmp_path, "e-vqa").revision
    assert bench(tmp_path, "e-vqa").revision == first
    assert bench(tmp_path, "e-vqa", template=SHORT_ANSWER).revision != first
    assert bench(tmp_path, "e-vqa", system="Be brief.").revision != first
    assert EasyEdit(write(tmp_path / "eval.json", [{**VQA, "alt": "3"}])).revision != first


def test_the_benchmark_is_found_by_name_and_path(tmp_path: Path) -> None:
    path = write(tmp_path / "eval.json", [VQA])
    assert len(benchmark(f"easyedit:{path}").cases("single")) == 1
    with pytest.raises(UnknownNameError, match="Chains are asked for by chains=True"):
        EasyEdit(path).cases("chains")
    with pytest.raises(UnknownNameError, match="e-vqa"):
        EasyEdit(path, kind="evqa").cases("single")
    assert EasyEdit(path, kind="vlkeb").sources[0].kind == "vlkeb"


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": None}, "src is nothing"),
        ({"src": 5}, "src is 5, expected a text"),
        ({"alt": ["2"]}, r"alt is \['2'\], expected a text"),
        ({"alt": True}, "alt is True"),
        ({"image": None}, "no image"),
        ({"image": []}, "no image"),
        ({"image": "../../etc/passwd"}, "refused"),
        ({"image": "https://example.org/a.png"}, "refused"),
        ({"m_loc": 3}, "image is 3"),
        ({"rephrase": ["a"]}, "rephrase is"),
        ({"rephrase": "half \ud83d"}, "lone surrogate"),
        ({"port_new": {"a": 1}}, "port_new is"),
        ({"port_new": [{"port_type": "far", "Q&A": {"Question": "a?", "Answer": "b"}}]}, "port_type is 'far'"),
        ({"port_new": [{"port_type": "1-hop", "Q&A": {"Question": "a?", "Answer": ""}}]}, "no answer"),
        ({"port_new": [{"q": "a"}]}, "entry of port_new"),
    ],
)
def test_a_broken_row_is_named_with_its_file(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "eval.json", [VQA, {**VQA, **change}])
    with pytest.raises(DataError, match=f"eval.json, row 2: .*{message}"):
        EasyEdit(path).cases("single")


def test_a_file_of_something_else_lists_what_was_found_and_expected(tmp_path: Path) -> None:
    path = write(tmp_path / "pool.json", [{"questions": "who", "answers": ["a"]}])
    with pytest.raises(DataError, match="row 1: not an edit. Keys found: questions, answers. Expected .*fgvedit.*kind="):
        EasyEdit(path).cases("single")
    with pytest.raises(DataError, match="holds no edit; expected rows of"):
        EasyEdit(tmp_path).cases("single")
    with pytest.raises(DataError, match="does not exist"):
        EasyEdit(tmp_path / "none.json").cases("single")
    with pytest.raises(DataError, match="holds no rows"):
        EasyEdit(write(tmp_path / "empty.json", [])).cases("single")


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.just("\ud83d"), st.just("../x"), st.just("[1"),
    st.lists(st.one_of(st.text(max_size=4), st.none(), st.integers()), max_size=3),
    st.dictionaries(st.sampled_from(["bytes", "path", "Q&A", "port_type", "port_q"]), st.text(max_size=4), max_size=2),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_row_crashes_without_naming_its_file_and_place(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    row = dict(KINDS[kind])
    for key in data.draw(st.lists(st.sampled_from([*row, "alt", "src"]), min_size=1, max_size=3)):
        if data.draw(st.booleans()):
            row.pop(key, None)
        else:
            row[key] = data.draw(VALUES)
    path = write(tmp_path / "eval.json", [KINDS[kind], row])
    try:
        found = EasyEdit(path, chains=True, kind=kind)
        cases = [*found.cases("single"), *found.cases("chains")]
    except DataError as error:
        assert f"{path}, row 2: " in str(error)
        return
    for case in cases:
        assert case.chain and all(k.answer.strip() and k.request.question.strip() for k in case.chain)
        assert all(probe.request.question.strip() and probe.reference != "" for probe in case.probes)
    assert found.notes and len(found.cases("single")) + len(found.skipped) == 2


# -- the real file -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def e_vqa() -> EasyEdit:
    return EasyEdit(DATA / "vqa_eval.json", chains=True)


@real
def test_the_real_e_vqa_file_is_read_whole(e_vqa: EasyEdit) -> None:
    found = e_vqa
    cases = found.cases("single")
    assert len(cases) == len({case.id for case in cases}) == 2093 and not found.skipped
    assert [source.kind for source in found.sources] == ["e-vqa"]
    asked = Counter(probe.tags["slot"] for case in cases for probe in case.probes)
    assert asked == {"src": 2093, "rephrase": 2092, "image_rephrase": 2093, "m_loc": 2093, "loc": 2093}
    assert list(found.excluded) == ["cross_language_locality"]
    assert all(isinstance(case.chain[0].answer, str) for case in cases)
    rephrases = [slots(case)["rephrase"].request.question for case in cases if "rephrase" in slots(case)]
    assert not any(text.startswith('"') or "\n" in text or "sorry" in text.lower() for text in rephrases)


@real
def test_the_real_e_vqa_file_has_128_chains(e_vqa: EasyEdit) -> None:
    chains = e_vqa.cases("chains")
    assert len(chains) == 128 and max(len(case.chain) for case in chains) == 13
    assert all(len({k.request.images for k in case.chain}) == 1 and len(case.chain) >= 3 for case in chains)


@real
def test_the_pool_beside_the_real_file_is_left_aside() -> None:
    assert len(EasyEdit(DATA).cases("single", limit=7)) == 7
    with pytest.raises(DataError, match="not an edit"):
        EasyEdit(DATA / "nq_validation.json").cases("single")


# -- end to end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_editors_of_every_sort_run_on_every_shape(tmp_path: Path, kind: str) -> None:
    row = {**KINDS[kind]}
    for folder, ref in zip(("", "val", "visual/wave", "vsr", "m.01x"), [samples.A, samples.B, samples.C] * 2, strict=False):
        (tmp_path / "images" / folder).mkdir(parents=True, exist_ok=True)
        for name in ("a", "b", "c", "1", "2", "room", "room_again", "street", "google_1"):
            for suffix in (".png", ".jpg"):
                (tmp_path / "images" / folder / f"{name}{suffix}").write_bytes(ref.read())
    found = EasyEdit(write(tmp_path / "eval.json", [row]), kind=kind)
    editors = {"base": DoNothing(), "noise": AddNoise(), "prepend": Prepend(), "lookup": Lookup()}
    run = evaluate(editors, FakeBackbone(), found, out=tmp_path / "run", cache_dir=tmp_path / "cache")
    assert run.failures == []
    probes = len(only(found).probes)
    assert [len(run.records(name)) for name in editors] == [probes] * 4
    dimensions = {d.name for d in found.tasks["single"].dimensions}
    assert all(row.dimensions.keys() == dimensions and row.missing == () for row in run.scores())
    base = [record for record in run.records("base") if record.from_base]
    assert base and all(record.output == record.reference for record in base)
    lookup = {record.tags["slot"]: record for record in run.records("lookup")}
    assert lookup["src"].output == lookup["src"].reference


def test_a_missing_image_is_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    for name in ("room.png", "room_again.png", "street.png"):
        (tmp_path / "val" / name).write_bytes(samples.A.read())
    rows = [{**VQA, "image": "val/nowhere.png"}, VQA]
    run = evaluate(DoNothing(), FakeBackbone(), EasyEdit(write(tmp_path / "eval.json", rows)), out=tmp_path / "run")
    assert [failure["case"] for failure in run.failures] == ["eval/1"]
    assert {record.case for record in run.records("donothing")} == {"eval/2"}
