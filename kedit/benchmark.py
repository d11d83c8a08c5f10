"""What a benchmark is to the rest of kedit: named tasks, each with a protocol and dimensions, and the cases to run them on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol as Structural
from typing import runtime_checkable

from kedit.protocols import Protocol
from kedit.types import Case

GROUPS = {"topic_group": "topic group", "partition": "partition"}
"""Tags that results are broken down by where a task names no others."""


@dataclass(frozen=True)
class Dimension:
    """One thing that a task measures.

    ``name`` is what a probe's ``dimension`` holds, ``label`` what a table's heading shows. ``locality`` is true where the
    edit should change nothing: the joint outcome of a case counts it as local rather than general. ``scoring`` names how its
    answers are scored (see ``kedit.scoring``).
    """

    name: str
    label: str
    locality: bool = False
    scoring: str = "rouge"


@dataclass(frozen=True)
class Task:
    """A part of a benchmark: how its cases become inserts and questions, and which dimensions they are scored on.

    ``headline`` is the one number that stands for the task beside other benchmarks: "overall" or the name of a measure.
    ``groups`` maps the tags that tables are broken down by to what a heading calls them. A task ``on_request`` is run only
    where it is named: one that takes long.
    """

    name: str
    protocol: Protocol
    dimensions: tuple[Dimension, ...]
    headline: str = "overall"
    groups: Mapping[str, str] = field(default_factory=lambda: dict(GROUPS))
    on_request: bool = False

    def dimension(self, name: str) -> Dimension:
        """The dimension of that name; raises KeyError for a name the task does not have."""
        for found in self.dimensions:
            if found.name == name:
                return found
        raise KeyError(f"task {self.name!r} has no dimension {name!r}; it has {', '.join(d.name for d in self.dimensions)}")


@runtime_checkable
class Benchmark(Structural):
    """Cases to evaluate editors on; any object with these attributes and methods is one.

    ``name`` and ``revision`` (a hash over the content that cases are made of) go into ``run.json``: a run resumes only on
    the same revision. ``tasks`` maps a task's name to the task, in the order of the report.
    """

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def tasks(self) -> Mapping[str, Task]: ...

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """The test cases of a task, in a fixed order; raises UnknownNameError for an unknown task.

        ``limit`` counts raw cases of the data set, each of which may give several cases. Ids are unique within a task.
        ``tags`` hold at least ``raw`` (the raw case's id) and, where they apply, ``scenario``, ``topic_group``,
        ``partition`` and ``order`` (such as ``"en-zh-ar"``).
        """
        ...

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """Cases of the train split, for editors that fit; empty where the benchmark has none."""
        ...
