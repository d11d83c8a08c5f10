"""The published data set's loader: round trip, layouts, rules, errors; and benchmarks and classes by name."""

from __future__ import annotations

import copy
import json
import shutil
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_scene import some_scenarios

from kedit import specs
from kedit.benchmarks import BENCHMARKS, benchmark, buildable, summary
from kedit.benchmarks.kibench import KIBench
from kedit.benchmarks.kibench_open import KIBenchOpen
from kedit.errors import DataError, KeditError, UnknownNameError
from kedit.files.objects import read_objects
from kedit.types import Case

TEXTS = {
    "en": ("Is this fine?", "Yes, it is."),
    "zh": ("这样可以吗?", "可以,没有问题。"),
    "ar": ("هل هذا مناسب؟", "نعم، هذا مناسب."),
}
Row = dict[str, Any]


def qa(partition: str, mark: str) -> tuple[str, str]:
    return TEXTS[partition][0] + mark, TEXTS[partition][1] + mark


def raw(scenario: str, k: int, **more: Any) -> Row:
    id = f"{scenario}_{k}"
    texts = {p: dict(zip(("question", "answer"), qa(p, id), strict=True)) for p in TEXTS}
    return {"case_id": id, "scenario_id": scenario, "topic_group": "social", "image": f"images/{id}.png", "qa": texts, **more}


RAWS = [raw(scenario, k) for scenario in ("s1", "s2") for k in range(3)]


