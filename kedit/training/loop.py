"""The training loop: steps of the optimiser, saved, resumed, validated, on one process or several."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from kedit.editor import Progress
from kedit.errors import ContractError, DataError
from kedit.generators import generators_restored
from kedit.locks import claim
from kedit.training.checkpoint import Best, Checkpoint, find, load_optimiser, optimiser_tensors, settle, snapshot, tidy
from kedit.training.contract import Learner, Team, Training
from kedit.training.journal import Journal
from kedit.training.randomness import permutation
from kedit.training.step import advance
from kedit.training.team import gather_team

FORMAT = 1
SCORE = "score"
"""Name of the validation's result among the values of a step."""


def train(
    learner: Learner,
    settings: Training,
    *,
    out: str | Path | None = None,
    validate: Callable[[], float] | None = None,
    progress: Progress | None = None,
    identity: Mapping[str, Any] | None = None,
) -> None:
    """Train a learner with AdamW, on all processes that ``accelerate launch`` started or on this one alone.

    ``out`` is a folder for the checkpoint and the logs; a training found there is continued from its checkpoint and ends
    as if it had never stopped, bit for bit in one process. ``validate`` gives a score, higher is better; the best state
    is kept and loaded at the end. ``identity`` (plain JSON) names what else decides the result, such as the data: a
    training with another one is not continued. The generators of Python, NumPy and torch are left as they were found.

    Raises DataError for a learner without items, StoreError where ``out`` holds a training with other settings or is in
    use, and DivergedError at a loss or gradient that is not finite: what was saved before stays.
    """
    if not len(learner):
        raise DataError("there is nothing to train on: the learner has no items; check the training cases")
    team = gather_team()
    folder = Path(out) if out is not None else None
    with contextlib.ExitStack() as stack:
        if folder is not None and team.rank == 0:
            stack.enter_context(_held(folder))
        stack.enter_context(generators_restored())
        run = _Run(learner, settings, folder, team, identity or {})
        stack.callback(run.close)
        run.go(validate, progress)


class _Run:
    """One training: what ``train`` keeps between steps."""

    def __init__(
        self, learner: Learner, settings: Training, folder: Path | None, team: Team, identity: Mapping[str, Any]
    ) -> None:
        self.learner, self.settings, self.folder, self.team = learner, settings, folder, team
        self.per_epoch = settings.steps_per_epoch(len(learner))
        self.total = settings.epochs * self.per_epoch
        decisive = {name: value for name, value in dataclasses.asdict(settings).items() if name != "save_every"}
        self.identity = {"format": FORMAT, "settings": decisive, "items": len(learner), "groups": _described(learner), **identity}
        found = find(folder, self.identity) if folder is not None else None
        self.step, self.best = (found.step, found.best) if found is not None else (0, None)
        if found is not None:
            learner.load_state(found.state)
        groups = [{"params": list(g.parameters), "lr": g.lr, "weight_decay": g.weight_decay} for g in learner.groups()]
        self.optimiser = torch.optim.AdamW(groups)
        if found is not None:
            load_optimiser(self.optimiser, found.optimiser)
        self.journal = Journal(folder, self.step) if folder is not None and team.rank == 0 else None
        team.sum([torch.zeros(1)])  # nobody writes before everybody has read

    def go(self, validate: Callable[[], float] | None, progress: Progress | None) -> None:
        """Take the steps that are left and end with the best state."""
        order: list[int] = []
        while self.step < self.total:
            epoch, at = divmod(self.step, self.per_epoch)
            if at == 0 or not order:
                order = permutation(len(self.learner), self.settings.seed, epoch)
            values = advance(self.learner, self.optimiser, self.settings, self.team, order, epoch, at)
            self.step += 1
            if validate is not None and self._due(self.settings.validate_every):
                values[SCORE] = self._score(validate())
            self._report(values, progress)
            if self._due(self.settings.save_every or self.per_epoch) or SCORE in values:
                self._save()
        if self.folder is not None and self.team.rank == 0:
            settle(self.folder)
        if self.best is not None:
            self.learner.load_state(self.best.state)

    def _due(self, every: int | None) -> bool:
        return self.step == self.total or (every is not None and self.step % every == 0)

    def _score(self, score: float) -> float:
        """The first process's score for all, so that all agree which state is the best, which is kept."""
        mine = torch.tensor([score if self.team.rank == 0 else 0.0], dtype=torch.float64)
        shared = float(self.team.sum([mine])[0])
        if math.isnan(shared):
            raise ContractError("validate() gave nan; it must give a number, higher is better: check the validation cases")
        if self.best is None or shared > self.best.score:
            self.best = Best(shared, self.step, snapshot(self.learner.state()))
        return shared

    def _report(self, values: Mapping[str, float], progress: Progress | None) -> None:
        if self.journal is not None:
            self.journal.write(self.step, values)
        if progress is not None and self.team.rank == 0:
            progress(self.step, self.total, values)

    def _save(self) -> None:
        if self.folder is None or self.team.rank != 0:
            return
        if self.journal is not None:
            self.journal.flush()
        state, moments = snapshot(self.learner.state()), optimiser_tensors(self.optimiser)
        Checkpoint(self.identity, self.step, state, moments, self.best).save(self.folder)

    def close(self) -> None:
        """Leave no gradient and no open file behind."""
        self.optimiser.zero_grad()
        if self.journal is not None:
            self.journal.close()


def _described(learner: Learner) -> dict[str, Any]:
    """The groups as a checkpoint's identity holds them."""
    return {
        str(number): {"lr": group.lr, "weight_decay": group.weight_decay, "numbers": sum(p.numel() for p in group.parameters)}
        for number, group in enumerate(learner.groups(), 1)
    }


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """The folder, made where it is missing and for this training alone."""
    lock = claim(folder, "training")
    try:
        tidy(folder)
        yield
    finally:
        lock.release()
