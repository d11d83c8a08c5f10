"""Rules that data must keep, and a report of where a folder breaks them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kedit.benchmarks.kibench_open import CROSS_LANGUAGE, GENERALITY, PARTITIONS, Item, Raw, Row
from kedit.benchmarks.scene import SPLITS
from kedit.errors import DataError, ImageError
from kedit.flags import wrong_script
from kedit.images import open_image

if TYPE_CHECKING:
    from kedit.benchmarks.kibench import KIBench
    from kedit.benchmarks.kibench_rows import DataFile

NAMES = {p: names for p, *names in (("en", "en", "english", "us", "usa"), ("zh", "zh", "cn", "chinese"), ("ar", "ar", "arabic"))}


def broken_rule(dimension: str, item: Item, inserted: Item) -> str:
    """What is wrong with an item of a dimension, "" where nothing is (paper, section 3.2); unknown scenarios break no rule."""
    known = bool(item.scenario and inserted.scenario)
    if dimension == CROSS_LANGUAGE:
        if item.partition == inserted.partition:
            return f"is in the inserted partition {item.partition!r}, expected another"
        return "shows another image than the insertion" if item.image != inserted.image else ""
    if item.partition != inserted.partition:
        return f"is in partition {item.partition!r}, expected {inserted.partition!r}"
    if dimension == GENERALITY:
        return (
            f"is of scenario {item.scenario!r}, expected {inserted.scenario!r}"
            if known and item.scenario != inserted.scenario
            else ""
        )
    return (
        f"is of the inserted scenario {item.scenario!r}, expected another" if known and item.scenario == inserted.scenario else ""
    )


def allowed(path: str) -> str:
    """A path from a file, with forward slashes; ValueError where it could leave the data's folder or the machine."""
    plain = path.replace("\\", "/")
    if "\0" in path or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", plain) or ".." in PurePosixPath(plain).parts:
        raise ValueError(f"image path {path!r} is refused: only paths below the data's folder, without '..' or a URL")
    return plain


def partition_of(name: Any, question: str) -> str:
    """en, zh or ar from what a file calls it, or from the question's script where it says nothing; ValueError if unknown."""
    if name is None:
        return "ar" if re.search("[\u0600-\u06ff]", question) else "zh" if re.search("[\u4e00-\u9fff]", question) else "en"
    lowered = str(name).strip().lower()
    for partition, names in NAMES.items():
        if lowered in names or re.split("[-_]", lowered)[0] == partition:
            return partition
    raise ValueError(f"partition {name!r} is not one of {', '.join(PARTITIONS)}")


def split_of(path: str) -> str:
    """The split that a file's name tells: train, sequential, else single test."""
    lowered = path.lower()
    return SPLITS[0] if "train" in lowered else SPLITS[2] if "seq" in lowered or "chain" in lowered else SPLITS[1]


def data_files(root: Path) -> list[Path]:
    """The data files of a folder (or the one file), sorted; DataError where there is none."""
    if not root.exists():
        hint = f"; to download a data set from the hub write hf:{root}" if len(root.parts) == 2 else ""
        raise DataError(f"{root} does not exist: give the folder or the file that holds the data{hint}")
    suffixes, aside = (".jsonl", ".json", ".parquet"), ("scenarios.json",)
    files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.suffix in suffixes and p.name not in aside)
    if not files:
        raise DataError(f"{root} holds no {', '.join(suffixes)} file; expected raw/, single/ or sequential/ with such files")
    return files


SHOWN = 5
"""Findings of a kind that a printed report shows."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its kind, where, what; an ``error`` spoils a measurement, anything else is worth a look."""

    kind: str
    where: str
    message: str
    error: bool = True


