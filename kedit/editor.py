"""The Editor contract and its three bases: edit weights, edit the prompt, or answer with another model.

An editor lives through ``attach -> [fit] -> insert* -> generate* -> reset`` and leaves the backbone as it found it.
``kedit.testing.check_editor`` runs every promise written here.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

from kedit.artefacts import (
    folder_digest,
    load_knowledge,
    load_tensors,
    read_digests,
    read_object,
    save_knowledge,
    save_tensors,
    write_json,
)
from kedit.errors import ContractError, DataError, NotAttachedError, NotFittedError, NotRemovableError
from kedit.forcing import Forced, forced_by
from kedit.parameters import Parameters, plain
from kedit.trunk import Snapshot, tensor_digest
from kedit.types import Answer, Case, Knowledge, Request

if TYPE_CHECKING:
    from torch import Tensor

    from kedit.backbone import Backbone

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Progress = Callable[[int, int, Mapping[str, float]], None]
"""Called in a training after every step: steps done, steps in all, logged values."""


TRAIN_SPLIT = "train split"
"""``Editor.learned`` of an editor that a run fits on the benchmark's train split."""


class Hit(NamedTuple):
    """A request that a replacement answers, given the knowledge that concerns it."""

    request: Request
    knowledge: Knowledge


class Editor(Parameters, ABC):
    """A way to insert knowledge into a model.

    A subclass has a constructor with keyword-only arguments that it stores under their own names and nothing else, and
    implements ``generate``. What ``attach`` or ``fit`` build ends in an underscore.
    """

    needs_fit: ClassVar[bool] = False
    """The editor learns from cases and refuses to insert before ``fit`` or ``load``."""
    needs_cases: ClassVar[bool] = True
    """An editor that learns cannot do without cases, so that it does not run where a benchmark has none to learn from."""
    does_nothing: ClassVar[bool] = False
    """The editor is the unedited backbone: the row that others are compared with."""

    backbone_: Backbone
    edits_: dict[str, Knowledge]
    learned_: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "fit" in vars(cls):
            setattr(cls, "fit", _forgetting(cls.fit))  # noqa: B010 (mypy: a method)

    @property
    def name(self) -> str:
        """The short name used in tables and file names: the class name in lower case."""
        return re.sub(r"\W+", "-", type(self).__name__).lower()

    # -- life ------------------------------------------------------------------------------------------------------

    def attach(self, backbone: Backbone) -> Self:
        """Give the editor the model to edit and build what it needs; returns self."""
        if getattr(self, "edits_", None):
            self.reset()
        self.backbone_ = backbone
        self.edits_ = {}
        self._serial = 0
        self.build()
        if not self.fitted:
            vars(self).pop("learned_", None)
        return self

    def build(self) -> None:
        """Hook: make the parts that depend on the backbone (names end in an underscore)."""

    @property
    def fitted(self) -> bool:
        """Whether the editor can insert: it does not learn, or ``fit`` or ``load`` was called (which set ``fitted_``)."""
        return not self.needs_fit or getattr(self, "fitted_", False)

    @property
    def deferrable(self) -> bool:
        """Whether the runner may put off this editor's questions and ask those of many cases together.

        True where ``generate`` does no more than what ``rewrite_all``, or ``route`` and ``replace``, say. An editor that
        overrides ``generate`` with a faster way to the same answers sets ``deferrable = True`` itself.
        """
        return False

    def postpone(self, requests: Sequence[Request]) -> list[Request | Hit]:
        """What to ask later for each request, by what is inserted now, where the editor is ``deferrable``.

        A request is for the unedited backbone, a ``Hit`` for the replacement. Raises ContractError for an editor that neither
        rewrites nor routes, and where ``rewrite_all`` or ``route`` give what they must not.
        """
        raise ContractError(f"{self.name}: deferrable is True for an editor that neither rewrites nor routes; leave it False")

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from training cases and return self; the backbone stays unchanged. Does nothing for editors that do not learn.

        ``val`` are cases that are not learned from: the best state by what is generated for them is kept, and thresholds are
        calibrated on them. ``out`` is a folder for checkpoints and logs; a training that it holds is resumed. An editor of
        your own may leave out what it does not use: ``def fit(self, cases)`` is enough.
        """
        return self

    def notes(self) -> Mapping[str, str | int | float]:
        """Hook: what a reader of results should know of the work since ``attach``, such as a share of truncated texts."""
        return {}

    @property
    def content(self) -> str:
        """Hook: a digest of what the files hold that parameters name, "" for none; a run is resumed only where it is the same.

        Asked before ``attach``.
        """
        return ""

    def trace(self, requests: Sequence[Request]) -> list[Mapping[str, str | float]]:
        """Hook: what was done with each request when it was asked last, for whoever reads the records.

        The words are free; ``entry`` is the edit id of the knowledge that was used, ``title`` its title, ``similarity`` what
        was compared with ``threshold``. Called right after ``generate`` or ``postpone`` got the same requests; asks no model.
        """
        return [{}] * len(requests)

    def forced(self, requests: Sequence[Request], answers: Sequence[str], k: int = 1) -> list[Forced | None]:
        """Hook: what the edited model predicts while each answer is fed to it, for older metrics; None where it cannot tell.

        The three bases can, for editors that answer as their base does and on a backbone whose logits can be read.
        """
        return [None] * len(requests)

    def insert(self, knowledge: Knowledge) -> str:
        """Insert one more item on top of those before it and return its edit id; on an error nothing has changed."""
        self._require_ready()
        edit_id = f"edit-{self._serial + 1}"
        self.apply(edit_id, knowledge)
        self._serial += 1
        self.edits_[edit_id] = knowledge
        return edit_id

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        """Hook: do the work of one insert; ``edits_`` receives the knowledge afterwards."""

    def remove(self, edit_id: str) -> None:
        """Take one edit back; raises KeyError for an unknown id and NotRemovableError where the method cannot."""
        self._require_attached()
        if edit_id not in self.edits_:
            raise KeyError(f"no edit {edit_id!r}; inserted are: {', '.join(self.edits_) or 'none'}")
        self.unapply(edit_id)
        del self.edits_[edit_id]

    def unapply(self, edit_id: str) -> None:
        """Hook: undo one insert; the default refuses."""
        raise NotRemovableError(f"{type(self).__name__} cannot take {edit_id!r} back alone; call reset() to undo all edits")

    @abstractmethod
    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        """Answers of the edited model, same length and order as ``requests``."""

    @contextmanager
    def unedited(self) -> Iterator[None]:
        """Inside the block the backbone itself is as before the first insert; afterwards as edited, bit for bit.

        Hook for an editor that changes the backbone otherwise than by ``deltas``; for one that leaves it alone nothing happens.
        """
        yield

    def reset(self) -> None:
        """Undo every insert and keep what ``fit`` learned; all weights are bit-identical to before the first insert."""
        self._require_attached()
        self.revert()
        self.edits_.clear()
        self._serial = 0

    def revert(self) -> None:
        """Hook: undo the effect of all inserts."""

    # -- artefacts -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write what ``fit`` learned to a folder; editors that do not learn write only their parameters."""
        write_json(Path(path) / "editor.json", {"editor": type(self).__name__, "params": plain(self.get_params())})

    def load(self, path: str | Path) -> Self:
        """Read what ``save`` wrote and return self; raises DataError for another editor's artefact."""
        self._own_artefact(Path(path) / "editor.json")
        self.learned_ = f"artefact {folder_digest(Path(path))}"
        return self

    @property
    def learned(self) -> str:
        """Where the learned state comes from, as a run's identity holds it.

        ``artefact <digest>`` of the folder that was loaded; "train split" where a run itself fits the editor; "by hand"
        where it was fitted otherwise, on what a run cannot know, whatever it had learned or loaded before.
        """
        return getattr(self, "learned_", None) or ("by hand" if self.fitted else TRAIN_SPLIT)

    def save_edits(self, path: str | Path) -> None:
        """Write what was inserted to a folder: ``edits.jsonl``, ``images/`` and ``editor.json``."""
        self._require_attached()
        Editor.save(self, path)
        save_knowledge(Path(path), list(self.edits_.values()))

    def load_edits(self, path: str | Path) -> None:
        """Insert again what ``save_edits`` wrote, on top of what is inserted now."""
        self._own_artefact(Path(path) / "editor.json")
        for knowledge in load_knowledge(Path(path)):
            self.insert(knowledge)

    # -- guards ----------------------------------------------------------------------------------------------------

    def _own_artefact(self, file: Path) -> dict[str, Any]:
        info = read_object(file)
        if info.get("editor") != type(self).__name__:
            raise DataError(f"{file} belongs to {info.get('editor')!r}, not to {type(self).__name__!r}; load it with that editor")
        return info

    def _each(self, found: Sequence[T], requests: Sequence[Request], what: str, kind: Any) -> Sequence[T]:
        """What a hook gave, if it is one of its kind for each request."""
        if len(found) != len(requests):
            raise ContractError(f"{self.name}: {what} gave {len(found)} results for {len(requests)} requests")
        for one in found:
            if not isinstance(one, kind):
                wanted = getattr(kind, "__name__", str(kind))
                raise ContractError(f"{self.name}: {what}() gave a {type(one).__name__}; give a {wanted}")
        return found

    def _require_attached(self) -> None:
        if not hasattr(self, "backbone_"):
            raise NotAttachedError(f"{type(self).__name__} has no backbone yet; call attach(backbone) first")

    def _require_ready(self) -> None:
        self._require_attached()
        if not self.fitted:
            raise NotFittedError(f"{type(self).__name__} learns before it inserts; call fit(cases) or load(path) first")


