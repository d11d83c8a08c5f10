"""Training a network that makes edits: edit, see what the edited model says, and learn from that (first order)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from kedit.hypernet.network import Hypernetwork
from kedit.routers.pairs import entries
from kedit.training import Group
from kedit.types import Case, Knowledge, Request
from kedit.weights.lowrank import Factors, Overlay
from kedit.weights.passes import Passes, Prompt, divergence
from kedit.weights.taps import Signal, signals

if TYPE_CHECKING:
    from kedit.training import Team


@dataclass(frozen=True)
class Lesson:
    """One insert to learn from: ``wanted`` are requests with the answers they should get, the insert's own first;
    ``kept`` those whose answers should stay the unedited model's."""

    knowledge: Knowledge
    wanted: tuple[tuple[Request, str], ...]
    kept: tuple[Request, ...]


def lessons(case: Case) -> list[Lesson]:
    """One lesson per item of a case's chain, from the probes of its step."""
    return [
        Lesson(
            entry.knowledge,
            tuple((related.request, str(related.answer)) for related in entry.positives),
            tuple(related.request for related in entry.negatives),
        )
        for entry in entries([case])
    ]


def chains(cases: Sequence[Case], length: int) -> list[list[Lesson]]:
    """What is inserted one after another: every lesson alone for ``length`` 1, else whole cases, single ones in runs of it."""
    found: list[list[Lesson]] = []
    singles: list[Lesson] = []
    for case in cases:
        of_case = lessons(case)
        if length > 1 and len(of_case) > 1:
            found.append(of_case)
        else:
            singles += of_case
    return found + [singles[start : start + length] for start in range(0, len(singles), length)]


class Editing:
    """How knowledge becomes the rows that a hypernetwork transforms: one backward pass over the linear modules edited.

    ``rows`` says which token positions count. In the last layer only those that predict the answer can have a gradient, so
    that only they count there.
    """

    def __init__(self, passes: Passes, modules: Mapping[str, nn.Module], rows: str) -> None:
        self.passes = passes
        self.modules = modules
        self.rows = rows
        last = passes.backbone.layers[-1]
        inside = set(last.modules())
        self._in_last = {name for name, module in modules.items() if module in inside}

    def signals(self, knowledge: Knowledge) -> dict[str, Signal]:
        """The rows of every module on the model as it is now."""
        prompt = self.passes.prompt(knowledge.request, knowledge.answer)
        found = signals(self.modules, lambda: self.passes.nll(prompt))
        positions = self.passes.positions(prompt, self.rows)
        return {name: self._chosen(name, signal, prompt, positions) for name, signal in found.items()}

    def _chosen(self, name: str, signal: Signal, prompt: Prompt, positions: Tensor) -> Signal:
        if name in self._in_last:
            positions = prompt.rows
            if len(signal.inputs) == len(positions):  # a replay computes no other rows there
                return signal
        return Signal(*(part[positions] for part in signal))


@dataclass
class _Chain:
    """Inserts made in training so far: what went into the hypernetwork, what came out, and the loss's gradient for that."""

    lessons: Sequence[Lesson]
    normalised: list[dict[str, Signal]] = field(default_factory=list)
    leaves: list[dict[str, Factors]] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)

    @property
    def tensors(self) -> list[Tensor]:
        """All factors of all inserts so far."""
        return [part for factors in self.leaves for pair in factors.values() for part in pair]

    def answered(self, at: int) -> set[Request]:
        """Requests that the inserts up to number ``at`` answer: their old answers are no longer to be kept."""
        return {request for lesson in self.lessons[: at + 1] for request, _ in lesson.wanted}


