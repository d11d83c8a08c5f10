"""Saying what a folder of data is and what is wrong with it; nothing is downloaded or changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from kedit.benchmarks.checks import formats, nearest, recognise
from kedit.benchmarks.checks.base import Checked, Format, Place
from kedit.benchmarks.checks.images import Opened
from kedit.benchmarks.checks.leaks import leaks
from kedit.benchmarks.checks.own import own
from kedit.benchmarks.checks.report import UNKNOWN, UNREADABLE, Finding, Report
from kedit.benchmarks.checks.rows import check_file
from kedit.errors import DataError
from kedit.files.rows import files_of, rows_of

__all__ = ["Finding", "Report", "check"]

ASIDE = ("scenarios.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
"""Files that say something of the data and hold no rows."""
_PEEKED = 20
"""Rows that a file is recognised by: columns that not all rows have tell formats apart."""
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")


def check(path: str | Path, *, mapping: Mapping[str, str] | None = None, images: str | Path | None = None) -> Report:
    """Recognise every file of a local folder (or one file), read every row, open every image, and report.

    ``mapping`` names the fields of a benchmark that takes such names, and says that the files are of that benchmark;
    ``images`` is the folder that image paths start from, by default the data's own folders. Raises DataError where there is
    nothing to read; a file that is broken or of no known format is a finding.
    """
    if str(path).startswith("hf:"):
        raise DataError(f"{path} is on a hub; download it first and check the folder")
    place = Place(Path(path), None if images is None else Path(images), dict(mapping or {}))
    written = own(place.path)
    if written is not None:
        return written
    files = [file for file in files_of(place.path) if file.name not in ASIDE or file == place.path]
    if not files:
        raise DataError(f"{path} holds no rows, only {', '.join(ASIDE)}")
    opened = Opened()
    taken, unknown = _recognised(files, place)
    found = [one for form, own_files in taken.items() for one in _checked(form, own_files, place, opened)]
    findings = [finding for one in found for finding in one.findings] + unknown
    whole = not any(finding.kind in (UNREADABLE, UNKNOWN) for finding in findings)
    findings += [*leaks(found, place.folder), *opened.findings, *(_unreferenced(place, opened) if whole else ())]
    return Report(
        path=str(path),
        files={str(one.file): one.taken for one in found if one.taken},
        rows=sum(one.rows for one in found),
        images=dict(opened.counts) if opened.seen else {},
        findings=tuple(findings),
        formats=tuple(form.name for form in taken),
    )


def _recognised(files: Sequence[Path], place: Place) -> tuple[dict[Format, list[Path]], list[Finding]]:
    """Files by their format, and a finding for each that has none; an error where no file of the folder has one."""
    taken: dict[Format, list[Path]] = {}
    unreadable, unknown = list[Finding](), list[Finding]()
    for file in files:
        try:
            form, why = _format(file, place)
        except DataError as error:
            unreadable.append(Finding(UNREADABLE, str(file), str(error)))
            continue
        if form is None:
            unknown.append(Finding(UNKNOWN, str(file), why))
        else:
            taken.setdefault(form, []).append(file)
    lost = not taken
    return taken, [*unreadable, *(Finding(one.kind, one.where, one.message, lost) for one in unknown)]


def _format(file: Path, place: Place) -> tuple[Format | None, str]:
    """The format of a file, or None and why."""
    if place.mapping:
        return next(form for form in formats() if form.several), ""
    rows = [row.values for row in islice(rows_of(file, place.folder), _PEEKED)]
    known = [(form.weight(row), form) for row in rows if (form := recognise(row)) is not None]
    if known:
        return max(known, key=lambda one: one[0])[1], ""
    if not rows:
        return None, "it holds no rows"
    keys = ", ".join(map(str, rows[0])) or "none"
    say = "where only names differ: --mapping NAME=THEIRS"
    return None, f"is of no format that kedit knows. Keys found: {keys[:300]}; {nearest(rows[0])}; {say}"


def _checked(form: Format, files: Sequence[Path], place: Place, opened: Opened) -> Iterator[Checked]:
    if form.several is not None:
        yield from form.several(files, place, opened)
    else:
        yield from (check_file(file, form, place, opened) for file in files)


def _unreferenced(place: Place, opened: Opened) -> Iterator[Finding]:
    """Image files below the folder that no row names."""
    named = {Path(key).resolve() for key in opened.seen if Path(key).suffix} if place.path.is_dir() else set()
    files = [file for file in sorted(place.path.rglob("*")) if file.suffix.lower() in _PICTURES] if named else []
    spare = [file.name for file in files if file.resolve() not in named]
    if spare and opened.counts["found"]:
        shown = ", ".join(spare[:5]) + (f" and {len(spare) - 5} more" if len(spare) > 5 else "")
        yield Finding("unreferenced", str(place.path), f"{len(spare)} image files are named by no row: {shown}", False)
