"""What the browser of cases on the page is given: cases, questions, every editor's answers with scores, small images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from kedit.casebook import read_cases
from kedit.metrics import Thresholds
from kedit.protocols import RELIABILITY
from kedit.report.escape import visible
from kedit.report.results import Results
from kedit.report.tables import evenly_spaced
from kedit.report.thumbnails import thumbnails
from kedit.report.ways import Way, ways
from kedit.scoring import Score
from kedit.types import Record

MOST_CASES = 10_000
_LONGEST_TAG = 60
"""Characters of a tag of a question that is shown: lists of options are in the question already."""


def browser_data(results: Results, most: int = MOST_CASES) -> dict[str, Any]:
    """Everything as plain JSON, all texts with control characters written out; at most ``most`` cases, evenly spaced."""
    book = _Book(results)
    every = list(book.asked)
    picked = [every[i] for i in evenly_spaced(len(every), most)]
    cases = [book.case(task, case) for task, case in picked]
    data = {
        "editors": results.editors,
        "base": results.base,
        "tasks": {task: _dimensions(results, task) for task in results.run.tasks},
        "ways": [way.label for way in book.ways],
        "groups": {tag: heading for task in results.run.tasks for tag, heading in results.run.groups(task).items()},
        "cases": cases,
        "images": thumbnails(results.run.path, _shown_images(cases)),
        "total": len(every),
    }
    shown: dict[str, Any] = _visible(data)
    return shown


def _dimensions(results: Results, task: str) -> dict[str, dict[str, Any]]:
    """Label of each dimension, and the score below which an answer fails in it."""
    at = Thresholds()
    return {
        d.name: {"label": d.label, "pass": at.local if d.locality else at.reliable if d.name == RELIABILITY else at.general}
        for d in results.run.dimensions(task)
    }


def _common(tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What all records of a case share: the case's own tags, without those of single questions."""
    return {name: value for name, value in tags[0].items() if all(other.get(name) == value for other in tags)}


def _number(value: str | float) -> str:
    """As text, so that NaN and infinity are no JSON."""
    return value if isinstance(value, str) else f"{value:.4g}"


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value, keep="\n\t")
    if isinstance(value, Mapping):
        return {_visible(k): _visible(v) for k, v in value.items()}
    return [_visible(v) for v in value] if isinstance(value, list | tuple) else value


class _Book:
    """Questions of the casebook joined with the records of all editors."""

    def __init__(self, results: Results) -> None:
        self.results = results

    @cached_property
    def asked(self) -> dict[tuple[str, str], list[tuple[str, Record]]]:
        """Records with their editor by (task, case), in the order of the tasks and, within one, of the first editor's cases."""
        found: dict[tuple[str, str], list[tuple[str, Record]]] = {}
        for task in self.results.run.tasks:
            for editor in self.results.editors:
                for record in self.results.records(editor, task):
                    found.setdefault((task, record.case), []).append((editor, record))
        return found

    @cached_property
    def kept(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["task"], row["id"]): row for row in read_cases(self.results.run.path)}

    def case(self, task: str, case: str) -> dict[str, Any]:
        asked = self.asked[task, case]
        row = self.kept.get((task, case), {"chain": [], "probes": []})
        probes: dict[int, list[tuple[str, Record]]] = {}
        for editor, record in asked:
            probes.setdefault(record.probe, []).append((editor, record))
        return {
            "id": case,
            "task": task,
            "tags": row["tags"] if "tags" in row else _common([record.tags for _, record in asked]),
            "chain": [_inserted(item) for item in row["chain"]],
            "probes": [self._probe(row["probes"], probe, answers) for probe, answers in sorted(probes.items())],
        }

    def _probe(self, kept: list[dict[str, Any]], probe: int, asked: list[tuple[str, Record]]) -> dict[str, Any]:
        first = asked[0][1]
        request = kept[probe]["request"] if probe < len(kept) else {"question": None, "images": [], "context": []}
        answers: dict[str, list[dict[str, Any]]] = {}
        for editor, record in asked:
            answers.setdefault(editor, []).append(self._answer(record, request["question"]))
        return {
            **_question({**request, "language": first.language}),
            "dimension": first.dimension,
            "step": first.step,
            "reference": first.reference,
            "fromBase": first.from_base,
            "tags": {name: value for name, value in first.tags.items() if len(value) <= _LONGEST_TAG},
            "answers": answers,
        }

    def _answer(self, record: Record, question: str | None) -> dict[str, Any]:
        first, *others = (way.score(record, question) for way in self.ways)
        return {
            "after": record.asked_at,
            "text": record.output,
            **_told(first),
            **({"others": [None if score is None else _told(score) for score in others]} if others else {}),
            "flags": list(record.flags),
            "trace": {name: _number(value) for name, value in {**record.trace, **record.measured}.items()},
        }

    @cached_property
    def ways(self) -> list[Way]:
        return ways(self.results)


def _told(score: Score | None) -> dict[str, Any]:
    value, why = (None, "") if score is None else score
    if value is not None and not math.isfinite(value):  # no JSON, and a scorer may be anybody's
        value, why = None, why or f"the score is {value}"
    return {"score": None if value is None else round(value, 4), "why": why}


def _inserted(item: Mapping[str, Any]) -> dict[str, Any]:
    more = {name: item[name] for name in ("title", "text") if item.get(name)}
    return {**_question(item["request"]), "answer": item["answer"], **more}


def _question(request: Mapping[str, Any]) -> dict[str, Any]:
    context = request.get("context", [])
    images = [*(part["image"] for part in context if isinstance(part, dict)), *request["images"]]
    texts = [part for part in context if isinstance(part, str)]
    return {"question": request["question"], "language": request["language"], "images": images, "context": texts}


def _shown_images(cases: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for case in cases:
        for part in (*case["chain"], *case["probes"]):
            yield from (digest for digest in part["images"] if digest)
