"""Scenes: a scenario's drawing placed, coloured, counted and rendered to PNG, and the words for what was drawn.

A scene is a pure function of its ``SceneSpec``: same spec, same bytes, on every machine with the same resvg. Scenario
files are read once per process.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kedit.errors import DataError, unknown_name

ROOT = Path(__file__).parent / "scenarios"
ENGINE = "1"
"""Version of the drawing; part of every revision, raised whenever a scene's bytes may change."""
COUNTS = ("one", "two", "three")
PLACES = ("left", "centre", "right")
LANGUAGES = ("en", "zh", "ar")
TOPIC_GROUPS = ("social", "religious", "ethical")
SPLITS = ("single_train", "single_test", "sequential_test")
CASES = 200
"""Raw cases that each scenario must be able to give."""
SIZE = 256.0
SLOT = "#e00001"
SLOTS = {SLOT: "main", "#a00002": "dark", "#f0a003": "light"}


@dataclass(frozen=True)
class SceneSpec:
    """Everything that determines a scene; ``jitter`` is the seed of small shifts in position, size, rotation and tint."""

    scenario: str
    colour: str
    count: str = "one"
    place: str = "centre"
    background: str = "table"
    distractors: tuple[str, ...] = ()
    jitter: int = 0


@cache
def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; raises DataError naming the file (and line) where it is missing, broken or no mapping."""
    import yaml

    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a mapping of keys, got {type(value).__name__}")
    return value


def palette(root: Path = ROOT) -> dict[str, Any]:
    """Colours (what is drawn and how each language says it) and places, from ``palette.yaml``."""
    return read_yaml(root / "palette.yaml")


@cache
def drawing(scenario: str, root: Path = ROOT) -> str:
    """The inside of a scenario's SVG (a 100 x 100 box, colour slots unreplaced); raises DataError where it cannot be read."""
    path = root / f"{scenario}.svg"
    if not path.is_file():
        raise unknown_name("scenario", scenario, (p.stem for p in root.glob("*.svg")))
    text = path.read_text(encoding="utf-8")
    found = re.search(r"<svg\b[^>]*>(.*)</svg\s*>", text, flags=re.DOTALL)
    if found is None:
        raise DataError(f"{path}: no <svg> element with a content found")
    return found.group(1).strip()


@lru_cache(maxsize=4096)
def _coloured(scenario: str, colour: str, root: Path) -> str:
    colours = palette(root)["colours"]
    if colour not in colours:
        raise unknown_name("colour", colour, colours)
    inside = drawing(scenario, root)
    for slot, shade in SLOTS.items():
        inside = inside.replace(slot, colours[colour][shade])
    return inside


KEYS = ("id", "name", "topic_group", "split", "situation", "object", "colours", "counts", "partitions")
_FORMS = {"en": {"colour"}, "zh": {"colour"}, "ar": {"colour_m", "colour_f", "colour_m_dual", "colour_f_dual"}}


@lru_cache(maxsize=8)
def scenarios(root: Path = ROOT) -> Mapping[str, dict[str, Any]]:
    """Every scenario of a folder by id, sorted; raises DataError naming file and key where one is not as it must be."""
    files = sorted(path for path in root.glob("*.yaml") if path.name != "palette.yaml")
    if not files:
        raise DataError(f"{root}: no scenario files (<id>.yaml and <id>.svg) found")
    return {path.stem: _checked(path, root) for path in files}


