"""ROUGE-L that can read every script: a tokenizer of our own, handed to ``rouge_score``."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import regex

from kedit.errors import unknown_name

ROUGE_ID = "rougeL/multilingual-1"
"""Names the default score; its number goes up whenever a token of any text changes."""

_ALONE = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = r"\p{L}\p{N}\p{M}"
_TOKEN = regex.compile(rf"(?V1)[[{_ALONE}]&&[{_WORD}]]|[[\p{{L}}\p{{N}}]--[{_ALONE}]][[{_WORD}]--[{_ALONE}]]*")
_ARABIC_MARKS = regex.compile(r"[\u0610-\u061A\u064B-\u065F\u0670\u06D6-\u06ED\u0640]")
_INVISIBLE = regex.compile(r"[\p{Cf}\uFE00-\uFE0F]")
_DIGIT = regex.compile(r"(?V1)[\p{Nd}--[0-9]]")
_ALEF = str.maketrans("أإآٱ", "اااا")
_LETTERS = str.maketrans("ىةؤئ", "يهوي")


SENTENCE = 5
"""Tokens from which on an answer is a sentence, which two cases do not share by chance."""


class Tokenizer(Protocol):
    """What ``rouge_score`` accepts as a tokenizer."""

    def tokenize(self, text: str) -> list[str]: ...


class MultilingualTokenizer:
    """Words of scripts that put blanks between them, single characters of those that do not.

    NFKC and case folding first; invisible formatting characters go. One token per Han, Kana, Thai, Lao, Khmer or Myanmar
    character; elsewhere one per run of letters, digits and marks; punctuation and symbols are no tokens. Arabic loses its
    vowel marks and tatweel, the four forms of alef become one, and digits of any script become 0 to 9. ASCII text gives
    the tokens of ``rouge_score`` without its stemmer, so that English scores stay comparable.

    ``fold_letters`` also folds alef maksura to ya, ta marbuta to ha, and hamza carriers to their carrier. Off by default:
    it merges words that differ (such as the prepositions "to" and "on" with their forms in ya).
    """

    def __init__(self, *, fold_letters: bool = False) -> None:
        self.fold_letters = fold_letters

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text, in order."""
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        text = _ARABIC_MARKS.sub("", _INVISIBLE.sub("", text)).translate(_ALEF)
        text = _DIGIT.sub(lambda m: str(unicodedata.decimal(m.group())), text)
        if self.fold_letters:
            text = text.translate(_LETTERS)
        tokens: list[str] = _TOKEN.findall(text)
        return tokens


def is_sentence(text: str) -> bool:
    """Whether a text has so many tokens (5) that two cases with the same one state the same knowledge."""
    return len(MultilingualTokenizer().tokenize(text)) >= SENTENCE


def _stock() -> Tokenizer:
    from rouge_score.tokenizers import DefaultTokenizer

    tokenizer: Tokenizer = DefaultTokenizer(use_stemmer=False)
    return tokenizer


_KINDS: dict[str, tuple[str, Callable[[], Tokenizer]]] = {
    "multilingual": (ROUGE_ID, MultilingualTokenizer),
    "multilingual-fold": (ROUGE_ID + "-fold", lambda: MultilingualTokenizer(fold_letters=True)),
    "legacy": ("rougeL/rouge_score-default", _stock),
}


def rouge_id(rouge: str = "multilingual") -> str:
    """The identifier to print beside scores of that kind; raises UnknownNameError for an unknown kind."""
    return _kind(rouge)[0]


def rouge_l(candidate: str, reference: str, *, rouge: str = "multilingual") -> float | None:
    """ROUGE-L F-measure of a candidate against a reference, 0 to 100; None where there is nothing to score.

    None (unscored) when the reference has no token at all; an empty candidate of a proper reference scores 0. Identical
    tokens score exactly 100. ``rouge="legacy"`` is the library as it comes, which keeps only a-z and 0-9 and gives 0 to
    identical Chinese texts. Raises UnknownNameError for another kind. Source: Lin 2004, through the package rouge_score.
    """
    return _cached(candidate, reference, rouge)


@lru_cache(maxsize=1 << 16)
def _cached(candidate: str, reference: str, rouge: str) -> float | None:
    scorer, tokenizer = _scorer(rouge)
    if rouge != "legacy" and not tokenizer.tokenize(reference):
        return None
    return 100.0 * float(scorer.score(reference, candidate)["rougeL"].fmeasure)


@lru_cache
def _scorer(rouge: str) -> tuple[Any, Tokenizer]:
    from rouge_score.rouge_scorer import RougeScorer

    tokenizer = _kind(rouge)[1]()
    return RougeScorer(["rougeL"], tokenizer=tokenizer), tokenizer


def _kind(rouge: str) -> tuple[str, Callable[[], Tokenizer]]:
    if rouge not in _KINDS:
        raise unknown_name("kind of ROUGE", rouge, _KINDS)
    return _KINDS[rouge]
