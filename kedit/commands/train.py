"""``kedit train``: fit an editor on a benchmark's train split, keep what it learned, and say how good it is."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit.artefacts import read_json, write_json
from kedit.commands import fitted
from kedit.commands.shared import bars
from kedit.config import difference, run_config
from kedit.editor import Editor, Progress
from kedit.errors import DataError, StoreError
from kedit.following import TrainingSteps, following
from kedit.generators import generators_restored
from kedit.training import gather_team
from kedit.training.checkpoint import LAST, read
from kedit.training.randomness import seed_step
from kedit.validation import Validation, overlap, split

if TYPE_CHECKING:
    from kedit.backbone import Backbone
    from kedit.benchmark import Benchmark
    from kedit.tracking import Tracker
    from kedit.types import Case

FACTS, TRAINING = "train.json", "training"


def make(spec: str, settings: Sequence[str], backbone: str, seed: int) -> Editor:
    """The editor to train; ``seed`` becomes its own parameter of that name where it has one that nothing else sets."""
    made = fitted.make(spec, settings, backbone)
    if type(made).fit is Editor.fit:
        raise click.UsageError(f"{spec} learns nothing before it inserts: use it as it is, with kedit run --editors {spec}")
    seeded = "seed" in made.get_params() and not any(setting.startswith(f"{spec}.seed=") for setting in settings)
    return fitted.make(spec, settings, backbone, seed=seed) if seeded else made


def cases(benchmark: Benchmark, limit: int | None, share: float, seed: int) -> tuple[list[Case], list[Case]]:
    """Cases to learn from and cases to validate with, both of the train split; DataError where the test split shows in it."""
    given = benchmark.train(limit)
    if not given:
        raise DataError(f"{benchmark.name} has no train split to learn from; choose another benchmark")
    test = [case for task in benchmark.tasks for case in benchmark.cases(task)]
    if leaked := overlap(given, test):
        raise DataError(
            f"{len(leaked)} test cases of {benchmark.name} have their answer in its train split ({', '.join(leaked[:3])}): "
            "what is learned from it could not be measured; separate the splits"
        )
    return split(given, share, seed)


def device(given: str | None) -> str | None:
    """The device of this process where ``accelerate launch`` started several; else what was given."""
    if given is not None or gather_team().world == 1:
        return given
    from accelerate import PartialState

    return str(PartialState().device)


def fit(
    editor: Editor,
    backbone: Backbone,
    benchmark: Benchmark,
    held: tuple[list[Case], list[Case]],
    out: Path,
    *,
    tracker: Tracker | None = None,
    **decisive: Any,
) -> Iterator[str]:
    """Fit, save to ``out`` and give lines that say what was kept and how good it is; an unfinished training is continued.

    ``decisive`` (``limit``, ``seed``, ``share``) goes into ``train.json`` with all else that decides the result. Raises
    StoreError where ``out`` holds a training of something else. Of several processes, the first one writes and speaks.
    """
    train, val = held
    first = gather_team().rank == 0
    identity = _identity(editor, backbone, benchmark, train, val, decisive)
    _same(out, identity)
    if first:
        write_json(out / FACTS, {"identity": identity})
    editor.attach(backbone)
    told = tracker if first else None
    with following(told, identity):
        with _bar(editor.name) as bar, generators_restored():
            steps = TrainingSteps(told, bar)
            seed_step(int(decisive["seed"]), 0)
            editor.fit(train, **_accepted(editor, val=val or None, out=out / TRAINING, progress=steps))
        if not first:
            return
        editor.save(out)
        scores = Validation(editor, val).scores() if val else {}
        steps.end(scores)
    write_json(out / FACTS, {"identity": identity, "validation": scores})
    yield from _said(editor, out, train, val, scores)


def _said(editor: Editor, out: Path, train: Sequence[Case], val: Sequence[Case], scores: Mapping[str, float]) -> Iterator[str]:
    for file in sorted((out / TRAINING).rglob(LAST)):
        found = read(file)
        if found is not None:
            name = file.parent.relative_to(out).as_posix()
            best = f", kept the best, step {found.best.step} with {found.best.score:.2f}" if found.best else ", kept the last"
            yield f"{name}: {found.step} steps{best}"
    yield f"{editor.name} learned from {len(train)} cases; saved to {out}"
    if scores:
        listed = ", ".join(f"{name} {score:.1f}" for name, score in scores.items())
        mean = sum(scores.values()) / len(scores)
        yield f"validation on {len(val)} held-out cases: {mean:.2f} ({listed})"


def _identity(
    editor: Editor, backbone: Backbone, benchmark: Benchmark, train: Sequence[Case], val: Sequence[Case], decisive: dict[str, Any]
) -> dict[str, Any]:
    limit, seed = decisive["limit"], int(decisive["seed"])
    config = run_config({editor.name: editor}, backbone, benchmark, {}, limit=limit, seed=seed, max_new_tokens=64, plain=False)
    numbers = {"share": decisive["share"], "train": len(train), "validation": len(val)}
    return {**config["identity"], "cases": numbers}


def _same(out: Path, identity: Mapping[str, Any]) -> None:
    if not (out / FACTS).exists():
        return
    if changes := difference(read_json(out / FACTS).get("identity"), identity):
        listed = "\n  ".join(changes)
        raise StoreError(
            f"{out} holds a training of something else (stored -> now):\n  {listed}\n"
            "train with the stored settings to continue it, or name another folder"
        )


def _accepted(editor: Editor, **arguments: Any) -> dict[str, Any]:
    """Those arguments that the editor's ``fit`` takes."""
    found = inspect.signature(editor.fit).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in found.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in found}


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    """A bar per training; an editor that trains several parts one after the other starts again at a lower step."""
    with bars() as update:
        part, before = 1, 0

        def progress(step: int, total: int, values: Mapping[str, float]) -> None:
            nonlocal part, before
            part, before = part + (step < before), step
            shown = " ".join(f"{key} {values[key]:.4g}" for key in ("loss", "score") if key in values)
            update(part, f"{name} {shown}", step, total)

        yield progress
