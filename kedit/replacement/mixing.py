"""The published multimodal way to train and use a scope classifier: two models' probabilities mixed token by token.

Nothing here says to the router which requests an entry concerns: what reaches it are gradients through the mixture, which
vanish where a request starts far from its entry, and push it away where the replacement is still worse than the backbone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from kedit.errors import DataError
from kedit.routers.scope import ScopeLearner, squared_distances
from kedit.routers.text_scope import TextScope
from kedit.training import Group, Team
from kedit.types import Answer, Knowledge, Request
from kedit.weights.passes import divergence

if TYPE_CHECKING:
    from kedit.backbone import HFBackbone
    from kedit.replacement.model import Teaching
    from kedit.routers.pairs import Entry

EDIT_WEIGHT, KEPT_WEIGHT = 0.1, 1.0
"""Of the loss on an entry's answers, and of the divergence from what the unedited backbone says."""


def mixed(base: Tensor, other: Tensor, weight: Tensor | float) -> Tensor:
    """log((1 - weight) p_base + weight p_other + eps) of logits (rows, vocabulary); raises DataError for two vocabularies."""
    if base.shape != other.shape:
        raise DataError(
            f"mixing needs one vocabulary; the backbone gives {base.shape[-1]} logits per token and the replacement "
            f"{other.shape[-1]}: name a replacement of the same family, or route without mixing"
        )
    found: Tensor = ((1 - weight) * base.softmax(-1) + weight * other.softmax(-1) + torch.finfo(base.dtype).eps).log()
    return found


class Partners(NamedTuple):
    """What a router is trained together with."""

    backbone: HFBackbone
    teaching: Teaching
    answers: Mapping[tuple[Knowledge, Request], str]
    """What is to be said to a request, given the entry that concerns it."""
    kept: Mapping[Request, str]
    """What the unedited backbone says to requests that no entry concerns."""


class MixedScope(TextScope):
    """A text router that is trained through the mixture alone; set ``partners_`` before ``fit``, which trains both."""

    partners_: Partners

    def learner(self, items: Sequence[Entry]) -> ScopeLearner:
        return MixedLearner(self, items, self.partners_)

    def _identity(self, learner: ScopeLearner, held: Sequence[Entry]) -> dict[str, Any]:
        teaching = self.partners_.teaching
        return {**super()._identity(learner, held), **teaching.replacement.identity(teaching.items)}


