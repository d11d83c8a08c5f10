"""A smaller model that answers in place of the backbone, told what was inserted; usable alone or behind a router."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from kedit.artefacts import load_tensors, read_json, save_tensors, write_json
from kedit.backbone import load_backbone
from kedit.errors import CheckpointError, DataError, NotAttachedError, NotFittedError
from kedit.rouge import rouge_l
from kedit.routers.pairs import entries
from kedit.training import Group, Team, Training, train
from kedit.trunk import Captured, capture, replay, tensor_digest
from kedit.types import Answer, Case, Knowledge, Request
from kedit.weights.modules import layer_indices, trainable
from kedit.wording import with_facts

if TYPE_CHECKING:
    from kedit.backbone import Backbone, HFBackbone
    from kedit.editor import Progress
    from kedit.forcing import Forced

KEPT_BYTES = 1 << 30
"""Captured trunks that are kept for the next epoch; lessons that do not fit run through the whole model every time."""


class Lesson(NamedTuple):
    """What a replacement learns from: a request that an entry concerns, and what to answer to it."""

    entry: Knowledge
    request: Request
    answer: str


def lessons(cases: Sequence[Case]) -> list[Lesson]:
    """For every item of every chain its own request, and the probes of its step that have an answer of their own."""
    return [
        Lesson(entry.knowledge, related.request, str(related.answer)) for entry in entries(cases) for related in entry.positives
    ]


class Replacement:
    """The counterfactual model of Mitchell et al. 2022 as a whole vision-language model that generates through its own template.

    A request is put to it with the entry that concerns it as context: the entry's images (``stored_image``), its question and
    answer, then the request itself. ``fit`` teaches it the answers by teacher forcing, given the right entry.

    ``model`` is a name or path for ``load_backbone``; None takes what the catalogue names for the backbone attached to.
    ``layers`` of the decoder are trained whole, absolute or relative (the CrossCult-KIBench paper: the last one, learning rate
    1e-5, one epoch; it does not name the optimiser, here AdamW without decay); None trains every parameter. Over several
    epochs, what lies below the lowest trained layer runs once per lesson; ``plain`` runs the whole model at every step
    instead, with the same result. What is trained is held in fp32 while it is trained, and rounded to the model's own type.
    """

    backbone_: HFBackbone
    originals_: dict[str, str]

    def __init__(
        self,
        *,
        model: str | None = None,
        layers: Sequence[int] | None = (-1,),
        stored_image: bool = True,
        lr: float = 1e-5,
        epochs: int = 1,
        batch_size: int = 1,
        seed: int = 0,
        plain: bool = False,
    ) -> None:
        self.model = model
        self.layers = layers
        self.stored_image = stored_image
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.seed = seed
        self.plain = plain

    def attach(self, backbone: Backbone) -> Self:
        """Load the model, once, to where the backbone is; returns self.

        Raises CheckpointError where no name was given and none is known for the backbone.
        """
        name = self.model or _named_for(backbone)
        here = backbone.device if isinstance(backbone.device, torch.device) else None  # a served backbone has none
        self._load(name, device=here, batch_size=getattr(backbone, "batch_size", 8))
        return self

    def _load(self, name: str, **where: Any) -> None:
        self.__dict__.pop("backbone_", None)  # before the next one is read: two need not fit
        self.backbone_ = trainable(load_backbone(name, **where), "a replacement")
        self.fitted_ = False
        self.changed_ = False

    @property
    def fitted(self) -> bool:
        """Whether ``fit`` or ``load`` was called."""
        return bool(getattr(self, "fitted_", False))

    # -- asking --------------------------------------------------------------------------------------------------------

    def told(self, request: Request, entry: Knowledge) -> Request:
        """The request as the replacement sees it: the entry before everything else."""
        images = entry.request.images if self.stored_image else ()
        fact = with_facts([(entry.request.question, entry.answer)])
        return replace(request, context=(*images, fact, *request.context))

    def answer(self, requests: Sequence[Request], knowledge: Sequence[Knowledge], *, max_new_tokens: int = 64) -> list[Answer]:
        """Answers, same length and order as ``requests``, each given its own entry; batched as ``Backbone.generate``."""
        asked = [self.told(request, entry) for request, entry in zip(requests, knowledge, strict=True)]
        return self._loaded().generate(asked, max_new_tokens=max_new_tokens) if asked else []

    def forced(self, request: Request, entry: Knowledge, answer: str, k: int = 1) -> Forced:
        """What the replacement predicts while an answer is fed to it, given the entry."""
        return self._loaded().forced([self.told(request, entry)], [answer], k)[0]

    # -- learning ------------------------------------------------------------------------------------------------------

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on the lessons of cases from the loaded weights on, whatever was learned before; arguments as for an editor's.

        The state kept is the one, of those after each epoch, whose answers to the lessons of ``val`` have the highest mean
        ROUGE-L, given the right entries. Raises DataError where there is nothing to learn.
        """
        teaching = self.begin(lessons(cases))
        held_out = lessons(val or ())

        def validate() -> float:
            teaching.write()
            return self.quality(held_out)

        settings = Training(epochs=self.epochs, batch_size=self.batch_size, seed=self.seed).validated_each_epoch(len(teaching))
        check = validate if held_out else None
        train(teaching, settings, out=out, validate=check, progress=progress, identity=self.identity(teaching.items))
        self.end(teaching)
        return self

    def begin(self, items: Sequence[Lesson]) -> Teaching:
        """A training on lessons, from the weights as they were loaded; ``end`` it before asking anything."""
        loaded = self._loaded()
        if self.changed_:
            self._load(loaded.id, device=loaded.device, batch_size=loaded.batch_size)
        self._note_originals()
        self.fitted_, self.changed_ = False, True
        return Teaching(self, items, repeated=self.epochs > 1)

    def end(self, teaching: Teaching) -> None:
        """Put what was learned into the model."""
        teaching.write()
        self.fitted_ = True

    def identity(self, items: Sequence[Lesson]) -> dict[str, Any]:
        """What decides a training besides its settings; pictures are taken as given."""
        digest = hashlib.sha256()
        for entry, request, answer in items:
            row = [entry.request.question, entry.answer, request.question, request.language, request.system, answer]
            digest.update(json.dumps(row).encode())
        layers = None if self.layers is None else list(self.layers)
        return {
            "replacement": self.backbone_.id,
            "replacement layers": layers,
            "stored image": self.stored_image,
            "replacement lr": self.lr,
            "lessons": digest.hexdigest(),
        }

    def _note_originals(self) -> None:
        if not self.changed_:
            self.originals_ = {name: tensor_digest(weight) for name, weight in self.trained().items()}

    def quality(self, held_out: Sequence[Lesson]) -> float:
        """Mean ROUGE-L (0 to 100) of what is generated for lessons, given the right entries."""
        answers = self.answer([one.request for one in held_out], [one.entry for one in held_out])
        scores = [rouge_l(answer.text, one.answer) for answer, one in zip(answers, held_out, strict=True)]
        known = [score for score in scores if score is not None]
        return sum(known) / len(known) if known else 0.0

    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that ``fit`` moves, by name in the model; ValueError for a layer outside it."""
        loaded = self._loaded()
        parameters = dict(loaded.model.named_parameters())
        if self.layers is None:
            return parameters
        wanted = {id(p) for index in layer_indices(loaded, self.layers) for p in loaded.layers[index].parameters()}
        return {name: parameter for name, parameter in parameters.items() if id(parameter) in wanted}

    def state(self) -> dict[str, Tensor]:
        """What ``fit`` learned: the trained parameters alone, fp32."""
        return {name: weight.detach().float().clone() for name, weight in self.trained().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what ``state`` gave; raises DataError, with nothing changed, where names or shapes do not fit."""
        weights = self.trained()
        fit = state.keys() == weights.keys() and all(state[name].shape == weights[name].shape for name in weights)
        if not fit:
            raise DataError(
                f"{len(state)} learned weights do not fit the {len(weights)} that {self._loaded().id!r} has in layers "
                f"{self.layers}; load them with the replacement model and the layers that they were trained with"
            )
        self._note_originals()
        self.changed_ = True
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(state[name])

    def save(self, path: str | Path) -> None:
        """Write ``replacement.json`` and ``replacement.safetensors`` (what was trained, nothing else) to a folder."""
        if not self.fitted:
            raise NotFittedError("the replacement has learned nothing yet; call fit(cases) or load(path) first")
        save_tensors(Path(path) / "replacement.safetensors", self.state())
        layers = None if self.layers is None else list(self.layers)
        row = {"model": self.backbone_.id, "layers": layers, "originals": self.originals_}
        write_json(Path(path) / "replacement.json", row)

    def load(self, path: str | Path) -> Self:
        """Read what ``save`` wrote and return self; raises DataError when it was trained from another model's weights."""
        info = read_json(Path(path) / "replacement.json")
        self._note_originals()
        if info.get("originals") != self.originals_:
            raise DataError(
                f"{path} was trained from the weights of {info.get('model')!r}, layers {info.get('layers')}, and not from those "
                f"of {self.backbone_.id!r}, layers {self.layers}; name that model and those layers, or fit again"
            )
        self.load_state(load_tensors(Path(path) / "replacement.safetensors"))
        self.fitted_ = True
        return self

    def _loaded(self) -> HFBackbone:
        if not hasattr(self, "backbone_"):
            raise NotAttachedError("the replacement has no model yet; call attach(backbone) first")
        return self.backbone_


