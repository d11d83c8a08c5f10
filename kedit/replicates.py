"""Which editors of which runs are the same thing but for a seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kedit.errors import unknown_name
from kedit.run import Run

SEED = "seed"


@dataclass(frozen=True)
class Member:
    """One editor of one run, with its own seed (None where it has none) and that of the run."""

    run: Run
    editor: str
    seeds: tuple[Any, Any]


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: an editor, with all the seeds that it was run with."""

    label: str
    members: tuple[Member, ...]

    @property
    def seeds(self) -> str:
        """The seeds in words."""
        own, run = (list(dict.fromkeys(m.seeds[k] for m in self.members)) for k in (0, 1))
        parts = [f"its seed {', '.join(map(str, own))}"] if len(own) > 1 else []
        parts += [f"the run's seed {', '.join(map(str, run))}"] if len(run) > 1 else []
        return " x ".join(parts)

    def by_seed(self) -> dict[str, Member]:
        """The members by what differs in their seeds, in order of it."""
        differs = [k for k in (0, 1) if len({m.seeds[k] for m in self.members}) > 1]
        found = {json.dumps([m.seeds[k] for k in differs], default=str): m for m in self.members}
        return dict(sorted(found.items()))

    @property
    def by_chance(self) -> bool:
        """Whether another seed could have given another result, as far as its run tells: it has one, or it learns."""
        declared = [m.run.config["identity"]["editors"][m.editor] for m in self.members]
        return any(SEED in row["params"] or "learned" in row for row in declared)


def arms(runs: Sequence[Run], editors: Collection[str] | None = None, *, pool: bool = True) -> list[Arm]:
    """The editors of runs, those that differ in nothing but a seed together.

    They are of one class with equal parameters but ``seed``, on the same backbone, benchmark, revision, limit and decoding;
    what they learned may differ. Two that have the same seeds as well are no replicates and stay apart. ``editors`` picks by
    name: all seeds by an arm's label alone, else those that are named; UnknownNameError for a name that there is not. An
    editor's name gets that of the run's folder where several arms would be called the same.
    """
    groups: dict[str, list[Member]] = {}
    for run in runs:
        for editor in run.editors:
            member = Member(run, editor, _seeds(run, editor))
            groups.setdefault(_but_seed(run, editor), []).append(member)
    parts = [part for group in groups.values() for part in (_pools(group) if pool else [[m] for m in group])]
    found = _labelled(parts)
    known = {name for arm in found for name in (arm.label, *(m.editor for m in arm.members))}
    for name in editors or ():
        if name not in known:
            raise unknown_name("editor of these runs", name, known)
    return [kept for arm in found if (kept := _picked(arm, editors)) is not None]


def _picked(arm: Arm, editors: Collection[str] | None) -> Arm | None:
    if not editors:
        return arm
    named = [m for m in arm.members if m.editor in editors]
    if arm.label in editors and len({m.editor for m in named}) <= 1:
        return arm
    return replace(arm, members=tuple(named)) if named else None


def _pools(group: list[Member]) -> list[list[Member]]:
    """All of a group, or each alone where two have the same seeds."""
    counted = Counter(m.seeds for m in group)
    return [group] if max(counted.values()) == 1 else [[m] for m in group]


def _seeds(run: Run, editor: str) -> tuple[Any, Any]:
    identity = run.config["identity"]
    return identity["editors"][editor]["params"].get(SEED), identity[SEED]


def _but_seed(run: Run, editor: str) -> str:
    identity = run.config["identity"]
    row = identity["editors"][editor]
    own = {key: value for key, value in row.items() if key not in ("params", "learned")}
    params = {key: value for key, value in row["params"].items() if key != SEED}
    shared = {key: value for key, value in identity.items() if key not in ("editors", "tasks", SEED)}
    return json.dumps([own, params, shared], sort_keys=True, ensure_ascii=False)


def _labelled(parts: Sequence[list[Member]]) -> list[Arm]:
    names = Counter(part[0].editor for part in parts)
    folders = _folders([part[0].run for part in parts])
    labels = [
        part[0].editor if names[part[0].editor] == 1 else f"{part[0].editor} ({folder})"
        for part, folder in zip(parts, folders, strict=True)
    ]
    return [Arm(label, tuple(part)) for label, part in zip(labels, parts, strict=True)]


def _folders(runs: Sequence[Run]) -> list[str]:
    """The last part of each run's path; the whole path where two of them end alike."""
    paths = {run.path.resolve() for run in runs}
    alike = Counter(path.name for path in paths)
    return [run.path.name if alike[run.path.resolve().name] == 1 else str(run.path) for run in runs]
