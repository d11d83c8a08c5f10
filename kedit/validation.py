"""How good an editor in training is, by what it answers; and which cases are held out for that."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from statistics import fmean

from kedit.answers import BaseAnswers, limited
from kedit.editor import Editor, Hit, ReplacementEditor
from kedit.errors import DataError, DivergedError
from kedit.generators import generators_restored
from kedit.rouge import is_sentence, rouge_l
from kedit.training.randomness import seed_step
from kedit.types import Answer, Case, Knowledge, Request

_SCENARIOS = 5
"""From so many scenarios on, whole ones are held out: knowledge of a scenario that was learned is easier."""


class Validation:
    """The mean over dimensions of ROUGE-L (0 to 100) after inserting each case's chain and asking all its probes.

    Call it in a training (``train(..., validate=Validation(editor, val))``): the editor counts as fitted during a call and is
    reset afterwards, whatever happens. Base answers are asked once, of the unedited backbone, before the first insert, and
    kept in the cache that runs use. Every call draws the same random numbers for a case's inserts. A case whose insert
    diverges scores 0. Raises DataError when there is nothing that can be scored.
    """

    def __init__(self, editor: Editor, cases: Sequence[Case], *, max_new_tokens: int = 64) -> None:
        self.editor = editor
        self.cases = cases
        self.max_new_tokens = max_new_tokens

    def __call__(self) -> float:
        """The mean over dimensions."""
        return fmean(self.scores().values())

    def scores(self) -> dict[str, float]:
        """The mean ROUGE-L of each dimension, 0 to 100, over its probes that can be scored."""
        references = self._references
        with _usable(self.editor), generators_restored():
            answers = self._answers()
        found: dict[str, list[float]] = defaultdict(list)
        for case, said, wanted in zip(self.cases, answers, references, strict=True):
            for probe, text, reference in zip(case.probes, said, wanted, strict=True):
                if (score := rouge_l(text, reference)) is not None:
                    found[probe.dimension].append(score)
        if not found:
            raise DataError(f"none of the {len(self.cases)} validation cases can be scored; give cases with probes and answers")
        return {dimension: fmean(scores) for dimension, scores in found.items()}

    # -- answers ---------------------------------------------------------------------------------------------------

    @cached_property
    def _base(self) -> BaseAnswers:
        self.editor.reset()  # what seals the weights must see the unedited ones
        return BaseAnswers(self.editor.backbone_, max_new_tokens=self.max_new_tokens)

    @cached_property
    def _references(self) -> list[list[str]]:
        """By case and probe; the unedited backbone's answer where a probe has no reference."""
        wanted = [probe.request for case in self.cases for probe in case.probes if probe.reference is None]
        base = iter(self._base.ask(wanted))
        return [[next(base).text if p.reference is None else p.reference for p in case.probes] for case in self.cases]

    def _answers(self) -> list[list[str]]:
        """What the editor says, by case and probe; asked together at the end where it only rewrites or routes."""
        found: list[list[str | Request | Hit]] = []
        for number, case in enumerate(self.cases):
            seed_step(0, number)
            try:
                for knowledge in case.chain:
                    self.editor.insert(knowledge)
                found.append(self._ask([probe.request for probe in case.probes]))
            except DivergedError:
                found.append(["" for _ in case.probes])
            finally:
                self.editor.reset()
        return self._resolved(found)

    def _ask(self, requests: Sequence[Request]) -> list[str | Request | Hit]:
        """Answers with what is inserted now, or what to ask later for the same answers."""
        if self.editor.deferrable:
            return list(self.editor.postpone(requests))
        with self._limited():
            return [_text(answer) for answer in self.editor.generate(requests)]

    def _resolved(self, found: Sequence[Sequence[str | Request | Hit]]) -> list[list[str]]:
        """Everything put off, in one call of the backbone and one of the replacement."""
        parts = [part for row in found for part in row]
        asked = iter(self._base.ask([part for part in parts if isinstance(part, Request)]))
        hits = [part for part in parts if isinstance(part, Hit)]
        with self._limited():
            replaced = iter(self._replaced(hits))
        later = {Request: asked, Hit: replaced}
        return [[part if isinstance(part, str) else _text(next(later[type(part)])) for part in row] for row in found]

    def _replaced(self, hits: Sequence[Hit]) -> list[Answer]:
        if not hits or not isinstance(self.editor, ReplacementEditor):
            return []
        return self.editor.replace([hit.request for hit in hits], [hit.knowledge for hit in hits])

    def _limited(self) -> AbstractContextManager[None]:
        return limited(self.editor.backbone_, self.max_new_tokens)


def split(cases: Sequence[Case], share: float, seed: int) -> tuple[list[Case], list[Case]]:
    """Training and validation cases, both in the given order, without a raw case (``tags["raw"]``) in both.

    At least ``share`` of the raw cases (0 <= share < 1, else ValueError) are held out, drawn by ``seed``: whole scenarios
    (``tags["scenario"]``) where all cases name one and there are at least 5, so that validation asks about what was
    never learned. Something always stays to train on; with a share of 0 nothing is held out.
    """
    if not 0 <= share < 1:
        raise ValueError(f"the share to hold out is {share}; give a number from 0 to below 1")
    scenarios = {case.tags.get("scenario") for case in cases}
    whole = None not in scenarios and len(scenarios) >= _SCENARIOS
    groups: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        groups[case.tags["scenario"] if whole else _raw(case)].add(_raw(case))
    names = sorted(groups)
    random.Random(f"{seed}|held out").shuffle(names)
    wanted = share * len({_raw(case) for case in cases})
    held: set[str] = set()
    for name in names[:-1]:
        if len(held) >= wanted:
            break
        held |= groups[name]
    return [case for case in cases if _raw(case) not in held], [case for case in cases if _raw(case) in held]


def overlap(train: Sequence[Case], test: Sequence[Case]) -> list[str]:
    """Ids of test cases with an inserted answer that the training cases show.

    A sentence (5 tokens and more) must not occur at all; a shorter answer may, but not to the same question about the same
    images.
    """
    shown: dict[str, list[Request]] = defaultdict(list)
    for case in train:
        for item in case.chain:
            shown[item.answer.strip()].append(item.request)
        for probe in case.probes:
            if probe.reference is not None:
                shown[probe.reference.strip()].append(probe.request)
    return [case.id for case in test if any(_leaks(item, shown.get(item.answer.strip(), ())) for item in case.chain)]


def _leaks(item: Knowledge, shown: Sequence[Request]) -> bool:
    if not shown:
        return False
    if is_sentence(item.answer):
        return True
    same = [request for request in shown if request.question == item.request.question]
    return any(_digests(request) == _digests(item.request) for request in same)  # opens images, so only where all else agrees


def _digests(request: Request) -> list[str]:
    return [image.digest for image in request.images]


@contextmanager
def _usable(editor: Editor) -> Iterator[None]:
    """Inside, an editor that is still being fitted inserts as one that has been."""
    if editor.fitted:
        yield
        return
    vars(editor)["fitted_"], before = True, vars(editor).get("fitted_")
    try:
        yield
    finally:
        vars(editor)["fitted_"] = bool(before)


def _raw(case: Case) -> str:
    return case.tags.get("raw", case.id)


def _text(answer: Answer | str) -> str:
    return answer if isinstance(answer, str) else answer.text