@dataclass(frozen=True)
class Report:
    """What a folder was taken for and what is wrong with it.

    ``files`` maps each file to what its rows were taken for, with their number; ``images`` counts found, missing, broken,
    too_large and refused.
    """

    path: str
    files: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    images: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """No finding is an error."""
        return not any(finding.error for finding in self.findings)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind of finding occurs."""
        return Counter(finding.kind for finding in self.findings)

    def __str__(self) -> str:
        lines = [f"{path}: {kinds}" for path, kinds in self.files.items()]
        lines.append("images: " + ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in self.images.items()))
        for kind, n in self.counts.items():
            found = [finding for finding in self.findings if finding.kind == kind]
            lines.append(f"{'error' if found[0].error else 'warning'}: {kind.replace('_', ' ')}, {n} times")
            lines += [f"  {f.message if f.where in f.message else f'{f.where}: {f.message}'}" for f in found[:SHOWN]]
            lines += [f"  and {n - SHOWN} more"] if n > SHOWN else []
        return "\n".join([*lines, f"{self.rows} rows, {'sound' if self.ok else 'not sound'}"])


def check(path: str | Path, *, mapping: Mapping[str, str] | None = None, images: str | Path | None = None) -> Report:
    """Read every row and open every image of a local folder or file, and report; nothing is downloaded or changed.

    Raises DataError where there is nothing to read; a file that breaks a rule is a finding, up to its first broken row.
    """
    from kedit.benchmarks.kibench import KIBench  # stands on this module's rules
    from kedit.benchmarks.kibench_rows import read_file

    if str(path).startswith("hf:"):
        raise DataError(f"{path} is on a hub; download it first and check the folder")
    bench = KIBench(path, mapping=mapping, images=images)
    files, findings = [], []
    for file in data_files(bench.root):
        try:
            files.append(read_file(file, bench.folder, bench.names))
        except DataError as error:
            findings.append(Finding("unreadable", str(file), str(error)))
    findings += [Finding("empty", f"{f.path}, {where}", reason) for f in files for where, reason in f.skipped]
    findings += [found for f in files for found in (*_duplicates(f), *_texts(f))] + list(_splits(files))
    counts, wrong = _images(files, bench)
    taken = {str(f.path): ", ".join(f"{n} {kind}" for kind, n in Counter(map(_kind, f.rows)).items()) or "no rows" for f in files}
    return Report(str(path), taken, sum(len(f.rows) for f in files), counts, tuple(findings + wrong))


def _kind(row: tuple[str, str, Raw | Row]) -> str:
    kind = "raw" if isinstance(row[2], Raw) else "chain" if len(row[2].steps) > 1 else "single"
    return f"{kind} ({row[1]})"


def insertions(row: Raw | Row) -> list[Item]:
    """The insertions of a row."""
    return [row.item(p) for p in row.qa] if isinstance(row, Raw) else [step.item for step in row.steps]


def measures(row: Raw | Row) -> list[tuple[str, Item, Item]]:
    """(dimension, item, insertion) of what measures a row."""
    steps = () if isinstance(row, Raw) else row.steps
    return [(name, item, step.item) for step in steps for name, found in step.others.items() for item in found]


def _duplicates(file: DataFile) -> Iterator[Finding]:
    ids, seen = Counter(row.id for _, _, row in file.rows), set()
    yield from (Finding("duplicate", str(file.path), f"id {id!r} comes {n} times", False) for id, n in ids.items() if n > 1)
    for where, _, row in file.rows:
        for item in insertions(row):
            key = (item.image, item.partition, item.question)
            if key in seen:
                yield Finding("duplicate", f"{file.path}, {where}", "same image and question as an earlier row", False)
            seen.add(key)


def _texts(file: DataFile) -> Iterator[Finding]:
    for where, _, row in file.rows:
        place = f"{file.path}, {where}"
        for item in (*insertions(row), *(item for _, item, _ in measures(row))):
            if isinstance(row, Raw) and not item.answer:
                yield Finding("empty", place, f"answer in partition {item.partition!r} is empty")
            for text in (item.question, item.answer or ""):
                if wrong_script(text, item.partition):
                    yield Finding("wrong_script", place, f"not written as partition {item.partition!r} is: {text[:60]!r}", False)
        for dimension, item, inserted in measures(row):
            if dimension == GENERALITY and item.image == inserted.image:
                yield Finding("same_image", place, "generality item shows the inserted image, expected another of its scenario")


def _splits(files: list[DataFile]) -> Iterator[Finding]:
    rows = [(split, row) for file in files for _, split, row in file.rows]
    scenarios = {split: {row.scenario for own, row in rows if own == split and row.scenario} for split in SPLITS}
    for k, first in enumerate(SPLITS):
        for second in SPLITS[k + 1 :]:
            if shared := sorted(scenarios[first] & scenarios[second]):
                yield Finding("overlap", f"{first}, {second}", f"share the scenarios {', '.join(shared)}")
    train = {item.answer for split, row in rows if split == SPLITS[0] for item in insertions(row) if item.answer}
    test = {item.answer for split, row in rows if split != SPLITS[0] for item in insertions(row)}
    yield from (Finding("leak", "train, test", f"answer in both: {answer[:60]!r}", False) for answer in sorted(train & test))


def _images(files: list[DataFile], bench: KIBench) -> tuple[Mapping[str, int], list[Finding]]:
    """Each distinct image opened once."""
    seen: dict[str | bytes, str] = {}
    for file in files:
        for where, _, row in file.rows:
            for item in (*insertions(row), *(item for _, item, _ in measures(row))):
                seen.setdefault(item.image, f"{file.path}, {where}")
    counts, findings = Counter(found=0, missing=0, broken=0, too_large=0, refused=0), []
    for image, where in seen.items():
        kind, message = _image(image, bench)
        counts[kind] += 1
        if message:
            findings.append(Finding(f"image_{kind}", where, message))
    return counts, findings


def _image(image: str | bytes, bench: KIBench) -> tuple[str, str]:
    try:
        path = bench.locate(image)
        if path is not None and not path.is_file():
            return "missing", f"there is no image {path}"
        open_image(bench.image(image))
    except ImageError as error:
        return "too_large" if "pixels" in str(error) else "broken", str(error)
    except ValueError as error:
        return "refused", str(error)
    return "found", ""
