"""Rows of CrossCult-KIBench as files hold them: any plausible layout to raw cases and task cases, through an alias table."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kedit.benchmarks.kibench_cases import CROSS_LANGUAGE, CROSS_SCENARIO, GENERALITY, LOCALITY, PARTITIONS, Item, Raw, Row, Step
from kedit.benchmarks.kibench_rules import NAMES, broken_rule, partition_of, split_of
from kedit.benchmarks.scene import SPLITS
from kedit.errors import DataError
from kedit.files.objects import read_objects
from kedit.files.rows import allowed

_ALIASES = {
    "question": "question q src prompt query text",
    "answer": "answer a alt target reference ground_truth label",
    "image": "image image_path img image_name",
    "partition": "partition lang language culture",
    "scenario": "scenario_id scenario scene",
    "topic_group": "topic_group topic category",
    "case_id": "case_id id uid",
    "raw_id": "raw_id raw raw_case_id",
    "split": "split",
    "qa": "qa qas partitions items",
    "steps": "steps chain edits sequence",
    GENERALITY: "gen generality rephrase_case gen_ fg_gen_",
    CROSS_LANGUAGE: "loc_lang lang_loc cross_language cross_language_locality loc_lang_ lang_loc_",
    CROSS_SCENARIO: "loc_scen scen_loc cross_scenario cross_scenario_locality loc_scen_ scen_loc_ m_loc_ fg_loc_",
    LOCALITY: "loc locality loc_",
}
ALIASES: Mapping[str, tuple[str, ...]] = {name: tuple(names.split()) for name, names in _ALIASES.items()}
"""What a field may be called; a name that ends in "_" is the prefix of flat fields, as in ``gen_q``, ``gen_a``, ``gen_image``."""
_HINT = "say what the file calls them: mapping={'question': 'their_name'} (command line: --mapping question=their_name)"


@dataclass(frozen=True)
class Reader:
    """Rows of one file to raw cases and task cases; ``mapping`` (field to the file's name for it) goes before the aliases."""

    mapping: Mapping[str, str]

    def get(self, row: Mapping[str, Any], name: str, prefix: str = "", suffix: str = "") -> Any:
        """The first value that a row has for a field, None where it has none."""
        mapped = self.mapping.get(name)
        for alias in (*([mapped] if mapped else []), *ALIASES[name]):
            value = row.get(f"{prefix}{alias}{suffix}")
            if value is not None:
                return value
        return None

    def text(self, value: Any, what: str) -> str:
        """A text in NFC, marks and invisible characters kept; ValueError where it is none or holds half a character."""
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, str):
            raise ValueError(f"{what} is {value!r}, expected a text")
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError(f"{what} holds a lone surrogate (half of a character): {value!r}")
        return unicodedata.normalize("NFC", value)

    def question(self, value: Any) -> str:
        """A question; ValueError where it is empty."""
        text = self.text(value, "question")
        if not text.strip():
            raise ValueError("question is empty")
        return text

    def answer(self, value: Any) -> str | None:
        """An answer, None where there is none or only white space."""
        text = None if value is None else self.text(value, "answer")
        return text if text and text.strip() else None

    def image(self, value: Any) -> str | bytes:
        """A path or encoded bytes; ValueError where it is neither or not allowed (see ``allowed``)."""
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes) and value:
            return value
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"image is {value!r}, expected a path below the data's folder")
        return allowed(value)

    def item(self, row: Mapping[str, Any], default: Item, prefix: str = "") -> Item:
        """One item; what the row does not say is the default's (an image of "" means: required)."""
        question = self.question(self.get(row, "question", prefix))
        image = self.get(row, "image", prefix) or row.get(prefix.rstrip("_") if prefix else "") or default.image
        name = self.get(row, "partition", prefix) or default.partition or None
        scenario, case_id = (self.get(row, key, prefix) for key in ("scenario", "case_id"))
        found = Item(partition_of(name, question), self.image(image), question, self.answer(self.get(row, "answer", prefix)))
        return replace(found, scenario=str(scenario or ""), case_id=str(case_id or ""))

    def others(self, row: Mapping[str, Any], dimension: str, inserted: Item) -> tuple[Item, ...]:
        """The items of a dimension: objects, a list of them, or flat fields with a prefix; none where the row has none."""
        default = Item("" if dimension == CROSS_LANGUAGE else inserted.partition, "", "")
        if dimension == CROSS_LANGUAGE:
            default = replace(default, image=inserted.image)
        names = (self.mapping.get(dimension, ""), *ALIASES[dimension])
        given = next((row[n] for n in names if n and isinstance(row.get(n), (Mapping, list)) and row[n]), None)
        if given is not None:
            found = [self.item(_lower(part), default) for part in ([given] if isinstance(given, Mapping) else given)]
        else:
            prefixes = [n for n in names if n.endswith("_") and self.get(row, "question", n) is not None]
            found = [self.item(row, default, prefixes[0])] if prefixes else []
        if dimension == GENERALITY:
            return tuple(item for item in found if item.answer)
        return tuple(replace(item, answer=None) for item in found)

    def languages(self, row: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
        """Question and answer per partition, however a raw row nests or flattens them."""
        given, found = self.get(row, "qa"), {}
        if given is None:
            own = {name: _lower(row[name]) for p in PARTITIONS for name in NAMES[p] if isinstance(row.get(name), Mapping)}
            given = {name: part for name, part in own.items() if self.get(part, "question") is not None}
        if isinstance(given, Mapping):
            given = [{"partition": name, **part} for name, part in given.items() if isinstance(part, Mapping)]
        for part in given if isinstance(given, list) else []:
            item = self.item(_lower(part), Item("", "-", ""))
            found[item.partition] = (item.question, item.answer)
        questions, answers = (
            _lower(value) if isinstance(value, Mapping) else value
            for value in (self.get(row, "question"), self.get(row, "answer"))
        )
        for p in PARTITIONS if not found else ():
            for name in NAMES[p]:
                forms = [
                    (self.get(row, "question", *form), self.get(row, "answer", *form))
                    for form in (("", f"_{name}"), (f"{name}_", ""))
                ]
                if isinstance(questions, Mapping) and isinstance(answers, Mapping):
                    forms.append((questions.get(name), answers.get(name)))
                for question, answer in forms:
                    if question is not None:
                        found[p] = (self.question(question), self.answer(answer))
        return found

    def parse(self, row: Mapping[str, Any], where: str) -> Raw | Row:
        """A row as what it is: a chain, a raw multilingual case, or a single insertion; ValueError where it is none.

        ``where`` is its id where it has none.
        """
        row = _lower(row)
        given = (self.get(row, key) for key in ("case_id", "scenario", "topic_group"))
        id, scenario, topic = ("" if value is None else str(value) for value in given)
        id = id or where
        steps = self.get(row, "steps")
        if isinstance(steps, Mapping):
            steps = [{"partition": name, **part} for name, part in steps.items() if isinstance(part, Mapping)]
        if isinstance(steps, list) and steps:
            start = Item("", self.get(row, "image") or "", "", None, scenario, id)
            chain = tuple(self.step(_lower(step), start, (GENERALITY, LOCALITY)) for step in steps)
            return Row(id, str(self.get(row, "raw_id") or id), scenario, topic, chain)
        qa = self.languages(row)
        if len(qa) > 1 or (qa and not isinstance(self.get(row, "question"), str)):
            return Raw(id, scenario, topic, self.image(self.get(row, "image")), qa)
        if self.get(row, "question") is None:
            found = ", ".join(sorted(row)) or "none"
            raise ValueError(f"no known layout. Keys found: {found}. Expected: {_expected()}; {_HINT}")
        step = self.step(row, Item("", "", "", None, scenario, id), (GENERALITY, CROSS_LANGUAGE, CROSS_SCENARIO))
        raw = self.get(row, "raw_id") or re.sub(f"_({'|'.join(PARTITIONS)})$", "", id)
        return Row(id, str(raw), scenario, topic, (step,))

    def step(self, row: Mapping[str, Any], start: Item, dimensions: Sequence[str]) -> Step:
        """One insertion with its other items, which are checked against it; image, scenario and id from ``start``."""
        inserted = replace(self.item(row, start), scenario=start.scenario, case_id=start.case_id)
        others = {dimension: self.others(row, dimension, inserted) for dimension in dimensions}
        for dimension, item in ((name, item) for name, found in others.items() for item in found):
            if wrong := broken_rule(dimension, item, inserted):
                raise ValueError(f"{dimension} item {wrong}")
        return Step(inserted, others)


def _lower(row: Any) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise ValueError(f"expected an object with keys, got {row!r:.80}")
    return {str(key).strip().lower(): value for key, value in row.items()}


def _expected() -> str:
    return "; ".join(
        f"{name} ({', '.join(ALIASES[name])})" for name in ("question", "answer", "image", "partition", "steps", "qa")
    )


@dataclass(frozen=True)
class DataFile:
    """One file as it was read: (where, split, row) of its rows, and (where, reason) of those left out."""

    path: Path
    rows: tuple[tuple[str, str, Raw | Row], ...]
    skipped: tuple[tuple[str, str], ...]


def read_file(path: Path, root: Path, mapping: Mapping[str, str]) -> DataFile:
    """All rows of a file; raises DataError with file and row. A row without an answer to insert is left out with the reason.

    A chain is of the sequential split; any other row of the split that it names, else that the file's name tells.
    """
    reader, rows, skipped = Reader(mapping), [], []
    name = path.relative_to(root).as_posix()
    for where, value in read_objects(path):
        try:
            row = reader.parse(value, f"{name}/{where.split()[1]}")
        except ValueError as error:
            raise DataError(f"{path}, {where}: {error}") from error
        if isinstance(row, Row) and any(not step.item.answer for step in row.steps):
            skipped.append((where, "answer is empty"))
            continue
        chain = isinstance(row, Row) and len(row.steps) > 1
        rows.append((where, SPLITS[2] if chain else split_of(str(reader.get(_lower(value), "split") or name)), row))
    return DataFile(path, tuple(rows), tuple(skipped))
