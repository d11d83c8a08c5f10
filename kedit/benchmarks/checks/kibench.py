"""CrossCult-KIBench's files: raw cases, single insertions and chains, whose splits must not share scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from kedit.benchmarks.checks.base import Checked, Format, Place
from kedit.benchmarks.checks.images import Opened
from kedit.benchmarks.checks.report import UNREADABLE, Finding
from kedit.benchmarks.kibench import KIBench
from kedit.benchmarks.kibench_cases import CROSS_LANGUAGE, CROSS_SCENARIO, GENERALITY, Raw, Row
from kedit.benchmarks.kibench_rows import ALIASES, DataFile, read_file
from kedit.benchmarks.kibench_rules import NAMES, insertions, measures
from kedit.benchmarks.scene import SPLITS
from kedit.errors import DataError
from kedit.flags import wrong_script


def check_files(files: Sequence[Path], place: Place, opened: Opened) -> list[Checked]:
    """All files of a folder, read as the benchmark reads them; one that breaks a rule counts up to there."""
    bench = KIBench(place.path, mapping=place.mapping, images=place.images)
    read, broken = [], []
    for path in files:
        try:
            read.append(read_file(path, bench.folder, bench.names))
        except DataError as error:
            broken.append(Checked(path, "", 0, [Finding(UNREADABLE, str(path), str(error))]))
    found = [_checked(file) for file in read]
    for file in read:
        for where, _, row in file.rows:
            for item in (*insertions(row), *(item for _, item, _ in measures(row))):
                opened.look(partial(bench.image, item.image), f"{file.path}, {where}")
    if found:
        found[-1] = Checked(found[-1].file, found[-1].taken, found[-1].rows, [*found[-1].findings, *_splits(read)])
    return [*found, *broken]


def _checked(file: DataFile) -> Checked:
    taken = ", ".join(f"{n} {kind}" for kind, n in Counter(map(_kind, file.rows)).items()) or "no rows"
    empty = [Finding("empty", f"{file.path}, {where}", reason) for where, reason in file.skipped]
    return Checked(file.path, taken, len(file.rows), [*empty, *_duplicates(file), *_texts(file)])


def _kind(row: tuple[str, str, Raw | Row]) -> str:
    kind = "raw" if isinstance(row[2], Raw) else "chain" if len(row[2].steps) > 1 else "single"
    return f"{kind} ({row[1]})"


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


def _splits(files: Sequence[DataFile]) -> Iterator[Finding]:
    rows = [(split, row) for file in files for _, split, row in file.rows]
    scenarios = {split: {row.scenario for own, row in rows if own == split and row.scenario} for split in SPLITS}
    for k, first in enumerate(SPLITS):
        for second in SPLITS[k + 1 :]:
            if shared := sorted(scenarios[first] & scenarios[second]):
                yield Finding("overlap", f"{first}, {second}", f"share the scenarios {', '.join(shared)}")
    train = {item.answer for split, row in rows if split == SPLITS[0] for item in insertions(row) if item.answer}
    test = {item.answer for split, row in rows if split != SPLITS[0] for item in insertions(row)}
    yield from (Finding("leak", "train, test", f"answer in both: {answer[:60]!r}", False) for answer in sorted(train & test))


def _flat(name: str) -> list[str]:
    """What the columns of a field may be called where they hold one language each."""
    marks = [mark for names in NAMES.values() for mark in names]
    return [f"{alias}_{mark}" for alias in ALIASES[name] for mark in marks] + [
        f"{mark}_{alias}" for alias in ALIASES[name] for mark in marks
    ]


_LANGUAGES = [mark for names in NAMES.values() for mark in names]
_TOGETHER = [*ALIASES["qa"], *ALIASES["steps"], *_LANGUAGES, *_flat("question")]
_OTHERS = [alias.rstrip("_") for name in (CROSS_LANGUAGE, CROSS_SCENARIO) for alias in ALIASES[name]]
_MARKS = [*ALIASES["partition"], *ALIASES["scenario"], *_TOGETHER, *(name for name in _OTHERS if name not in ("m_loc", "fg_loc"))]
_ASKED = [*ALIASES["question"], *_TOGETHER]
FORMATS = (
    Format(
        "CrossCult-KIBench",
        keys=("|".join(_ASKED), "|".join([*ALIASES["image"], *ALIASES["steps"]]), "|".join(_MARKS)),
        certain=True,
        several=check_files,
    ),
)
