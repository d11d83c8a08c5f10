"""In-context knowledge editing: demonstrations of how new facts are used, then the new facts, then the question."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from kedit.answers import ask_together
from kedit.artefacts import load_knowledge, load_tensors, read_json, save_knowledge, save_tensors, write_json
from kedit.editor import ContextEditor, Progress
from kedit.encoders import MINILM, TextEncoder, text_encoder, unit
from kedit.errors import DataError
from kedit.routers.recent import Recent
from kedit.types import Case, ImageRef, Knowledge, Request
from kedit.wording import demonstration, with_facts

log = logging.getLogger(__name__)
Part: TypeAlias = str | ImageRef
COPY, UPDATE, RETAIN = "copy", "update", "retain"
_KINDS = (COPY, UPDATE, RETAIN)
_REMEMBERED, _WRITTEN = 8192, 256
"""Requests of which is known what they saw, and contexts that are kept for requests which see the same."""
_KEPT_TOKENS = 64
"""New tokens of a kept answer, whatever limit a run has: a demonstration must not depend on who looks at it."""


@dataclass(frozen=True)
class Example:
    """One possible demonstration: a fact, another question that it answers, and a question that it leaves alone."""

    fact: Knowledge
    update: Knowledge | None = None
    retain: Request | None = None


class Pool(NamedTuple):
    """The examples that ``fit`` found, and the unit vectors of their facts, (examples, width), fp32."""

    examples: tuple[Example, ...]
    vectors: NDArray[np.float32]


class IKE(ContextEditor):
    """Puts demonstrations and the inserted facts before every question (Zheng et al. 2023; MiniLM and 16 as CrossCult-KIBench).

    ``fit`` collects the training cases. An insert encodes "question answer" once and takes the ``demos`` facts nearest by
    cosine. Each shows one of three things: that the fact's own question gets the new answer (copy), that another question
    about it does (update), or that a question elsewhere is answered as ever (retain), by the unedited backbone itself. How
    many of each follows ``kinds``; which goes to which rank is shuffled by ``seed`` once, the same for every edit. An example
    that lacks the question for its kind shows a copy, as does one whose question cannot be asked (its image is missing; logged).
    The nearest stands last; then a copy of each edit itself
    (``copy_edit``), oldest first; then all inserted facts, oldest first. Demonstrations are those of the newest edit.

    More than ``facts`` edits (None: however many) would not fit into a prompt. A request then sees the ``facts`` of them that
    are nearest to its question by the encoder, the nearest last, each with its copy, and the demonstrations of the nearest.

    ``encoder`` is "minilm", a sentence-transformers name or path, or a ``TextEncoder``. ``pool`` caps how many training
    cases, the first ones, demonstrations are drawn from (None: all; one core encodes about 3,000 a minute). With
    ``demo_images`` the images of a demonstration precede its text. With ``demos=0`` nothing needs fitting. There is no
    gate: once something is inserted, every request sees it, in scope or not, so that locality is the backbone's to keep.
    """

    needs_fit: ClassVar[bool] = True
    needs_cases: ClassVar[bool] = False
    pool_: Pool

    def __init__(
        self,
        *,
        demos: int = 16,
        encoder: str | TextEncoder = MINILM,
        kinds: tuple[int, int, int] = (4, 12, 16),
        copy_edit: bool = True,
        demo_images: bool = False,
        pool: int | None = 1000,
        facts: int | None = 16,
        seed: int = 0,
    ) -> None:
        self.demos = demos
        self.encoder = encoder
        self.kinds = kinds
        self.copy_edit = copy_edit
        self.demo_images = demo_images
        self.pool = pool
        self.facts = facts
        self.seed = seed

    def build(self) -> None:
        if self.facts is not None and self.facts < 1:
            raise DataError(f"facts={self.facts}: a request sees at least one fact; give 1 or more, or None for all")
        self.nearest_: dict[str, list[int]] = {}
        self.vectors_: dict[str, NDArray[np.float32]] = {}  # by edit id: made at once where demonstrations are looked for
        self.kept_: dict[str, str] = {}  # request key -> the unedited backbone's answer
        self.written_: Recent[tuple[str, ...], tuple[Part, ...]] = Recent(_WRITTEN)
        self.shown_: Recent[Request, tuple[str, ...]] = Recent(_REMEMBERED)

    @property
    def fitted(self) -> bool:
        return self.demos == 0 or super().fitted

    def fit(
        self,
        cases: Sequence[Case],
        *,
        val: Sequence[Case] | None = None,
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Collect and encode the facts of training cases, nothing else; ``pool_`` may be smaller than ``demos``, or empty."""
        used = islice(cases, self.pool)
        examples = tuple(dict.fromkeys(example for case in used for example in _examples(case)))
        if not examples and self.demos:
            log.warning("there is no training case to demonstrate with: none of %d demonstrations will be shown", self.demos)
        self.pool_ = Pool(examples, self._encode([example.fact for example in examples]))
        self.fitted_ = True
        return self

    # -- inserting and asking --------------------------------------------------------------------------------------

    def apply(self, edit_id: str, knowledge: Knowledge) -> None:
        vector = self._vector(knowledge) if self.demos and self.pool_.examples else None
        self.nearest_[edit_id] = [] if vector is None else self._nearest(vector)
        if vector is not None:
            self.vectors_[edit_id] = vector
        self._changed()

    def unapply(self, edit_id: str) -> None:
        del self.nearest_[edit_id]
        self.vectors_.pop(edit_id, None)
        self._changed()

    def revert(self) -> None:
        self.nearest_.clear()
        self.vectors_.clear()
        self._changed()

    def _changed(self) -> None:
        self.written_.clear()
        self.shown_.clear()

    def rewrite(self, request: Request) -> Request:
        return self.rewrite_all([request])[0]

    def rewrite_all(self, requests: Sequence[Request]) -> list[Request]:
        if not self.edits_ or not requests:
            return list(requests)
        chosen = self._chosen(requests)
        self.shown_.keep(zip(requests, chosen, strict=True))
        contexts = self._contexts(chosen)
        return [replace(r, context=contexts[ids] + r.context) for r, ids in zip(requests, chosen, strict=True)]

    def trace(self, requests: Sequence[Request]) -> list[Mapping[str, str | float]]:
        """What every request was shown: the last of its facts, how many facts, and how many demonstrations of the last."""
        if not self.edits_:
            return super().trace(requests)
        return [self._told(ids) if (ids := self.shown_.get(request)) else {} for request in requests]

    def _told(self, ids: Sequence[str]) -> Mapping[str, str | float]:
        title = self.edits_[ids[-1]].title
        counts = {"facts": len(ids), "demonstrations": len(self.nearest_[ids[-1]])}
        return {"entry": ids[-1], **({"title": title} if title else {}), **counts}

    def _chosen(self, requests: Sequence[Request]) -> list[tuple[str, ...]]:
        """Ids of the edits that each request sees, in the order in which it sees them."""
        every = tuple(self.edits_)
        if self.facts is None or len(every) <= self.facts:
            return [every] * len(requests)
        for edit_id in every:
            if edit_id not in self.vectors_:
                self.vectors_[edit_id] = self._vector(self.edits_[edit_id])
        questions = list(dict.fromkeys(request.question for request in requests))
        vectors = np.stack([self.vectors_[edit_id] for edit_id in every])  # (edits, width)
        near = unit(text_encoder(self.encoder)(questions)) @ vectors.T
        # Of equally near ones the newest counts as nearer: it may be a correction.
        rows = np.argsort(near, axis=1, kind="stable")[:, -self.facts :]
        shown = {question: tuple(every[at] for at in row) for question, row in zip(questions, rows, strict=True)}
        return [shown[request.question] for request in requests]

    def _contexts(self, chosen: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], tuple[Part, ...]]:
        """By the edits that are shown: everything before the question; written once per state of the edits."""
        wanted = list(dict.fromkeys(chosen))
        found = {ids: self.written_[ids] for ids in wanted if ids in self.written_}
        ranked = {ids: self._ranked(self.nearest_[ids[-1]]) for ids in wanted if ids not in found}
        self._keep(e.retain for several in ranked.values() for e, kind in several if kind == RETAIN and e.retain is not None)
        new = {ids: self._write([self.edits_[one] for one in ids], several) for ids, several in ranked.items()}
        self.written_.keep(new.items())
        return found | new

    def _write(self, facts: Sequence[Knowledge], ranked: Sequence[tuple[Example, str]]) -> tuple[Part, ...]:
        shown = [self._show(example, kind) for example, kind in reversed(ranked)]
        if self.copy_edit:
            shown += [_Shown(fact, fact.request, fact.answer) for fact in facts]
        parts: list[Part] = []
        for one in shown:
            parts += [*(one.images() if self.demo_images else ()), one.text()]
        parts.append(with_facts((fact.request.question, fact.answer) for fact in facts))
        return _joined(parts)

    def _ranked(self, nearest: Sequence[int]) -> list[tuple[Example, str]]:
        """Examples and what each demonstrates, the nearest first."""
        return [(self.pool_.examples[index], kind) for index, kind in zip(nearest, self._assigned(), strict=False)]

    def _show(self, example: Example, kind: str) -> _Shown:
        fact = example.fact
        if kind == UPDATE and example.update is not None:
            return _Shown(fact, example.update.request, example.update.answer)
        if kind == RETAIN and example.retain is not None and (key := _key(example.retain)) in self.kept_:
            return _Shown(fact, example.retain, self.kept_[key])
        return _Shown(fact, fact.request, fact.answer)

    def _assigned(self) -> list[str]:
        """Which kind each rank shows, the nearest first."""
        kinds = [kind for kind, count in zip(_KINDS, shares(self.demos, self.kinds), strict=True) for _ in range(count)]
        random.Random(self.seed).shuffle(kinds)
        return kinds

    def _keep(self, requests: Iterable[Request]) -> None:
        """Ask the backbone, which this editor never edits, what it says to requests not asked before."""
        new = {key: request for request in requests if (key := _key(request)) not in self.kept_}
        found = ask_together(self.backbone_, list(new.values()), _KEPT_TOKENS) if new else []
        for (key, request), asked in zip(new.items(), found, strict=True):
            if asked.answer is not None:
                self.kept_[key] = asked.answer.text
            else:
                log.warning("a demonstration shows a copy, for %r could not be asked: %s", request.question[:60], asked.error)

    # -- the pool --------------------------------------------------------------------------------------------------

    def _encode(self, facts: Sequence[Knowledge]) -> NDArray[np.float32]:
        texts = [f"{fact.request.question} {fact.answer}" for fact in facts]
        return unit(text_encoder(self.encoder)(texts)) if texts else np.zeros((0, 0), np.float32)

    def _vector(self, knowledge: Knowledge) -> NDArray[np.float32]:
        """Unit vector of a fact, (width,)."""
        found: NDArray[np.float32] = self._encode([knowledge])[0]
        return found

    def _nearest(self, vector: NDArray[np.float32]) -> list[int]:
        """Indices into the pool, nearest first; of equally near ones the first in the pool."""
        near = self.pool_.vectors @ vector
        return [int(index) for index in np.argsort(-near, kind="stable")[: self.demos]]

    def save(self, path: str | Path) -> None:
        """Parameters and pool; answers of the backbone are not saved, since another backbone has others."""
        super().save(path)
        if not hasattr(self, "pool_"):
            return
        root, examples = Path(path), self.pool_.examples
        rows: dict[str, list[Knowledge]] = {kind: [] for kind in _KINDS}
        places = []
        for example in examples:
            kept = Knowledge(example.retain, "") if example.retain is not None else None
            of_kind = {COPY: example.fact, UPDATE: example.update, RETAIN: kept}
            places.append({kind: len(rows[kind]) if item is not None else None for kind, item in of_kind.items()})
            for kind, item in of_kind.items():
                rows[kind] += [item] if item is not None else []
        for kind, items in rows.items():
            save_knowledge(root / kind, items)
        save_tensors(root / "vectors.safetensors", {"vectors": torch.from_numpy(self.pool_.vectors)})
        write_json(root / "pool.json", places)

    def load(self, path: str | Path) -> Self:
        """Read what ``save`` wrote and return self; raises DataError for a missing, broken or foreign file."""
        super().load(path)
        root = Path(path)
        if self.demos == 0 and not (root / "pool.json").exists():
            return self
        rows = {kind: load_knowledge(root / kind) for kind in _KINDS}
        vectors = load_tensors(root / "vectors.safetensors").get("vectors")
        try:
            examples = tuple(_example(place, rows) for place in read_json(root / "pool.json"))
        except (LookupError, TypeError, AttributeError) as error:
            raise DataError(f"{root / 'pool.json'} does not fit the examples beside it: {error}") from error
        if vectors is None or len(vectors) != len(examples):
            raise DataError(f"{root / 'vectors.safetensors'} does not hold one vector for each of {len(examples)} examples")
        stored = self._own_artefact(root / "editor.json").get("params", {}).get("encoder")
        if isinstance(self.encoder, str) and stored != self.encoder:
            raise DataError(f"{path} was encoded by {stored!r}, not by {self.encoder!r}; load it with that encoder, or fit again")
        self.pool_ = Pool(examples, vectors.numpy())
        self.fitted_ = True
        return self