class Teaching:
    """A replacement's training: the mean over lessons of the mean loss on the answer's tokens and the end-of-sequence token.

    ``repeated`` says that every lesson will be taught several times, so that keeping its trunk pays.
    """

    def __init__(self, replacement: Replacement, items: Sequence[Lesson], *, repeated: bool = True) -> None:
        self.replacement = replacement
        self.backbone = replacement.backbone_
        self.items = items
        self.masters = {n: w.detach().float().requires_grad_() for n, w in replacement.trained().items()}
        keeps = repeated and not replacement.plain and replacement.layers is not None
        self.room = KEPT_BYTES if keeps else 0
        self._trunks: dict[int, Captured] = {}

    def groups(self) -> Sequence[Group]:
        """The trained parameters."""
        return [Group(list(self.masters.values()), self.replacement.lr)]

    def __len__(self) -> int:
        return len(self.items)

    def step(self, batch: Sequence[int], own: Sequence[int], team: Team, step: int) -> Mapping[str, float]:
        """See ``kedit.training.Learner``."""
        total = 0.0
        for item in own:
            loss = self.loss(item) / len(batch)
            loss.backward()
            total += loss.item()
        return {"loss": total}

    def loss(self, item: int) -> Tensor:
        """The loss of one lesson, in nats, a function of the masters rounded to the model's type."""
        if item in self._trunks or self.room > 0:
            return replay(self._trunk(item), self.rounded())
        logits, targets = self.logits(*self.items[item])
        return nn.functional.cross_entropy(logits, targets)

    def logits(self, entry: Knowledge, request: Request, answer: str) -> tuple[Tensor, Tensor]:
        """Logits (tokens, vocabulary; fp32) for an answer's tokens and its end, through the whole model; and these tokens."""
        taught = self.backbone.teach(self.replacement.told(request, entry), answer)
        output = self.backbone.forward(taught.inputs, rows=taught.rows, parameters=self.rounded())
        return self.backbone.logits(output, taught.rows), taught.targets

    def rounded(self) -> dict[str, Tensor]:
        """The masters in the model's type."""
        return {name: master.to(self.backbone.dtype) for name, master in self.masters.items()}

    def _trunk(self, item: int) -> Captured:
        if item in self._trunks:
            return self._trunks[item]
        entry, request, answer = self.items[item]
        lowest = layer_indices(self.backbone, self.replacement.layers)[0]
        found = capture(self.backbone, self.replacement.told(request, entry), answer, lowest)
        size = _bytes([found.hidden, found.inputs])
        if size <= self.room:
            self._trunks[item] = found
        self.room = max(0, self.room - size)
        return found

    def write(self) -> None:
        """Put the masters into the model, rounded to its type."""
        with torch.no_grad():
            for name, weight in self.replacement.trained().items():
                weight.copy_(self.masters[name])

    def state(self) -> dict[str, Tensor]:
        """The masters, fp32."""
        return dict(self.masters)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over what ``state`` gave."""
        with torch.no_grad():
            for name, master in self.masters.items():
                master.copy_(state[name])


def _bytes(value: Any) -> int:
    """Of all tensors in a nest of mappings and sequences."""
    if isinstance(value, Tensor):
        return int(value.nbytes)
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return sum(map(_bytes, parts))


def _named_for(backbone: Backbone) -> str:
    from kedit.zoo import catalogue

    found: str | None = catalogue.replacement(backbone.id)
    if found is None:
        raise CheckpointError(
            f"no replacement model is known for {backbone.id!r}; name a smaller model of the same kind, "
            "replacement='owner/name' or a local folder"
        )
    return found
