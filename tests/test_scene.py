"""Scenes: what a spec promises about the drawing and the words."""

from __future__ import annotations

import io
import itertools
import shutil
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kedit.benchmarks import scene
from kedit.benchmarks.kibench_open import spec_of
from kedit.benchmarks.scene import (
    BACKGROUNDS,
    COUNTS,
    DISTRACTORS,
    PLACES,
    SceneSpec,
    layout,
    phrase,
    render,
    scenarios,
    scene_svg,
)
from kedit.errors import DataError, UnknownNameError

CLOCK = SceneSpec("gift_clock", "red", "one", "left", "table", ("plant",), 7)
IDS = sorted(scenarios())


def pixels(spec: SceneSpec, size: int = 64) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(render(spec, size))).convert("RGB"), dtype=int)


def near(image: np.ndarray, colour: str) -> np.ndarray:
    wanted = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    return np.abs(image - wanted).max(axis=2) < 24


def test_same_spec_gives_the_same_bytes_in_another_process() -> None:
    code = f"from kedit.benchmarks.scene import *; from hashlib import sha256;print(sha256(render({CLOCK!r})).hexdigest())"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert runs == [sha256(render(CLOCK)).hexdigest()] * 2


def test_every_field_of_a_spec_changes_the_picture() -> None:
    changes = {
        "scenario": "dog",
        "colour": "blue",
        "count": "two",
        "place": "right",
        "background": "garden",
        "distractors": (),
        "jitter": 8,
    }
    seen = {render(CLOCK), *(render(replace(CLOCK, **{key: value})) for key, value in changes.items())}
    assert len(seen) == len(changes) + 1


def test_a_render_has_the_size_asked_for_and_is_opaque() -> None:
    image = Image.open(io.BytesIO(render(CLOCK, 96)))
    assert image.format == "PNG" and image.size == (96, 96)
    assert image.convert("RGBA").getchannel("A").getextrema() == (255, 255)


@pytest.mark.parametrize("scenario", IDS)
def test_the_main_colour_is_seen_and_only_where_the_scene_says(scenario: str) -> None:
    colour = next(c for c in scenarios()[scenario]["colours"] if c not in ("white", "black", "brown"))
    main = scene.palette()["colours"][colour]["main"]
    left, right = (near(pixels(SceneSpec(scenario, colour, "one", place, "table", (), 1)), main) for place in ("left", "right"))
    assert left.mean() > 0.015, "the slot colour must cover a visible part"
    columns = np.arange(64)
    centre = [float((mask.sum(axis=0) * columns).sum() / mask.sum()) for mask in (left, right)]
    assert centre[1] - centre[0] > 15, "left and right must be far apart"


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("place", PLACES)
def test_distractors_never_touch_an_object_and_everything_stays_on_the_canvas(count: str, place: str) -> None:
    drawn = 0
    for jitter in range(50):
        copies, corners = layout(SceneSpec("dog", "red", count, place, "table", ("cup", "ball"), jitter))
        drawn += len(corners)
        assert len(copies) == COUNTS.index(count) + 1
        assert not any(corner.meets(copy) for corner in corners for copy in copies)
        assert all(abs(copy.turn) <= 6 for copy in copies)
        for box in (*copies, *corners):
            assert box.x - box.edge / 2 > -0.02 and box.x + box.edge / 2 < 1.02
            assert box.y - box.edge / 2 > -0.02 and box.y + box.edge / 2 < 1.02
    assert drawn >= 50, "at least one of two distractors finds a corner"


def test_every_background_and_distractor_can_be_drawn() -> None:
    plain = {render(replace(CLOCK, background=name, distractors=()), 32) for name in BACKGROUNDS}
    furnished = {render(replace(CLOCK, distractors=(name,)), 64) for name in DISTRACTORS}
    assert len(plain) == len(BACKGROUNDS) >= 5 and len(furnished) == len(DISTRACTORS) >= 6


@pytest.mark.parametrize("field", ["scenario", "colour", "count", "place", "background", "distractors"])
def test_an_unknown_name_in_a_spec_is_an_error_that_lists_the_known(field: str) -> None:
    wrong = ("no such",) if field == "distractors" else "no such"
    with pytest.raises(UnknownNameError, match="unknown .* 'no such'.*Known:"):
        scene_svg(replace(CLOCK, **{field: wrong}))


@pytest.mark.parametrize("scenario", IDS)
def test_every_template_fits_every_look(scenario: str) -> None:
    found = scenarios()[scenario]
    for colour, count, place in itertools.product(found["colours"], found["counts"], PLACES):
        spec = SceneSpec(scenario, colour, count, place)
        for language, texts in found["partitions"].items():
            words = phrase(found, language, spec)
            for text in (*texts["questions"], *texts["answers"]):
                filled = scene.fill(text, words)
                assert "{" not in filled and "}" not in filled and "  " not in filled


def test_english_says_an_before_a_vowel(tmp_path: Path) -> None:
    write_scenario(tmp_path, colours={"orange": ("orange", "橙色")})
    spec = SceneSpec("thing", "orange")
    assert phrase(scenarios(tmp_path)["thing"], "en", spec, tmp_path)["object"] == "an orange thing"


def test_a_sentence_that_begins_with_the_object_begins_with_a_capital() -> None:
    assert scene.fill("{object} is here.", {"object": "a red hat"}) == "A red hat is here."