@dataclass
class MetaLearner:
    """Learns a hypernetwork: loss = ``edit_weight`` * nll of what is wanted + ``keep_weight`` * KL on what is kept.

    An item is a chain of inserts. Its loss is the mean over its inserts; after each, the nll looks back over the ``depth``
    inserts before it, weighted by ``decay`` to the power of their age. The nll is the mean over an insert's own request and
    those it generalises to; the KL against the unedited model is the mean over requests, at the ``kl`` positions ("answer",
    "all" or "after_image") of the prompt followed by the unedited model's answer, ``base[request]``.

    The gradient is exact and found in two stages: first that of the loss with respect to the factors, a pass at a time, then
    through the hypernetwork, so that the two graphs are never in memory together. What enters the hypernetwork counts as a
    constant, as in the paper. With ``on_base`` every insert is computed on the unedited model, else on the one edited so far.
    An insert takes ``steps`` backward passes, each on the model that has what came of those before.
    """

    network: Hypernetwork
    editing: Editing
    overlay: Overlay
    items: Sequence[Sequence[Lesson]]
    base: Mapping[Request, str]
    lr: float
    step_size_lr: float
    edit_weight: float
    keep_weight: float
    kl: str
    depth: int = 0
    decay: float = 1.0
    on_base: bool = False
    steps: int = 1

    def groups(self) -> list[Group]:
        """The network and the step sizes, at their own rates."""
        others = [p for name, p in self.network.named_parameters() if name != "step_sizes"]
        return [Group(others, self.lr), Group([self.network.step_sizes], self.step_size_lr)]

    def __len__(self) -> int:
        return len(self.items)

    def state(self) -> dict[str, Tensor]:
        """The network with its statistics and step sizes."""
        return dict(self.network.state_dict())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what ``state`` gave; raises DataError for another network's."""
        self.network.load(state, "the checkpoint")

    def step(self, batch: Sequence[int], own: Sequence[int], team: Team, step: int) -> dict[str, float]:
        """Gradients and values of one micro-batch; its rows enter the statistics, of all processes, before any is used."""
        running = [_Chain(self.items[item]) for item in own]
        values = {"loss": 0.0, "nll": 0.0, "kl": 0.0}
        for at in range(max(len(self.items[item]) for item in batch)):
            going = [chain for chain in running if at < len(chain.lessons)]
            for _ in range(self.steps):
                found = [self._signals(chain, at) for chain in going]
                self.network.observe(found, team)
                for chain, signal in zip(going, found, strict=True):
                    self._insert(chain, signal)
            for chain in going:
                for name, value in self._judge(chain, at, 1 / (len(batch) * len(chain.lessons))).items():
                    values[name] += value
        for chain in running:
            self._through_network(chain)
        return values

    # -- parts of a step -----------------------------------------------------------------------------------------------

    def _signals(self, chain: _Chain, at: int) -> dict[str, Signal]:
        with self._edited(chain.leaves[at * self.steps if self.on_base else 0 :]):
            return self.editing.signals(chain.lessons[at].knowledge)

    def _insert(self, chain: _Chain, signal: Mapping[str, Signal]) -> None:
        normalised = self.network.normalise(signal)
        with torch.no_grad():
            factors = self.network(normalised)
        leaves = {name: Factors(*(part.detach().requires_grad_() for part in pair)) for name, pair in factors.items()}
        chain.normalised.append(normalised)
        chain.leaves.append(leaves)
        chain.gradients += [torch.zeros_like(part) for pair in leaves.values() for part in pair]

    def _judge(self, chain: _Chain, at: int, share: float) -> dict[str, float]:
        """Add the gradient of the loss after insert ``at`` to that of the factors, and give the values, both times ``share``."""
        passes, answered = self.editing.passes, chain.answered(at)
        kept = [passes.prompt(r, self.base[r]) for r in chain.lessons[at].kept if r not in answered]
        rows = [passes.positions(prompt, self.kl) for prompt in kept]
        with torch.no_grad():
            before = [passes.logits(prompt, chosen) for prompt, chosen in zip(kept, rows, strict=True)]
        values = {"loss": 0.0, "nll": 0.0, "kl": 0.0}

        def take(name: str, value: Tensor, weight: float, scale: float) -> None:
            # the factors' own graph (joined, or folded) is shared by all passes
            found = torch.autograd.grad(value * (weight * scale), chain.tensors, retain_graph=True)
            for total, gradient in zip(chain.gradients, found, strict=True):
                total += gradient
            values[name] += value.item() * scale
            values["loss"] += value.item() * weight * scale

        with self._edited(chain.leaves), torch.enable_grad():
            for age, lesson in enumerate(reversed(chain.lessons[max(0, at - self.depth) : at + 1])):
                for request, answer in lesson.wanted:
                    prompt = passes.prompt(request, answer)
                    take("nll", passes.nll(prompt), self.edit_weight * self.decay**age, share / len(lesson.wanted))
            for prompt, chosen, old in zip(kept, rows, before, strict=True):
                take("kl", divergence(old, passes.logits(prompt, chosen)), self.keep_weight, share / len(kept))
        return values

    def _through_network(self, chain: _Chain) -> None:
        gradients = iter(chain.gradients)
        with torch.enable_grad():
            for normalised in chain.normalised:
                parts = [part for pair in self.network(normalised).values() for part in pair]
                torch.autograd.backward(parts, [next(gradients) for _ in parts])

    @contextmanager
    def _edited(self, inserts: Sequence[Mapping[str, Factors]]) -> Iterator[None]:
        """Inside the block the model has these edits, differentiable with respect to their factors."""
        try:
            with torch.enable_grad():
                for number, factors in enumerate(inserts):
                    self.overlay.add(str(number), factors)
            yield
        finally:
            self.overlay.clear()
