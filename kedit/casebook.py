"""What was inserted and asked, kept beside the records, so that a reader of a run needs neither its benchmark nor a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kedit import jsonl
from kedit.artefacts import replace_file
from kedit.errors import DataError, StoreError
from kedit.images import open_image
from kedit.types import Case, ImageRef, Request

CASES = "cases.jsonl"
IMAGES = "images"
SIDE = 384
"""Longest side in pixels of the copy of an image that is kept: to look at, not to ask again."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass
class Casebook:
    """The writer of ``cases.jsonl`` and ``images/<digest>.png`` in a run's folder; used only while the run's lock is held.

    ``digest`` is that of the original image. An image that cannot be read is left out: what it means for the case is the
    business of whoever shows it to a model.
    """

    path: Path
    _known: set[tuple[str, str]] | None = field(default=None, repr=False)

    def add(self, task: str, case: Case) -> None:
        """Write a case unless it is there already, also from an earlier run; raises StoreError where the disk refuses."""
        if self._known is None:
            jsonl.repair(self.path / CASES)
            self._known = {(row["task"], row["id"]) for row in read_cases(self.path)}
        if (task, case.id) not in self._known:
            for image in _images(case):
                self._keep(image)
            jsonl.append(self.path / CASES, [_row(task, case)])
            self._known.add((task, case.id))

    def _keep(self, image: ImageRef) -> None:
        try:
            file = self.path / IMAGES / f"{image.digest}.png"
            if file.exists():
                return
            small = open_image(image)
        except (OSError, ValueError):  # ImageError among them; ValueError is a null byte in a path
            return
        small.thumbnail((SIDE, SIDE))
        try:
            replace_file(file, lambda part: small.save(part, "PNG"))
        except OSError as error:
            raise StoreError(f"cannot write {file}: {error.strerror or error}; what was written is intact") from error


def read_cases(folder: Path) -> Iterator[dict[str, Any]]:
    """Cases of a run, each once, in the order in which they were first tried; none where the folder keeps none.

    Keys: task, id, tags; ``chain`` of ``request``, ``answer``, ``title``, ``text``; ``probes`` of ``request``, ``dimension``,
    ``step``. A request has question, language, ``images`` (digests, None for one that could not be read) and ``context``
    (texts and ``{"image": digest}``). Raises DataError for a row that is none of this.
    """
    seen = set()
    for row in jsonl.read(folder / CASES):
        if not {"task", "id", "tags", "chain", "probes"} <= row.keys():
            raise DataError(f"{folder / CASES}: not a case: it has the keys {', '.join(row)}; delete the file and rerun")
        if (row["task"], row["id"]) not in seen:
            seen.add((row["task"], row["id"]))
            yield row


def read_image(folder: Path, digest: str) -> ImageRef | None:
    """The kept copy of an image, None where there is none."""
    file = folder / IMAGES / f"{digest}.png"
    return ImageRef(path=str(file)) if _DIGEST.fullmatch(digest) and file.is_file() else None


def _images(case: Case) -> Iterator[ImageRef]:
    requests: Iterable[Request] = [*(k.request for k in case.chain), *(p.request for p in case.probes)]
    found = [image for r in requests for image in (*r.images, *(c for c in r.context if isinstance(c, ImageRef)))]
    yield from dict.fromkeys(found)


def _row(task: str, case: Case) -> dict[str, Any]:
    return {
        "task": task,
        "id": case.id,
        "tags": dict(case.tags),
        "chain": [{"request": _request(k.request), "answer": k.answer, "title": k.title, "text": k.text} for k in case.chain],
        "probes": [{"request": _request(p.request), "dimension": p.dimension, "step": p.step} for p in case.probes],
    }


def _request(request: Request) -> dict[str, Any]:
    return {
        "question": request.question,
        "language": request.language,
        "images": [_digest(image) for image in request.images],
        "context": [{"image": _digest(c)} if isinstance(c, ImageRef) else c for c in request.context],
    }


def _digest(image: ImageRef) -> str | None:
    try:
        digest: str = image.digest
    except (OSError, ValueError):
        return None
    return digest