def _checked(path: Path, root: Path) -> dict[str, Any]:
    found = read_yaml(path)
    for key in KEYS:
        _expect(key in found, path, key, "is missing")
    _expect(found["id"] == path.stem, path, "id", f"is {found['id']!r}, expected {path.stem!r}, the file's name")
    for key, allowed in (("topic_group", TOPIC_GROUPS), ("split", SPLITS)):
        _expect(found[key] in allowed, path, key, f"is {found[key]!r}, expected one of {', '.join(allowed)}")
    colours, counts = found["colours"], found["counts"]
    for key, values, known in (("colours", colours, palette(root)["colours"]), ("counts", counts, COUNTS)):
        right = isinstance(values, list) and values and len(set(values)) == len(values) and set(values) <= set(known)
        _expect(right, path, key, f"is {values!r}, expected distinct values of {', '.join(known)}")
    _expect(SLOT in drawing(path.stem, root), path.with_suffix(".svg"), SLOT, "is missing: the drawing has no main colour")
    for language in LANGUAGES:
        _expect_text(found, path, "name", language)
        for count in counts:
            form = _at(found, path, "object", language, count)
            _expect_slots(form, _FORMS[language], path, f"object.{language}.{count}")
            _expect("{colour" in form, path, f"object.{language}.{count}", "names no colour")
        _check_partition(found, path, language, len(colours) * len(counts) * len(PLACES))
    return found


def _check_partition(found: dict[str, Any], path: Path, language: str, scenes: int) -> None:
    size = 1
    for kind in ("questions", "answers"):
        key, texts = f"partitions.{language}.{kind}", _at(found, path, "partitions", language, kind)
        right = isinstance(texts, list) and len(texts) >= 4 and all(isinstance(t, str) and t.strip() for t in texts)
        _expect(right and len(set(texts)) == len(texts), path, key, "must be a list of at least four different texts")
        size *= len(texts)
        for at, text in enumerate(texts, 1):
            _expect_slots(text, {"object", "place"}, path, f"{key}[{at}]")
            _expect(kind == "questions" or "{" in text, path, f"{key}[{at}]", "has neither {object} nor {place}: no grounding")
    _expect(scenes * size >= CASES, path, "colours", f"and {language} texts give {scenes * size} cases, fewer than {CASES}")
    for key in ("context", "fact", "source"):
        _expect_text(found, path, "partitions", language, key)


def _at(found: Any, path: Path, *keys: str) -> Any:
    for depth, key in enumerate(keys, 1):
        _expect(isinstance(found, dict) and key in found, path, ".".join(keys[:depth]), "is missing")
        found = found[key]
    return found


def _expect(right: object, path: Path, key: str, wrong: str) -> None:
    if not right:
        raise DataError(f"{path}: {key} {wrong}")


def _expect_text(found: Any, path: Path, *keys: str) -> None:
    text = _at(found, path, *keys)
    _expect(isinstance(text, str) and text.strip(), path, ".".join(keys), f"is {text!r}, expected a text")


def _expect_slots(text: Any, known: set[str], path: Path, key: str) -> None:
    _expect(isinstance(text, str), path, key, f"is {type(text).__name__}, expected a text")
    try:
        slots = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError as error:
        raise DataError(f"{path}: {key} is no template: {error}") from error
    _expect(slots <= known, path, key, f"has unknown placeholders {sorted(slots - known)}; known: {', '.join(sorted(known))}")


@dataclass(frozen=True)
class Box:
    """A square in fractions of the canvas: centre, edge, and rotation in degrees."""

    x: float
    y: float
    edge: float
    turn: float = 0.0

    def meets(self, other: Box) -> bool:
        """Whether the two squares (unrotated) overlap."""
        reach = (self.edge + other.edge) / 2
        return abs(self.x - other.x) < reach and abs(self.y - other.y) < reach


EDGES = {"one": 0.60, "two": 0.42, "three": 0.34}
OFFSETS = {
    "one": ((0.0, 0.0),),
    "two": ((-0.09, -0.2), (0.09, 0.2)),
    "three": ((0.0, -0.17), (-0.15, 0.17), (0.15, 0.17)),
}
CENTRES = {"left": 0.335, "centre": 0.5, "right": 0.665}
CORNERS = (Box(0.1, 0.88, 0.17), Box(0.9, 0.88, 0.17), Box(0.9, 0.12, 0.17), Box(0.1, 0.12, 0.17))


