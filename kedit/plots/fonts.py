"""Text on figures in any script: fonts that have the characters, letters joined and ordered as they are read, no silent boxes."""

from __future__ import annotations

import contextlib
import functools
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.report.escape import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE = "DejaVu Sans"
"""Comes with Matplotlib; has Latin, Greek, Cyrillic, Arabic and Hebrew letters."""
_FIRST = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "PingFang SC",
    "Heiti SC",
    "SimHei",
    "Droid Sans Fallback",
    "Arial Unicode MS",
    "Noto Sans Arabic",
    "Noto Naskh Arabic",
)
"""Looked into before all others, so that one text is set in few fonts; of CJK fonts those with simplified Chinese."""
_families: ContextVar[dict[str, None] | None] = ContextVar("families", default=None)


class MissingFontWarning(UserWarning):
    """No installed font has some characters of a label; they are drawn as their code points."""


def plain(text: str) -> str:
    """A label as Matplotlib is to draw it.

    Control characters and characters that no font here has are written out (the latter with a MissingFontWarning), Arabic is
    joined and set from right to left, and no dollar sign starts a formula.
    """
    return _shaped(_drawable(visible(text))).replace("$", r"\$")


def wrapped(text: str, width: int) -> str:
    """As ``plain``, in lines of at most ``width`` characters, broken at spaces and hyphens where there are any."""
    return "\n".join(plain(line) for line in textwrap.wrap(visible(text), width) or [""])


def missing(text: str) -> dict[str, str]:
    """By script, such as ARABIC: the characters of a text that no installed font has."""
    found: dict[str, str] = {}
    for c in dict.fromkeys(text):
        if ord(c) > 126 and _family(c) is None:
            found[_script(c)] = found.get(_script(c), "") + c
    return found


@contextlib.contextmanager
def noting() -> Iterator[dict[str, None]]:
    """Collect the families that labels made inside need, in a fixed order of first use."""
    found: dict[str, None] = {BASE: None}
    token = _families.set(found)
    try:
        yield found
    finally:
        _families.reset(token)


def set_families(figure: Figure, families: Iterable[str]) -> None:
    """Set every text of a figure, ticks drawn later included, in these families: the first that has a character draws it.

    A text that takes a font with PostScript outlines is drawn as outlines: Matplotlib would write such a font into a PDF as if
    it were TrueType, which strict readers refuse.
    """
    from matplotlib.patheffects import Normal
    from matplotlib.text import Text

    names = list(families)
    for found in figure.findobj(Text):
        text: Any = found
        text.set_fontfamily(names)
        if any(_postscript(family) for c in text.get_text() if ord(c) > 126 and (family := _family(c)) is not None):
            text.set_path_effects([Normal()])
    for ax in figure.axes:
        ax.tick_params(axis="both", which="both", labelfontfamily=names)


# -- which font --------------------------------------------------------------------------------------------------------


def _drawable(text: str) -> str:
    """The text with what no font has written as code points; says so once per call."""
    lost = missing(text)
    for script, characters in lost.items():
        named = " ".join(f"{c} (U+{ord(c):04X})" for c in characters[:8])
        more = f" and {len(characters) - 8} more" if len(characters) > 8 else ""
        warnings.warn(
            f"no installed font has these {script.title()} characters: {named}{more}; they are drawn as code points. Install a "
            f"font that has them, such as Noto Sans, and delete Matplotlib's font cache (matplotlib.get_cachedir())",
            MissingFontWarning,
            stacklevel=4,
        )
    noted = _families.get()
    for c in text:
        if noted is not None and ord(c) > 126 and (family := _family(c)) is not None:
            noted[family] = None
    every = "".join(lost.values())
    return "".join(_code(c) if c in every else c for c in text)


def _code(c: str) -> str:
    return f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"


def _script(c: str) -> str:
    """A script by the name of its character; Han characters are called CJK."""
    return unicodedata.name(c, "unnamed").split()[0].split("-")[0]


@functools.lru_cache(maxsize=4096)
def _family(c: str) -> str | None:
    """The family that draws a character; None where no font has it."""
    if unicodedata.category(c) in ("Cf", "Mn", "Zs"):  # nothing of its own to see, or part of the letter before it
        return BASE
    return next((name for name, font in _fonts() if font.get_char_index(ord(c))), None)


def _fonts() -> Iterator[tuple[str, Any]]:
    """Upright regular fonts, those to prefer first, each opened when it is looked into."""
    for name, *place in _places():
        try:
            yield name, _opened(*place)
        except (OSError, RuntimeError):  # a font that Matplotlib lists but cannot read
            continue


@functools.lru_cache(maxsize=1)
def _places() -> tuple[tuple[str, str, int], ...]:
    """Family, file and place in the file of every font to look into."""
    from matplotlib.font_manager import fontManager

    known = [f for f in fontManager.ttflist if f.style == "normal" and f.weight in (400, "normal", "regular", "book")]
    known = [f for f in known if "Last Resort" not in f.name]  # has a box for every character
    rank = {name: k for k, name in enumerate((BASE, *_FIRST))}
    found: dict[str, tuple[str, str, int]] = {}
    for font in sorted(known, key=lambda f: (rank.get(f.name, len(rank)), "Sans" not in f.name, f.name, f.fname)):
        found.setdefault(font.name, (font.name, font.fname, getattr(font, "index", 0)))
    return tuple(found.values())


@functools.lru_cache(maxsize=512)
def _opened(file: str, index: int) -> Any:
    from matplotlib.ft2font import FT2Font

    return FT2Font(file, face_index=index) if index else FT2Font(file)


@functools.lru_cache(maxsize=64)
def _postscript(family: str) -> bool:
    """Whether a family's outlines are PostScript's (CFF), as its file says in the four bytes that begin a font."""
    _, name, index = next(place for place in _places() if place[0] == family)
    with Path(name).open("rb") as file:
        if file.read(4) == b"ttcf":  # a collection: a header of 12 bytes, then where each font begins
            file.seek(12 + 4 * index)
            file.seek(int.from_bytes(file.read(4), "big"))
        else:
            file.seek(0)
        return file.read(4) == b"OTTO"


# -- how letters are set -----------------------------------------------------------------------------------------------


def _shapes_itself() -> bool:
    """Whether this Matplotlib joins and orders letters (3.11 and later do); what is done twice would be undone."""
    from matplotlib import ft2font

    return hasattr(ft2font, "__libraqm_version__")


def _shaped(text: str) -> str:
    if text.isascii() or _shapes_itself():
        return text
    from arabic_reshaper import reshape
    from bidi.algorithm import get_display

    return str(get_display(reshape(text)))
