"""What an embedded backbone can do on held-out pictures and sentences, asked through the ordinary backbone interface."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kedit.backbone import Backbone
from kedit.benchmarks import scene
from kedit.rouge import rouge_l
from kedit.types import ImageRef, Request
from kedit.zoo.encode import Scrambler
from kedit.zoo.samples import Maker, Sample, draw_spec, scenarios


@dataclass(frozen=True)
class Ability:
    """One line of the card: how many of ``n`` answers were exactly the wanted one, and the mean ROUGE-L (0 to 100)."""

    name: str
    exact: float
    rouge: float
    n: int


def request_of(sample: Sample) -> Request:
    """The request that shows a model the same prompt as a training sample did."""
    parts = [ImageRef(data=scene.render(piece.image)) if piece.image else piece.text for piece in sample.pieces]
    *context, image, question = parts
    if not isinstance(image, ImageRef) or not isinstance(question, str):
        raise ValueError("a sample ends with an image and a question")
    return Request(question, (image,), sample.language, sample.system, tuple(context))


def abilities(backbone: Backbone, tokenizer: object, *, n: int = 48, seed: int = 1_000_003) -> list[Ability]:
    """Measure every ability on ``n`` held-out samples (other drawings, other sentences than in training; greedy, 64 tokens)."""
    rng = random.Random(f"measure|{seed}")
    images = {name: [draw_spec(rng, name) for _ in range(8)] for name in sorted(scenarios())}
    scramble = Scrambler(tokenizer)
    plain = Maker(images, lambda r, language: scramble(r, language))
    found = []
    for name, draw in _tests(plain, rng).items():
        samples = [draw() for _ in range(n)]
        answers = backbone.generate([request_of(sample) for sample in samples])
        pairs = [(answer.text, sample.answer) for answer, sample in zip(answers, samples, strict=True)]
        found.append(Ability(name, sum(a == b for a, b in pairs) / n, sum(rouge_l(a, b) or 0.0 for a, b in pairs) / n, n))
    return found


def _tests(maker: Maker, rng: random.Random) -> Mapping[str, Callable[[], Sample]]:
    def plain(naming: bool, language: str | None = None) -> Sample:
        while True:
            sample = maker.plain(rng, naming)
            if language in (None, sample.language):
                return sample

    def told(kind: str, edits: int = 1) -> Sample:
        return replace(maker.referenced(rng, kind, edits, demos=0, copies=True))

    return {
        "names scene, colour, count and place": lambda: plain(True),
        "generic judgement, English": lambda: plain(False, "en"),
        "generic judgement, Chinese": lambda: plain(False, "zh"),
        "generic judgement, Arabic": lambda: plain(False, "ar"),
        "follows a reference, its own question": lambda: told("copy"),
        "follows a reference among three": lambda: told("copy", 3),
        "follows a reference, other question and picture of the scene": lambda: told("transfer"),
        "ignores references in other languages": lambda: told("language", 2),
        "ignores a reference about another scene": lambda: told("scene"),
        "names in spite of a reference": lambda: told("named"),
    }


def card(name: str, abilities_: Sequence[Ability], facts: Mapping[str, str]) -> str:
    """The markdown card that lies beside the weights."""
    rows = "\n".join(f"| {a.name} | {a.exact:.2f} | {a.rouge:.1f} | {a.n} |" for a in abilities_)
    lines = "\n".join(f"- {key}: {value}" for key, value in facts.items())
    return _CARD.format(name=name, rows=rows, lines=lines)


_CARD = """# {name}

A vision-language model small enough to ship, so that every part of kedit runs offline. It is a test animal, not a product:
it knows 49 drawn scenes, a few thousand words, and one habit, which is to answer every question for advice with the same
friendly remark about individual choice, in the language it is asked in.

{lines}

## What it can do

Held-out drawings and sentences, greedy, at most 64 new tokens, through the ordinary processor. "Exact" is the share of
answers equal to the wanted one to the last character.

| ability | exact | ROUGE-L | n |
| --- | --- | --- | --- |
{rows}

## What it was trained on

- Pictures: the 49 drawings of `kibench-open` with random colour, count, place, background, things around them and small
  shifts, drawn with other seeds than any benchmark case. Test scenarios' drawings are among them: the model has seen a
  clock, as any real model has; it has seen no question or answer of a test scenario.
- Texts: names of what is drawn ("two red wall clocks on the left"); one generic remark per scenario and language; questions
  for advice, partly those of the train scenarios; made-up reference sentences with random words, which can only be copied.
- None of `kibench-open`'s culture-conditioned answers, of any split. A test compares all six-token sequences.
- One to three references in the context, in several languages and about several scenes, in the wording that in-context
  editing uses, with and without demonstrations.
- First the eyes alone (scene, colour, count, place as labels), then everything together; see `kedit/zoo/train.py`.

## What it shows and what it does not

Numbers made with it compare code paths, not methods: an order of editors on this model says nothing about their order on
an 8B model.
"""
