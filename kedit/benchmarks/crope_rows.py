"""Rows of CROPE: one yes-no question about one picture, with the definition of the concept that is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from kedit.files.rows import NoImage, Pictures, Row
from kedit.types import ImageRef

IMAGE, DEFINITIONS = "image", "definition_images"
COLUMNS = ("sample_id", IMAGE, "question", "answer", DEFINITIONS, "definition_captions", "definition_summary", "chapter")
METADATA = (
    "definition_concept",
    "definition_wikipedia_page_url",
    "image_concept",
    "image_concept_chapter",
    "image_id",
    "image_url",
    "source_language",
)
"""Columns as the data set's card names them; the metadata are one column, or one each, or JSON text."""
ANSWERS = {"yes": "yes", "y": "yes", "true": "yes", "no": "no", "n": "no", "false": "no"}
LANGUAGES = {
    name: code
    for code, names in {
        "id": ("ind", "indonesian", "bahasa indonesia"),
        "sw": ("swa", "swh", "swahili", "kiswahili"),
        "ta": ("tam", "tamil"),
        "tr": ("tur", "turkish"),
        "zh": ("zho", "cmn", "chinese", "mandarin", "mandarin chinese"),
    }.items()
    for name in (code, *names)
}
"""What a source language may be called, to its code."""


@dataclass(frozen=True)
class Item:
    """A question about a picture and what is known of the concept asked for.

    ``answer`` is "yes" or "no"; "" where the row has none. ``images`` are the definition's, each with its caption, in the
    file's order. ``uid`` is made of file and row, ``where`` names them. ``chapter`` is the row's own, ``image_chapter`` that
    of the concept in the picture. ``picture`` tells pictures apart: questions on the same one are consistent together.
    """

    id: str
    uid: str
    where: str
    image: ImageRef
    question: str
    answer: str
    concept: str
    summary: str
    images: tuple[tuple[ImageRef, str], ...]
    chapter: str
    image_concept: str
    image_chapter: str
    language: str
    picture: str


def read_item(row: Row, pictures: Pictures, mapping: Mapping[str, str] | None = None) -> Item:
    """A row as an item; raises DataError, which names file and row.

    ``mapping`` gives the names of columns that differ from ``COLUMNS`` and ``METADATA``; small and capital letters in names
    do not matter. A picture that is missing keeps its row.
    """
    row = _plain(row, mapping or {})
    found = {name: _text(row, name, row.get(name)) for name in ("sample_id", "definition_summary", "chapter")}
    meta = _metadata(row)
    image = _picture(row, IMAGE, row.get(IMAGE), pictures)
    language = language_code(meta["source_language"])
    return Item(
        id=found["sample_id"] or row.uid,
        uid=row.uid,
        where=row.where,
        image=image,
        question=row.text("question").strip(),
        answer=_answer(row),
        concept=meta["definition_concept"] or _page(meta["definition_wikipedia_page_url"]),
        summary=found["definition_summary"],
        images=_definitions(row, pictures),
        chapter=found["chapter"],
        image_concept=meta["image_concept"],
        image_chapter=meta["image_concept_chapter"] or found["chapter"],
        language=language,
        # MaRVL numbers pictures anew in every language.
        picture=f"{language}/{meta['image_id']}" if meta["image_id"] else meta["image_url"] or _digest(image, row),
    )


def language_code(name: str) -> str:
    """The code of a source language given by code or name in any case ("ID", "zh-CN", "Swahili"); as it is if unknown."""
    plain = name.strip().lower().replace("_", "-")
    return LANGUAGES.get(plain) or LANGUAGES.get(plain.partition("-")[0]) or plain


def _plain(row: Row, mapping: Mapping[str, str]) -> Row:
    """The row with the card's column names."""
    theirs = {name.strip().lower(): ours for ours, name in mapping.items()}
    values: dict[str, Any] = {}
    for key, value in row.values.items():
        values.setdefault(theirs.get(key.lower(), key.lower()), value)
    return replace(row, values=values)


def _metadata(row: Row) -> dict[str, str]:
    """The texts of the metadata, "" for those that there are not."""
    given = row.get("metadata")
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise row.error(f"metadata is the text {given!r:.80}, expected JSON: {error}") from error
    if isinstance(given, list | tuple) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in given):
        given = dict(given)  # a parquet map
    if not isinstance(given, Mapping | None) and given != "":
        raise row.error(f"metadata is {given!r:.80}, expected an object with keys, or JSON text of one")
    inside = {str(key).strip().lower(): value for key, value in (given or {}).items()}
    found = {}
    for name in METADATA:
        flat = row.get(f"metadata.{name}", f"metadata_{name}", name)
        found[name] = _text(row, name, flat if inside.get(name) is None else inside[name])
    return found


def _text(row: Row, name: str, value: Any) -> str:
    """A text without blanks around it, "" where there is none; numbers, which some writers make of ids, are texts too."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value:.0f}" if float(value).is_integer() else str(value)
    return replace(row, values={name: value}).maybe(name).strip()


def _answer(row: Row) -> str:
    value = row.get("answer")
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = _text(row, "answer", value)
    if text and (plain := text.rstrip(".! ").lower()) not in ANSWERS:
        raise row.error(f"answer is {plain!r:.80}, expected yes or no")
    return ANSWERS[plain] if text else ""


def _picture(row: Row, name: str, value: Any, pictures: Pictures) -> ImageRef:
    if callable(value):
        return ImageRef(draw=value)
    if _nothing(value):
        return ImageRef(draw=NoImage(f"{row.where}, {name}"))
    return pictures.ref(value, row)


def _nothing(value: Any) -> bool:
    if isinstance(value, Mapping):
        return not (value.get("bytes") or value.get("path"))
    return value is None or (isinstance(value, str | bytes) and not value.strip())


def _definitions(row: Row, pictures: Pictures) -> tuple[tuple[ImageRef, str], ...]:
    """Pictures with their captions, "" where a list of captions ends early; a place without a picture is left out."""
    given, captions = _listed(row.get(DEFINITIONS)), _captions(row)
    captions += [""] * (len(given) - len(captions))
    pairs = zip(given, captions, strict=False)
    return tuple((_picture(row, DEFINITIONS, one, pictures), caption) for one, caption in pairs if not _nothing(one))


def _captions(row: Row) -> list[str]:
    given = row.get("definition_captions")
    if isinstance(given, str) and given.strip().startswith("["):
        given = row.texts("definition_captions")
    return [_text(row, "definition_captions", one) for one in _listed(given)]


def _listed(value: Any) -> list[Any]:
    """A list, however it was stored: an array, a single value, nothing."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return list(value)
    return [] if value is None else [value]


def _page(url: str) -> str:
    """The title in the address of an encyclopaedia's page."""
    return unquote(url.rstrip("/").rpartition("/")[2]).replace("_", " ")


def _digest(image: ImageRef, row: Row) -> str:
    try:
        return image.digest
    except (OSError, ValueError):
        return row.uid  # nobody can tell which other questions show it