def write(folder: Path, name: str, rows: list[Row]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def content(cases: Any) -> list[Any]:
    return [
        (
            case.id,
            dict(case.tags),
            [(k.request.key, k.answer) for k in case.chain],
            [(p.dimension, p.request.key, p.reference, p.step) for p in case.probes],
        )
        for case in cases
    ]


def texts(cases: Any) -> list[Any]:
    """What cases say, without opening an image."""

    def said(request: Any) -> tuple[Any, ...]:
        return request.question, request.language, request.images[0].path

    return [
        ([(said(k.request), k.answer) for k in case.chain], [(p.dimension, said(p.request), p.reference) for p in case.probes])
        for case in cases
    ]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> KIBenchOpen:
    return KIBenchOpen(root=some_scenarios(tmp_path_factory.mktemp("scenarios")))


@pytest.fixture(scope="module")
def disk(drawn: KIBenchOpen, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drawn.build(tmp_path_factory.mktemp("replica") / "out", cases=3)


# ------------------------------------------------------------------------------------------------ round trip


def test_the_replica_on_disk_is_read_back_as_the_same_cases(disk: Path, drawn: KIBenchOpen) -> None:
    read = KIBench(disk)
    for task in ("single", "sequential"):
        assert content(read.cases(task)) == content(drawn.cases(task, limit=6))
        assert content(read.cases(task, limit=3)) == content(drawn.cases(task, limit=3))
    assert content(read.train(5)) == content(drawn.train(5))


def test_build_writes_the_layout_and_refuses_a_folder_in_use(disk: Path) -> None:
    files = {p.relative_to(disk).as_posix() for p in disk.rglob("*.json*")}
    raw_files = {f"raw/{split}.jsonl" for split in ("single_train", "single_test", "sequential_test")}
    assert files == raw_files | {"scenarios.json", "single/train.jsonl", "single/test.jsonl", "sequential/test.jsonl"}
    assert len(json.loads((disk / "scenarios.json").read_text(encoding="utf-8"))) == 6
    with pytest.raises(DataError, match="not an empty folder"):
        KIBenchOpen().build(disk)
    with pytest.raises(DataError, match="1 to 200"):
        KIBenchOpen().build(disk / "other", cases=0)


def test_raw_files_alone_give_the_cases_of_the_whole_layout(tmp_path: Path) -> None:
    whole, alone = tmp_path / "whole", tmp_path / "alone"
    for folder in (whole, alone):
        write(folder, "raw/single_test.jsonl", RAWS)
        write(folder, "raw/sequential_test.jsonl", RAWS)
    write(whole, "single/test.jsonl", [{**single_row(row), "case_id": f"{row['case_id']}_zh"} for row in RAWS])
    strip = str(tmp_path)
    derived = [c for c in KIBench(alone).cases("single") if c.tags["partition"] == "zh"]
    assert repr(texts(derived)).replace(f"{strip}/alone", "") == repr(texts(KIBench(whole).cases("single"))).replace(
        f"{strip}/whole", ""
    )


def test_one_raw_file_without_a_split_serves_both_tasks(tmp_path: Path) -> None:
    write(tmp_path, "data.jsonl", RAWS)
    bench = KIBench(tmp_path)
    assert len(bench.cases("single")) == 12 and len(bench.cases("sequential")) == 12 and len(bench.train()) == 0


def test_a_split_named_by_a_row_goes_before_the_files_name(tmp_path: Path) -> None:
    rows = [{**row, "Split": "train" if row["scenario_id"] == "s1" else "test"} for row in RAWS]
    bench = KIBench(write(tmp_path, "data.jsonl", rows))
    assert {c.tags["scenario"] for c in bench.train()} == {"s1"} and {c.tags["scenario"] for c in bench.cases("single")} == {"s2"}


def test_missing_items_are_drawn_by_the_rules_and_always_the_same(tmp_path: Path) -> None:
    write(tmp_path, "single/test.jsonl", [single_row(row, p) for row in RAWS for p in ("zh", "ar")])
    first, second = (texts(KIBench(tmp_path).cases("single")) for _ in range(2))
    assert first == second
    for case in KIBench(tmp_path).cases("single"):
        probes = {p.dimension: p for p in case.probes}
        inserted, scenario = case.chain[0].request, case.tags["scenario"]
        assert set(probes) == {"reliability", "generality", "cross_language_locality", "cross_scenario_locality"}
        general, other, away = (probes[name].request for name in list(probes)[1:])
        assert scenario in str(general.images[0].path) and general.images != inserted.images
        assert other.images == inserted.images and other.language != inserted.language
        assert scenario not in str(away.images[0].path) and away.language == inserted.language
        assert probes["generality"].reference and probes["cross_scenario_locality"].reference is None


def test_a_question_asked_without_its_answer_hides_no_answer_from_the_draw(tmp_path: Path) -> None:
    asked = {"zh": "ar", "ar": "zh"}
    rows = [
        single_row(row, p) | {"raw_id": row["case_id"], "loc_lang": {"question": row["qa"][asked[p]]["question"]}}
        for row in RAWS
        for p in asked
    ]
    write(tmp_path, "single/test.jsonl", rows)
    assert all("generality" in {p.dimension for p in case.probes} for case in KIBench(tmp_path).cases("single"))


def test_a_raw_row_of_one_partition_is_a_raw_row(tmp_path: Path) -> None:
    rows = [row | {"qa": {"zh": row["qa"]["zh"]}} for row in RAWS]
    assert len(KIBench(write(tmp_path, "raw/single_test.jsonl", rows)).cases("single")) == 6


def test_where_nothing_can_be_drawn_the_probe_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "single/test.jsonl", [single_row(RAWS[0])])
    (case,) = KIBench(tmp_path).cases("single")
    assert [p.dimension for p in case.probes] == ["reliability"]


def test_a_limit_takes_scenarios_in_turn(tmp_path: Path) -> None:
    write(tmp_path, "raw/single_test.jsonl", RAWS)
    assert [c.tags["raw"] for c in KIBench(tmp_path).cases("single", limit=3)] == ["s1_0", "s1_0", "s2_0", "s2_0", "s1_1", "s1_1"]


# ------------------------------------------------------------------------------------------------ layouts


def single_row(row: Row, partition: str = "zh") -> Row:
    head = {key: row[key] for key in ("scenario_id", "topic_group", "image")}
    return {"case_id": f"{row['case_id']}_{partition}", **head, "partition": partition, **row["qa"][partition]}


def nested(row: Row) -> Row:
    return row


def listed(row: Row) -> Row:
    return {**row, "qa": [{"lang": p, "q": part["question"], "a": part["answer"]} for p, part in row["qa"].items()]}


def per_field(row: Row) -> Row:
    rest = {key: value for key, value in row.items() if key != "qa"}
    return {**rest, **{kind: {p: part[kind] for p, part in row["qa"].items()} for kind in ("question", "answer")}}


def flat(question: str, answer: str) -> Callable[[Row], Row]:
    def change(row: Row) -> Row:
        rest = {key: value for key, value in row.items() if key != "qa"}
        for p, part in row["qa"].items():
            rest |= {question.format(p=p): part["question"], answer.format(p=p): part["answer"]}
        return rest

    return change


def renamed(names: dict[str, str]) -> Callable[[Row], Row]:
    return lambda row: {names.get(key, key): value for key, value in row.items()}


def long_names(row: Row) -> Row:
    names = {"en": "English", "zh": "Chinese", "ar": "Arabic"}
    return {**row, "qa": {names[p]: part for p, part in row["qa"].items()}}


LAYOUTS: dict[str, Callable[[Row], Row]] = {
    "nested": nested,
    "list": listed,
    "per field": per_field,
    "question_en": flat("question_{p}", "answer_{p}"),
    "en_question": flat("{p}_question", "{p}_answer"),
    "src_en": flat("src_{p}", "alt_{p}"),
    "q_en": flat("q_{p}", "a_{p}"),
    "upper case": lambda row: {key.upper(): value for key, value in flat("question_{p}", "answer_{p}")(row).items()},
    "long language names": long_names,
    "other names": renamed({"case_id": "id", "scenario_id": "scene", "topic_group": "category", "image": "image_path"}),
    "languages at the top": lambda row: {**{k: v for k, v in row.items() if k != "qa"}, **row["qa"]},
    "per field, upper case": lambda row: {
        key: {p.upper(): text for p, text in value.items()} if key in ("question", "answer") else value
        for key, value in per_field(row).items()
    },
    "image in a list": lambda row: {**row, "image": [row["image"]]},
    "image struct": lambda row: {**row, "image": {"bytes": None, "path": row["image"]}},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_raw_rows_gives_the_same_cases(tmp_path: Path, layout: str) -> None:
    write(tmp_path, "raw/single_test.jsonl", RAWS)
    wanted = [texts(KIBench(tmp_path).cases(task)) for task in ("single", "sequential")]
    write(tmp_path, "raw/single_test.jsonl", [LAYOUTS[layout](copy.deepcopy(row)) for row in RAWS])
    assert [texts(KIBench(tmp_path).cases(task)) for task in ("single", "sequential")] == wanted


def items_of(row: Row) -> dict[str, Row]:
    other, away = RAWS[1], RAWS[4]
    return {
        "gen": {"image": other["image"], **other["qa"]["zh"]},
        "lang": {"image": row["image"], "question": row["qa"]["ar"]["question"]},
        "scen": {"image": away["image"], "question": away["qa"]["zh"]["question"]},
    }


def as_objects(row: Row, names: tuple[str, str, str] = ("gen", "loc_lang", "loc_scen"), many: bool = False) -> Row:
    parts = items_of(row).values()
    return {**single_row(row), **{name: [part] if many else part for name, part in zip(names, parts, strict=True)}}


def as_prefixes(row: Row, gen: str, lang: str, scen: str, scen_image: str) -> Row:
    parts, found = items_of(row), single_row(row)
    found |= {f"{gen}q": parts["gen"]["question"], f"{gen}a": parts["gen"]["answer"], f"{gen}image": parts["gen"]["image"]}
    found |= {f"{lang}q": parts["lang"]["question"], f"{scen}q": parts["scen"]["question"], scen_image: parts["scen"]["image"]}
    return found


SINGLE_LAYOUTS: dict[str, Callable[[Row], Row]] = {
    "objects": as_objects,
    "lists": lambda row: as_objects(row, many=True),
    "long names": lambda row: as_objects(row, ("generality", "cross_language", "cross_scenario")),
    "other names": lambda row: as_objects(row, ("rephrase_case", "lang_loc", "scen_loc")),
    "easyedit": lambda row: as_prefixes(row, "gen_", "lang_loc_", "m_loc_", "m_loc"),
    "fgvedit": lambda row: as_prefixes(row, "fg_gen_", "loc_lang_", "fg_loc_", "fg_loc_image"),
    "src and alt": lambda row: renamed({"question": "src", "answer": "alt", "partition": "lang"})(as_objects(row)),
    "no partition": lambda row: {key: value for key, value in as_objects(row).items() if key != "partition"},
}


@pytest.mark.parametrize("layout", SINGLE_LAYOUTS)
def test_every_layout_of_single_rows_gives_the_same_case(tmp_path: Path, layout: str) -> None:
    (case,) = KIBench(write(tmp_path, "single/test.jsonl", [SINGLE_LAYOUTS[layout](RAWS[0])])).cases("single")
    got = {
        p.dimension: (p.request.question, p.request.language, Path(str(p.request.images[0].path)).name, p.reference)
        for p in case.probes
    }
    other = RAWS[1]["qa"]["zh"]
    assert got == {
        "reliability": (*qa("zh", "s1_0")[:1], "zh", "s1_0.png", qa("zh", "s1_0")[1]),
        "generality": (other["question"], "zh", "s1_1.png", other["answer"]),
        "cross_language_locality": (qa("ar", "s1_0")[0], "ar", "s1_0.png", None),
        "cross_scenario_locality": (qa("zh", "s2_1")[0], "zh", "s2_1.png", None),
    }


@pytest.mark.parametrize("shape", ["list", "by partition", "images in steps"])
def test_chains_are_read_in_every_shape_and_put_in_the_orders_asked_for(tmp_path: Path, shape: str) -> None:
    row, away = RAWS[0], RAWS[3]
    loc = {p: {"image": away["image"], "question": away["qa"][p]["question"]} for p in TEXTS}
    gen = {p: {"image": RAWS[1]["image"], **RAWS[1]["qa"][p]} for p in TEXTS}
    steps: Any = {p: {**row["qa"][p], "gen": gen[p], "loc": loc[p]} for p in TEXTS}
    if shape != "by partition":
        steps = [{"partition": p, **part} for p, part in steps.items()]
    found = {"case_id": "c", "scenario_id": "s1", "steps": steps}
    if shape == "images in steps":
        found["steps"] = [{**step, "image": row["image"]} for step in steps]
    else:
        found["image"] = row["image"]
    cases = KIBench(write(tmp_path, "sequential/test.jsonl", [found])).cases("sequential")
    assert [c.tags["order"] for c in cases] == ["en-zh-ar", "ar-zh-en"] and {c.tags["raw"] for c in cases} == {"c"}
    assert [p.dimension for p in cases[0].probes] == ["reliability", "generality", "locality"] * 3
    for case in cases:
        assert "-".join(k.request.language for k in case.chain) == case.tags["order"]


def test_mapping_reads_names_that_nobody_knows(tmp_path: Path) -> None:
    rows = [renamed({"question": "frage", "answer": "antwort"})(single_row(row)) for row in RAWS]
    path = write(tmp_path, "single/test.jsonl", rows)
    with pytest.raises(
        DataError, match=r"Keys found: antwort, case_id, frage.*Expected: question \(question, q,.*mapping=\{'question'"
    ):
        KIBench(path).cases("single")
    assert len(KIBench(path, mapping={"question": "frage", "answer": "Antwort"}).cases("single")) == 6
    with pytest.raises(UnknownNameError, match="unknown field of mapping 'qestion'.*'question'"):
        KIBench(path, mapping={"qestion": "frage"}).cases("single")


def encodings() -> dict[str, bytes]:
    lines = [json.dumps(row, ensure_ascii=False) for row in RAWS]
    return {
        "crlf": "\r\n".join(lines).encode(),
        "bom": b"\xef\xbb\xbf" + "\n".join(lines).encode(),
        "escaped": "\n".join(json.dumps(row) for row in RAWS).encode(),
        "array": json.dumps(RAWS, indent=1).encode(),
        "array on one line": json.dumps(RAWS).encode(),
        "object": json.dumps({"version": 1, "data": RAWS}, indent=1).encode(),
        "blank lines": "\n\n".join(lines).encode() + b"\n\n",
    }


@pytest.mark.parametrize("name", ["data.jsonl", "data.json"])
@pytest.mark.parametrize("kind", encodings())
def test_a_files_form_is_told_by_its_content(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / name).write_bytes(encodings()[kind])
    assert [row for _, row in read_objects(tmp_path / name)] == RAWS


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    row = single_row(RAWS[0]) | {"answer": "一\u2028二"}
    assert KIBench(write(tmp_path, "d.jsonl", [row])).cases("single")[0].chain[0].answer == "一\u2028二"


def test_texts_are_composed_and_keep_direction_marks(tmp_path: Path) -> None:
    row = single_row(RAWS[0], "ar") | {"question": unicodedata.normalize("NFD", "أهلا\u200f؟ é")}
    question = KIBench(write(tmp_path, "d.jsonl", [row])).cases("single")[0].chain[0].request.question
    assert question == unicodedata.normalize("NFC", "أهلا\u200f؟ é")


def test_ids_that_start_again_or_are_missing_stay_apart(tmp_path: Path) -> None:
    rows = [{**row, "case_id": row["case_id"][3:]} for row in RAWS] + [{k: v for k, v in raw("s3", 1).items() if k != "case_id"}]
    cases = KIBench(write(tmp_path, "d.jsonl", rows)).cases("single")
    assert len(cases) == 14 and len({case.id for case in cases}) == 14
    for case in cases:
        assert case.tags["scenario"] in str(case.chain[0].request.images[0].path)


def test_rows_without_an_answer_are_left_out_and_counted(tmp_path: Path) -> None:
    bench = KIBench(write(tmp_path, "d.jsonl", [single_row(RAWS[0]), single_row(RAWS[1]) | {"answer": " "}]))
    assert len(bench.cases("single")) == 1
    assert bench.skipped == [(f"{tmp_path / 'd.jsonl'}, line 2", "answer is empty")]


def test_parquet_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="pip install pyarrow"):
        KIBench(tmp_path).cases("single")


# ------------------------------------------------------------------------------------------------ rules and errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": "  "}, "question is empty"),
        ({"question": 7}, "question is 7, expected a text"),
        ({"question": "\ud800"}, "lone surrogate"),
        ({"partition": "fr"}, "partition 'fr' is not one of en, zh, ar"),
        ({"image": None}, "image is ''"),
        ({"image": "../x.png"}, "is refused"),
        ({"image": "a/../../x.png"}, "is refused"),
        ({"image": "http://host/x.png"}, "is refused"),
        ({"image": "file:///etc/passwd"}, "is refused"),
        ({"image": "a\0.png"}, "is refused"),
        ({"image": "..\\x.png"}, "is refused"),
        ({"image": "/etc/passwd"}, "leads outside"),
        (
            {"gen": {"image": "a.png", "question": "问", "answer": "答", "scenario_id": "s9"}},
            "generality item is of scenario 's9'",
        ),
        ({"gen": {"image": "a.png", "question": "q", "answer": "a", "partition": "en"}}, "generality item is in partition 'en'"),
        ({"gen": {"question": "问", "answer": "答"}}, "image is ''"),
        ({"gen": ["x"]}, "expected an object"),
        ({"loc_lang": {"question": "问"}}, "cross_language_locality item is in the inserted partition 'zh'"),
        ({"loc_lang": {"question": "q", "image": "other.png"}}, "another image"),
        ({"loc_scen": {"question": "问", "image": "a.png", "scenario_id": "s1"}}, "is of the inserted scenario 's1'"),
        (
            {"loc_scen": {"question": "q", "image": "a.png", "partition": "en"}},
            "cross_scenario_locality item is in partition 'en'",
        ),
    ],
)
def test_a_row_that_breaks_a_rule_is_an_error_with_file_and_line(tmp_path: Path, change: Row, message: str) -> None:
    path = tmp_path / "single" / "test.jsonl"
    path.parent.mkdir()
    rows = [single_row(RAWS[0]), single_row(RAWS[1]) | change]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    with pytest.raises(DataError) as error:
        KIBench(tmp_path).cases("single")
    assert str(error.value).startswith(f"{path}, line 2: ") and message in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1}\n{"a": \n', "line 2: not valid JSON"),
        (b"[{]", "not valid JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b"[" * 100000, "not valid JSON"),
        (b'"text"', "line 1: expected an object"),
        (b'[1, {"a": 2}]', "row 1: expected an object"),
        (b"3\n4\n", "line 1: expected an object"),
        (b"{}", "Keys found: none"),
    ],
)
def test_a_broken_file_is_an_error_with_its_name(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "d.jsonl").write_bytes(data)
    with pytest.raises(DataError) as error:
        KIBench(tmp_path).cases("single")
    assert "d.jsonl" in str(error.value) and message in str(error.value)


def test_a_link_out_of_the_folder_is_refused_and_a_missing_image_is_kept(tmp_path: Path) -> None:
    folder, outside = tmp_path / "data", tmp_path / "secret.png"
    outside.write_bytes(b"x")
    path = write(folder, "d.jsonl", [single_row(RAWS[0])])
    assert KIBench(path).cases("single")[0].chain[0].request.images[0].path == str(folder / "images" / "s1_0.png")
    (folder / "images").mkdir()
    (folder / "images" / "s1_0.png").symlink_to(outside)
    with pytest.raises(DataError, match="leads outside"):
        KIBench(path).cases("single")


def test_images_may_lie_elsewhere_and_paths_may_begin_with_a_slash_or_be_absolute_inside(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    (pictures / "images").mkdir(parents=True)
    for row in RAWS[:3]:
        (pictures / row["image"]).write_bytes(b"x")
    rows = [
        single_row(RAWS[0]),
        single_row(RAWS[1]) | {"image": "/images/s1_1.png"},
        single_row(RAWS[2]) | {"image": f"{pictures}/images/s1_2.png"},
    ]
    (pictures / "images" / "s1_1.png").rename(pictures / "elsewhere.png")  # a missing image keeps its row, slash or not
    cases = KIBench(write(tmp_path / "data", "d.jsonl", rows), images=pictures).cases("single")
    assert {c.chain[0].request.images[0].path for c in cases} == {str(pictures / row["image"]) for row in RAWS[:3]}


def test_a_path_that_is_not_there_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        KIBench(tmp_path / "nothing").cases("single")
    with pytest.raises(DataError, match="write hf:owner/name"):
        KIBench("owner/name").cases("single")
    with pytest.raises(DataError, match="holds no .jsonl"):
        KIBench(tmp_path).cases("single")


def test_the_revision_follows_data_mapping_and_orders(tmp_path: Path) -> None:
    path = write(tmp_path, "d.jsonl", RAWS)
    seen = {
        KIBench(path).revision,
        KIBench(path, orders=("en-zh-ar",)).revision,
        KIBench(path, mapping={"question": "q"}).revision,
    }
    assert KIBench(path).revision in seen
    write(tmp_path, "d.jsonl", RAWS[:-1])
    assert len(seen | {KIBench(path).revision}) == 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["en", "zh", "images/s1_0.png", "s1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["question", "answer", "image", "lang", "en", "zh"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    "case_id",
    "raw_id",
    "scenario_id",
    "image",
    "partition",
    "question",
    "answer",
    "gen",
    "loc_lang",
    "loc_scen",
    "steps",
    "qa",
    "split",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=3), whole=st.booleans())
def test_whatever_a_row_becomes_it_is_read_or_refused_with_file_and_line(tmp_path: Path, changes: Row, whole: bool) -> None:
    row = (RAWS[1] if whole else as_objects(RAWS[0])) | changes
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in (RAWS[0], row)))
    bench = KIBench(path)
    try:
        cases: list[Case] = [case for task in bench.tasks for case in bench.cases(task)]
    except DataError as error:
        assert str(error).startswith(f"{path}, line 2: ")
    else:
        assert all(case.chain and all(p.request.question.strip() for p in case.probes) for case in cases)