def _key(request: Request) -> str:
    """The request's key, "" where an image of it cannot be read."""
    try:
        key: str = request.key
    except (OSError, ValueError):
        return ""
    return key


class _Shown(NamedTuple):
    """One demonstration: a fact, a question asked in the light of it, and what was said."""

    fact: Knowledge
    asked: Request
    said: str

    def text(self) -> str:
        return demonstration(self.fact.request.question, self.fact.answer, self.asked.question, self.said)

    def images(self) -> list[ImageRef]:
        """The fact's, then those that only the question has."""
        return list({image.digest: image for image in (*self.fact.request.images, *self.asked.images)}.values())


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` in proportion to ``weights``, by largest remainder; of equal remainders the first is served first."""
    whole = sum(weights)
    if total < 0 or whole <= 0 or min(weights) < 0:
        raise ValueError(
            f"cannot share {total} demonstrations by {tuple(weights)}; expected 0 or more, and weights that are not all 0"
        )
    found = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda at: -(total * weights[at] % whole))
    for at in order[: total - sum(found)]:
        found[at] += 1
    return found


def _examples(case: Case) -> Iterable[Example]:
    """One example per item of the chain; probes with an answer of their own update it, those without leave it alone."""
    for step, fact in enumerate(case.chain, 1):
        probes = [probe for probe in case.probes if probe.step == step]
        update = next((p for p in probes if p.reference is not None and p.request != fact.request), None)
        retain = [probe.request for probe in probes if probe.reference is None]
        yield Example(
            fact,
            Knowledge(update.request, update.reference) if update is not None and update.reference is not None else None,
            _pick(retain, fact),
        )


def _pick(requests: Sequence[Request], fact: Knowledge) -> Request | None:
    """One of several, decided by the fact's words, so that all sorts occur and none depends on the order of cases."""
    words = f"{fact.request.question}\x1f{fact.answer}".encode("utf-8", "surrogatepass")
    return requests[int(hashlib.sha256(words).hexdigest()[:8], 16) % len(requests)] if requests else None


def _example(place: dict[str, int | None], rows: dict[str, list[Knowledge]]) -> Example:
    found = {kind: rows[kind][at] if at is not None else None for kind, at in place.items()}
    fact, kept = found[COPY], found[RETAIN]
    if fact is None:
        raise TypeError("an example without a fact")
    return Example(fact, found[UPDATE], kept.request if kept is not None else None)


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Texts that follow each other made one."""
    found: list[Part] = []
    for part in parts:
        if found and isinstance(part, str) and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return tuple(found)
