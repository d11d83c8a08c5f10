"""Why figures may differ from those in print: read off the identity of the runs, never assumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kedit.artefacts import folder_digest, read_json
from kedit.matrix import FITTED
from kedit.parameters import plain
from kedit.report.export import safe_name
from kedit.report.notes import FEW_CASES, Note
from kedit.report.results import Results
from kedit.reproduce.published import Model, Paper, RunSpec, Source
from kedit.zoo.catalogue import FITTED_ON, PRESETS, artefact, editor_params


def sources(paper: Paper, model: Model, runs: Mapping[str, Results], batch_size: int | None = None) -> Iterator[Note]:
    """Notes on what differs from the paper, and on what it leaves open, for the runs of one table or figure, by name.

    ``model`` is the one whose figures stand beside ours, ``batch_size`` that of the backbone.
    """
    first = next(iter(runs.values())).run.config["identity"]
    yield from backbone_notes(model, first["backbone"])
    for name, results in runs.items():
        yield from _benchmark(paper, paper.runs[name], results)
    yield from _editors(paper.model_of(first["backbone"]["id"]) or model, first)
    for name, results in runs.items():
        yield from _learned(paper.runs[name], results)
    yield from _answers(paper, first, batch_size)
    yield _scoring(list(runs.values()))
    yield from unstated(paper, [editor for results in runs.values() for editor in results.editors])
    for results in runs.values():
        yield from _failed(results)


def backbone_notes(model: Model, backbone: Mapping[str, Any]) -> Iterator[Note]:
    """Whether the backbone is the paper's, and in which precision it runs."""
    own = str(backbone["id"])
    if not model.named_by(own):
        known = f" ({', '.join(model.ids)})" if model.ids else ""
        yield Note(f"Other backbone: {own} instead of {model.name}{known}.", warning=True)
    if own in PRESETS:
        yield Note(
            f"{own} is embedded: {PRESETS[own].summary}. Its figures check that everything runs, not the paper.", warning=True
        )
    yield Note(f"Precision: {backbone['dtype']} on {backbone['device']}; the paper does not state its own.")


def data_notes(source: Source, name: str) -> Iterator[Note]:
    """Whether a benchmark is the published one."""
    if name != source.published:
        what = f", {source.stand_ins[name]}," if name in source.stand_ins else ""
        yield Note(f"Other data: {name}{what} instead of the published {source.published}.", warning=True)


def _benchmark(paper: Paper, spec: RunSpec, results: Results) -> Iterator[Note]:
    identity = results.run.config["identity"]
    name, limit = identity["benchmark"]["name"], identity["benchmark"]["limit"]
    yield from data_notes(paper.benchmarks[spec.benchmark], name)
    cases = sum(identity["tasks"][task]["cases"] for task in results.run.tasks)
    if cases != spec.cases:
        first = f", the first {limit} raw cases" if limit else ""
        few = f" Fewer than {FEW_CASES} cases: do not read small differences." if cases < FEW_CASES else ""
        yield Note(f"{cases:,} cases of {name} {spec.task}{first}; the paper has {spec.cases:,}.{few}", warning=cases < FEW_CASES)
    if spec.where is not None and f"+{'='.join(spec.where)}" not in identity["benchmark"]["revision"]:
        yield Note(f"{name} has no case with {spec.where[0]} {spec.where[1]}: all of its cases were asked.", warning=True)


def _editors(model: Model, identity: Mapping[str, Any]) -> Iterator[Note]:
    """Parameters in which editors differ from the paper's, and where that comes from."""
    own = str(identity["backbone"]["id"])
    differing, embedded = [], False
    for name, row in identity["editors"].items():
        wanted = plain(dict(model.params.get(name, {})))
        changed = [
            f"{key} {row['params'][key]} instead of {value}"
            for key, value in wanted.items()
            if key in row["params"] and row["params"][key] != value
        ]
        if changed:
            differing.append(f"{name}: {', '.join(changed)}")
            embedded = embedded or bool(editor_params(own, name))
    if differing:
        why = (
            f"Settings suggested for {own}, a model too small for the paper's" if embedded else "Other settings than the paper's"
        )
        yield Note(f"{why}. {'; '.join(differing)}.", warning=True)


