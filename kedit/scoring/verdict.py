"""Whether an answer says yes or no, in English, Chinese or Arabic, however many words it takes.

The rule, on clauses (what punctuation, "but" or "and not" separates), in order:

1. Repetitions of the question ("yes or no"), turns such as "no doubt" and openings such as "the answer is" are taken out.
2. A clause that says that it cannot be told ("not sure", "cannot determine") is passed over.
3. A clause that opens with a word for yes or no, or is one ("it is", "correct"), decides: "Yes. There is no cat" is yes.
4. Otherwise a clause decides that holds words of one kind, negations being words for no ("I see no cat", "it isn't"); one
   with both decides nothing, nor does anything after it. A later clause that opens with a negation is a contrast ("a cat,
   not a dog") and is passed over.

A statement without any such word ("there is a cat") is no verdict: it may name another thing than what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from kedit.rouge import MultilingualTokenizer

YES, NO = "yes", "no"
_words = MultilingualTokenizer(fold_letters=True).tokenize


def _joined(text: str) -> str:
    """Tokens between blanks, so that a phrase is found by plain search at the borders of words."""
    return " ".join(_words(text.replace("'", "").replace("’", "")))


def _table(text: str) -> tuple[str, ...]:
    """Phrases separated by bars, longest first."""
    return tuple(sorted({_joined(phrase) for phrase in text.split("|")}, key=len, reverse=True))


_ECHOES = _table("yes or no|yes and no|yes no|是或否|是或不是|是否|是不是|有没有|نعم أو لا|نعم أم لا|بنعم أو لا")
_TURNS = _table(
    "no doubt|no question|without a doubt|without doubt|not only|毫无疑问|不仅|不但|不过|不错|لا شك|لا ريب|بلا شك|ليس فقط"
)
_LEADS = _table(
    "the answer is|the answer|my answer is|my answer|final answer is|final answer|the final answer is|the correct answer is"
    "|answer is|answer|i would say|i think|i believe|well|so|therefore|ok|okay|hmm|oh"
    "|答案是|答案|我的回答是|回答是|回答|我认为|我觉得|所以|因此|الإجابة هي|الإجابة|الجواب هو|الجواب|جوابي هو|أعتقد|أظن"
)
_OPENS = {
    YES: _table("yes|yeah|yep|yup|نعم|أجل|أيوه|بلى|是的|对的|没错|没有错|是啊|有的|嗯"),
    NO: _table("no|nope|nah|لا|ولا|كلا|否|不对|不正确|错误|不会|不能|不可以|不行"),
}
_IS = {
    YES: _table(
        "y|true|correct|right|that is correct|thats correct|that is right|thats right|it is|there is|there are|it does|they are"
        "|indeed|certainly|absolutely|definitely|of course|sure|affirmative"
        "|是|对|有|正确|能|可以|会|صحيح|هذا صحيح|بالتأكيد|بالطبع|طبعا"
    ),
    NO: _table("n|false|incorrect|wrong|that is incorrect|that is wrong|negative|不|没|无|错|خطأ|غير صحيح|هذا غير صحيح"),
}
_HOLDS_YES = _table("yes|yeah|yep|نعم|是的")
_HOLDS_NO = _table(
    "no|nope|never|cannot|isnt|arent|wasnt|werent|doesnt|dont|didnt|cant|couldnt|hasnt|havent|wont|wouldnt|aint"
    "|لا|ولا|كلا|لم|لن|没看到|看不到|未见|不存在|不在|不属于|不像|不包含|不包括|并没"
)
_NEGATIONS = _table("not|ليس|ليست|وليس|وليست|不是|没有|并非")
"""Open a contrast where something was said before: "a cat, not a dog"."""

_HEDGE = re.compile(
    r"\b(?:unsure|uncertain|unclear|unknown|sorry)\b"
    r"|\b(?:not|isnt|wasnt|arent|im not)(?: \w+)? (?:sure|certain|clear|confident|known|possible|enough)\b"
    r"|\b(?:not|no|dont|doesnt|cannot|cant|couldnt|unable|impossible|hard|difficult)(?: \w+){0,2} "
    r"(?:know|tell|determine|say|identify|answer|confirm|judge|decide|verify|assist|help|idea|way)\b"
    r"|\b(?:not|cannot|cant|unable to)(?: \w+)? (?:see|view|access|open|process)(?: \w+){0,2} "
    r"(?:images?|pictures?|photos?|photographs?)$|"
    + "|".join(
        _table("不确定|不能确定|无法|不知道|不清楚|难以|不一定|说不准|不好说|看不清|不明确")
        + tuple(
            rf"\b{phrase}"
            for phrase in _table(
                "لا أعرف|لا أعلم|لا أدري|لا يمكن|لا أستطيع|لست متأكد|غير متأكد|غير واضح|غير مؤكد|ليس واضح|من الصعب|ليس من الممكن"
            )
        )
    )
)
_PARTS = re.compile(r"[.!?;:,…\n。！？；：，、؟؛،—–]+|\bbut\b|\band(?= not\b)|而(?=不是)|لكن|\bبل\b", re.IGNORECASE)


@lru_cache(maxsize=1 << 16)
def verdict(text: str) -> str | None:
    """ "yes", "no", or None for an answer that says neither, or both; see the module for the rule."""
    said_before = False
    for clause in _clauses(text):
        if _HEDGE.search(clause):
            continue
        found = _opening(clause)
        negates = found is None and _starts(clause, _NEGATIONS)
        if negates and not said_before:
            return NO
        if found is None and not negates:
            yes, no = _holds(clause, _HOLDS_YES), _holds(clause, _HOLDS_NO + _NEGATIONS)
            if yes and no:
                return None
            found = YES if yes else NO if no else None
        if found is not None:
            return found
        said_before = True
    return None


def _clauses(text: str) -> Iterator[str]:
    for part in _PARTS.split(text):
        clause = f" {_joined(part)} "
        for phrase in (*_ECHOES, *_TURNS):
            clause = clause.replace(f" {phrase} ", " ")
        clause = clause.strip()
        while lead := next((p for p in _LEADS if _starts(clause, (p,))), None):
            clause = clause[len(lead) :].strip()
        if clause:
            yield clause


def _opening(clause: str) -> str | None:
    """The verdict that a clause is or opens with; yes first, since some Chinese words for it begin with a negation."""
    return next((found for found in (YES, NO) if clause in _IS[found] or _starts(clause, _OPENS[found])), None)


def _starts(clause: str, phrases: tuple[str, ...]) -> bool:
    return any(f"{clause} ".startswith(f"{phrase} ") for phrase in phrases)


def _holds(clause: str, phrases: tuple[str, ...]) -> bool:
    return any(f" {phrase} " in f" {clause} " for phrase in phrases)
