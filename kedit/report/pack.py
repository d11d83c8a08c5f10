"""The browser's data as the page holds it: an index of every question to filter and sort by, the texts in compressed parts.

A browser inflates the few parts that hold what is on the screen, so that a run of any size is one file that opens at once.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

PART = 1 << 18
"""Characters of JSON in a part, at least; the last has fewer."""
_WHOLE_CHAIN = 12
"""Longest chain that goes with each of its questions; of a longer one a question has its own step."""
_HEAD = ("editors", "base", "tasks", "ways", "groups", "images", "total")
UNSCORED = -1
APPLIED, NONE_APPLIED = 1, 2
"""What an editor that looks for an entry did with a question; 0 for one that does not look."""


def packed(data: Mapping[str, Any]) -> dict[str, Any]:
    """What ``browser_data`` gives, with ``index`` and ``parts`` in place of ``cases``.

    Both are JSON, deflated (zlib), in base64. ``index`` is by question, in the order of the cases: the number of its case, the
    name of its dimension, and by way and editor its last score (None where it was not asked, -1 where it is unscored), by editor
    its flags (bits) and whether an entry applied. ``starts`` says with which question each part begins.
    """
    index = _Index(data)
    parts, starts = [], []
    for start, text in _parts(data, index):
        starts.append(start)
        parts.append(_deflated(text))
    shown = {"shown": len(data["cases"]), "questions": len(index.case)}
    return {**{name: data[name] for name in _HEAD}, **shown, "index": _deflated(_json(index.json(starts))), "parts": parts}


def unpacked(text: str) -> Any:
    """A part or the index again."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def _deflated(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode("ascii")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parts(data: Mapping[str, Any], index: _Index) -> Iterator[tuple[int, str]]:
    """The first question of each part, and its JSON: ``questions`` with their answers, ``chains`` by number of the case."""
    start, size = 0, 0
    questions: list[str] = []
    chains: dict[int, dict[str, Any]] = {}
    for number, case in enumerate(data["cases"]):
        index.cases.append({"id": case["id"], "task": case["task"], "tags": case["tags"], "chain": len(case["chain"])})
        for probe in case["probes"]:
            index.add(number, case["task"], probe)
            questions.append(_json({**probe, "case": number}))
            chain = chains.setdefault(number, {})
            size += len(questions[-1]) + _insert(chain, case["chain"], probe["step"])
            if size >= PART:
                yield start, _part(questions, chains)
                start, size, questions, chains = len(index.case), 0, [], {}
    if questions:
        yield start, _part(questions, chains)


def _insert(chain: dict[str, Any], items: list[dict[str, Any]], step: int) -> int:
    """Add what was inserted, as far as it goes with a question of that step; returns how many characters."""
    steps = range(1, len(items) + 1) if len(items) <= _WHOLE_CHAIN else (step,)
    new = {str(k): items[k - 1] for k in steps if str(k) not in chain and 0 < k <= len(items)}
    chain |= new
    return len(_json(new)) if new else 0


def _part(questions: list[str], chains: dict[int, dict[str, Any]]) -> str:
    return f'{{"questions":[{",".join(questions)}],"chains":{_json(chains)}}}'


class _Index:
    """Columns over all questions."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.editors: list[str] = data["editors"]
        self.ways = range(len(data["ways"]))
        self.cases: list[dict[str, Any]] = []
        self.case: list[int] = []
        self.step: list[int] = []
        self.dimension: list[int] = []
        self.dimensions: dict[tuple[str, str], int] = {}
        self.flag_names: dict[str, int] = {}
        self.scores: list[list[list[float | None]]] = [[[] for _ in self.editors] for _ in self.ways]
        self.flags: list[list[int]] = [[] for _ in self.editors]
        self.applied: list[list[int]] = [[] for _ in self.editors]

    def add(self, number: int, task: str, probe: Mapping[str, Any]) -> None:
        self.case.append(number)
        self.step.append(probe["step"])
        self.dimension.append(self.dimensions.setdefault((task, probe["dimension"]), len(self.dimensions)))
        for at, editor in enumerate(self.editors):
            answers = probe["answers"].get(editor)
            final = max(answers, key=lambda answer: int(answer["after"])) if answers else None
            for way in self.ways:
                self.scores[way][at].append(None if final is None else _score(final, way))
            self.flags[at].append(0 if final is None else self._bits(final["flags"]))
            self.applied[at].append(0 if final is None else _applied(final["trace"]))

    def _bits(self, flags: list[str]) -> int:
        return sum(1 << self.flag_names.setdefault(flag, len(self.flag_names)) for flag in flags)

    def json(self, starts: list[int]) -> dict[str, Any]:
        columns = {"case": self.case, "step": self.step, "dimension": self.dimension}
        by_editor = {"scores": self.scores, "flags": self.flags, "applied": self.applied}
        names = {"dimensions": list(self.dimensions), "flagNames": list(self.flag_names), "starts": starts, "cases": self.cases}
        return {**columns, **by_editor, **names}


def _score(answer: Mapping[str, Any], way: int) -> float:
    told = answer["others"][way - 1] or answer if way else answer
    value: float | None = told["score"]
    return UNSCORED if value is None else value


def _applied(trace: Mapping[str, str]) -> int:
    if "entry" in trace or "entries" in trace:
        return APPLIED
    return NONE_APPLIED if "similarity" in trace or "nearest" in trace else 0
