"""What ``tiny-clip`` can do on held-out pictures and texts, asked through open_clip's ordinary loading."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from kedit.benchmarks import scene
from kedit.benchmarks.scene import SceneSpec as Spec
from kedit.zoo import tiny_clip
from kedit.zoo.captions import PLACED, maker_of, question
from kedit.zoo.samples import draw_spec, scenarios
from kedit.zoo.words import LANGUAGES


@dataclass(frozen=True)
class Ability:
    """One line of the card: the share of right choices per language, what guessing gives, and how many were asked."""

    name: str
    right: Mapping[str, float]
    chance: float
    n: Mapping[str, int]


class Towers:
    """A loaded CLIP that encodes each text once: unit vectors, fp32."""

    def __init__(self, folder: Path) -> None:
        self.model, self.preprocess, self.tokenizer = tiny_clip.load(folder)
        self.known: dict[str, Tensor] = {}

    def see(self, specs: Sequence[Spec]) -> Tensor:
        """Features (n, width) of pictures."""
        from PIL import Image

        found = [self.preprocess(Image.open(io.BytesIO(scene.render(spec))).convert("RGB")) for spec in specs]
        with torch.no_grad():
            return torch.cat([self.model.encode_image(part, normalize=True) for part in torch.stack(found).split(128)])

    def read(self, texts: Sequence[str]) -> Tensor:
        """Features (n, width) of texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        for at in range(0, len(new), 128):
            part = new[at : at + 128]
            with torch.no_grad():
                features = self.model.encode_text(self.tokenizer(part), normalize=True)
            self.known.update(zip(part, features, strict=True))
        return torch.stack([self.known[text] for text in texts])

    def cut(self, texts: Sequence[str]) -> float:
        """The share of texts that are longer than what is read."""
        found = self.tokenizer.tokenizer([self.tokenizer.clean_fn(text) for text in texts]).input_ids
        return sum(len(ids) > tiny_clip.CONTEXT for ids in found) / len(found)


def phrase(spec: Spec, language: str, template: str = "{object}") -> str:
    """What is drawn in words; a count that the scenario does not know becomes its first."""
    info = scenarios()[spec.scenario]
    known = spec if spec.count in info["counts"] else replace(spec, count=info["counts"][0])
    return template.format(**scene.phrase(info, language, known))


def choices(towers: Towers, specs: Sequence[Spec]) -> list[Ability]:
    """Picture to text: the right one among texts that differ from it in scene, colour, count or place alone."""
    seen = towers.see(specs)
    names = sorted(scenarios())
    tests: dict[str, tuple[Callable[[Spec], list[Spec]], bool]] = {
        "scene, among 49": (lambda s: [replace(s, scenario=name) for name in names], False),
        "colour, scene given": (lambda s: [replace(s, colour=c) for c in scenarios()[s.scenario]["colours"]], False),
        "count, scene given": (lambda s: [replace(s, count=c) for c in scenarios()[s.scenario]["counts"]], False),
        "place, scene given": (lambda s: [replace(s, place=p) for p in scene.PLACES], True),
    }
    found = []
    for test, (options, placed) in tests.items():
        rows = [(spec, seen[at], options(spec)) for at, spec in enumerate(specs) if len(options(spec)) > 1]
        right = {
            language: mean(chosen(towers, vector, others, language, placed) == spec for spec, vector, others in rows)
            for language in LANGUAGES
        }
        chance, n = mean(1 / len(others) for _, _, others in rows), dict.fromkeys(LANGUAGES, len(rows))
        found.append(Ability(f"picture to phrase: {test}", right, chance, n))
    return found


def chosen(towers: Towers, vector: Tensor, options: Sequence[Spec], language: str, placed: bool) -> Spec:
    """The option whose phrase (with its place, if asked) lies nearest to a picture's features."""
    template = PLACED[language] if placed else "{object}"
    read = towers.read([phrase(option, language, template) for option in options])
    return options[int((read @ vector).argmax())]


