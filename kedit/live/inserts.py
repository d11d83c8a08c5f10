"""Questions, answers and images as people and their files give them, made into requests and knowledge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from kedit.errors import DataError, ImageError, RequestError
from kedit.files.rows import Pictures, Row, read_rows
from kedit.flags import wrong_script
from kedit.images import open_image
from kedit.types import ImageRef, Knowledge, Request
from kedit.wording import SYSTEM_PROMPTS

Image: TypeAlias = str | Path | bytes | ImageRef


def read_knowledge(path: str | Path, systems: Mapping[str, str] = SYSTEM_PROMPTS) -> list[tuple[str, Knowledge]]:
    """("file, line 3", knowledge) for every row of a JSON-lines file (or JSON, TSV, parquet); every image is opened once.

    ``question`` and ``answer`` must be there; ``image`` or ``images`` (paths below the file's folder), ``language``, ``title``
    and ``text`` may be. Raises DataError, which names file and row, for the first row that cannot be inserted.
    """
    file = Path(path)
    if file.is_dir():
        raise DataError(f"{file} is a folder; give the file")
    pictures, opened = Pictures((file.parent,)), dict[ImageRef, ImageRef]()
    found = [(row.where, _row(row, pictures, opened, systems)) for row in read_rows(file)]
    if not found:
        raise DataError(f"{file} has no rows; expected one object a line with question and answer")
    return found


def _row(row: Row, pictures: Pictures, opened: dict[ImageRef, ImageRef], systems: Mapping[str, str]) -> Knowledge:
    value = next((found for name in ("images", "image") if (found := row.get(name)) not in (None, "", [])), None)
    refs = () if value is None else pictures.refs(value, row)
    try:
        for ref in refs:
            if ref not in opened:
                opened[ref] = image_of(ref)
        images = tuple(opened[ref] for ref in refs)
        request = request_of(row.text("question"), images, row.maybe("language") or None, systems)
        return knowledge_of(request, row.text("answer"), row.maybe("title"), row.maybe("text"))
    except (ImageError, RequestError) as error:
        raise row.error(str(error)) from error


def request_of(question: str, images: tuple[ImageRef, ...], language: str | None, systems: Mapping[str, str]) -> Request:
    """The request that a question makes, with the system prompt of its language, where ``systems`` has one.

    Without ``language`` the script decides: en, zh or ar, else en. Raises RequestError for an empty question, and for half of a
    character, with which no tokenizer works.
    """
    if not question.strip():
        raise RequestError("the question is empty; give at least one visible character")
    _whole(question=question)
    spoken = language or next((one for one in SYSTEM_PROMPTS if not wrong_script(question, one)), "en")
    return Request(question.strip(), images, spoken, systems.get(spoken))


def knowledge_of(request: Request, answer: str, title: str = "", text: str = "") -> Knowledge:
    """What is inserted; raises RequestError for an empty answer, and for half of a character, which would fail every question."""
    if not answer.strip():
        raise RequestError("the answer is empty; give what is to be answered to the question")
    _whole(answer=answer, title=title, text=text)
    return Knowledge(request, answer.strip(), title.strip(), text.strip())


def _whole(**texts: str) -> None:
    for name, text in texts.items():
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise RequestError(f"{name} holds a lone surrogate (half of a character): {text!r:.80}; leave it out")


def image_of(given: Image) -> ImageRef:
    """The image as bytes, so that it outlives its file; ImageError where it cannot be opened."""
    if isinstance(given, bytes):
        image = ImageRef(data=given)
    else:
        image = given if isinstance(given, ImageRef) else ImageRef(path=str(given))
    open_image(image)
    return ImageRef(data=image.read())
