"""What is wrong with one answer, seen from its text alone; counted beside the scores, never averaged into them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import regex

from kedit.rouge import MultilingualTokenizer
from kedit.types import Answer

TRUNCATED = "truncated"
EMPTY = "empty"
NONFINITE = "nonfinite"
WRONG_SCRIPT = "wrong_script"
COLLAPSED = "collapsed"
LONG_REFERENCE = "long_reference"
FLAGS = (TRUNCATED, EMPTY, NONFINITE, WRONG_SCRIPT, COLLAPSED, LONG_REFERENCE)

_SCRIPTS = {"Kana": ("Han", "Hiragana", "Katakana"), "Hangul": ("Hangul", "Han")}
_LATIN = "ca cs da de en es et eu fi fr gl hr hu id it lt lv ms nb nl nn no pl pt ro sk sl sq sv sw tr vi"
_WRITTEN = {
    "Latin": _LATIN,
    "Arabic": "ar fa ps ug ur",
    "Cyrillic": "be bg kk ky mk mn ru uk",
    "Devanagari": "hi mr ne sa",
    "Han": "zh yue",
    "Kana": "ja",
    "Hangul": "ko",
    "Greek": "el",
    "Hebrew": "he",
    "Thai": "th",
    "Lao": "lo",
    "Khmer": "km",
    "Myanmar": "my",
    "Bengali": "bn",
    "Tamil": "ta",
    "Telugu": "te",
    "Georgian": "ka",
    "Armenian": "hy",
}
_LANGUAGES = {language: script for script, languages in _WRITTEN.items() for language in languages.split()}
_NAMED = sorted({s for v in _LANGUAGES.values() for s in _SCRIPTS.get(v, (v,))})
_LETTER = regex.compile("|".join(rf"(?P<{name}>\p{{L}}(?<=\p{{Script={name}}}))" for name in _NAMED) + r"|(?P<other>\p{L})")

_LONG = 12
_LONG_CHARACTERS = 24


def flags_of(answer: Answer, language: str, *, reference_tokens: int = 0, max_new_tokens: int = 64) -> tuple[str, ...]:
    """The flags of one answer, in the order of ``FLAGS``.

    ``language`` is what was asked for. ``reference_tokens`` above ``max_new_tokens`` means that no answer could have been
    as long as the reference.
    """
    found = {
        TRUNCATED: answer.truncated,
        EMPTY: not answer.text.strip(),
        NONFINITE: not answer.finite,
        WRONG_SCRIPT: wrong_script(answer.text, language),
        COLLAPSED: collapsed(answer.text),
        LONG_REFERENCE: reference_tokens > max_new_tokens,
    }
    return tuple(flag for flag in FLAGS if found[flag])


def wrong_script(text: str, language: str) -> bool:
    """Whether most words of a text are in a script that the language is not written in.

    A word counts once, as does a character of a script without blanks; digits and punctuation do not count. False for a
    text without letters and for a language (subtags ignored: ``zh-CN`` is ``zh``) whose script is not known.
    """
    wanted = _LANGUAGES.get(regex.split("[-_]", language.lower())[0])
    if wanted is None:
        return False
    words = Counter(m.lastgroup for t in MultilingualTokenizer().tokenize(text) if (m := _LETTER.search(t)))
    right = sum(words[script] for script in _SCRIPTS.get(wanted, (wanted,)))
    return 2 * right < words.total()


def collapsed(text: str) -> bool:
    """Whether a text is stuck in a loop: fewer than half of its runs of three units are distinct.

    Units are the tokens of ROUGE-L where there are at least 12, else the characters that are not blank where there are
    at least 24; a shorter text is never called collapsed. A sentence said twice is not, said three times it is.
    """
    tokens = MultilingualTokenizer().tokenize(text)
    if len(tokens) >= _LONG:
        return _loops(tokens)
    characters = [c for c in text if not c.isspace()]
    return len(characters) >= _LONG_CHARACTERS and _loops(characters)


def _loops(units: Sequence[str]) -> bool:
    runs = [tuple(units[i : i + 3]) for i in range(len(units) - 2)]
    return 2 * len(set(runs)) < len(runs)
