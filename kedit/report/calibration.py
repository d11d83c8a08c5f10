"""The calibration of a judge as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedit.report.notes import Note
from kedit.report.tables import Column, Table

if TYPE_CHECKING:
    from kedit.judging.calibrate import Calibration


def calibration_table(found: Calibration) -> Table:
    """A row per kind of candidate; scores from 0 to 10."""
    columns = (
        Column("candidate", "Candidate", "name"),
        Column("expected", "Should get", "name"),
        Column("n", "Pairs", "count"),
        Column("score", "Score", "estimate"),
        Column("lowest", "Lowest", "count"),
        Column("highest", "Highest", "count"),
        Column("unscored", "Unscored", "count"),
    )
    rows = tuple(
        (t.kind, t.expected, t.n, t.mean, _whole(t.lowest), _whole(t.highest), sum(t.unscored.values())) for t in found.trials
    )
    notes = [
        Note("Scores from 0 to 10 as the judge gave them, mean over pairs [95 % bootstrap interval over pairs]; nothing cached.")
    ]
    if found.asymmetry is not None:
        notes.append(Note(f"A score changes by {found.asymmetry:.1f} on average when reference and candidate trade places."))
    for reason in dict.fromkeys(reason for t in found.trials for reason in t.unscored):
        count = sum(t.unscored.get(reason, 0) for t in found.trials)
        notes.append(Note(f"{count} of {sum(t.n for t in found.trials)} replies gave no score: {reason}.", True))
    return Table("calibration", f"Judge {found.judge}, prompt {found.prompt}", "groups", columns, rows, tuple(notes))


def _whole(score: float | None) -> str | None:
    return None if score is None else f"{score:g}"
