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


DOCUMENTS = {
    "en": 'On the question "{question}" the following is known: {answer}',
    "zh": "关于“{question}”这个问题，已知：{answer}",
    "ar": "بخصوص السؤال «{question}» فإن المعروف هو ما يلي: {answer}",
}
"""By language: an inserted question and its answer as a document, where a benchmark gives no document of its own."""

EXAMPLES = {
    "en": "Question: {question}\nAnswer: {answer}",
    "zh": "问题：{question}\n回答：{answer}",
    "ar": "السؤال: {question}\nالجواب: {answer}",
}
"""By language: a question with its answer as an example that precedes another question."""

FRAMES = {
    "en": "Here is something to read that may help with the question.\n{documents}",
    "zh": "下面的资料可能对回答问题有帮助。\n{documents}",
    "ar": "إليك ما قد يفيد في الإجابة عن السؤال.\n{documents}",
}
"""By language: what introduces documents that were looked up."""

CAPTION_PROMPTS = {
    "en": "Say in one or two sentences what this picture shows: name each thing, and tell what it is for.",
    "zh": "请用一两句话说明这张图片里有什么：说出每样东西的名称和用途。",
    "ar": "قل في جملة أو جملتين ماذا تُظهر هذه الصورة: اذكر اسم كل شيء وفيمَ يُستعمل.",
}
"""By language: how a model is asked for the description of an image by which documents are looked up."""

_REFERENCES = {"language": WRAPS, "document": DOCUMENTS, "example": EXAMPLES}


def wrapped(question: str, answer: str, language: str, wrap: str | Mapping[str, str] = "language") -> str:
    """Inserted knowledge as the text that precedes a request in ``language`` (Wrap in equation 2 of CrossCult-KIBench).

    ``wrap`` is "language" for ``WRAPS``, "document" for ``DOCUMENTS``, "example" for ``EXAMPLES``; "fact" for the line that
    states a new fact and opens the query, whatever the language; or texts of your own by language, with ``{question}`` and
    ``{answer}`` in them, which go before ``WRAPS``. A language without a text gets the English one. Raises UnknownNameError
    for another word.
    """
    if wrap == "fact":
        return with_facts([(question, answer)])
    if isinstance(wrap, str) and wrap not in _REFERENCES:
        raise unknown_name("wrap", wrap, (*_REFERENCES, "fact"), "Or give texts by language.")
    texts = _REFERENCES[wrap] if isinstance(wrap, str) else {**WRAPS, **wrap}
    return _filled(texts, language, question=question, answer=answer)


def framed(documents: Iterable[tuple[str, str]], language: str, frame: str | Mapping[str, str] = "language") -> str:
    """Documents (title, text) as the text that precedes a request in ``language``, with a blank line between two of them.

    ``frame`` is "language" for ``FRAMES``, "plain" for the documents alone, or texts of your own by language, with
    ``{documents}`` in them, which go before ``FRAMES``. Raises UnknownNameError for another word.
    """
    pages = "\n\n".join(f"{title}\n{text}" if title else text for title, text in documents)
    if frame == "plain":
        return pages
    if isinstance(frame, str) and frame != "language":
        raise unknown_name("frame", frame, ("language", "plain"), "Or give texts by language.")
    return _filled({**FRAMES, **(frame if isinstance(frame, Mapping) else {})}, language, documents=pages)


def caption_prompt(language: str, prompts: str | Mapping[str, str] | None = None) -> str:
    """How to ask for an image's description: by ``CAPTION_PROMPTS``, by prompts of your own by language, or by one for all."""
    if isinstance(prompts, str):
        return prompts
    texts = {**CAPTION_PROMPTS, **(prompts or {})}
    return texts.get(language, texts["en"])


def _filled(texts: Mapping[str, str], language: str, **parts: str) -> str:
    """The text in a language with its parts put in at once: a part may itself hold the name of another in braces."""
    names = "|".join(parts)
    return re.sub(rf"\{{({names})\}}", lambda place: parts[place[1]], texts.get(language, texts["en"]))
