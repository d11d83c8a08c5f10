"""Questions in another language, supplied by the user beside a benchmark's own files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedit.benchmarks.choices import Choice, options_of
from kedit.errors import DataError
from kedit.files.rows import Row, read_rows

Source = str | Path | Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Name:
    """How a row can be named: by its ``uid``, or by the file's own ``id``, which may repeat."""

    uid: str
    id: str


class Translations:
    """Translations by ``uid``, or by the data's own id where each comes as often in both files (in the same order then).

    ``source`` is a JSON, JSON-lines or parquet file of rows with ``question``, ``options`` (in the order of the original; the
    original ones where left out) and ``uid`` or ``id_``; or a mapping from uid to such a row. Raises DataError naming file
    and row.
    """

    def __init__(self, source: Source) -> None:
        self._uid: dict[str, Row] = {}
        self._id: dict[str, list[Row]] = {}
        if isinstance(source, Mapping):
            rows = [Row(Path("translations"), f"key {key}", {"uid": key, **value}) for key, value in source.items()]
        else:
            rows = list(read_rows(Path(source)))
        for row in rows:
            uid = row.maybe("uid")
            if uid in self._uid:
                raise row.error(f"uid {uid!r} comes twice; expected one translation of each row")
            if uid:
                self._uid[uid] = row
            else:
                self._id.setdefault(row.text("id_", "id"), []).append(row)

    def rows(self, names: Sequence[Name]) -> list[Row | None]:
        """For each name its translation, None where there is none; raises DataError where ids repeat differently."""
        times, seen, found = Counter(name.id for name in names), Counter[str](), []
        for name in names:
            nth, seen[name.id] = seen[name.id], seen[name.id] + 1
            same = self._id.get(name.id, [])
            if name.uid in self._uid or not same:
                found.append(self._uid.get(name.uid))
            elif len(same) != times[name.id]:
                raise same[0].error(
                    f"id {name.id!r} comes {len(same)} times here and {times[name.id]} times in the data; "
                    f"name rows by uid, such as {name.uid!r}"
                )
            else:
                found.append(same[nth])
        return found


def translated(choice: Choice, row: Row) -> Choice | None:
    """The choice in the translation's words, None where it has none; raises DataError for another number of options."""
    if not row.maybe("question"):
        return None
    options = choice.options if row.get("options") is None else options_of(row, "options")
    if len(options) != len(choice.options):
        raise row.error(f"options holds {len(options)}, expected {len(choice.options)} in the order of the original")
    return Choice(row.text("question"), options, choice.answer)


def digest_of(source: Source) -> object:
    """What of a source decides a benchmark's content, fit for JSON."""
    if isinstance(source, Mapping):
        return {str(key): {k: v for k, v in value.items() if isinstance(v, str | list)} for key, value in source.items()}
    import hashlib

    try:
        return hashlib.sha256(Path(source).read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error.strerror or error}") from error