def _randoms(spec: SceneSpec) -> Iterator[float]:
    """Endless reproducible numbers in [0, 1) from the spec; hashlib, because ``random`` may change between Pythons."""
    block = 0
    while True:
        digest = hashlib.sha256(f"{spec.scenario}|{spec.jitter}|{block}".encode()).digest()
        for at in range(0, 32, 4):
            yield int.from_bytes(digest[at : at + 4], "big") / 2**32
        block += 1


def layout(spec: SceneSpec) -> tuple[list[Box], list[Box]]:
    """Boxes of the copies and of the distractors, in fractions of the canvas; no distractor's box meets a copy's.

    Copies turn by at most 6 degrees and shrink or grow by at most 4 %. Raises UnknownNameError for an unknown count or place.
    """
    if spec.count not in OFFSETS:
        raise unknown_name("count", spec.count, OFFSETS)
    if spec.place not in CENTRES:
        raise unknown_name("place", spec.place, CENTRES)
    random = _randoms(spec)

    def around(middle: float, spread: float) -> float:
        return middle + (2 * next(random) - 1) * spread

    x, y = around(CENTRES[spec.place], 0.015), around(0.51, 0.02)
    edge = EDGES[spec.count] * around(1.0, 0.04)
    copies = [Box(x + dx, y + dy, edge, around(0.0, 6.0)) for dx, dy in OFFSETS[spec.count]]
    free = [corner for corner in CORNERS if not any(corner.meets(copy) for copy in copies)]
    start = int(next(random) * len(free)) if free else 0
    return copies, (free[start:] + free[:start])[: len(spec.distractors)]


# Muted colours, middle lightness: both white and black objects must stand out. Each takes two tints from the jitter.
BACKGROUNDS: Mapping[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "table": (
        (("#d9cfc0", "#a98f73"), ("#c9d0c8", "#9c8468"), ("#d3c8d0", "#927d6c")),
        (
            '<path fill="{0}" d="M0 0h256v256H0z"/><path fill="{1}" d="M0 186h256v70H0z"/>'
            '<path fill="#000" fill-opacity=".12" d="M0 186h256v6H0z"/>'
        ),
    ),
    "shelf": (
        (("#b9c2c9", "#8f7a63"), ("#c7bfae", "#7f6d5c"), ("#b6c4b9", "#86735f")),
        (
            '<path fill="{0}" d="M0 0h256v256H0z"/><path fill="{1}" d="M0 214h256v14H0zM0 22h256v9H0z"/>'
            '<path fill="#000" fill-opacity=".15" d="M0 228h256v9H0zM0 31h256v6H0z"/>'
            '<path fill="{1}" fill-opacity=".55" d="M0 31h7v183H0zM249 31h7v183h-7z"/>'
        ),
    ),
    "street": (
        (("#c3d0d8", "#9aa0a3"), ("#d6cfc6", "#96928c"), ("#cbd3cf", "#8f979c")),
        (
            '<path fill="{0}" d="M0 0h256v256H0z"/>'
            '<path fill="#a9abb0" fill-opacity=".75" d="M0 62h54v138H0zM62 92h46v108H62zM116 48h58v152h-58zM182 80h74v120h-74z"/>'
            '<path fill="#e6e2d3" fill-opacity=".55" d="M10 76h12v16H10zM32 76h12v16H32zM128 64h12v16h-12zM150 64h12v16h-12z'
            'M196 96h12v16h-12zM224 96h12v16h-12z"/><path fill="{1}" d="M0 194h256v62H0z"/>'
            '<path stroke="#d5d2c6" stroke-width="4" stroke-dasharray="26 18" d="M0 234h256"/>'
        ),
    ),
    "garden": (
        (("#c5dbe3", "#92b089"), ("#d5dfd9", "#87a684"), ("#cfd9e6", "#9db184")),
        (
            '<path fill="{0}" d="M0 0h256v256H0z"/><path fill="{1}" fill-opacity=".6" d="M0 150q50-44 104-14t152-22v142H0z"/>'
            '<path fill="{1}" d="M0 182q128-22 256 0v74H0z"/><g fill="#7d9a74">'
            '<circle cx="18" cy="150" r="24"/><circle cx="44" cy="160" r="18"/>'
            '<circle cx="238" cy="146" r="27"/><circle cx="208" cy="162" r="16"/></g>'
        ),
    ),
    "evening": (
        (("#6f7690", "#5a4d4a"), ("#7a6f86", "#564c50"), ("#67808a", "#4f4b49")),
        (
            '<path fill="{0}" d="M0 0h256v256H0z"/>'
            '<path fill="#46506f" stroke="#a3927c" stroke-width="6" d="M164 18h70v78h-70z"/>'
            '<path stroke="#a3927c" stroke-width="4" d="M199 18v78M164 57h70"/><circle cx="217" cy="37" r="8" fill="#e3dcbd"/>'
            '<path fill="{1}" d="M0 196h256v60H0z"/><path fill="#000" fill-opacity=".15" d="M0 196h256v6H0z"/>'
        ),
    ),
    "tiles": (
        (("#cfd8d6", "#a7a099"), ("#dad4c4", "#9fa39c"), ("#d0d2dd", "#a69f97")),
        (
            '<path fill="{0}" d="M0 0h256v256H0z"/><path stroke="#fff" stroke-width="2" stroke-opacity=".6" '
            'd="M0 48h256M0 96h256M0 144h256M32 0v190M80 0v190M128 0v190M176 0v190M224 0v190"/>'
            '<path fill="{1}" d="M0 190h256v66H0z"/>'
        ),
    ),
}

