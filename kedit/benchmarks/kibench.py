"""CrossCult-KIBench from a local folder or the hub: files become pools, and cases come of them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from kedit.benchmark import Task
from kedit.benchmarks import kibench_cases as protocol
from kedit.benchmarks.kibench_cases import CROSS_LANGUAGE, GENERALITY, ORDERS, Pool, Raw, Row
from kedit.benchmarks.kibench_rows import ALIASES, DataFile, read_file
from kedit.benchmarks.kibench_rules import data_files, insertions, measures
from kedit.benchmarks.lifelong import Lifelong, lifelong_cases, with_lifelong
from kedit.benchmarks.scene import SPLITS
from kedit.errors import DataError, unknown_name
from kedit.types import Case, ImageRef
from kedit.wording import SYSTEM_PROMPTS

T = TypeVar("T", Raw, Row)
__all__ = ["SYSTEM_PROMPTS", "KIBench"]


class KIBench:
    """CrossCult-KIBench read from ``path``: a folder, one file, or ``hf:owner/name`` (downloads it; nothing else ever does).

    ``mapping`` renames fields that ALIASES does not know; ``images`` is the folder that image paths start from (default: the
    data's); ``orders`` are the orders of each chain, ``lifelong`` options of the task of that name (see ``Lifelong``). Raises
    DataError, on first use, where a row breaks a rule of the paper's section 3.2 or of its layout; a missing image keeps its
    row. ``skipped`` holds the rows left out for want of an answer.
    """

    name = "kibench"

    def __init__(
        self,
        path: str | Path,
        *,
        mapping: Mapping[str, str] | None = None,
        images: str | Path | None = None,
        orders: Sequence[str] = ORDERS,
        lifelong: Lifelong | Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self.mapping = mapping
        self.images = images
        self.orders = orders
        self.lifelong = lifelong

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """Single inserts, chains of three, and a long chain for who asks for it."""
        return with_lifelong(self.lifelong)

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
        if task == "sequential":
            return protocol.chain_cases(self.rows(SPLITS[2], limit), protocol.check_orders(self.orders), self.image)
        return lifelong_cases(self, self.lifelong, limit)

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
