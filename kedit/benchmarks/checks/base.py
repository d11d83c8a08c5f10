"""What a file format is to a check: the columns that tell it, those that hold what, and rules of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kedit.benchmarks.checks.images import Opened
from kedit.benchmarks.checks.report import Finding
from kedit.files.rows import Row


@dataclass(frozen=True)
class Facts:
    """What later checks need to know of a row, so that its images need not stay in memory."""

    where: str
    id: str
    question: str
    answer: str
    image: str
    """What identifies the question's image, "" where it has none."""
    apart: str
    locality: tuple[tuple[str, ...], ...]
    """Its items that an edit should not change."""


@dataclass(frozen=True)
class Checked:
    """A file that was read: what it was taken for, what is in it, what is wrong with it."""

    file: Path
    taken: str
    """With the number of rows; "" where nothing could be taken from it."""
    rows: int
    findings: Sequence[Finding]
    facts: Sequence[Facts] = ()


Rule = Callable[[Row], Iterator[Finding]]
Several = Callable[[Sequence[Path], "Place", Opened], Sequence[Checked]]


@dataclass(frozen=True)
class Place:
    """What is checked: a folder or a file, the folder of its images where that is another, and names of fields."""

    path: Path
    images: Path | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of the data."""
        return self.path if self.path.is_dir() else self.path.parent


def anything(_: Mapping[str, Any]) -> bool:
    """The keys alone tell."""
    return True


@dataclass(frozen=True)
class Format:
    """A file format: one row of the table of what ``kedit data check`` knows.

    ``keys`` must all be there and ``tells`` must hold for a row to be taken for it; of several formats the one with the most
    of ``keys`` and ``more`` is chosen, one that is ``certain`` (no other has its keys) before all. A name such as
    ``"text|query"`` stands for columns that mean the same. ``texts`` must not be empty; the first is the question.
    ``answer`` is what is asked or taught, ``images`` hold images, the first that of the question, and ``apart`` tells
    rows apart that ask the same. ``locality`` are groups of columns that make up an item which an edit should not change. A
    format whose files are read together gives ``several`` instead of these.
    """

    name: str
    keys: tuple[str, ...]
    more: tuple[str, ...] = ()
    tells: Callable[[Mapping[str, Any]], bool] = anything
    id: str = ""
    texts: tuple[str, ...] = ()
    answer: str = ""
    apart: str = ""
    images: tuple[str, ...] = ()
    locality: tuple[tuple[str, ...], ...] = ()
    rules: tuple[Rule, ...] = ()
    several: Several | None = None
    certain: bool = False

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is of this format."""
        return all(has(row, key) for key in self.keys) and self.tells(row)

    def likeness(self, row: Mapping[str, Any]) -> float:
        """The share of ``keys`` that a row has."""
        return sum(has(row, key) for key in self.keys) / len(self.keys)

    def weight(self, row: Mapping[str, Any]) -> int:
        """How many of the format's columns a row has."""
        return sum(has(row, key) for key in (*self.keys, *self.more))


def names(key: str) -> list[str]:
    """The columns that a key stands for."""
    return key.split("|")


def has(row: Mapping[str, Any], key: str) -> bool:
    """Whether a row has one of the columns that a key stands for."""
    return any(name in row for name in names(key))


def said(row: Row, key: str) -> str:
    """What a row says in a column as plain text; "" where it says nothing."""
    value = row.get(*names(key)) if key else None
    return "" if value is None or isinstance(value, bytes) else str(value).strip()