# ------------------------------------------------------------------------------------------------ by name


def test_benchmarks_are_made_by_name_path_and_class(tmp_path: Path) -> None:
    path = write(tmp_path, "d.jsonl", RAWS)
    assert len(benchmark(f"kibench:{path}").cases("single")) == 12
    assert len(benchmark("kibench", path=path, orders=("ar-zh-en",)).cases("sequential")) == 6
    assert benchmark("kibench-open", seed=3).revision == benchmark("kedit.benchmarks.kibench_open:KIBenchOpen", seed=3).revision
    with pytest.raises(UnknownNameError, match="unknown benchmark 'kibench-opne'. Did you mean 'kibench-open'"):
        benchmark("kibench-opne")


def test_a_benchmark_that_needs_files_says_so_and_cannot_be_built() -> None:
    with pytest.raises(UnknownNameError, match="write kibench:PATH"):
        benchmark("kibench")
    for name in ("kibench", "kibench:somewhere"):
        with pytest.raises(UnknownNameError, match="only read from files"):
            buildable(name)
    assert isinstance(buildable("kibench-open"), KIBenchOpen)
    assert all(summary(name).endswith(".") and len(summary(name)) > 20 for name in BENCHMARKS)


def test_a_class_is_found_in_a_file_once_and_by_module(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Mine:\n    x: int = 1\n    class Inner: pass\nvalue = 3\n"
    )
    found = specs.resolve(f"{file}:Mine", {}, "kedit.none", "editor")
    assert found().x == 1 and specs.resolve(f"{file}:Mine", {}, "kedit.none", "editor") is found
    assert specs.resolve(f"{file}:Mine.Inner", {}, "kedit.none", "editor").__name__ == "Inner"
    assert specs.resolve("json:JSONDecoder", {}, "kedit.none", "editor") is json.JSONDecoder
    assert specs.resolve("short", {"short": "json:JSONDecoder"}, "kedit.none", "editor") is json.JSONDecoder


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("shrt", "unknown editor 'shrt'. Did you mean 'short'.*file.py:Class"),
        ("json:JSONDecoderr", "unknown editor in json 'JSONDecoderr'. Did you mean 'JSONDecoder'"),
        ("json:dumps", "is function .*expected a class"),
        ("no_such_module_x:Thing", "there is no module 'no_such_module_x'"),
        ("./no_such_file.py:Thing", "there is no file"),
        (":Thing", "expected 'module:Class'"),
        ("json:", "unknown editor in json ''"),
    ],
)
def test_a_spec_that_names_nothing_says_what_was_expected(spec: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        specs.resolve(spec, {"short": "json:JSONDecoder"}, "kedit.none", "editor")


def test_a_module_that_is_there_but_fails_shows_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_here.py").write_text("import not_installed_anywhere_x\n")
    monkeypatch.syspath_prepend(tmp_path)
    for spec in ("half_here:Thing", f"{tmp_path / 'half_here.py'}:Thing"):
        with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere_x") as error:
            specs.resolve(spec, {}, "kedit.none", "editor")
        assert not isinstance(error.value, KeditError)


def test_an_installed_package_offers_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("offered", "json:JSONEncoder", "kedit.test")
    monkeypatch.setattr(specs, "entry_points", lambda group: [point] if group == "kedit.test" else [])
    assert specs.resolve("offered", {}, "kedit.test", "editor") is json.JSONEncoder
    with pytest.raises(UnknownNameError, match="Did you mean 'offered'"):
        specs.resolve("ofered", {}, "kedit.test", "editor")


def test_copies_of_a_folder_have_the_same_revision(disk: Path, tmp_path: Path) -> None:
    other = shutil.copytree(disk, tmp_path / "copy")
    assert KIBench(other).revision == KIBench(disk).revision
