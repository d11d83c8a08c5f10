"""Rows of one file, checked by their format: texts, images, rules of its own, and rows that come twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from kedit.benchmarks.checks.base import Checked, Facts, Format, Place, names, said
from kedit.benchmarks.checks.dirt import ANYWHERE, dirt
from kedit.benchmarks.checks.images import Opened
from kedit.benchmarks.checks.report import UNREADABLE, Finding
from kedit.errors import DataError
from kedit.files.rows import Pictures, Row, rows_of

FOLDERS = ("images", "VLKEB_images", "VLKEB_images/mmkb_images", "mmkb_images", "data_image", "coco", "val2014")
"""Folders below a root that publishers put images in."""


def check_file(file: Path, form: Format, place: Place, opened: Opened) -> Checked:
    """A file taken for a format; one that cannot be read to its end counts up to there."""
    pictures, facts, findings = Pictures(_roots(file, place), FOLDERS), list[Facts](), list[Finding]()
    try:
        for row in rows_of(file, place.folder):
            facts.append(_facts(row, form, pictures, opened))
            findings += [*_texts(row, form), *_images(row, form), *(found for rule in form.rules for found in rule(row))]
    except DataError as error:
        findings.append(Finding(UNREADABLE, str(file), str(error)))
    findings += _twice(file, facts)
    return Checked(file, f"{len(facts)} rows of {form.name}", len(facts), findings, facts)


def _roots(file: Path, place: Place) -> list[Path]:
    """Where images are looked for: where the user says, else the folders from the file up to the one that is checked."""
    if place.images:
        return [place.images]
    up = [folder for folder in (file.parent, *file.parent.parents) if folder.is_relative_to(place.folder)]
    return up[::-1] if place.path.is_dir() else [file.parent, file.parent.parent]


def _facts(row: Row, form: Format, pictures: Pictures, opened: Opened) -> Facts:
    keys = []
    for name in form.images:
        for value in _listed(row, name):
            keys.append(opened.look(partial(pictures.ref, value, row), row.where))
    return Facts(
        where=row.where,
        id=said(row, form.id),
        question=said(row, form.texts[0]),
        answer=said(row, form.answer),
        image=keys[0] if keys else "",
        apart=said(row, form.apart),
        locality=tuple((group[0], *(said(row, key) for key in group)) for group in form.locality if said(row, group[0])),
    )


def _listed(row: Row, key: str) -> Sequence[object]:
    """The images in a column: one, or a list of them; none where it is empty."""
    value = row.get(*names(key))
    if isinstance(value, list | tuple):
        return value
    return [] if value is None or value in ("", b"") else [value]


def _texts(row: Row, form: Format) -> Iterator[Finding]:
    for key in form.texts:
        try:
            row.text(*names(key))
        except DataError as error:
            yield Finding("malformed" if said(row, key) else "empty", row.where, str(error))
    images = {name for key in form.images for name in names(key)}
    for name, value in row.values.items():
        if isinstance(value, str) and name not in images:
            yield from dirt(ANYWHERE, name, value, row.where)


def _images(row: Row, form: Format) -> Iterator[Finding]:
    for key in form.images:
        if key in form.keys and not _listed(row, key):
            yield Finding("empty", row.where, f"{names(key)[0]} is missing, expected an image")


def _twice(file: Path, facts: Sequence[Facts]) -> Iterator[Finding]:
    for id_, n in Counter(one.id for one in facts if one.id).items():
        if n > 1:
            yield Finding("duplicate_id", str(file), f"id {id_!r} comes {n} times", False)
    seen: dict[tuple[str, ...], str] = {}
    for one in facts:
        if one.image:
            first = seen.setdefault((one.image, one.question, one.apart), one.where)
            if first != one.where:
                yield Finding("duplicate", one.where, f"same image and question as {first.rpartition(', ')[2]}", False)
