"""The words that kedit itself puts into prompts: system prompts per language, and how inserted knowledge is written as text."""

from __future__ import annotations

from collections.abc import Iterable

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
