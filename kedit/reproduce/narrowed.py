"""A benchmark with only what a table needs of it: one task, some of its cases, every question in several wordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kedit.benchmark import Benchmark, Task
from kedit.errors import DataError
from kedit.types import Case

QUESTION = "{question}"
PROMPT = "prompt"
"""Tag of the wording of a question, by which measures over wordings are taken."""


@dataclass(frozen=True)
class Narrowed:
    """One task of a benchmark; what is left out or reworded is part of the revision.

    ``where`` keeps the cases whose tag has the value, all where the benchmark has none of these (``kept`` says which);
    ``prompts`` are wordings with ``{question}`` in them, in each of which every question is asked. ``hint`` says what to do
    where the benchmark has no such task. ``limit`` of ``cases`` counts raw cases, of those kept with ``where``.
    """

    source: Benchmark
    task: str
    where: tuple[str, str] | None = None
    prompts: tuple[str, ...] = ()
    hint: str = ""

    @property
    def name(self) -> str:
        return self.source.name

    @cached_property
    def revision(self) -> str:
        """The benchmark's, and how it was narrowed where that changes what is asked."""
        kept = f"+{'='.join(self.where)}" if self.where and self.kept else ""
        return self.source.revision + kept + (f"+{len(self.prompts)} wordings: {self.prompts}" if self.prompts else "")

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """The one task, which is now run without being asked for; raises DataError where the benchmark has no such task."""
        found = self.source.tasks
        if self.task not in found:
            there = f"{self.source.name} has no task {self.task!r}, only {', '.join(found) or 'none'}."
            raise DataError(" ".join(filter(None, (there, self.hint))))
        return {self.task: replace(found[self.task], on_request=False)}

    def check(self) -> None:
        """Raises DataError where the benchmark has no such task, or its files cannot be read."""
        _ = self.tasks

    @cached_property
    def _chosen(self) -> list[int]:
        """Places of the cases that ``where`` keeps."""
        if self.where is None:
            return []
        tag, value = self.where
        return [k for k, case in enumerate(self.source.cases(self.task)) if case.tags.get(tag) == value]

    @property
    def kept(self) -> bool:
        """Whether cases were left out by ``where``, which keeps all where none has its value."""
        return bool(self._chosen)

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """As the benchmark's."""
        if self.kept:
            every = self.source.cases(task)
            found: Sequence[Case] = [every[k] for k in self._chosen[:limit]]
        else:
            found = self.source.cases(task, limit=limit)
        return [self._worded(case) for case in found] if self.prompts else found

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """As the benchmark's."""
        return self.source.train(limit)

    def _worded(self, case: Case) -> Case:
        probes = [
            replace(
                probe,
                request=replace(probe.request, question=prompt.replace(QUESTION, probe.request.question)),
                tags={**probe.tags, PROMPT: str(number)},
            )
            for probe in case.probes
            for number, prompt in enumerate(self.prompts, 1)
        ]
        return replace(case, probes=tuple(probes))
