"""Training samples of the embedded backbones: drawn scenes, questions, made-up references, and what should be answered.

A sample is a dialogue turn in pieces (texts and images) with the character spans that carry loss. All choices come from a
``random.Random`` that the caller seeds, so a step of training can be made again without the steps before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from kedit.benchmarks import scene
from kedit.wording import SYSTEM_PROMPTS, demonstration, fact, with_facts
from kedit.zoo import words

OBJECT = "\x00"
"""Stands for the scene's phrase while the rest of a sentence is scrambled."""


@dataclass
class Piece:
    """One text (with the character spans that carry loss and their weights) or one image of a prompt."""

    text: str = ""
    spans: list[tuple[int, int, float]] = field(default_factory=list)
    image: scene.SceneSpec | None = None


@dataclass
class Sample:
    """A whole training example; ``kind`` names the ability that it exercises."""

    kind: str
    language: str
    system: str | None
    pieces: list[Piece]
    answer: str
    first_weight: float = 1.0
    seen: str = ""
    """The part of the answer that depends on the picture, which weighs three times as much."""


@dataclass(frozen=True)
class Fact:
    """A made-up item of knowledge about a scene in one language."""

    language: str
    spec: scene.SceneSpec
    question: str
    answer: str


@lru_cache(maxsize=1)
def scenarios() -> dict[str, dict[str, Any]]:
    """All scenario files by id; of their texts only names, phrases and the train split's questions are ever used."""
    files = sorted(scene.ROOT.glob("*.yaml"))
    return {path.stem: scene.read_yaml(path) for path in files if path.stem != "palette"}


@lru_cache(maxsize=1)
def nouns() -> dict[str, tuple[str, ...]]:
    """Names of things from the emoji standard in each language, short ones only."""
    import emoji

    for language in words.LANGUAGES:
        emoji.config.load_language(language)
    found: dict[str, list[str]] = {language: [] for language in words.LANGUAGES}
    for entry in emoji.EMOJI_DATA.values():
        if all(language in entry for language in words.LANGUAGES):
            for language in words.LANGUAGES:
                name = str(entry[language]).strip(":").replace("_", " ")
                if len(name) <= (6 if language == "zh" else 18) and name.replace(" ", "").isalpha():
                    found[language].append(name)
    return {language: tuple(sorted(set(names))) for language, names in found.items()}


def draw_spec(rng: random.Random, name: str | None = None) -> scene.SceneSpec:
    """A random scene; its jitter lies far from those that a benchmark uses."""
    name = name or rng.choice(list(scenarios()))
    info = scenarios()[name]
    return scene.SceneSpec(
        scenario=name,
        colour=rng.choice(list(info["colours"])),
        count=rng.choice(list(info["counts"])),
        place=rng.choice(scene.PLACES),
        background=rng.choice(list(scene.BACKGROUNDS)),
        distractors=tuple(rng.sample(list(scene.DISTRACTORS), rng.randint(0, 3))),
        jitter=1_000_000 + rng.randrange(1_000_000),
    )


KINDS = ("copy", "transfer", "language", "scene", "named")