# Small, muted, drawn in a 40 x 40 box.
DISTRACTORS: Mapping[str, str] = {
    "plant": (
        '<path fill="#7f9a76" d="M20 26C4 22 6 6 8 4q12 6 12 18 0-16 12-20 4 18-12 24z"/>'
        '<path fill="#a68a72" d="M11 26h18l-3 13H14z"/>'
    ),
    "cup": (
        '<path fill="#b5b1ac" d="M8 12h20v16q0 8-10 8T8 28z"/>'
        '<path fill="none" stroke="#b5b1ac" stroke-width="4" d="M28 17q8 0 7 6t-8 6"/>'
    ),
    "lamp": '<path fill="#cdbf9c" d="M12 4h16l7 16H5z"/><path fill="#8d8578" d="M18 20h4v14h-4zM11 34h18v4H11z"/>',
    "picture": (
        '<path fill="#93867a" d="M3 6h34v28H3z"/><path fill="#cfd6d6" d="M7 10h26v20H7z"/>'
        '<path fill="#9aab98" d="M7 30l9-12 7 8 4-4 6 8z"/>'
    ),
    "ball": (
        '<circle cx="20" cy="22" r="15" fill="#a9a3b4"/>'
        '<path fill="none" stroke="#87819a" stroke-width="3" d="M6 22q14-10 28 0M20 7v30"/>'
    ),
    "book": (
        '<path fill="#98a1ad" d="M5 10h30v22H5z"/><path fill="#d6d2c8" d="M8 27h27v4H8z"/>'
        '<path fill="#7e8794" d="M5 10h5v22H5z"/>'
    ),
    "box": '<path fill="#b7a68d" d="M5 12h30v24H5z"/><path fill="#a08f77" d="M5 12h30v6H5zM18 12h4v24h-4z"/>',
    "bottle": '<path fill="#9fb0a8" d="M16 3h8v10q6 3 6 10v15H10V23q0-7 6-10z"/><path fill="#d6d8d0" d="M10 24h20v8H10z"/>',
}


def _placed(box: Box, inside: str, unit: float) -> str:
    """``inside`` (drawn in a square of ``unit``) moved into ``box``."""
    scale = box.edge * SIZE / unit
    turn = f" rotate({box.turn:.2f})" if box.turn else ""
    move = f"translate({box.x * SIZE:.2f} {box.y * SIZE:.2f}){turn} scale({scale:.4f}) translate({-unit / 2:g} {-unit / 2:g})"
    return f'<g transform="{move}">{inside}</g>'