def _learned(spec: RunSpec, results: Results) -> Iterator[Note]:
    """What editors learned from."""
    identity, folder = results.run.config["identity"], results.run.path.parent
    learned = {name: row["learned"] for name, row in identity["editors"].items() if "learned" in row}
    told: dict[str, list[str]] = {}
    for name, said in learned.items():
        told.setdefault(_taught(folder, str(identity["backbone"]["id"]), name, said), []).append(name)
    for how, names in told.items():
        paper = f"; the paper trains on {spec.train_cases:,} cases" if spec.train_cases else ""
        yield Note(f"Learned by {', '.join(names)}: {how}{paper}.")


def _taught(folder: Path, backbone: str, name: str, said: str) -> str:
    """Told by the digest of what was loaded: what was kept in the folder, what ships, or something from elsewhere."""
    kept, ships = folder / FITTED / safe_name(name), artefact(backbone, name)
    if kept.is_dir() and said == f"artefact {folder_digest(kept)}":
        source = read_json(kept.with_name(f"{kept.name}.json"))["benchmark"]
        limit = f"the first {source['limit']} raw cases of" if source["limit"] else "all of"
        return f"here, from {limit} the train split of {source['name']}"
    if ships is not None and name in FITTED_ON and said == f"artefact {folder_digest(ships)}":
        return f"as shipped with {backbone}, from {FITTED_ON[name][0]} raw cases of its drawn train split"
    return f"elsewhere ({said})"


def _answers(paper: Paper, identity: Mapping[str, Any], batch_size: int | None) -> Iterator[Note]:
    decoding, states = identity["decoding"], paper.states
    wanted = states.get("max_new_tokens")
    if wanted is not None and decoding["max_new_tokens"] != wanted:
        yield Note(f"Answers of up to {decoding['max_new_tokens']} tokens; the paper's have up to {wanted}.", warning=True)
    if decoding["strategy"] != "greedy":
        own = "the paper decodes greedily" if states.get("decoding") == "greedy" else "the paper does not state its own"
        yield Note(f"Decoding: {decoding['strategy']}; {own}.", warning=True)
    wanted = states.get("batch_size")
    dtype = identity["backbone"]["dtype"]
    if wanted is not None and batch_size not in (None, wanted) and dtype != "float32":
        yield Note(f"Batches of {batch_size} in {dtype}, where answers can depend on the batch; the paper's is {wanted}.")


def _scoring(runs: Sequence[Results]) -> Note:
    ways = [way for results in runs for task in results.run.tasks for way, _ in results.scorings(task).values()]
    return Note(f"Scored by {', '.join(dict.fromkeys(way.measured_by or way.id for way in ways))}.")


def judge_notes(paper: Paper, judge: str | None) -> Iterator[Note]:
    """What judged, or why the judge's columns are not there."""
    wanted = paper.states.get("judge")
    if wanted is None:
        return
    if judge is None:
        yield Note(
            "The judge's columns are left out: judge the run (kedit score RUN --judge ...), then give the same command "
            f"--judge ID. The paper's judge is {wanted}."
        )
    elif wanted not in judge:
        yield Note(f"Other judge: {judge} instead of {wanted}.", warning=True)


def unstated(paper: Paper, editors: Sequence[str]) -> Iterator[Note]:
    """What the paper leaves open, of all runs and of these editors."""
    for name in ("*", *dict.fromkeys(editors)):
        for text in paper.unstated.get(name, ()):
            yield Note(text)


def _failed(results: Results) -> Iterator[Note]:
    for editor in results.editors:
        if failed := sum(results.failed(editor, task) for task in results.run.tasks):
            yield Note(
                f"{editor} failed in {failed} cases, which are in no figure: see kedit report {results.run.path}.", warning=True
            )