def test_a_count_without_a_phrase_is_an_error() -> None:
    with pytest.raises(DataError, match=r"object\.en has no form for count 'three'"):
        phrase({"id": "x", "object": {"en": {"one": "a {colour} x"}}}, "en", SceneSpec("x", "red", "three"))


def some_scenarios(folder: Path, each: int = 2) -> Path:
    """A folder with the first scenarios of each split, for tests that need no more."""
    for split in scene.SPLITS:
        for name in [found["id"] for found in scenarios().values() if found["split"] == split][:each]:
            for file in (f"{name}.yaml", f"{name}.svg", "palette.yaml"):
                shutil.copy(scene.ROOT / file, folder / file)
    return folder


SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100"><path fill="#e00001" d="M10 10h80v80H10z"/></svg>'


def write_scenario(
    folder: Path, change: str = "", by: str = "", svg: str = SVG, colours: dict[str, tuple[str, str]] | None = None
) -> None:
    names = colours or {"red": ("red", "红色"), "blue": ("blue", "蓝色"), "green": ("green", "绿色"), "black": ("black", "黑色")}
    forms = "{m: أحمر, f: حمراء, m_dual: أحمرين, f_dual: حمراوين}"
    lines = ["colours:"]
    lines += [
        f'  {n}: {{main: "#dd7711", dark: "#884400", light: "#ffbb88", en: {e}, zh: {z}, ar: {forms}}}'
        for n, (e, z) in names.items()
    ]
    lines += ["places:", *(f"  {p}: {{en: at {p}, zh: 边, ar: هنا}}" for p in PLACES)]
    (folder / "palette.yaml").write_text("\n".join(lines), encoding="utf-8")
    text = [
        "id: thing",
        "name: {en: thing, zh: 东西, ar: شيء}",
        "topic_group: social",
        "split: single_test",
        "situation: A thing.",
        "object:",
        '  en: {one: "a {colour} thing", two: "two {colour} things", three: "three {colour} things"}',
        '  zh: {one: "{colour}甲", two: "{colour}乙", three: "{colour}丙"}',
        '  ar: {one: "شيء {colour_m}", two: "شيئين {colour_m_dual}", three: "ثلاثة أشياء {colour_f}"}',
        f"colours: [{', '.join(names)}]",
        "counts: [one, two, three]",
        "partitions:",
    ]
    for p in ("en", "zh", "ar"):
        text += [
            f"  {p}:",
            "    context: c",
            "    fact: f",
            "    source: s",
            "    questions:",
            *(f"      - q{k} {p}?" for k in range(5)),
        ]
        text += ["    answers:", *(f"      - a{k} {p} {{object}}." for k in range(5))]
    whole = "\n".join(text)
    assert change in whole
    (folder / "thing.yaml").write_text(whole.replace(change, by, 1) if change else whole, encoding="utf-8")
    (folder / "thing.svg").write_text(svg, encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "by", "message"),
    [
        ("id: thing", "id: other", r"thing\.yaml: id is 'other'"),
        ("topic_group: social", "topic_group: sports", r"thing\.yaml: topic_group is 'sports'"),
        ("split: single_test", "", r"thing\.yaml: split is missing"),
        ("[one, two, three]", "[one, four]", r"thing\.yaml: counts is"),
        ("colours: [red, ", "colours: [mauve, ", r"thing\.yaml: colours is"),
        ('three: "three {colour} things"', "", r"thing\.yaml: object\.en\.three is missing"),
        ("a {colour} thing", "a thing", r"object\.en\.one names no colour"),
        ("- a3 zh {object}.", "- a3 zh.", r"partitions\.zh\.answers\[4\] has neither"),
        ("- q1 ar?", "- q1 {objekt}?", r"partitions\.ar\.questions\[2\] has unknown placeholders \['objekt'\]"),
        ("- q1 ar?", "- q1 {object?", r"partitions\.ar\.questions\[2\] is no template"),
        ("- q1 en?", "- q0 en?", r"partitions\.en\.questions must be a list of at least four different texts"),
        ("    fact: f", "    fact:", r"partitions\.en\.fact is None"),
        ("id: thing", "id: [", r"thing\.yaml: cannot be read as YAML"),
        ("colours: [red, blue, green, black]\ncounts: [one, two, three]", "colours: [red]\ncounts: [one]", "fewer than 200"),
    ],
)
def test_a_broken_scenario_file_is_an_error_with_file_and_key(tmp_path: Path, change: str, by: str, message: str) -> None:
    write_scenario(tmp_path, change, by)
    with pytest.raises(DataError, match=message):
        scenarios(tmp_path)


def test_a_drawing_without_the_colour_slot_is_an_error(tmp_path: Path) -> None:
    write_scenario(tmp_path, svg=SVG.replace("#e00001", "#123456"))
    with pytest.raises(DataError, match=r"thing\.svg: #e00001 is missing"):
        scenarios(tmp_path)


def test_looks_take_turns_so_that_all_come_before_any_comes_again() -> None:
    for found in scenarios().values():
        looks = len(found["colours"]) * len(found["counts"]) * 3
        specs = [spec_of(found, k) for k in range(looks)]
        assert len({(s.colour, s.count, s.place) for s in specs}) == looks
        assert {s.colour for s in specs[: len(found["colours"])]} == set(found["colours"])