def _glow(box: Box, colour: str) -> str:
    """A shadow under a copy and a soft spot behind it, dark behind light colours and light behind dark ones."""
    x, y, r = box.x * SIZE, box.y * SIZE, box.edge * SIZE
    tint = "#4a4a52" if colour in ("white", "yellow") else "#fffbf0"
    return (
        f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{r * 0.55:.2f}" fill="{tint}" fill-opacity=".36"/>'
        f'<ellipse cx="{x:.2f}" cy="{y + r * 0.47:.2f}" rx="{r * 0.42:.2f}" ry="{r * 0.07:.2f}" fill-opacity=".28"/>'
    )


def scene_svg(spec: SceneSpec, root: Path = ROOT) -> str:
    """The scene as SVG text, 256 units square.

    Raises UnknownNameError for an unknown scenario, colour, count, place, background or distractor.
    """
    if spec.background not in BACKGROUNDS:
        raise unknown_name("background", spec.background, BACKGROUNDS)
    tints, wall = BACKGROUNDS[spec.background]
    copies, corners = layout(spec)
    # Without antialiasing what is large and plain costs half.
    parts = [f'<g shape-rendering="crispEdges">{wall.format(*tints[spec.jitter % len(tints)])}']
    parts += [_glow(copy, spec.colour) for copy in copies]
    parts.append(f'</g><defs><g id="object">{_coloured(spec.scenario, spec.colour, root)}</g></defs>')
    for name, corner in zip(spec.distractors, corners, strict=False):  # where no corner is free, fewer are drawn
        if name not in DISTRACTORS:
            raise unknown_name("distractor", name, DISTRACTORS)
        parts.append(_placed(corner, DISTRACTORS[name], 40.0))
    parts += [_placed(copy, '<use href="#object"/>', 100.0) for copy in copies]
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 256 256">{"".join(parts)}</svg>'


def render(spec: SceneSpec, size: int = 256, root: Path = ROOT) -> bytes:
    """The scene as PNG bytes, ``size`` x ``size`` pixels, RGBA and opaque; raises what ``scene_svg`` raises."""
    return png(scene_svg(spec, root), size)


def png(svg: str, size: int) -> bytes:
    """SVG text as PNG bytes ``size`` pixels wide; reads no system fonts and no files."""
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, width=size, skip_system_fonts=True))


def phrase(scenario: Mapping[str, Any], language: str, spec: SceneSpec, root: Path = ROOT) -> dict[str, str]:
    """The words that fill a scenario's templates: ``object`` and ``place`` in ``language`` (en, zh or ar).

    ``scenario`` is the mapping in the scenario's YAML file. English gets "an" before a vowel; Arabic gets every form of the
    colour that a noun phrase may ask for. Raises DataError where the scenario has no phrase for the count.
    """
    colours = palette(root)["colours"]
    if spec.colour not in colours:
        raise unknown_name("colour", spec.colour, colours)
    colour = colours[spec.colour]
    form = scenario["object"][language].get(spec.count)
    if form is None:
        raise DataError(f"{scenario['id']}.yaml: object.{language} has no form for count {spec.count!r}")
    if language == "ar":
        thing = form.format(**{f"colour_{key}": word for key, word in colour["ar"].items()})
    else:
        word = colour[language]
        if language == "en" and word[0] in "aeiou":
            form = re.sub(r"\b([Aa]) \{colour\}", r"\1n {colour}", form)
        thing = form.format(colour=word)
    return {"object": thing, "place": palette(root)["places"][spec.place][language]}


def fill(template: str, words: Mapping[str, str]) -> str:
    """A question or answer template with its words, first letter raised where the script has capitals."""
    text = template.format(**words)
    return text[:1].upper() + text[1:]
