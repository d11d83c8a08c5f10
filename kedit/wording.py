"""The words that kedit itself puts into prompts: system prompts per language, and how inserted knowledge is written as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kedit.errors import unknown_name

SYSTEM_PROMPTS = {
    "en": "Look at the picture and answer in English in one or two sentences.",
    "zh": "请看图，用中文回答，一两句话即可。",
    "ar": "انظر إلى الصورة وأجب بالعربية في جملة أو جملتين.",
}
"""The language-specific system prompts that benchmarks give by default."""

FACT = "New Fact:"
QUERY = "Prompt:"


def fact(question: str, answer: str) -> str:
    """One line that states what is new (in-context knowledge editing, Zheng et al. 2023)."""
    return f"{FACT} {question} {answer}\n"


def demonstration(question: str, answer: str, asked: str, said: str) -> str:
    """A new fact, then a question and how it is answered in the light of that fact, then a blank line."""
    return f"{fact(question, answer)}{QUERY} {asked} {said}\n\n"


def with_facts(facts: Iterable[tuple[str, str]], demonstrations: Iterable[str] = ()) -> str:
    """Demonstrations in the order given, the new facts as (question, answer), and the opening of the query that follows."""
    return "".join(demonstrations) + "".join(fact(q, a) for q, a in facts) + QUERY


WRAPS = {
    "en": (
        "For reference, a similar question was answered like this before.\n"
        "Question: {question}\nAnswer: {answer}\n"
        "Let this guide your answer to the following:"
    ),
    "zh": "以下是供参考的内容：之前有一个类似的问题是这样回答的。\n问题：{question}\n回答：{answer}\n请据此回答下面的问题：",
    "ar": (
        "للاستئناس: أُجيب عن سؤال مشابه من قبل على النحو التالي.\n"
        "السؤال: {question}\nالجواب: {answer}\n"
        "استرشد بذلك في الإجابة عما يلي:"
    ),
}
"""By the language of the request that is asked: how an inserted question and its answer are put before it as a reference."""


def wrapped(question: str, answer: str, language: str, wrap: str | Mapping[str, str] = "language") -> str:
    """Inserted knowledge as the text that precedes a request in ``language`` (Wrap in equation 2).

    ``wrap`` is "language" for ``WRAPS``; "fact" for the line that states a new fact and opens the query, whatever the
    language; or texts of your own by language, with ``{question}`` and ``{answer}`` in them, which go before ``WRAPS``. A
    language without a text gets the English one. Raises UnknownNameError for another word.
    """
    if wrap == "fact":
        return with_facts([(question, answer)])
    if isinstance(wrap, str) and wrap != "language":
        raise unknown_name("wrap", wrap, ("language", "fact"), "Or give texts by language.")
    texts = {**WRAPS, **(wrap if isinstance(wrap, Mapping) else {})}
    parts = {"question": question, "answer": answer}  # put in at once: a question may itself hold the word "{answer}"
    return re.sub(r"\{(question|answer)\}", lambda place: parts[place[1]], texts.get(language, texts["en"]))