class Maker:
    """Makes samples; ``scramble(rng, language)`` gives a made-up word, ``images`` the scenes that may be shown (by scenario)."""

    def __init__(self, images: Mapping[str, Sequence[scene.SceneSpec]], scramble: Callable[[random.Random, str], str]) -> None:
        self.images = images
        self.scramble = scramble
        self.names = sorted(images)

    # -- texts -----------------------------------------------------------------------------------------------------

    def words(self, spec: scene.SceneSpec, language: str) -> dict[str, str]:
        return scene.phrase(scenarios()[spec.scenario], language, spec)

    def name_question(self, rng: random.Random, language: str) -> str:
        return rng.choice(words.NAME_QUESTIONS[language])

    def question(self, rng: random.Random, spec: scene.SceneSpec, language: str) -> str:
        """A question for advice: one of a train scenario's own, or one that fits anything, sometimes scrambled."""
        info = scenarios()[spec.scenario]
        own = info["partitions"][language]["questions"] if info["split"] == "single_train" else ()
        template = rng.choice(own) if own and rng.random() < 0.6 else rng.choice(words.GENERIC_QUESTIONS[language])
        text = template.format(**self.words(spec, language))
        return self.scrambled(rng, text, language, 0.25) if rng.random() < 0.4 else text

    def name_answer(self, spec: scene.SceneSpec, language: str) -> str:
        return scene.fill(words.NAME_ANSWERS[language], self.words(spec, language))

    def generic_answer(self, spec: scene.SceneSpec, language: str) -> str:
        """What the untaught backbone says about a scene: always the same judgement for the same scenario."""
        options = words.GENERIC_ANSWERS[language]
        return scene.fill(options[self.names.index(spec.scenario) % len(options)], self.words(spec, language))

    def scrambled(self, rng: random.Random, text: str, language: str, share: float) -> str:
        """``text`` with a share of its words (Chinese: characters) replaced by made-up ones; punctuation and OBJECT stay."""
        if language == "zh":
            return "".join(self.scramble(rng, "zh") if c.isalpha() and rng.random() < share else c for c in text)
        parts = text.split(" ")
        for at, part in enumerate(parts):
            if OBJECT not in part and rng.random() < share:
                tail = part[-1] if part and not part[-1].isalpha() else ""
                parts[at] = self.scramble(rng, language) + tail
        return " ".join(parts)

    def reference(self, rng: random.Random, spec: scene.SceneSpec, language: str) -> str:
        """A sentence about the scene whose content cannot be guessed, only copied."""
        fillers = {slot: rng.choice(options) for slot, options in words.FILLERS[language].items()}
        things = nouns()[language]
        template = rng.choice(words.REFERENCES[language])
        text = scene.fill(template, {**fillers, "n1": rng.choice(things), "n2": rng.choice(things), "object": OBJECT})
        text = self.scrambled(rng, text, language, rng.choice((0.0, 0.0, 0.3, 0.6, 0.9)))
        text = text.replace(OBJECT, self.words(spec, language)["object"])
        return text[:1].upper() + text[1:]

    # -- samples ---------------------------------------------------------------------------------------------------

    def fact(self, rng: random.Random, spec: scene.SceneSpec, language: str) -> Fact:
        return Fact(language, spec, self.question(rng, spec, language), self.reference(rng, spec, language))

    def show(self, rng: random.Random, name: str) -> scene.SceneSpec:
        return rng.choice(self.images[name])

    def plain(self, rng: random.Random, naming: bool) -> Sample:
        """No reference: name what is seen, or give the generic judgement."""
        language, spec = rng.choice(words.LANGUAGES), self.show(rng, rng.choice(self.names))
        question = self.name_question(rng, language) if naming else self.question(rng, spec, language)
        answer = self.name_answer(spec, language) if naming else self.generic_answer(spec, language)
        sample = self.sample("name" if naming else "generic", language, rng, [Piece(image=spec), Piece(question)], answer)
        return replace(sample, seen=self.words(spec, language)["object"])

    def phrase(self, rng: random.Random) -> Sample:
        """The bare phrase for what is seen."""
        language, spec = rng.choice(words.LANGUAGES), self.show(rng, rng.choice(self.names))
        pieces = [Piece(image=spec), Piece(rng.choice(words.PHRASE_QUESTIONS[language]))]
        answer = self.words(spec, language)["object"]
        return replace(self.sample("phrase", language, rng, pieces, answer), system=None, seen=answer)

    def sample(
        self, kind: str, language: str, rng: random.Random, pieces: list[Piece], answer: str, first: float = 1.0
    ) -> Sample:
        system = SYSTEM_PROMPTS[language] if rng.random() < 0.85 else None
        return Sample(kind, language, system, pieces, answer, first)

    def referenced(self, rng: random.Random, kind: str, edits: int, demos: int, copies: bool) -> Sample:
        """One to three new facts before the question; ``kind`` says how they bear on it.

        copy: the fact's own question; transfer: another question on another picture of the fact's scene; language: facts in
        other languages only; scene: facts on other scenes only; named: a question for the name although a fact applies.
        """
        language = rng.choice(words.LANGUAGES)
        others = [other for other in words.LANGUAGES if other != language]
        name = rng.choice(self.names)
        stored, shown = self.show(rng, name), self.show(rng, name)
        chain = [
            self.fact(rng, stored, other)
            for other in rng.sample(others, min(len(others), edits if kind == "language" else edits - 1))
        ]
        if kind == "scene":
            away = [self.show(rng, rng.choice([n for n in self.names if n != name])) for _ in range(edits)]
            chain = [self.fact(rng, spec, language if at == 0 else rng.choice(words.LANGUAGES)) for at, spec in enumerate(away)]
            rng.shuffle(chain)
        applies = self.fact(rng, stored, language)
        if kind in ("copy", "transfer", "named"):
            chain.insert(rng.randint(0, len(chain)), applies)
        picture = stored if kind in ("copy", "language") else shown
        question = {"copy": applies.question, "named": self.name_question(rng, language)}.get(kind) or self.question(
            rng, picture, language
        )
        answer = applies.answer if kind in ("copy", "transfer") else self.generic_answer(picture, language)
        if kind == "named":
            answer = self.name_answer(picture, language)
        context = self.context(rng, chain, demos, copies, exclude=name)
        return self.sample(kind, language, rng, [context, Piece(image=picture), Piece(question)], answer, first=4.0)

    def context(self, rng: random.Random, chain: Sequence[Fact], demos: int, copies: bool, exclude: str) -> Piece:
        """The facts as an in-context editor writes them; answers that repeat a fact above them carry loss."""
        blocks: list[str] = []
        spans: list[tuple[int, int, float]] = []

        def add(block: str, repeated: str) -> None:
            start = sum(map(len, blocks)) + block.rindex(repeated)
            blocks.append(block)
            spans.append((start, start + len(repeated), 0.5))

        for _ in range(demos):
            spec = self.show(rng, rng.choice([n for n in self.names if n != exclude]))
            told = self.fact(rng, spec, rng.choice(words.LANGUAGES))
            if rng.random() < 0.5:
                other = self.show(rng, rng.choice(self.names))
                kept = self.generic_answer(other, told.language)
                blocks.append(demonstration(told.question, told.answer, self.question(rng, other, told.language), kept))
            else:
                asked = told.question if rng.random() < 0.5 else self.question(rng, spec, told.language)
                add(demonstration(told.question, told.answer, asked, told.answer), told.answer)
        for told in chain if copies else ():
            add(demonstration(told.question, told.answer, told.question, told.answer), told.answer)
        return Piece("".join(blocks) + with_facts([(f.question, f.answer) for f in chain]), spans)

    def recall(self, rng: random.Random) -> Sample:
        """No picture: one to three short made-up facts, then the question of one of them; practice in copying alone."""
        languages = [rng.choice(words.LANGUAGES) for _ in range(rng.randint(1, 3))]
        told = [(self.jumble(rng, language, 2, 6), self.jumble(rng, language, 2, 12)) for language in languages]
        at = rng.randrange(len(told))
        question, answer = told[at]
        return Sample("recall", languages[at], None, [Piece(f"{with_facts(told)} {question}")], answer)

    def jumble(self, rng: random.Random, language: str, least: int, most: int) -> str:
        """Made-up words in a row."""
        made = [self.scramble(rng, language) for _ in range(rng.randint(least, most))]
        return ("" if language == "zh" else " ").join(made)

    def draw(self, rng: random.Random, mix: str, progress: float) -> Sample:
        """The next sample; ``progress`` (0 to 1) is how far its phase has come.

        look: from bare phrases over names and remarks to questions with one fact before them. read: copying practice, and
        questions with one to three facts, with and without demonstrations. follow: one fact that concerns the question.
        """
        if mix == "look":
            return self._look(rng, progress)
        if mix == "follow":
            return self.referenced(rng, rng.choices(("copy", "transfer"), (0.7, 0.3))[0], edits=1, demos=0, copies=False)
        chance = rng.random()
        if chance < 0.2:
            return self.plain(rng, naming=rng.random() < 0.5)
        if chance < (0.5 if progress < 0.4 else 0.3):
            return self.recall(rng)
        kind = rng.choices(KINDS, (0.44, 0.16, 0.12, 0.2, 0.08))[0]
        edits = rng.choices((1, 2, 3), (0.6, 0.15, 0.25))[0] if progress > 0.3 else 1
        demos = rng.choices((0, 1, 2), (0.6, 0.3, 0.1))[0] if progress > 0.3 else 0
        return self.referenced(rng, kind, edits, demos, copies=rng.random() < 0.5)

    def _look(self, rng: random.Random, progress: float) -> Sample:
        if progress < 0.15 and rng.random() < (1.0 if progress < 0.08 else 0.5):
            return self.phrase(rng)
        if rng.random() < (0.8 if progress < 0.2 else 0.2):
            return self.plain(rng, naming=rng.random() < 0.5)
        kind = rng.choices(KINDS, (0.36, 0.18, 0.14, 0.24, 0.08))[0]
        if progress < 0.45:
            return self.referenced(rng, kind, edits=1, demos=0, copies=rng.random() < 0.4)
        edits = rng.choices((1, 2, 3), (0.6, 0.15, 0.25))[0]
        demos = rng.choices((0, 1, 2), (0.6, 0.25, 0.15))[0]
        return self.referenced(rng, kind, edits, demos, copies=rng.random() < 0.6)


def corpus(rng: random.Random, size: int) -> list[str]:
    """Texts to train a tokenizer on: every kind of sentence above, noun lists and frequent Chinese characters."""
    maker = Maker(
        {name: [draw_spec(rng, name) for _ in range(12)] for name in scenarios()}, lambda r, language: r.choice(nouns()[language])
    )
    texts = [" ".join(names) for names in nouns().values()] + [words.COMMON_HAN] * 30 + list(SYSTEM_PROMPTS.values())
    for _ in range(size):
        spec = draw_spec(rng)
        for language in words.LANGUAGES:
            info = scenarios()[spec.scenario]
            texts += [
                maker.question(rng, spec, language),
                maker.reference(rng, spec, language),
                maker.generic_answer(spec, language),
            ]
            texts += [maker.name_answer(spec, language), fact(info["name"][language], rng.choice(nouns()[language]))]
    return texts