def _forgetting(fit: F) -> F:
    """``fit`` as it is, but for where the state before came from, which no longer says anything of the state after."""

    @functools.wraps(fit)
    def wrapped(self: Editor, *args: Any, **kwargs: Any) -> Any:
        vars(self).pop("learned_", None)
        return fit(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


class WeightEditor(Editor):
    """An editor that changes weights: the subclass computes deltas, this class applies, snapshots and restores them.

    Only touched weights are ever copied. ``removable=True``, where a subclass offers it as a parameter, keeps each edit's
    deltas in host memory so that one edit can be taken back out of several.
    """

    snapshot_: Snapshot
    deltas_: dict[str, dict[str, Tensor]]

    def attach(self, backbone: Backbone) -> Self:
        super().attach(backbone)
        self.snapshot_ = Snapshot(backbone.model)
        self.deltas_ = {}
        return self

    @abstractmethod
    def deltas(self, knowledge: Knowledge) -> Mapping[str, Tensor]:
        """What to add to which parameters (by name in ``backbone_.model``) so that the model knows ``knowledge``.

        Called on the model as edited so far; must leave its weights as they are.
        """

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        found = self.deltas(knowledge)
        kept = {name: delta.detach().cpu() for name, delta in found.items()} if getattr(self, "removable", False) else None
        self.snapshot_.add(found)  # last of what can fail
        if kept is not None:
            self.deltas_[edit_id] = kept

    def unapply(self, edit_id: str) -> None:
        """Back to the original weights, then every other edit's deltas again in order."""
        if lost := [edit for edit in self.edits_ if edit not in self.deltas_]:
            raise NotRemovableError(
                f"{type(self).__name__} has no deltas of {', '.join(lost)} to put back (construct it with removable=True; "
                "edits that were loaded have none of their own); call reset() to undo all edits"
            )
        self._put_back([found for other, found in self.deltas_.items() if other != edit_id])
        del self.deltas_[edit_id]

    def _put_back(self, changes: Iterable[Mapping[str, Tensor]]) -> None:
        """The original weights with these changes alone, added in order; all as it was after an error."""
        with self.snapshot_.kept_on_error():
            self.snapshot_.restore()
            for found in changes:
                self.snapshot_.add(found)

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        self._require_attached()
        return self.backbone_.generate(requests)

    def forced(self, requests: Sequence[Request], answers: Sequence[str], k: int = 1) -> list[Forced | None]:
        own = type(self).generate is WeightEditor.generate
        return forced_by(self.backbone_, requests, answers, k) if own else super().forced(requests, answers, k)

    @contextmanager
    def unedited(self) -> Iterator[None]:
        with self.snapshot_.suspended():
            yield

    def revert(self) -> None:
        self.snapshot_.restore()
        self.deltas_.clear()

    def save_edits(self, path: str | Path) -> None:
        """As for every editor, plus ``deltas.safetensors`` (edited minus original weights, fp32) and digests of the originals."""
        super().save_edits(path)
        save_tensors(Path(path) / "deltas.safetensors", self.snapshot_.difference())
        write_json(Path(path) / "base.json", {"backbone": self.backbone_.id, "digests": self.snapshot_.digests()})

    def load_edits(self, path: str | Path) -> None:
        """Add saved deltas to the weights; raises DataError, with nothing changed, when they were made for other weights."""
        self._require_attached()
        self._own_artefact(Path(path) / "editor.json")
        inserted = load_knowledge(Path(path))  # first: where it cannot be read, no weight must change
        weights = dict(self.backbone_.model.named_parameters())
        originals = self.snapshot_.digests()
        for name, digest in read_digests(Path(path) / "base.json").items():
            here = originals.get(name) or (tensor_digest(weights[name]) if name in weights else None)
            if here != digest:
                raise DataError(
                    f"{path}: deltas for {name!r} were made on other weights (digest {digest[:12]}, here {str(here)[:12]})"
                )
        self.snapshot_.add(load_tensors(Path(path) / "deltas.safetensors"))
        for knowledge in inserted:
            self._serial += 1
            self.edits_[f"edit-{self._serial}"] = knowledge


class ContextEditor(Editor):
    """An editor that leaves the model alone and rewrites the request.

    ``rewrite`` is a pure function of the request and of what was inserted; a request that the edits do not concern comes
    back unchanged (the same object), so that its answer is the unedited model's, exactly and for free.
    """

    @abstractmethod
    def rewrite(self, request: Request) -> Request:
        """The request as the unedited model is to see it."""

    def rewrite_all(self, requests: Sequence[Request]) -> list[Request]:
        """``rewrite`` of several; an editor that looks at requests in batches overrides this."""
        return [self.rewrite(request) for request in requests]

    @property
    def deferrable(self) -> bool:
        return type(self).generate is ContextEditor.generate

    def postpone(self, requests: Sequence[Request]) -> list[Request | Hit]:
        return list(self._each(self.rewrite_all(requests), requests, "rewrite", Request))

    def unapply(self, edit_id: str) -> None:
        """Nothing to undo: ``rewrite`` reads ``edits_``."""

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        self._require_attached()
        return self.backbone_.generate(self.rewrite_all(requests))

    def forced(self, requests: Sequence[Request], answers: Sequence[str], k: int = 1) -> list[Forced | None]:
        if not self.deferrable:
            return super().forced(requests, answers, k)
        return forced_by(self.backbone_, self.rewrite_all(requests), answers, k)


class ReplacementEditor(Editor):
    """An editor that sends requests in its scope to another model and the rest to the unedited backbone."""

    @abstractmethod
    def route(self, requests: Sequence[Request]) -> list[Knowledge | None]:
        """For each request the inserted knowledge that concerns it, or None for the unedited backbone."""

    @abstractmethod
    def replace(self, requests: Sequence[Request], knowledge: Sequence[Knowledge]) -> list[Answer]:
        """The replacement's answers, given the knowledge routed to each request; what is inserted now makes no difference."""

    @property
    def deferrable(self) -> bool:
        return type(self).generate is ReplacementEditor.generate

    def postpone(self, requests: Sequence[Request]) -> list[Request | Hit]:
        routed = self._each(self.route(requests), requests, "route", Knowledge | None)
        return [r if k is None else Hit(r, k) for r, k in zip(requests, routed, strict=True)]

    def unapply(self, edit_id: str) -> None:
        """Nothing to undo where ``route`` reads ``edits_``; a router with an index of its own overrides this."""

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        self._require_attached()
        routed = self.route(requests)
        base = iter(self.backbone_.generate([r for r, k in zip(requests, routed, strict=True) if k is None]))
        found = [(r, k) for r, k in zip(requests, routed, strict=True) if k is not None]
        answers = self.replace([r for r, _ in found], [k for _, k in found]) if found else []
        if len(answers) != len(found):
            raise ContractError(f"{type(self).__name__}.replace() gave {len(answers)} answers to {len(found)} requests")
        hits = iter(answers)
        return [next(base) if k is None else next(hits) for k in routed]

    def forced(self, requests: Sequence[Request], answers: Sequence[str], k: int = 1) -> list[Forced | None]:
        if not self.deferrable:
            return super().forced(requests, answers, k)
        asked = zip(self.postpone(requests), answers, strict=True)
        return [
            self.forced_hit(one, answer, k) if isinstance(one, Hit) else forced_by(self.backbone_, [one], [answer], k)[0]
            for one, answer in asked
        ]

    def forced_hit(self, hit: Hit, answer: str, k: int) -> Forced | None:
        """Hook: what the replacement predicts while the answer is fed to it; None where it cannot tell."""
        return None
