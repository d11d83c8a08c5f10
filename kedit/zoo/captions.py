"""Texts about drawn pictures in three languages, and which pictures each of them is true of."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kedit.benchmarks import scene
from kedit.zoo import words
from kedit.zoo.samples import Maker, scenarios

PLACED = {"en": "{object} {place}", "zh": "{place}的{object}", "ar": "{object} {place}"}


@dataclass(frozen=True)
class Told:
    """What a text says of a picture; None where it says nothing."""

    scenario: str | None = None
    colour: str | None = None
    count: str | None = None
    place: str | None = None

    def fits(self, spec: scene.SceneSpec) -> bool:
        """Whether everything told is true of a picture."""
        return all(known in (None, getattr(spec, name)) for name, known in vars(self).items())


@dataclass(frozen=True)
class Caption:
    """A text that belongs to a picture."""

    language: str
    text: str
    told: Told


def caption(maker: Maker, rng: random.Random, spec: scene.SceneSpec, language: str) -> Caption:
    """A random text that is true of a picture: its name, its phrase, a sentence around the phrase, or a question about it.

    Among the sentences are made-up ones, so that the phrase is found in words of any kind.
    """
    phrase = maker.words(spec, language)
    kind = rng.choices(("name", "phrase", "placed", "sentence", "made up", "question"), (8, 16, 20, 10, 18, 28))[0]
    if kind == "name":
        return Caption(language, scenarios()[spec.scenario]["name"][language], Told(spec.scenario))
    if kind == "question":
        return question(maker, rng, spec, language)
    text = {
        "phrase": lambda: phrase["object"],
        "placed": lambda: scene.fill(PLACED[language], phrase),
        "sentence": lambda: maker.name_answer(spec, language),
        "made up": lambda: maker.reference(rng, spec, language),
    }[kind]()
    return Caption(language, text, told(maker, text, spec, language))


def question(maker: Maker, rng: random.Random, spec: scene.SceneSpec, language: str, *, telling: float = 0.85) -> Caption:
    """A question for advice about a picture; with probability ``telling`` at least, one that says which scene it is about."""
    must = rng.random() < telling
    while True:
        text = maker.question(rng, spec, language)
        found = told(maker, text, spec, language)
        if found.scenario is not None or (not must and text in words.GENERIC_QUESTIONS[language]):
            return Caption(language, text, found)


def told(maker: Maker, text: str, spec: scene.SceneSpec, language: str) -> Told:
    """What a text of ``maker`` about a picture says: by its phrase, by its place, or by being a question of its scenario."""
    phrase = maker.words(spec, language)
    place = spec.place if phrase["place"] in text else None
    if phrase["object"].lower() in text.lower():
        return Told(spec.scenario, spec.colour, spec.count, place)
    own = scenarios()[spec.scenario]["partitions"][language]["questions"]
    return Told(spec.scenario if text in {q.format(**phrase) for q in own} else None, place=place)


def languages(rng: random.Random, n: int) -> Iterator[str]:
    """``n`` languages, different ones as long as there are enough."""
    while n > 0:
        yield from rng.sample(words.LANGUAGES, min(n, len(words.LANGUAGES)))
        n -= len(words.LANGUAGES)


def maker_of(images: Mapping[str, list[scene.SceneSpec]], tokenizer: object) -> Maker:
    """A maker of questions whose made-up words are of a tokenizer's pieces."""
    from kedit.zoo.encode import Scrambler

    return Maker(images, Scrambler(tokenizer))
