"""CrossCult-KIBench from a local folder: any plausible layout of its files is read, ours is written, and cases come of it."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from kedit.benchmarks import kibench_open as protocol
from kedit.benchmarks import read_objects
from kedit.benchmarks.check import NAMES, allowed, broken_rule, data_files, insertions, measures, partition_of, split_of
from kedit.benchmarks.kibench_open import (
    CROSS_LANGUAGE,
    CROSS_SCENARIO,
    GENERALITY,
    LOCALITY,
    ORDERS,
    PARTITIONS,
    TASKS,
    Item,
    Pool,
    Raw,
    Row,
    Step,
)
from kedit.benchmarks.scene import SPLITS
from kedit.errors import DataError, unknown_name
from kedit.types import Case, ImageRef
from kedit.wording import SYSTEM_PROMPTS

T = TypeVar("T", Raw, Row)
__all__ = ["SYSTEM_PROMPTS", "KIBench"]

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


class KIBench:
    """CrossCult-KIBench read from ``path``: a folder, one file, or ``hf:owner/name`` (downloads it; nothing else ever does).

    ``mapping`` renames fields that ALIASES does not know; ``images`` is the folder that image paths start from (default: the
    data's); ``orders`` are the orders of each chain. Raises DataError, on first use, where a row breaks a rule of the paper's
    section 3.2 or of its layout; a missing image keeps its row. ``skipped`` holds the rows left out for want of an answer.
    """

    name = "kibench"
    tasks = TASKS

    def __init__(
        self,
        path: str | Path,
        *,
        mapping: Mapping[str, str] | None = None,
        images: str | Path | None = None,
        orders: Sequence[str] = ORDERS,
    ) -> None:
        self.path = path
        self.mapping = mapping
        self.images = images
        self.orders = orders

    @cached_property
    def root(self) -> Path:
        """The local folder or file."""
        if not str(self.path).startswith("hf:"):
            return Path(self.path)
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(str(self.path)[3:], repo_type="dataset"))

    @property
    def folder(self) -> Path:
        """The folder of the data."""
        return self.root if self.root.is_dir() else self.root.parent

    @property
    def names(self) -> dict[str, str]:
        """``mapping`` as rows are searched with it; UnknownNameError for a field that there is not."""
        for key in self.mapping or ():
            if key not in ALIASES:
                raise unknown_name("field of mapping", key, ALIASES)
        return {key: name.lower() for key, name in (self.mapping or {}).items()}

    @cached_property
    def files(self) -> list[DataFile]:
        """Every file, read and checked once."""
        found = [read_file(path, self.folder, self.names) for path in data_files(self.root)]
        for file in found:
            for where, _, row in file.rows:
                self._check_images(row, f"{file.path}, {where}")
        return found

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(file and row, reason) of what was left out."""
        return [(f"{file.path}, {where}", reason) for file in self.files for where, reason in file.skipped]

    @cached_property
    def revision(self) -> str:
        """SHA-256 over the data files, mapping, orders and system prompts, 64 hex digits; images have their own digests."""
        digest = hashlib.sha256(
            json.dumps([dict(self.mapping or {}), protocol.check_orders(self.orders), SYSTEM_PROMPTS]).encode()
        )
        for file in self.files:
            digest.update(hashlib.sha256(file.path.read_bytes()).digest())
        return digest.hexdigest()

    def _check_images(self, row: Raw | Row, where: str) -> None:
        for item in (*insertions(row), *(item for _, item, _ in measures(row))):
            try:
                self.locate(item.image)
            except ValueError as error:
                raise DataError(f"{where}: {error}") from error

    def locate(self, image: str | bytes) -> Path | None:
        """Where an image lies, None for bytes; ValueError where that is outside the folder, also by a symbolic link."""
        if isinstance(image, bytes):
            return None
        base = Path(self.images or self.folder).resolve()
        inside = Path(image) if Path(image).is_relative_to(base) else base / image.lstrip("/")
        # A leading slash may mean the data's own root: only what is there, but not here, is known to lie elsewhere.
        outside = not Path(image).is_relative_to(base) and not inside.exists() and image.startswith("/") and Path(image).exists()
        if outside or not inside.resolve().is_relative_to(base):
            raise ValueError(f"image path {image!r} leads outside {base}: put the images below it, or give images='their folder'")
        return inside

    def image(self, image: str | bytes) -> ImageRef:
        """The reference to an image; the file is not opened here and need not exist."""
        return ImageRef(data=image) if isinstance(image, bytes) else ImageRef(path=str(self.locate(image)))

    def pool(self, split: str) -> Pool:
        """Raw cases by scenario; where a split has none, they are put together from its task cases.

        Chains also come from the raw cases of the single test where none are marked as theirs.
        """
        raws: dict[tuple[object, ...], Raw] = {}
        found = self._rows(split, Raw) or (self._rows(SPLITS[1], Raw) if split == SPLITS[2] else [])
        for raw in found or [raw for row in self._rows(split, Row) for raw in raws_of(row)]:
            known = raws.get(key := (raw.scenario, raw.id, raw.image))
            raws[key] = replace(known, qa=_merged(known.qa, raw.qa)) if known else raw
        pool = defaultdict(list)
        for raw in raws.values():
            pool[raw.scenario].append(raw)
        return {scenario: pool[scenario] for scenario in sorted(pool)}

    def _rows(self, split: str, kind: type[T]) -> list[T]:
        return [row for file in self.files for _, own, row in file.rows if isinstance(row, kind) and own == split]

    def rows(self, split: str, limit: int | None = None) -> list[Row]:
        """Task cases of a split, ``limit`` counting raw cases, taken from the scenarios in turn; ids are made unique."""
        pool = self.pool(split)
        groups: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
        places = {(raw.scenario, raw.id, raw.image): (raw, k) for raws in pool.values() for k, raw in enumerate(raws)}
        for row in self._rows(split, Row):
            place = places.get((row.scenario, row.raw, row.steps[0].item.image), (raws_of(row)[0], 0))
            groups[row.scenario][row.raw].append(completed(row, pool, *place))
        if not groups:
            make = protocol.chain_row if split == SPLITS[2] else protocol.single_rows
            return _unique(row for _, k, raw in protocol.round_robin(pool, limit) for row in make(pool, raw, k))
        units = {scenario: list(groups[scenario].values()) for scenario in sorted(groups)}
        return _unique(row for _, _, unit in protocol.round_robin(units, limit) for row in unit)

    def cases(self, task: str, *, limit: int | None = None) -> Sequence[Case]:
        """The test cases of a task; ``limit`` counts raw cases, taken from the scenarios in turn."""
        if task not in self.tasks:
            raise unknown_name("task", task, self.tasks)
        if task == "single":
            return protocol.single_cases(self.rows(SPLITS[1], limit), self.image)
        return protocol.chain_cases(self.rows(SPLITS[2], limit), protocol.check_orders(self.orders), self.image)

    def train(self, limit: int | None = None) -> Sequence[Case]:
        """Single-insert cases of the train split; empty where the data have none."""
        return protocol.single_cases(self.rows(SPLITS[0], limit), self.image)


def _merged(
    known: Mapping[str, tuple[str, str | None]], more: Mapping[str, tuple[str, str | None]]
) -> dict[str, tuple[str, str | None]]:
    """What is known of a raw case and what another row adds; an answer is never lost to a question that came without one."""
    return {**more, **known, **{p: pair for p, pair in more.items() if pair[1] and not known.get(p, pair)[1]}}


def _unique(rows: Iterable[Row]) -> list[Row]:
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        seen[row.id] += 1
        found.append(row if seen[row.id] == 1 else replace(row, id=f"{row.id}#{seen[row.id]}"))
    return found


def raws_of(row: Row) -> list[Raw]:
    """A raw case for each partition that a task case shows of its image."""
    seen = [item for step in row.steps for item in (step.item, *step.others.get(CROSS_LANGUAGE, ()))]
    return [Raw(row.raw, row.scenario, row.topic_group, i.image, {i.partition: (i.question, i.answer)}) for i in seen]


def completed(row: Row, pool: Pool, raw: Raw, index: int) -> Row:
    """The row with the items that it does not give drawn from the pool."""
    steps = []
    for step in row.steps:
        p, others = step.item.partition, dict(step.others)
        for dimension, items in others.items():
            if not items and dimension == CROSS_LANGUAGE:
                others[dimension] = protocol.other_language(raw, p)
            elif not items:
                others[dimension] = (protocol.general if dimension == GENERALITY else protocol.elsewhere)(pool, raw, index, p)
        steps.append(replace(step, others=others))
    return replace(row, steps=tuple(steps))
