"""What a check found, and how it is printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

SHOWN = 5
"""Findings of a kind that a printed report shows."""
UNREADABLE, UNKNOWN = "unreadable", "unknown"
"""Kinds of findings that mean: what follows was not looked at."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its kind, where, what; an ``error`` spoils a measurement, anything else is worth a look."""

    kind: str
    where: str
    message: str
    error: bool = True


@dataclass(frozen=True, repr=False)
class Report:
    """What a folder was taken for and what is wrong with it.

    ``formats`` names what was recognised; ``files`` maps each file to what its rows were taken for, with their number;
    ``images`` counts found, missing, broken, too_large and refused.
    """

    path: str
    files: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    images: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    formats: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """No finding is an error."""
        return not any(finding.error for finding in self.findings)

    @property
    def status(self) -> int:
        """For scripts: 0 sound, 1 some finding is an error, 2 something could not be read or recognised at all."""
        unread = any(finding.error and finding.kind in (UNREADABLE, UNKNOWN) for finding in self.findings)
        return 2 if unread else 0 if self.ok else 1

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind of finding occurs."""
        return Counter(finding.kind for finding in self.findings)

    def __repr__(self) -> str:
        lines = [f"taken for {', '.join(self.formats)}"] if self.formats else []
        lines += [f"{path}: {kinds}" for path, kinds in self.files.items()]
        lines.append("images: " + (", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in self.images.items()) or "none named"))
        if self.images.get("missing") and not self.images.get("found"):
            lines.append("  none was found: say where they lie with --images FOLDER")
        for kind, n in self.counts.items():
            found = [finding for finding in self.findings if finding.kind == kind]
            word = "error" if any(f.error for f in found) else "warning"
            lines.append(f"{word}: {kind.replace('_', ' ')}, {n} times")
            lines += [f"  {f.message if f.where in f.message else f'{f.where}: {f.message}'}" for f in found[:SHOWN]]
            lines += [f"  and {n - SHOWN} more"] if n > SHOWN else []
        return "\n".join([*lines, f"{self.rows} rows, {'sound' if self.ok else 'not sound'}"])