def questions_of(spec: Spec, language: str, named: bool | None = None) -> list[str]:
    """The scenario's own questions about a picture, those that do or do not name what is shown, or all."""
    info = scenarios()[spec.scenario]
    own = [q for q in info["partitions"][language]["questions"] if named in (None, "{object}" in q)]
    return [q.format(**scene.phrase(info, language, spec)) for q in own]


def retrieval(towers: Towers, specs: Sequence[Spec], ask: Callable[[Spec, str], list[str]], name: str) -> Ability:
    """Text to picture: the right scene among 49 pictures, one of each, for the texts that ``ask`` gives about a picture.

    ``specs`` hold the scenarios in order, as often as you like.
    """
    scenes = len(scenarios())
    seen = towers.see(specs).view(-1, scenes, tiny_clip.WIDTH)
    right: dict[str, float] = {}
    n: dict[str, int] = {}
    for language in LANGUAGES:
        rows = [(at, text) for at, spec in enumerate(specs) for text in ask(spec, language)]
        read = towers.read([text for _, text in rows])
        nearest = [int((seen[at // scenes] @ vector).argmax()) for (at, _), vector in zip(rows, read, strict=True)]
        right[language] = mean(found == at % scenes for found, (at, _) in zip(nearest, rows, strict=True))
        n[language] = len(rows)
    return Ability(f"text to picture, among 49: {name}", right, 1 / scenes, n)


@dataclass(frozen=True)
class Apart:
    """How texts of different languages lie: a probe's share of right languages, and mean cosines of pairs of questions."""

    probe: float
    n: int
    same: float
    language: float
    scene: float


def languages_apart(towers: Towers, rows: Sequence[tuple[str, str, str]]) -> Apart:
    """Fit a linear probe of the language on questions about half of the scenes, ask it about the other half; compare cosines.

    ``rows`` are (scenario, language, question).
    """
    names = sorted({name for name, _, _ in rows})
    read = towers.read([text for _, _, text in rows])
    shown = torch.tensor([names.index(name) for name, _, _ in rows])
    spoken = torch.tensor([LANGUAGES.index(language) for _, language, _ in rows])
    fitting = shown % 2 == 0
    padded = torch.cat([read, torch.ones(len(read), 1)], 1).double()
    target = torch.eye(len(LANGUAGES), dtype=torch.float64)[spoken]
    inner = padded[fitting].T @ padded[fitting] + 0.01 * torch.eye(padded.shape[1], dtype=torch.float64)
    probe = torch.linalg.solve(inner, padded[fitting].T @ target[fitting])
    right = ((padded @ probe).argmax(1) == spoken)[~fitting]
    alike, tongue = shown[:, None] == shown, spoken[:, None] == spoken
    other = ~torch.eye(len(rows), dtype=torch.bool)
    pairs = (alike & tongue & other, alike & ~tongue, ~alike & tongue)
    return Apart(float(right.double().mean()), len(right), *(float((read @ read.T)[pair].mean()) for pair in pairs))


def mean(values: Iterable[float]) -> float:
    """The mean of numbers or truths; of at least one."""
    found = [float(value) for value in values]
    return sum(found) / len(found)


def write_card(folder: Path, made: str, n: int, seed: int = 1_000_003) -> None:
    """Measure the saved weights on ``n`` held-out pictures per scenario and write what they can do beside them."""
    rng = random.Random(f"measure|clip|{seed}")
    towers = Towers(folder)
    maker = maker_of({}, towers.tokenizer.tokenizer)
    specs = [draw_spec(rng, name) for _ in range(n) for name in sorted(scenarios())]
    unseen = {name for name, info in scenarios().items() if info["split"] != "single_train"}

    def like_training(spec: Spec, language: str) -> list[str]:
        return [question(maker, rng, spec, language, telling=1.0).text]

    def of_tests(named: bool | None) -> Callable[[Spec, str], list[str]]:
        return lambda spec, language: questions_of(spec, language, named) if spec.scenario in unseen else []

    found = choices(towers, specs)
    found.append(retrieval(towers, specs, like_training, "a question of the kinds trained on"))
    found.append(retrieval(towers, specs, of_tests(True), "a test scenario's question that names what is shown"))
    found.append(retrieval(towers, specs, of_tests(False), "a test scenario's question that does not"))
    apart = {
        "of the kinds trained on": languages_apart(towers, asked(specs, like_training)),
        "of test scenarios": languages_apart(towers, asked(specs[: len(scenarios())], of_tests(None))),
    }
    size = (folder / "open_clip_model.safetensors").stat().st_size / 1e6
    facts = {
        "parameters": f"{sum(p.numel() for p in towers.model.parameters()) / 1e6:.2f} M, {size:.1f} MB in fp16",
        "made": made,
        "elder": tiny_clip.ELDER,
        "context": tiny_clip.CONTEXT,
        "cut": f"{towers.cut(list(towers.known)):.3f}",
        "rows": "\n".join(_row(ability) for ability in found),
        "apart": "\n".join(
            f"| {a} | {b.probe:.2f} | {b.same:.2f} | {b.language:.2f} | {b.scene:.2f} |" for a, b in apart.items()
        ),
    }
    (folder / "README.md").write_text(_CARD.format(**facts), encoding="utf-8")


def asked(specs: Sequence[Spec], ask: Callable[[Spec, str], list[str]]) -> list[tuple[str, str, str]]:
    """(scenario, language, question) of all that ``ask`` gives about pictures."""
    return [(spec.scenario, language, text) for spec in specs for language in LANGUAGES for text in ask(spec, language)]


def _row(ability: Ability) -> str:
    shares = " | ".join(f"{ability.right[language]:.2f}" for language in LANGUAGES)
    n = ", ".join(map(str, dict.fromkeys(ability.n[language] for language in LANGUAGES)))
    return f"| {ability.name} | {shares} | {ability.chance:.2f} | {n} |"


_CARD = """# tiny-clip

A CLIP small enough to ship, for routers that compare pictures and texts. It is a test animal, not a product: it knows 49
drawn scenes and a few thousand words of English, Chinese and Arabic.

- Parameters: {parameters}; pictures of 64 x 64 pixels, texts of at most {context} tokens, the end included
- Made by: `kedit zoo train tiny-clip`; {made}

## Loading

The folder is what open_clip calls a local directory; nothing of kedit is needed, not even for the tokenizer, which
open_clip finds in the same folder and pads and cuts by itself:

```python
import open_clip

model, preprocess = open_clip.create_model_from_pretrained("local-dir:kedit/zoo/weights/tiny-clip")
tokenizer = open_clip.get_tokenizer("local-dir:kedit/zoo/weights/tiny-clip")
texts = model.encode_text(tokenizer(["two red wall clocks on the left"]), normalize=True)
```

## What it can do

Held-out drawings. The share of right first choices:

| ability | en | zh | ar | guessing | n |
| --- | --- | --- | --- | --- | --- |
{rows}

Several n are those of the languages in turn. Of the texts read here a share of {cut} was longer than the context.

Languages in the text features of questions: the share of right answers of a linear probe of the language, fitted on half of
the scenes and asked about the other half, and the mean cosine of two questions

| questions | probe | same scene, same language | same scene, other language | other scene, same language |
| --- | --- | --- | --- | --- |
{apart}

## What it was trained on

- Pictures: the drawings of the embedded benchmark with random colour, count, place, background, things around them and small
  shifts, drawn with other seeds than any benchmark case. Test scenarios' drawings are among them.
- The image tower starts from the eyes of `{elder}`, whose tokenizer the text tower reads with; all weights are trained.
- Texts: names and phrases of what is drawn ("two red wall clocks on the left"), sentences that name it, among them made-up
  ones with random words, and questions for advice: general ones, and those of the train scenarios. No question of a test
  scenario and no answer of any.
- CLIP's contrastive loss, in which a text is a positive of every picture in the batch that it is true of, and a loss between
  texts in which only texts about the same scene in the same language are positives, which keeps the languages apart.

A question that neither names what is shown nor was trained on lies near no picture in particular: see the last row of the
first table.
Numbers made with this model compare code paths, not methods.
"""
