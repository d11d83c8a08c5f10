"""A router on the frozen model's own hidden states: a trained projection, a contrastive loss, a calibrated threshold.

Source: CrossCult-KIBench, section 4 (equation 1) and appendix D (equations 13 to 16).
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kedit.artefacts import read_json, write_json
from kedit.editor import Progress
from kedit.errors import DataError, NotFittedError, unknown_name
from kedit.features import Features, PooledFeatures, shared_features
from kedit.routers.base import Router, Vectors
from kedit.routers.calibration import RULES, Calibration, calibrate
from kedit.routers.pairs import Concern, Entry, entries, unrelated
from kedit.training import Group, Team, Training, train
from kedit.types import Case, Knowledge, Request

log = logging.getLogger(__name__)
_BACKBONE = "backbone.json"


class Projection(nn.Module):  # type: ignore[misc]
    """From pooled states to a unit vector: norm and linear map per modality, then one linear map of both, then length 1."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.question_norm, self.visual_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.question, self.visual = nn.Linear(width, dim), nn.Linear(width, dim)
        self.fusion = nn.Linear(2 * dim, dim)

    def forward(self, question: Tensor, visual: Tensor) -> Tensor:
        """(n, width) twice to (n, dim)."""
        parts = [self.question(self.question_norm(question)), self.visual(self.visual_norm(visual))]
        return nn.functional.normalize(self.fusion(torch.cat(parts, -1)), dim=-1)


def contrastive_losses(
    keys: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    owners: tuple[Tensor, Tensor],
    log_weights: Tensor,
    gamma: float,
    negative_loss_weight: float = 1.0,
    others: Tensor | None = None,
) -> Tensor:
    """Equation 15 for every entry, (entries,); 0 for an entry none of whose positives is given.

    ``keys`` (entries, dim), ``positives`` and ``negatives`` (n, dim) are unit vectors; ``owners`` say for each positive and
    each negative which entry it belongs to, ``log_weights`` are log w_n. ``others`` (entries, entries), which the paper does
    not have, is True where the key of the column joins the denominator of the row's positives with weight 1, so that what is
    learned is also *which* entry a request finds.
    """
    of_positive, of_negative = owners
    scores = gamma * positives @ keys.T  # (positives, entries)
    own = scores.gather(1, of_positive[:, None])
    against = gamma * (negatives * keys[of_negative]).sum(-1) + log_weights
    columns = [own, against.expand(len(own), -1).masked_fill(of_positive[:, None] != of_negative, -math.inf)]
    if others is not None:
        columns.append(scores.masked_fill(~others[of_positive], -math.inf))
    each = negative_loss_weight * torch.cat(columns, 1).logsumexp(1) - own[:, 0]
    count = torch.bincount(of_positive, minlength=len(keys)).clamp(1)
    return each.new_zeros(len(keys)).index_add(0, of_positive, each) / count


