"""Records with their scores as a data frame and as Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.artefacts import replace_file
from kedit.casebook import read_cases
from kedit.errors import package
from kedit.scoring import by_dimension
from kedit.types import Record

if TYPE_CHECKING:
    from kedit.run import Run
    from kedit.scoring import Scorer

_MAPPINGS = {"tags": "tag", "trace": "trace", "measured": "measured"}
_FLAT = [field.name for field in fields(Record) if field.name not in (*_MAPPINGS, "flags")]


def records_frame(run: Run, tasks: Sequence[str], scorer: Scorer | None = None) -> Any:
    """A pandas DataFrame with one row per record, in the order of editors, then of asking.

    Columns: ``editor``; the record's own (``kedit.types.Record``); ``question``, missing where the run keeps no cases;
    ``score`` (0 to 100, missing where there is none, with the reason in ``unscored``); ``flags`` as one text, separated by
    blanks; ``tag.NAME``, ``trace.NAME`` and ``measured.NAME`` for every name that any record has. ``scorer`` stands in for
    that of each dimension. Half a character, as scraped text may hold, which no column can, becomes U+FFFD. Raises
    MissingPackageError without pandas.
    """
    pandas = package("pandas", "frames", "a data frame")
    rows = list(_rows(run, tasks, scorer))
    names = dict.fromkeys(name for row in rows for name in row) if rows else dict.fromkeys(["editor", *_FLAT])
    return pandas.DataFrame(rows, columns=list(names))


def _rows(run: Run, tasks: Sequence[str], scorer: Scorer | None) -> Iterator[dict[str, Any]]:
    questions = {(c["task"], c["id"]): [probe["request"]["question"] for probe in c["probes"]] for c in read_cases(run.path)}
    scorers = {task: scorer or by_dimension(run.dimensions(task)) for task in tasks}
    for editor in run.editors:
        for record in run.records(editor):
            if record.task not in scorers:
                continue
            asked = questions.get((record.task, record.case), [])
            value, reason = scorers[record.task](record)
            row = {
                "editor": editor,
                **{name: getattr(record, name) for name in _FLAT},
                "question": asked[record.probe] if record.probe < len(asked) else None,
                "score": value,
                "unscored": reason if value is None else None,
                "flags": " ".join(record.flags),
                **{f"{short}.{key}": v for name, short in _MAPPINGS.items() for key, v in getattr(record, name).items()},
            }
            yield {_text(name): _text(v) if isinstance(v, str) else v for name, v in row.items()}


def write_parquet(frame: Any, file: Path) -> Path:
    """Write a frame as Parquet, whole or not at all, and return the file.

    Columns that hold texts or truth values beside values of other kinds, or numbers too large for 64 bits, become text.
    Raises MissingPackageError without pyarrow.
    """
    package("pyarrow.parquet", "parquet", "Parquet")
    plain = frame.copy()
    for name in plain.columns:
        values = [value for value in plain[name] if not _missing(value)]
        kinds = {type(value) for value in values}
        large = any(isinstance(value, int) and abs(value) >= 1 << 63 for value in values)
        if large or (kinds & {str, bool} and len(kinds) > 1):
            plain[name] = [None if _missing(value) else str(value) for value in plain[name]]
    replace_file(file, lambda part: plain.to_parquet(part, engine="pyarrow", index=False))
    return file


def _missing(value: Any) -> bool:
    return value is None or value != value


def _text(value: str) -> str:
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in value)
