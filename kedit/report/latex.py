"""Tables as LaTeX, for a paper: booktabs rules, intervals in small print, every character escaped."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator

from kedit.bootstrap import Estimate
from kedit.report.escape import visible
from kedit.report.tables import Cell, Column, Table
from kedit.report.text import cell_text

_WIDE = 6
"""Columns from which on a table spans both columns of a page."""
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    **{c: f"\\{c}" for c in "$&#%_"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # a row that begins with one of these two would be an argument of the row before
    "*": "{*}",
    "–": "--",
}
_LIGATURE = re.compile(r"([-'])(?=\1)")
"""Where two of these, side by side, would become another character."""


def latex_text(text: str) -> str:
    """Text in which LaTeX finds no command, no argument and no ligature; letters of other scripts stay as they are."""
    escaped = "".join(_SPECIAL.get(c, c) for c in _LIGATURE.sub(r"\1\0", visible(text)))
    return escaped.replace("\0", "{}")


def latex(table: Table, *, label: str) -> str:
    r"""A ``table`` with booktabs rules, caption, ``\label{tab:LABEL}`` and the notes below; needs ``\usepackage{booktabs}``.

    An estimate is its mean with the interval in small print. Counts beside scores (flags, failures) become a note, where they
    are not 0. A comment says which scripts need LuaLaTeX or XeLaTeX.
    """
    picked = [i for i, c in enumerate(table.columns) if not (table.kind == "scores" and c.kind == "count")]
    columns = [table.columns[i] for i in picked]
    body = [
        r"\toprule",
        " & ".join(latex_text(c.label) for c in columns) + r" \\",
        r"\midrule",
        *(" & ".join(_cell(row[i], table.columns[i]) for i in picked) + r" \\" for row in table.rows),
        r"\bottomrule",
    ]
    name = "table*" if len(columns) > _WIDE else "table"
    lines = [
        rf"\begin{{{name}}}[tb]",
        r"\centering\small",
        rf"\caption{{{latex_text(table.title)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{''.join('l' if c.kind == 'name' else 'r' for c in columns)}}}",
        *body,
        r"\end{tabular}",
        *_notes(table, picked),
        rf"\end{{{name}}}",
        "",
    ]
    return "\n".join([*_comments("\n".join(lines)), *lines])


def _comments(text: str) -> Iterator[str]:
    yield r"% \usepackage{booktabs}"
    if scripts := sorted(
        {_script(c) for c in text if c.isalpha() and _script(c) not in ("LATIN", "MICRO", "FEMININE", "MASCULINE")}
    ):
        yield f"% Holds {', '.join(scripts)} letters: compile with LuaLaTeX or XeLaTeX and a font that has them."
        if {"ARABIC", "HEBREW"} & set(scripts):
            yield "% From right to left: set these cells with babel's bidi=basic (LuaLaTeX) or polyglossia (XeLaTeX)."


def _script(c: str) -> str:
    return unicodedata.name(c, "UNKNOWN").split()[0]


def _cell(cell: Cell, column: Column) -> str:
    text = cell_text(cell, column)
    if not isinstance(cell, Estimate):
        return latex_text(text)
    mean, _, interval = text.partition(" ")
    return rf"{_number(mean)} {{\scriptsize {_number(interval)}}}"


def _number(text: str) -> str:
    return text.replace("-", "$-$").replace("+", "$+$")


def _notes(table: Table, picked: list[int]) -> Iterator[str]:
    notes = [f"{'Caution: ' if note.warning else ''}{note.text}" for note in table.notes]
    left = [i for i in range(len(table.columns)) if i not in picked]
    for row in table.rows:
        counts = [f"{table.columns[i].label} {row[i]}" for i in left if row[i]]
        notes += [f"{row[0]}: {', '.join(counts)}."] if counts else []
    if notes:
        yield r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize"
        for note in notes:
            yield textwrap.fill(latex_text(note), 100, break_long_words=False, break_on_hyphens=False) + r"\par"
        yield r"\end{minipage}"
