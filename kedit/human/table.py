"""The form of a table of responses; what does not have it is told by column and row."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Sequence
from typing import Any, NoReturn

from kedit.errors import DataError
from kedit.scoring.verdict import NO, YES

PARTICIPANT, ITEM, CONDITION, RESPONSE, ANSWER = "participant", "item", "condition", "response", "answer"
NOT_SURE = "not sure"
_ALLOWED = {RESPONSE: (YES, NO, NOT_SURE), ANSWER: (YES, NO)}


def library(name: str) -> Any:
    """A module of the extra ``human``; raises ImportError, which says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"studies with people need the package {package} (pip install 'kedit[human]'): {error}") from error


def checked(table: Any, columns: Sequence[str], once: Sequence[str], *, drop_not_sure: bool = False) -> Any:
    """The rows with a response, in columns of plain objects, responses and answers in small letters.

    ``columns`` must be there, ``once`` are those that together name a row. A response is "yes", "no" or "not sure" in any
    case, with blank, hyphen or underscore between words; an empty one was not given, and ``drop_not_sure`` leaves out those
    that are not sure as well. Raises DataError, which names column and row, counted from 0.
    """
    pandas = library("pandas")
    if not isinstance(table, pandas.DataFrame):
        raise DataError(f"the table is of type {type(table).__name__}, expected a pandas DataFrame with {', '.join(columns)}")
    if doubled := sorted({str(name) for name in table.columns[table.columns.duplicated()]}):
        raise DataError(f"the table has more than one column {doubled[0]!r}; rename or drop one")
    if missing := [name for name in columns if name not in table.columns]:
        found = ", ".join(map(str, table.columns)) or "none"
        raise DataError(
            f"the table has no column {missing[0]!r}, expected {', '.join(columns)}; columns here: {found}; rename one"
        )
    found = table[list(columns)].astype(object).reset_index(drop=True)
    for name in columns:
        cells = [_cell(name, row, value) for row, value in enumerate(found[name])]
        found[name] = pandas.Series(cells, dtype=object)  # None stays None
    _check_once(found, once)
    _check_answers(found)
    given = found[[value is not None and not (drop_not_sure and value == NOT_SURE) for value in found[RESPONSE]]]
    if given.empty:
        raise DataError(f"column {RESPONSE!r}: no row has a response, of {len(found)} rows")
    return given


def _cell(column: str, row: int, value: Any) -> Any:
    if not isinstance(value, Hashable):
        _bad(column, row, f"is {value!r:.80}, expected one value")
    if value is None or value != value or not str(value).strip() or str(value) in ("<NA>", "NaT"):
        if column == RESPONSE:
            return None
        _bad(column, row, "is empty, expected a value")
    if column not in _ALLOWED:
        return value
    plain = " ".join(value.lower().replace("_", " ").replace("-", " ").split()) if isinstance(value, str) else ""
    if plain not in _ALLOWED[column]:
        _bad(column, row, f"is {value!r:.80}, expected {', '.join(map(repr, _ALLOWED[column]))}")
    return plain


def _check_once(found: Any, once: Sequence[str]) -> None:
    first: dict[tuple[Any, ...], int] = {}
    for row, key in enumerate(zip(*(found[name] for name in once), strict=True)):
        if first.setdefault(key, row) != row:
            named = ", ".join(f"{name} {value!r:.80}" for name, value in zip(once, key, strict=True))
            _bad(once[0], row, f"repeats row {first[key]}: {named}; expected one response of each, keep one of the two")


def _check_answers(found: Any) -> None:
    first: dict[Any, int] = {}
    for row, (item, answer) in enumerate(zip(found[ITEM], found[ANSWER], strict=True) if ANSWER in found else ()):
        if found[ANSWER][first.setdefault(item, row)] != answer:
            _bad(ANSWER, row, f"is {answer!r}, but row {first[item]} has the other answer of item {item!r:.80}; correct one")


def _bad(column: str, row: int, message: str) -> NoReturn:
    raise DataError(f"column {column!r}, row {row}: {message}")
