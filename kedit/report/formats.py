"""Further forms of a report: LaTeX tables and records as Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kedit.artefacts import write_bytes
from kedit.errors import package, unknown_name
from kedit.frames import write_parquet
from kedit.report.latex import latex
from kedit.report.names import safe_name
from kedit.report.results import Results
from kedit.report.tables import Table

FORMATS = ("latex", "parquet")


def check_formats(formats: Sequence[str]) -> None:
    """Raise UnknownNameError for a format that is none of these, and MissingPackageError for one that cannot be written here."""
    for name in formats:
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS, "CSV, Markdown and HTML are always written.")
    if "parquet" in formats:
        package("pandas", "frames", "the records as Parquet")
        package("pyarrow", "parquet", "the records as Parquet")


def write_formats(results: Results, found: Sequence[Table], folder: Path, formats: Sequence[str]) -> Iterator[Path]:
    """Write ``latex/<table>.tex`` per table and ``records.parquet``, as far as they are asked for, and give the paths."""
    if "latex" in formats:
        for table in found:
            file = folder / "latex" / f"{safe_name(table.key)}.tex"
            write_bytes(file, latex(table, label=safe_name(table.key)).encode("utf-8", "replace"))
            yield file
    if "parquet" in formats:
        judged = results.judged.scorer if results.judged is not None else None
        yield write_parquet(results.run.to_frame(scorer=judged), folder / "records.parquet")
