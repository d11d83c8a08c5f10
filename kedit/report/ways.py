"""The scores that stand beside each answer on the page: what the report is drawn by, and every judge that the run has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from kedit.judging.book import Kept, judgements
from kedit.judging.prompt import Inputs
from kedit.judging.verdict import HIGHEST
from kedit.report.results import Results
from kedit.scoring import FREE_TEXT, Score, Scorer, by_dimension, scoring
from kedit.types import Record


@dataclass(frozen=True)
class Way:
    """A way of scoring, by its label; ``score`` takes a record and its question, None for one that was not kept.

    It gives None where it has nothing of its own to say of the record.
    """

    label: str
    score: Callable[[Record, str | None], Score | None]


def ways(results: Results) -> list[Way]:
    """What the report is drawn by comes first; then the dimensions' own scores where that is a judge, and the other judges.

    A judge's reason stands beside its score, as does the reason why an answer has none.
    """
    run, drawn = results.run, results.judged
    kept = judgements(run.path)
    several = len({one.judge for one in kept}) < len(kept)
    judges = [(one, f"judge {one.judge}{f', {one.version}' if several else ''}") for one in kept]
    found = [Way(label, _judge(results, one)) for one, label in judges]
    own = Way(_labels(results), _plain(results, None))
    if drawn is None:
        return [own, *found]
    front = [way for way, one in zip(found, kept, strict=True) if drawn.id == f"judge {one.judge}, prompt {one.version}"]
    first = _over(front[0], own) if front else Way(drawn.id, _plain(results, drawn.scorer))
    return [first, own, *(way for way in found if way not in front)]


def _over(judge: Way, own: Way) -> Way:
    """The judge's score, and another's where the judge was not to be asked."""
    return Way(judge.label, lambda record, question: judge.score(record, question) or own.score(record, question))


def _labels(results: Results) -> str:
    names = dict.fromkeys(d.scoring for task in results.run.tasks for d in results.run.dimensions(task))
    return ", ".join(dict.fromkeys(scoring(name).label for name in names))


def _plain(results: Results, scorer: Scorer | None) -> Callable[[Record, str | None], Score | None]:
    @cache
    def of_task(task: str) -> Scorer:
        return by_dimension(results.run.dimensions(task))

    return lambda record, question: (scorer or of_task(record.task))(record)


def _judge(results: Results, kept: Kept) -> Callable[[Record, str | None], Score | None]:
    rows = kept.rows
    run = results.run
    free = {(task, d.name) for task in run.tasks for d in run.dimensions(task) if d.scoring == FREE_TEXT}

    def score(record: Record, question: str | None) -> Score | None:
        if (record.task, record.dimension) not in free or question is None:
            return None
        row = rows.get(Inputs(record.language, question, record.reference, record.output).key(kept.judge, kept.version))
        if row is None:
            return Score(None, "not judged yet")
        if row["score"] is None:
            return Score(None, str(row["error"]))
        return Score(100 / HIGHEST * row["score"], str(row.get("reason") or row.get("label") or ""))

    return score
