"""What an editor costs: seconds to learn, insert and answer one at a time, memory of the accelerator, parameters loaded."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from kedit.artefacts import read_json, write_json
from kedit.backbone import Backbone
from kedit.benchmark import Benchmark
from kedit.bootstrap import Estimate, column_means
from kedit.config import difference, run_config
from kedit.editor import Editor
from kedit.encoders import text_encoder
from kedit.errors import StoreError
from kedit.evaluate import evaluate
from kedit.generators import seed_by
from kedit.report.export import safe_name
from kedit.shipped import shipped
from kedit.timing import timing

FOLDER = "efficiency"
_GIB = 1 << 30


@dataclass(frozen=True)
class Costs:
    """Milliseconds per case or question, each a list; GiB at most allocated on the accelerator, None on a CPU; 10^9 parameters.

    ``train_ms`` is None for an editor that does not learn: its mean over the cases it learned from, which has no interval.
    """

    train_ms: float | None
    insert_ms: tuple[float, ...]
    request_ms: tuple[float, ...]
    train_gib: float | None
    eval_gib: float | None
    params_b: float
    failures: int

    def estimate(self, name: str) -> Estimate | None:
        """A cost by its name, with a 95 % interval over cases where there are several."""
        value = getattr(self, name)
        if value is None or value == ():
            return None
        if isinstance(value, tuple):
            return column_means(np.array(value, dtype=np.float64)[:, None])[0]
        return Estimate(value, value, value, 1)


def measure_all(
    editors: Mapping[str, Editor],
    backbone: Backbone,
    benchmark: Benchmark,
    task: str,
    *,
    train: Benchmark,
    raw_cases: int,
    out: Path,
    seed: int = 0,
    max_new_tokens: int = 64,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Costs]:
    """Costs by editor; each editor's are written to ``out``/efficiency/ when they are known, and read from there next time.

    An editor that learns is timed learning from the first ``raw_cases`` raw train cases, and then asked as it came: with what
    it had learned, with what ships for the backbone, else with what it learned just now. Questions are asked one at a time.
    Raises StoreError where the folder holds measurements made otherwise.
    """
    found = {}
    for done, (name, editor) in enumerate(editors.items()):
        if progress is not None:
            progress(name, done, len(editors))
        work = {task: (benchmark.tasks[task], benchmark.cases(task, limit=raw_cases))}
        config = run_config(
            {name: editor}, backbone, benchmark, work, limit=raw_cases, seed=seed, max_new_tokens=max_new_tokens, plain=True
        )
        # Times are the machine's too: measurements of another one must not go on here.
        machine = {"machine": {**config["environment"]["machine"], "accelerator": accelerator(backbone)}}
        identity = {**config["identity"], "train": {"name": train.name, "revision": train.revision}, **machine}
        file = out / FOLDER / f"{safe_name(name)}.json"
        kept = _kept(file, identity)
        if kept is None:
            others = [one for other, one in editors.items() if other != name]
            asking = {"seed": seed, "max_new_tokens": max_new_tokens}
            kept = measure(editor, backbone, benchmark, task, train, raw_cases, others, **asking)
            write_json(file, {"identity": identity, "costs": asdict(kept)})
        found[name] = kept
    return found


def accelerator(backbone: Backbone) -> str | None:
    """The name of the CUDA device that a backbone is on; None elsewhere."""
    return torch.cuda.get_device_name(backbone.device) if str(backbone.device).startswith("cuda") else None


def _kept(file: Path, identity: Mapping[str, Any]) -> Costs | None:
    if not file.is_file():
        return None
    row = read_json(file)
    if changes := difference(row["identity"], identity):
        listed = "\n  ".join(changes)
        raise StoreError(f"{file} was measured otherwise (there -> here):\n  {listed}\nname another folder")
    costs = row["costs"]
    return Costs(**{**costs, "insert_ms": tuple(costs["insert_ms"]), "request_ms": tuple(costs["request_ms"])})


def measure(
    editor: Editor,
    backbone: Backbone,
    benchmark: Benchmark,
    task: str,
    train: Benchmark,
    raw_cases: int,
    others: Sequence[Editor] = (),
    **asking: Any,
) -> Costs:
    """The costs of one editor; the weights that only ``others`` have loaded meanwhile are not in its memory."""
    train_ms = train_gib = None
    if editor.needs_fit:
        cases = train.train(raw_cases)
        learner, train_ms, train_gib = _taught(editor, backbone, cases, int(asking.get("seed", 0)), [editor, *others])
        if not editor.fitted and shipped(editor, backbone.id) is None:
            editor = learner
        del learner  # else the weights of two would be in memory below
    _start(backbone)
    run = evaluate({editor.name: editor}, backbone, benchmark, tasks=task, limit=raw_cases, plain=True, **asking)
    inserts = [1000 * seconds for row in run.timings for seconds in row["insert"]]
    asked = [1000 * record.seconds for record in run.records()]
    billions = sum(parameters(editor, backbone).values()) / 1e9
    peak = _peak(backbone, editor, others)
    return Costs(train_ms, tuple(inserts), tuple(asked), train_gib, peak, billions, len(run.failures))


def _taught(
    editor: Editor, backbone: Backbone, cases: Sequence[Any], seed: int, others: Sequence[Editor]
) -> tuple[Editor, float | None, float | None]:
    """An editor like this one that learned from the cases; milliseconds per case, and memory."""
    learner = type(editor)(**editor.get_params()).attach(backbone)
    seed_by(seed, editor.name, "fit")
    _start(backbone)
    with timing("train", backbone.device) as lap:
        learner.fit(cases)
    return learner, 1000 * lap.seconds / len(cases) if cases else None, _peak(backbone, learner, others)


def _start(backbone: Backbone) -> None:
    if str(backbone.device).startswith("cuda"):
        gc.collect()
        torch.cuda.reset_peak_memory_stats(backbone.device)


def _peak(backbone: Backbone, editor: Editor, others: Sequence[Editor]) -> float | None:
    if not str(backbone.device).startswith("cuda"):
        return None
    most = int(torch.cuda.max_memory_allocated(backbone.device))
    return (most - besides(editor, others, backbone)) / _GIB


def parameters(editor: Editor, backbone: Backbone) -> dict[int, int]:
    """Sizes of all parameters that are loaded for an editor, by their place in memory, so that shared ones count once."""
    return {place: parameter.numel() for place, parameter in _loaded(editor, backbone).items()}


def besides(editor: Editor, others: Sequence[Editor], backbone: Backbone) -> int:
    """Bytes of the parameters on the backbone's device that other editors have loaded and this one has not."""
    device = torch.device(str(backbone.device)).type
    found = {place: parameter for one in others for place, parameter in _loaded(one, backbone).items()}
    own = _loaded(editor, backbone)
    return sum(p.numel() * p.element_size() for place, p in found.items() if place not in own and p.device.type == device)


def _loaded(editor: Editor, backbone: Backbone) -> dict[int, nn.Parameter]:
    """By their place in memory; a text encoder that an editor only names, and shares with others, is one of its parts."""
    held, named = [*_modules(editor, set())], getattr(editor, "encoder", None)
    if isinstance(named, str) and not any(type(module).__module__.startswith("sentence_transformers.") for module in held):
        held += _modules(text_encoder(named), set())
    modules = [module for module in (backbone.model, *held) if isinstance(module, nn.Module)]
    return {parameter.data_ptr(): parameter for module in modules for parameter in module.parameters()}


def _modules(value: Any, seen: set[int]) -> Iterator[nn.Module]:
    """Modules that an editor's parts hold, wherever they are kept."""
    if id(value) in seen or isinstance(value, str | bytes | int | float | torch.Tensor | np.ndarray | type(None)):
        return
    seen.add(id(value))
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _modules(part, seen)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _modules(part, seen)
    elif type(value).__module__.startswith(("kedit.", "sentence_transformers.")) or isinstance(value, Editor):
        for part in vars(value).values() if hasattr(value, "__dict__") else ():
            yield from _modules(part, seen)
