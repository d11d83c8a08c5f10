"""What files to train on share with files to test on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kedit.benchmarks.checks.base import Checked, Facts
from kedit.benchmarks.checks.report import Finding


def leaks(files: Sequence[Checked], folder: Path) -> Iterator[Finding]:
    """For each file with "train" in its path below the folder, against each without.

    A question with its image and answer in both is an error; shared images and shared items of locality are not, because
    published splits have them, but a method that trains on them has seen what it is tested with.
    """
    read = [one for one in files if one.facts]
    trained = ["train" in one.file.relative_to(folder).as_posix().lower() for one in read]
    for train in (one for one, trains in zip(read, trained, strict=True) if trains):
        for test in (one for one, trains in zip(read, trained, strict=True) if not trains):
            yield from _shared(train, test)


def _shared(train: Checked, test: Checked) -> Iterator[Finding]:
    where = f"{train.file}, {test.file}"
    images = {one.image for one in test.facts if one.image}
    if n := len(images & {one.image for one in train.facts}):
        yield Finding("shared_images", where, f"{n} of the {len(images)} images of {test.file.name} are also in training", False)
    seen = {_edit(one) for one in train.facts}
    for one in test.facts:
        if one.question and one.answer and _edit(one) in seen:
            yield Finding("leak", one.where, f"same image, question and answer as in {train.file}: {one.question[:60]!r}")
    known = {item for one in train.facts for item in one.locality}
    for kind in dict.fromkeys(item[0] for one in test.facts for item in one.locality):
        items = {item for one in test.facts for item in one.locality if item[0] == kind}
        if n := len(items & known):
            yield Finding("shared_locality", where, f"{n} of the {len(items)} distinct {kind} items are also in training", False)


def _edit(one: Facts) -> tuple[str, str, str]:
    return one.image, one.question, one.answer
