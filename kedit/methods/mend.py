"""MEND: a network learns to turn the gradient of an edit into a change of weights (Mitchell et al., ICLR 2022)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor

from kedit.answers import BaseAnswers
from kedit.artefacts import load_knowledge, load_tensors, read_digests, save_tensors, write_json
from kedit.editor import Editor, Progress, WeightEditor
from kedit.errors import DataError, unknown_name
from kedit.hypernet.learner import Editing, MetaLearner, chains
from kedit.hypernet.network import Hypernetwork, Site
from kedit.training import Training, train
from kedit.types import Case, Knowledge
from kedit.validation import Validation
from kedit.weights.lowrank import Factors, Overlay, joined, pack, unpack, widths
from kedit.weights.modules import layer_indices, projections, trainable
from kedit.weights.passes import ROWS, Passes

LEGACY = ("ascent", "inert_step_sizes")
REDUCTIONS = ("mean", "sum")
_TIME_ONLY = ("keep_trunks", "plain")
_TRUNKS = 8
"""Prompts in memory during training, however few ``keep_trunks`` asks for: those of one item."""
_NETWORK, _FACTORS = "hypernetwork.safetensors", "factors.safetensors"


class MEND(WeightEditor):
    """One backward pass over the edit gives, for every edited matrix, rows of inputs and gradients; a network normalises and
    transforms them, and their outer products, times a learned step size, are subtracted: W' = W - alpha * G.

    Edited are the matrices into and out of the MLP of ``layers``, gates excluded. The defaults ``lr`` (of the network),
    ``edit_lr`` (first step size), ``rank``, ``epochs`` and the last three layers are those of the CrossCult-KIBench paper
    (Table 5); ``step_size_lr``, ``accumulate``, ``clip`` and the loss's weights (``edit_weight`` * nll + ``keep_weight`` *
    KL) those of the published code, on which the paper is silent.

    ``reduction`` sums over rows as published or takes their mean, so that an edit's size does not grow with the length of
    the prompt. ``rows`` are those "after_image", "all", or those that predict the "answer"; the last layer has no others than
    the latter. ``kl`` are the positions of the KL in the same words. ``shared`` keeps one network per weight shape.
    ``on_base`` computes every insert on the unedited model rather than on the one edited so far. ``steps`` backward passes
    make an insert, each on the model that has what came of those before: 1 in the paper; more go further where one is not
    enough, in training as well as after.
    ``sequence_training`` (inserts to look back over, 0 for the paper's way) trains on chains: after each insert the loss also
    asks for the answers of that many inserts before, weighted by ``decay`` to the power of their age (the idea of RLEdit,
    2025); without it earlier answers are soon lost in a chain. ``keep_trunks`` prompts stay in memory over the steps and
    epochs of a training. ``plain`` runs the whole model in every pass rather than its top layers, with the same results.

    ``legacy`` gives back defects of the published code: "ascent" adds alpha * G, which at first raises the loss of the edit;
    "inert_step_sizes" moves the step sizes at the network's ``lr``.

    An edit is kept as factors and added to what the modules compute; the weights themselves never change, and nothing is
    lost to rounding. Every edit can be removed; those after it were computed on a model that had it. ``insert`` raises
    DivergedError, ImageError or RequestError and changes nothing then.
    """

    needs_fit: ClassVar[bool] = True
    network_: Hypernetwork
    overlay_: Overlay
    editing_: Editing

    def __init__(
        self,
        *,
        lr: float = 1e-6,
        edit_lr: float = 1e-4,
        step_size_lr: float = 1e-4,
        rank: int = 1920,
        layers: Sequence[int] = (-3, -2, -1),
        shared: bool = True,
        reduction: str = "mean",
        rows: str = "after_image",
        edit_weight: float = 0.1,
        keep_weight: float = 1.0,
        kl: str = "answer",
        on_base: bool = False,
        steps: int = 1,
        sequence_training: int = 0,
        decay: float = 0.95,
        epochs: int = 1,
        batch_size: int = 1,
        accumulate: int = 10,
        clip: float = 100.0,
        seed: int = 0,
        validate_every: int | None = None,
        keep_trunks: int = 0,
        legacy: Sequence[str] = (),
        plain: bool = False,
    ) -> None:
        self.lr = lr
        self.edit_lr = edit_lr
        self.step_size_lr = step_size_lr
        self.rank = rank
        self.layers = layers
        self.shared = shared
        self.reduction = reduction
        self.rows = rows
        self.edit_weight = edit_weight
        self.keep_weight = keep_weight
        self.kl = kl
        self.on_base = on_base
        self.steps = steps
        self.sequence_training = sequence_training
        self.decay = decay
        self.epochs = epochs
        self.batch_size = batch_size
        self.accumulate = accumulate
        self.clip = clip
        self.seed = seed
        self.validate_every = validate_every
        self.keep_trunks = keep_trunks
        self.legacy = legacy
        self.plain = plain

    def build(self) -> None:
        """Raises FamilyError for a model without such linear modules, ValueError for a layer outside it, UnknownNameError."""
        given = [("legacy switch", name, LEGACY) for name in self.legacy] + [
            ("reduction", self.reduction, REDUCTIONS),
            ("kind of rows", self.rows, ROWS),
            ("kind of rows", self.kl, ROWS),
        ]
        for kind, name, known in given:
            if name not in known:
                raise unknown_name(kind, name, known)
        backbone = trainable(self.backbone_, type(self).__name__)
        modules = projections(backbone, self.layers)
        lowest = layer_indices(backbone, self.layers)[0]
        self.overlay_ = Overlay(backbone.model, list(modules))
        passes = Passes(backbone, lowest, plain=self.plain)
        self.editing_ = Editing(passes, modules, self.rows)
        self.network_ = self._network()
        self.fitted_ = False

    def _network(self) -> Hypernetwork:
        overlay = self.overlay_
        sites = {name: Site(*widths(module, overlay.flipped[name])) for name, module in overlay.modules.items()}
        made: Hypernetwork = Hypernetwork(
            sites,
            rank=self.rank,
            step_size=self.edit_lr,
            seed=self.seed,
            shared=self.shared,
            mean=self.reduction == "mean",
            sign=1.0 if "ascent" in self.legacy else -1.0,
        ).to(self.backbone_.device)
        return made

    # -- training ------------------------------------------------------------------------------------------------------

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train the hypernetwork anew on the cases' inserts and probes, or go on with the training that ``out`` holds.

        Kept requests are asked of the unedited backbone first. ``val`` cases are inserted and asked every ``validate_every``
        steps and at the end, and the best state is kept. Raises ContractError while anything is inserted.
        """
        self._require_attached()
        self.network_ = self._network()
        self.fitted_ = False
        learner = self.learner(cases)
        with self.editing_.passes.remembering(max(self.keep_trunks, _TRUNKS)):
            train(
                learner,
                self._settings(),
                out=out,
                validate=Validation(self, val) if val else None,
                progress=progress,
                identity=self._identity(learner),
            )
        self.fitted_ = True
        return self

    def learner(self, cases: Sequence[Case]) -> MetaLearner:
        """What trains ``network_`` on the cases (``kedit.training.Learner``)."""
        items = chains(cases, self.sequence_training + 1)
        kept = list(dict.fromkeys(request for chain in items for lesson in chain for request in lesson.kept))
        answers = BaseAnswers(self.backbone_).ask(kept)
        return MetaLearner(
            network=self.network_,
            editing=self.editing_,
            overlay=Overlay(self.backbone_.model, list(self.overlay_.modules)),
            items=items,
            base={request: answer.text for request, answer in zip(kept, answers, strict=True)},
            lr=self.lr,
            step_size_lr=self.lr if "inert_step_sizes" in self.legacy else self.step_size_lr,
            edit_weight=self.edit_weight,
            keep_weight=self.keep_weight,
            kl=self.kl,
            depth=self.sequence_training,
            decay=self.decay,
            on_base=self.on_base,
            steps=self.steps,
        )

    def _settings(self) -> Training:
        return Training(
            epochs=self.epochs,
            batch_size=self.batch_size,
            accumulate=self.accumulate,
            clip=self.clip,
            seed=self.seed,
            validate_every=self.validate_every,
        )

    def _identity(self, learner: MetaLearner) -> dict[str, str]:
        """What decides the result besides the loop's settings; a change of what only costs time may continue a training."""
        params = {name: value for name, value in self.get_params().items() if name not in _TIME_ONLY}
        lessons = [(lesson.wanted, [learner.base[r] for r in lesson.kept]) for chain in learner.items for lesson in chain]
        told = repr([[(r.question, answer) for r, answer in wanted] + kept for wanted, kept in lessons])
        digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
        return {"params": repr(params), "lessons": digest, "weights": repr(sorted(self.overlay_.digests().items()))}

    # -- editing -------------------------------------------------------------------------------------------------------

    def factors(self, knowledge: Knowledge) -> dict[str, Factors]:
        """The edit by module name, fp32, on the model as edited so far (the unedited one where ``on_base``)."""
        found: list[dict[str, Factors]] = []
        so_far = Overlay(self.backbone_.model, list(self.overlay_.modules))
        with self.overlay_.suspended() if self.on_base else nullcontext():
            try:
                for step in range(self.steps):
                    if found:
                        so_far.add(str(step), found[-1])
                    signals = self.editing_.signals(knowledge)
                    with torch.no_grad():
                        found.append(self.network_(self.network_.normalise(signals)))
            finally:
                so_far.clear()
        return {name: joined([factors[name] for factors in found]) for name in self.overlay_.modules}

    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        """The same as changes of the weights, fp32, by parameter name."""
        flipped = self.overlay_.flipped
        return {f"{name}.weight": pair.dense(flipped[name]) for name, pair in self.factors(knowledge).items()}

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        self.overlay_.add(edit_id, self.factors(knowledge))

    def unapply(self, edit_id: str) -> None:
        """Drop the edit's factors; edits made after it stay as they are, computed on a model that had it."""
        self.overlay_.drop(edit_id)

    @contextmanager
    def unedited(self) -> Iterator[None]:
        with self.overlay_.suspended():
            yield

    def revert(self) -> None:
        self.overlay_.clear()

    # -- artefacts -----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """The network with statistics and step sizes as ``hypernetwork.safetensors``; no weight of the backbone."""
        super().save(path)
        save_tensors(Path(path) / _NETWORK, self.network_.state_dict())

    def load(self, path: str | Path) -> Self:
        """Raises DataError for another editor's artefact, or one whose shapes are not those of this backbone and rank."""
        self._require_attached()
        super().load(path)
        file = Path(path) / _NETWORK
        self.network_.load(load_tensors(file), str(file))
        self.fitted_ = True
        return self

    def save_edits(self, path: str | Path) -> None:
        """As for every editor, plus ``factors.safetensors`` (fp32) and digests of the weights they were made for."""
        Editor.save_edits(self, path)
        save_tensors(Path(path) / _FACTORS, pack(self.overlay_.edits))
        write_json(Path(path) / "base.json", {"backbone": self.backbone_.id, "digests": self.overlay_.digests()})

    def load_edits(self, path: str | Path) -> None:
        """Put saved edits on top of those inserted now; raises DataError, with nothing changed, if made for other weights."""
        self._require_attached()
        self._own_artefact(Path(path) / "editor.json")
        inserted = load_knowledge(Path(path))
        here = self.overlay_.digests()
        for name, digest in read_digests(Path(path) / "base.json").items():
            if here.get(name) != digest:
                raise DataError(f"{path}: factors for {name!r} were made on other weights; load them on their own backbone")
        edits = unpack(load_tensors(Path(path) / _FACTORS), len(inserted), str(Path(path) / _FACTORS))
        ids = [f"edit-{self._serial + number}" for number in range(1, len(inserted) + 1)]
        added: list[str] = []
        try:
            for edit_id, factors in zip(ids, edits, strict=True):
                self.overlay_.add(edit_id, factors)
                added.append(edit_id)
        except BaseException:
            for edit_id in added:
                self.overlay_.drop(edit_id)
            raise
        self._serial += len(inserted)
        self.edits_.update(zip(ids, inserted, strict=True))
