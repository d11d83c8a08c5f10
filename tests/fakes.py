"""A backbone, a benchmark and editors small enough for a test of the runner: real weights, no transformers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from kedit.backbone import Spans
from kedit.benchmark import Dimension, Task
from kedit.editor import ContextEditor, ReplacementEditor, WeightEditor
from kedit.errors import RequestError
from kedit.protocols import final, retention
from kedit.types import Answer, Case, ImageRef, Knowledge, Probe, Request

WORDS = {
    "en": ["red", "clock", "gift", "guest", "table", "lamp", "warm", "polite", "bring", "offer"],
    "zh": list("红钟礼客桌灯暖送人好"),
    "ar": ["ساعة", "هدية", "ضيف", "طاولة", "مصباح", "دافئ", "مهذب", "يجلب", "يقدم", "أحمر"],
}


class FakeBackbone:
    """Answers are a function of all weights and of the request, or scripted by question while the weights are the first ones."""

    id = "fake"
    revision = "1"

    def __init__(self, script: Mapping[str, str] | None = None) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        self.model.requires_grad_(False)
        self.script = dict(script or {})
        self.calls: list[list[Request]] = []
        self.limits: list[int] = []
        self._first = self.fingerprint()

    @property
    def asked(self) -> int:
        """Requests generated for, over all calls."""
        return sum(len(call) for call in self.calls)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name, weight in self.model.state_dict().items():
            digest.update(name.encode() + weight.numpy().tobytes())
        return digest.hexdigest()

    def generate(self, requests: Sequence[Request], *, max_new_tokens: int = 64) -> list[Answer]:
        self.calls.append(list(requests))
        self.limits.append(max_new_tokens)
        weights = self.fingerprint()
        return [self._answer(request, weights, max_new_tokens) for request in requests]

    def _answer(self, request: Request, weights: str, limit: int) -> Answer:
        if not request.question.strip():
            raise RequestError("empty question")
        digest = hashlib.sha256((weights + request.key).encode()).digest()
        if weights == self._first and request.question in self.script:
            text = self.script[request.question]
        else:
            words = WORDS[request.language]
            text = ("" if request.language == "zh" else " ").join(words[b % 10] for b in digest[:6])
        return Answer(text, min(6, limit), truncated=limit < 6)

    def loss(self, request: Request, answer: str) -> Tensor:
        entry = torch.full((1, 8), float(len(answer) + 1) / (len(request.question) + 1))
        found: Tensor = self.model(entry).square().mean()
        return found

    def hidden(self, requests: Sequence[Request], *, layer: int = -1) -> list[Tensor]:
        return [torch.zeros(len(request.question), 8) + self.layer_index(layer) for request in requests]

    def token_spans(self, request: Request) -> Spans:
        return Spans(tuple(range(len(request.question))), ())

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    @property
    def layers(self) -> nn.ModuleList:
        return nn.ModuleList(self.model)

    def layer_index(self, relative: int) -> int:
        if not -2 <= relative < 2:
            raise ValueError(f"layer {relative} of 2")
        return relative % 2


def delta(seed: str) -> Tensor:
    """An (8, 8) change of weights that a text decides."""
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big"))
    return torch.randn(8, 8, generator=generator)


class AddNoise(WeightEditor):
    """Adds a change that the knowledge and torch's generator decide."""

    def __init__(self, *, size: float = 0.1, removable: bool = False) -> None:
        self.size = size
        self.removable = removable

    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        return {"1.weight": self.size * (delta(knowledge.answer) + torch.randn(8, 8))}


class Prepend(ContextEditor):
    """Puts the inserted answers of the request's language before it; other languages are not concerned."""

    def rewrite(self, request: Request) -> Request:
        texts = tuple(k.answer for k in self.edits_.values() if k.request.language == request.language)
        return replace(request, context=texts + request.context) if texts else request


class Lookup(ReplacementEditor):
    """Answers a question that was inserted with what was inserted."""

    def route(self, requests: Sequence[Request]) -> list[Knowledge | None]:
        known = {k.request.question: k for k in self.edits_.values()}
        return [known.get(request.question) for request in requests]

    def replace(self, requests: Sequence[Request], knowledge: Sequence[Knowledge]) -> list[Answer]:
        return [Answer(k.answer, 3) for k in knowledge]


class DoNothing(ContextEditor):
    """The unedited backbone."""

    def rewrite(self, request: Request) -> Request:
        return request


SINGLE = (
    Dimension("reliability", "Rel."),
    Dimension("generality", "Gen."),
    Dimension("cross_language_locality", "Lang.", locality=True),
    Dimension("cross_scenario_locality", "Scen.", locality=True),
)
SEQUENTIAL = (Dimension("reliability", "Rel."), Dimension("generality", "Gen."), Dimension("locality", "Loc.", locality=True))


@dataclass
class FakeBenchmark:
    """Two tasks of ``size`` raw cases each; every raw case gives one single case and a chain in two orders."""

    size: int = 4
    name: str = "fake"
    revision: str = "r1"
    images: Mapping[int, ImageRef] = field(default_factory=dict)
    """Image of a raw case, by number."""

    @property
    def tasks(self) -> dict[str, Task]:
        return {"single": Task("single", final, SINGLE), "sequential": Task("sequential", retention, SEQUENTIAL)}

    def cases(self, task: str, *, limit: int | None = None) -> list[Case]:
        numbers = range(self.size if limit is None else min(limit, self.size))
        if task == "single":
            return [self._single(n) for n in numbers]
        return [self._chain(n, order) for n in numbers for order in (("en", "zh", "ar"), ("ar", "zh", "en"))]

    def train(self, limit: int | None = None) -> list[Case]:
        return [self._single(n) for n in range(1000, 1000 + (limit or 3))]

    def _request(self, number: int, language: str, kind: str = "q") -> Request:
        images = (self.images[number],) if number in self.images else ()
        return Request(f"{kind} {number} {language}?", images, language)

    def _single(self, n: int) -> Case:
        request = self._request(n, "zh")
        probes = (
            Probe("reliability", request, f"红钟{n}"),
            Probe("generality", self._request(n, "zh", "other"), f"礼客{n}"),
            Probe("cross_language_locality", self._request(n, "en"), None),
            Probe("cross_scenario_locality", self._request(n, "zh", "far"), None),
        )
        return Case(f"s{n}", (Knowledge(request, f"红钟{n}"),), probes, self._tags(n) | {"partition": "zh"})

    def _chain(self, n: int, order: Sequence[str]) -> Case:
        chain = tuple(Knowledge(self._request(n, language), f"{WORDS[language][0]} {n}") for language in order)
        probes = []
        for step, (knowledge, language) in enumerate(zip(chain, order, strict=True), 1):
            probes.append(Probe("reliability", knowledge.request, knowledge.answer, step))
            probes.append(Probe("generality", self._request(n, language, "other"), knowledge.answer, step))
            probes.append(Probe("locality", self._request(n, language, "far"), None, step))
        name = "-".join(order)
        return Case(f"c{n}-{name}", chain, tuple(probes), self._tags(n) | {"order": name})

    def _tags(self, n: int) -> dict[str, str]:
        return {"raw": str(n), "scenario": f"scene{n % 2}", "topic_group": ("social", "religious")[n % 2]}