class HiddenRouter(Router):
    """Compares a request with an entry by what the frozen backbone computes for both, through a trained projection.

    Pooled states of question and image at ``layer`` (see ``PooledFeatures``; kept below ``cache_dir``) go through norm and
    linear map per modality and a linear map of both to ``dim`` numbers of length 1; the score is the cosine. Training
    minimises equation 15 with logit scale ``gamma``, lambda ``negative_loss_weight`` and w_n: ``scenario_weight`` for negatives
    in the entry's language, ``language_weight`` for those in another; other members of a chain are weighted by language too.

    The paper's loss compares requests with one entry at a time, so that nothing trains which of several entries a request
    finds. With ``in_batch_negatives`` the keys of the other entries of the batch that are ``unrelated`` to this one join the
    denominator of its positives; without, the loss is the paper's. AdamW without weight decay, ``batch_size`` entries a step;
    the projection starts from ``seed`` at every ``fit``.

    The threshold is ``threshold`` where given, else calibrated by the rule ``calibration`` (see ``calibrate``) on the pairs of
    the validation cases, or of the training cases where there are none (the paper).
    """

    features_: PooledFeatures
    module_: Projection
    calibration_: Calibration

    def __init__(
        self,
        *,
        dim: int = 1024,
        gamma: float = 20.0,
        negative_loss_weight: float = 1.0,
        language_weight: float = 1.0,
        scenario_weight: float = 1.5,
        in_batch_negatives: bool = True,
        lr: float = 1e-3,
        epochs: int = 1,
        batch_size: int = 32,
        layer: int = -1,
        calibration: str = "accuracy",
        threshold: float | None = None,
        seed: int = 0,
        cache_dir: str | Path | None = None,
    ) -> None:
        self.dim = dim
        self.gamma = gamma
        self.negative_loss_weight = negative_loss_weight
        self.language_weight = language_weight
        self.scenario_weight = scenario_weight
        self.in_batch_negatives = in_batch_negatives
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.layer = layer
        self.calibration = calibration
        self.threshold = threshold
        self.seed = seed
        self.cache_dir = cache_dir

    def build(self) -> None:
        """Features of the backbone; what was learned stays, so that a fitted router can be given to an editor."""
        self.features_ = shared_features(self.backbone_, layer=self.layer, cache_dir=self.cache_dir)

    # -- vectors -------------------------------------------------------------------------------------------------------

    def keys(self, knowledge: Sequence[Knowledge]) -> Vectors:
        return self.queries([item.request for item in knowledge])

    def queries(self, requests: Sequence[Request]) -> Vectors:
        self._require_fitted()
        if not requests:
            return np.zeros((0, self.dim), np.float32)
        with torch.no_grad():
            found: Vectors = self._project(self.module_, self.features_(requests)).cpu().numpy()
        return found

    def _project(self, module: Projection, features: Features) -> Tensor:
        width, wanted = features.question.shape[-1], module.question.in_features
        if width != wanted:
            raise DataError(f"the router was fitted on states of {wanted} numbers, this backbone has {width}; fit it anew")
        device = self.backbone_.device
        found: Tensor = module.to(device)(features.question.to(device), features.visual.to(device))
        return found

    # -- learning ------------------------------------------------------------------------------------------------------

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on pooled states, keep the state with the lowest loss on ``val`` where given, and calibrate; returns self.

        Raises DataError where the cases hold no knowledge or, for want of a ``threshold``, nothing to calibrate on.
        """
        if self.calibration not in RULES:
            raise unknown_name("calibration rule", self.calibration, RULES)
        if not any(case.chain for case in cases):
            raise DataError(f"{len(cases)} cases hold no knowledge to learn from; give training cases")
        learner = self._learner(cases)
        held_out = self._learner(val, learner.module) if val and any(case.chain for case in val) else None
        settings = Training(epochs=self.epochs, batch_size=self.batch_size, seed=self.seed)
        train(
            learner,
            settings.validated_each_epoch(len(learner)),
            out=out,
            validate=(lambda: -held_out.loss()) if held_out is not None else None,
            progress=progress,
            identity={**self._identity(), "examples": learner.examples.digest()},
        )
        self.module_ = learner.module.eval()
        self.threshold_ = self._operating_point(held_out or learner)
        self.fitted_ = True
        return self

    def _identity(self) -> dict[str, str | int | float | bool | None]:
        """The parameters that decide what is learned."""
        return {name: value for name, value in self.get_params().items() if name not in ("cache_dir", "calibration", "threshold")}

    def _learner(self, cases: Sequence[Case], module: Projection | None = None) -> ContrastiveLearner:
        found = Examples.of(entries(cases), self)
        features = self.features_(found.requests)
        if module is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                module = Projection(features.question.shape[-1], self.dim)
        device = self.backbone_.device
        return ContrastiveLearner(module.to(device), Features(*(part.to(device) for part in features)), found, self)

    def _operating_point(self, learner: ContrastiveLearner) -> float:
        if self.threshold is not None:
            return self.threshold
        self.calibration_ = calibrate(*learner.scores(), self.calibration, strict=self.strict)
        return self.calibration_.threshold

    def _require_fitted(self) -> None:
        if not self.fitted:
            raise NotFittedError(f"{type(self).__name__} has no projection yet; call fit(cases) or load(path) first")

    def state(self) -> dict[str, Tensor]:
        return {name: tensor.detach().cpu() for name, tensor in self.module_.state_dict().items()}

    def save(self, path: str | Path) -> None:
        """As for every router, plus ``backbone.json``: whose states it reads."""
        super().save(path)
        write_json(Path(path) / _BACKBONE, self.features_.about)

    def load(self, path: str | Path) -> Self:
        """As for every router; DataError for states of another layer, a warning for other weights of the same dtype."""
        file, here = Path(path) / _BACKBONE, self.features_.about
        made = read_json(file) if file.exists() else {}
        if made.get("layer", here["layer"]) != here["layer"]:
            raise DataError(f"{path} reads layer {made['layer']}, this router layer {here['layer']}; give layer= as it was")
        super().load(path)
        if made.get("dtype") == here["dtype"] and made.get("fingerprint") != here["fingerprint"]:
            log.warning("%s was fitted on other weights (those of %s); its threshold may not fit here", path, made["backbone"])
        return self

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        weight = state.get("question.weight")
        if weight is None or weight.dim() != 2 or len(weight) != self.dim:
            got = "no projection" if weight is None else f"one to {len(weight)} numbers"
            raise DataError(f"expected a projection to dim={self.dim} numbers, got {got}; give the dim it was fitted with")
        module = Projection(weight.shape[1], self.dim)
        try:
            module.load_state_dict(dict(state))
        except RuntimeError as error:
            raise DataError(f"the saved projection does not fit: {error}") from error
        self.module_ = module.eval()


@dataclass(frozen=True)
class Examples:
    """Entries as rows of a table of features: what each entry pulls near, what it pushes away, and how hard."""

    requests: list[Request]
    own: list[int]
    positives: list[list[int]]
    negatives: list[list[int]]
    log_weights: list[list[float]]
    concerns: list[Concern]
    """Per entry: what decides which others its requests may find."""

    @classmethod
    def of(cls, found: Sequence[Entry], router: HiddenRouter) -> Self:
        """From entries; each request has one row, however many entries it concerns."""
        rows: dict[str, int] = {}
        requests: list[Request] = []

        def row(request: Request) -> int:
            if request.key not in rows:
                rows[request.key] = len(requests)
                requests.append(request)
            return rows[request.key]

        weights = [
            [
                router.scenario_weight if n.request.language == entry.knowledge.request.language else router.language_weight
                for n in entry.negatives
            ]
            for entry in found
        ]
        own = [row(entry.knowledge.request) for entry in found]
        positives = [[row(related.request) for related in entry.positives] for entry in found]
        return cls(
            own=own,
            positives=positives,
            negatives=[[row(related.request) for related in entry.negatives] for entry in found],
            log_weights=[[math.log(w) if w > 0 else -math.inf for w in several] for several in weights],
            requests=requests,
            concerns=[Concern.of(*one) for one in zip(found, own, positives, strict=True)],
        )

    def unrelated(self, batch: Sequence[int]) -> list[list[bool]]:
        """For each two entries whether the key of one is surely wrong for the positives of the other."""
        return [[unrelated(self.concerns[one], self.concerns[other]) for other in batch] for one in batch]

    def digest(self) -> str:
        """SHA-256 over the requests and how they are related, the first 16 hex digits."""
        subjects = [(concern.answer, *concern.subject) for concern in self.concerns]
        related = [self.own, self.positives, self.negatives, self.log_weights, subjects]
        content = [[request.key for request in self.requests], *related]
        return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


class ContrastiveLearner:
    """Equation 15 over features in memory: a ``Learner`` whose items are entries."""

    def __init__(self, module: Projection, features: Features, examples: Examples, router: HiddenRouter) -> None:
        self.module = module
        self.features = features
        self.examples = examples
        self.router = router

    def groups(self) -> Sequence[Group]:
        return [Group(list(self.module.parameters()), self.router.lr)]

    def __len__(self) -> int:
        return len(self.examples.own)

    def step(self, batch: Sequence[int], own: Sequence[int], team: Team, step: int) -> Mapping[str, float]:
        """The keys are those of the whole batch in every process, the positives and negatives those of its own entries."""
        if not own:
            return {"loss": 0.0}
        loss = self._losses(batch, own).sum() / len(batch)
        loss.backward()
        return {"loss": float(loss.detach())}

    def loss(self) -> float:
        """The mean over all items, in batches as in training, without gradients."""
        size, items = self.router.batch_size, range(len(self))
        with torch.no_grad():
            parts = [self._losses(batch, batch).sum() for batch in (items[at : at + size] for at in items[::size])]
        return float(torch.stack(parts).sum()) / len(self)

    def scores(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Cosines of all positives, and of all negatives, with their entry's key (the sets of equation 16)."""
        with torch.no_grad():
            vectors = self.module(*self.features).double().cpu()
        found = []
        for rows in (self.examples.positives, self.examples.negatives):
            pairs = torch.tensor([(own, row) for own, several in zip(self.examples.own, rows, strict=True) for row in several])
            left, right = pairs.reshape(-1, 2).long().unbind(1)
            found.append((vectors[left] * vectors[right]).sum(-1).numpy())
        return found[0], found[1]

    def _losses(self, batch: Sequence[int], own: Sequence[int]) -> Tensor:
        """(batch,), 0 for entries that are not in ``own``."""
        place = {item: at for at, item in enumerate(batch)}
        examples, device = self.examples, self.features.question.device
        inside = [(place[j], row) for j in own for row in examples.positives[j]]
        outside = [(place[j], row) for j in own for row in examples.negatives[j]]
        weights = [weight for j in own for weight in examples.log_weights[j]]
        others = torch.tensor(examples.unrelated(batch), device=device) if self.router.in_batch_negatives else None
        return contrastive_losses(
            self._vectors([examples.own[j] for j in batch]),
            self._vectors([row for _, row in inside]),
            self._vectors([row for _, row in outside]),
            owners=tuple(torch.tensor([at for at, _ in several], device=device).long() for several in (inside, outside)),
            log_weights=torch.tensor(weights, device=device),
            gamma=self.router.gamma,
            negative_loss_weight=self.router.negative_loss_weight,
            others=others,
        )

    def _vectors(self, rows: Sequence[int]) -> Tensor:
        at = torch.tensor(rows, device=self.features.question.device).long()
        found: Tensor = self.module(self.features.question[at], self.features.visual[at])
        return found

    def state(self) -> dict[str, Tensor]:
        return dict(self.module.state_dict())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.module.load_state_dict(dict(state))