class MixedLearner(ScopeLearner):
    """Each entry alone in memory: nll of the mixture on its answers, and KL(backbone || mixture) on what is to be kept.

    Per entry ``EDIT_WEIGHT`` times the sum over its positives plus ``KEPT_WEIGHT`` times the mean over its negatives, on the
    tokens of the wanted answer or of the backbone's own (EasyEdit's SERAC_MULTI; there, locality of images is left out
    because the router cannot see them).
    """

    def __init__(self, router: TextScope, items: Sequence[Entry], partners: Partners) -> None:
        super().__init__(router, items)
        self.entries = items
        self.partners = partners

    def groups(self) -> Sequence[Group]:
        """Those of the router and of the replacement."""
        return [*self.scope.groups(), *self.partners.teaching.groups()]

    def step(self, batch: Sequence[int], own: Sequence[int], team: Team, step: int) -> Mapping[str, float]:
        """See ``kedit.training.Learner``."""
        total = {"loss": 0.0, "edit": 0.0, "kept": 0.0}
        for item in own:
            edit, kept = self.parts(item)
            loss = (edit + kept) / len(batch)
            if loss.requires_grad:
                loss.backward()
            for name, part in (("loss", edit + kept), ("edit", edit), ("kept", kept)):
                total[name] += float(part.detach()) / len(batch)
        return total

    def mean_loss(self, size: int) -> float:
        """The mean loss over all items, without gradients."""
        with torch.no_grad():
            return sum(float(sum(self.parts(item))) for item in range(len(self))) / len(self)

    def parts(self, item: int) -> tuple[Tensor, Tensor]:
        """Both weighted parts of one entry's loss."""
        entry = self.entries[item]
        weights = iter(self.similarities(item))
        edit, kept = torch.zeros(()), []
        for related in entry.positives:
            answer = self.partners.answers[entry.knowledge, related.request]
            base, other, targets = self._logits(entry.knowledge, related.request, answer)
            edit = edit + torch.nn.functional.nll_loss(mixed(base, other, next(weights)), targets).cpu()
        for related in entry.negatives:
            base, other, _ = self._logits(entry.knowledge, related.request, self.partners.kept[related.request])
            kept.append(divergence(base, mixed(base, other, next(weights))).cpu())
        return EDIT_WEIGHT * edit, KEPT_WEIGHT * (torch.stack(kept).mean() if kept else torch.zeros(()))

    def similarities(self, item: int) -> Tensor:
        """exp(-scale |key - query|^2) of an entry with its positives, then with its negatives."""
        seen = self.items[item]
        keys, asked = self.scope.vectors([seen.key], [*seen.positives, *seen.negatives])
        return torch.exp(-self.scope.scale_ * squared_distances(asked, keys))[:, 0]

    def _logits(self, entry: Knowledge, request: Request, answer: str) -> tuple[Tensor, Tensor, Tensor]:
        """Of the backbone, and of the replacement, on the tokens of an answer; the replacement's with gradient."""
        backbone, teaching = self.partners.backbone, self.partners.teaching
        taught = backbone.teach(request, answer)
        with torch.no_grad():
            base = backbone.logits(backbone.forward(taught.inputs, rows=taught.rows), taught.rows)
        other, targets = teaching.logits(entry, request, answer)
        if not torch.equal(targets.cpu(), taught.targets.cpu()):
            raise DataError("mixing needs one tokenizer; the replacement splits answers otherwise than the backbone")
        return base, other.to(base.device), taught.targets

    def state(self) -> dict[str, Tensor]:
        """Of the router and of the replacement."""
        return dict(self._prefixed())

    def _prefixed(self) -> Iterator[tuple[str, Tensor]]:
        for part, learned in (("router", self.scope.state()), ("replacement", self.partners.teaching.state())):
            for name, tensor in learned.items():
                yield f"{part}/{name}", tensor

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what ``state`` gave."""
        for part, learner in (("router", self.scope), ("replacement", self.partners.teaching)):
            own = {name.removeprefix(f"{part}/"): t for name, t in state.items() if name.startswith(f"{part}/")}
            learner.load_state(own)


def write_mixed(
    backbone: HFBackbone, request: Request, other: HFBackbone, told: Request, weight: float, max_new_tokens: int
) -> Answer:
    """Greedy answer of the mixture of two models, each with its own prompt; token by token, without a cache."""
    tokens: list[int] = []
    finite = True
    prompts: list[tuple[HFBackbone, dict[str, Any]]] = [
        (backbone, backbone.teach(request, "").inputs),
        (other, other.teach(told, "").inputs),
    ]
    while len(tokens) < max_new_tokens:
        with torch.no_grad():
            base, replaced = (_next(model, model.extended(inputs, tokens)) for model, inputs in prompts)
            scores = mixed(base, replaced.to(base.device), weight)[0]
        finite = finite and bool(torch.isfinite(scores).all())
        token = int(scores.argmax())
        if token in backbone.stop_ids:
            break
        tokens.append(token)
    text = backbone.prompts.tokenizer.decode(tokens, skip_special_tokens=True).strip()
    return Answer(text, tokens=len(tokens), truncated=len(tokens) >= max_new_tokens, finite=finite)


def _next(model: HFBackbone, inputs: Mapping[str, Any]) -> Tensor:
    last = torch.tensor([inputs["input_ids"].shape[1] - 1], device=model.device)
    return model.logits(model.forward(inputs, rows=last), last)
