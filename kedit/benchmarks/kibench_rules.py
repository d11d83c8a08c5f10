"""Rules that CrossCult-KIBench's rows keep (paper, section 3.2), and what their files tell by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kedit.benchmarks.kibench_cases import CROSS_LANGUAGE, GENERALITY, PARTITIONS, Item, Raw, Row
from kedit.benchmarks.scene import SPLITS
from kedit.errors import DataError
from kedit.files.rows import files_of

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
    files = [file for file in files_of(root, suffixes) if file.name not in aside or file == root]
    if not files:
        raise DataError(f"{root} holds no rows, only {aside[0]}; expected raw/, single/ or sequential/ with data files")
    return files


def insertions(row: Raw | Row) -> list[Item]:
    """The insertions of a row."""
    return [row.item(p) for p in row.qa] if isinstance(row, Raw) else [step.item for step in row.steps]


def measures(row: Raw | Row) -> list[tuple[str, Item, Item]]:
    """(dimension, item, insertion) of what measures a row."""
    steps = () if isinstance(row, Raw) else row.steps
    return [(name, item, step.item) for step in steps for name, found in step.others.items() for item in found]
