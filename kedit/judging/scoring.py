"""Judging the answers of a run, each distinct one once, and scoring its records by what the judge said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedit.casebook import read_cases
from kedit.errors import StoreError, unknown_name
from kedit.judging.asking import Keep, Outcomes, ask_all
from kedit.judging.book import Book, Cache, judgements_of, open_book, recorded
from kedit.judging.judges import Judge
from kedit.judging.prompt import Inputs, prompt_of
from kedit.judging.verdict import HIGHEST, Verdict
from kedit.run import Run
from kedit.scoring import FREE_TEXT, Score, Scorer, Scoring, by_dimension
from kedit.types import Record

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Judged:
    """What a call of ``score_run`` did, and where the run then stands.

    Of ``texts`` distinct inputs in ``records`` records, ``asked`` were judged and ``cached`` found in the cache by this call;
    ``scored`` have a score now, ``unscored`` have none, by reason, and ``left`` are not judged yet. ``labels`` counts texts.
    ``requests``, ``retries`` and tokens are those of this call; tokens are 0 where a server does not count.
    """

    judge: str
    prompt: str
    file: Path
    records: int
    texts: int
    asked: int
    cached: int
    scored: int
    unscored: Mapping[str, int]
    left: int
    labels: Mapping[str, int]
    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0

    def cost(self, prompt_price: float, answer_price: float) -> float:
        """What this call cost, from the prices of a million tokens read and written."""
        return (self.prompt_tokens * prompt_price + self.answer_tokens * answer_price) / 1e6


def score_run(
    run: Run,
    judge: Judge | str,
    *,
    prompt: str = "score",
    only_failed: bool = False,
    replay: bool = False,
    editors: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    workers: int = 8,
    rate: float | None = None,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Judged:
    """Judge what a run's editors answered in free text, and keep the judgements beside its records.

    Equal inputs are judged once; what the run or the cache already holds is not asked again, what had no score neither:
    ``only_failed`` asks for exactly that. ``replay`` takes from the cache only, for which the judge's id is enough. Each
    judgement is on the disk as soon as it is there. ``rate`` limits requests per minute (repetitions of one that
    failed not counted).

    Raises StoreError for a folder in use or a run without questions, UnknownNameError for an editor, task or prompt, and
    EndpointError where going on makes no sense.
    """
    if isinstance(judge, str) and not replay:
        raise unknown_name("judge", judge, (), "A name is enough for a replay only; else give what open_judge returns.")
    asked = prompt_of(prompt)
    name = recorded(judge, run.path, cache_dir) if isinstance(judge, str) else judge.id
    texts, records = _distinct(run, name, asked.version, editors, tasks)
    with open_book(run.path, name, asked.version) as book:
        todo = [key for key in texts if _wanted(book.rows.get(key), only_failed)]
        cached = _from_cache(book, Cache(name, cache_dir), texts, todo)
        rest = [] if isinstance(judge, str) or replay else [key for key in todo if key not in cached]
        before = _traffic(judge)
        try:
            if not isinstance(judge, str):
                bar = None if progress is None else _counted(progress, len(texts), len(texts) - len(rest))
                keep = _keeper(book, Cache(name, cache_dir), texts)
                ask_all(judge, asked, [(k, texts[k].inputs) for k in rest], keep, workers=workers, rate=rate, progress=bar)
        finally:
            book.arrange(texts)
        used = {key: value - before[key] for key, value in _traffic(judge).items()}
        return _summary(book, texts, records, len(rest), len(cached), used)


def judge_scoring(run: Run, judge: str, prompt: str | None = None) -> Scoring:
    """A run's way of scoring by a judge that has judged it: 10 times the judge's score, so 0 to 100 as all others.

    ``judge`` is an id, or a beginning that only one has; ``prompt`` a kind, needed where several were used. Answers that are no
    free text keep the score of their dimension. Raises UnknownNameError and StoreError as ``judgements_of``.
    """
    kept = judgements_of(run.path, judge, None if prompt is None else prompt_of(prompt).version)
    rows, questions = kept.rows, _Questions(run)
    others = {task: by_dimension(run.dimensions(task)) for task in run.tasks}
    free = _free(run)

    def score(record: Record) -> Score:
        if (record.task, record.dimension) not in free and record.task in others:
            return others[record.task](record)
        row = rows.get(questions.inputs(record).key(kept.judge, kept.version))
        if row is None:
            return Score(None, "not judged yet")
        return Score(None, str(row["error"])) if row["score"] is None else Score(100 / HIGHEST * row["score"])

    what = f"a judge's score of 0 to {HIGHEST} as 0 to 100"
    return Scoring(f"judge {kept.judge}, prompt {kept.version}", what, score, label="judge")


def judge_scorer(run: Run, judge: str, prompt: str | None = None) -> Scorer:
    """As ``judge_scoring``, the scorer of records alone."""
    return judge_scoring(run, judge, prompt).scorer


# -- what there is to judge --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """One thing to judge, and the record where it first stands."""

    inputs: Inputs
    editor: str
    record: Record

    @property
    def place(self) -> dict[str, Any]:
        r = self.record
        return {"editor": self.editor, "task": r.task, "case": r.case, "asked_at": r.asked_at, "probe": r.probe}


class _Questions:
    """The questions of a run's records, which the records themselves do not hold."""

    def __init__(self, run: Run) -> None:
        self._run = run.path
        self._asked = {
            (row["task"], row["id"]): [p["request"]["question"] for p in row["probes"]] for row in read_cases(run.path)
        }

    def inputs(self, record: Record) -> Inputs:
        known = self._asked.get((record.task, record.case), [])
        if record.probe >= len(known):
            raise StoreError(
                f"{self._run} keeps no question {record.probe} of {record.task} {record.case}; restore its cases.jsonl, or run "
                "it anew"
            )
        return Inputs(record.language, known[record.probe], record.reference, record.output)


def _free(run: Run) -> set[tuple[str, str]]:
    """Tasks and dimensions whose answers are free text."""
    return {(task, d.name) for task in run.tasks for d in run.dimensions(task) if d.scoring == FREE_TEXT}


def _distinct(
    run: Run, judge: str, version: str, editors: Sequence[str] | None, tasks: Sequence[str] | None
) -> tuple[dict[str, _Text], int]:
    """By key, each distinct text in the order of the records, and the number of records."""
    for task in tasks or ():
        if task not in run.tasks:
            raise unknown_name("task of the run", task, run.tasks)
    texts: dict[str, _Text] = {}
    records = 0
    for editor, record in _records(run, editors, tasks):
        records += 1
        inputs = record[1]
        texts.setdefault(inputs.key(judge, version), _Text(inputs, editor, record[0]))
    return texts, records


def _records(run: Run, editors: Sequence[str] | None, tasks: Sequence[str] | None) -> Iterator[tuple[str, tuple[Record, Inputs]]]:
    questions, free = _Questions(run), _free(run)
    for editor in run.editors if editors is None else editors:
        for record in run.records(editor):
            if (record.task, record.dimension) in free and (tasks is None or record.task in tasks):
                yield editor, (record, questions.inputs(record))


# -- judging -----------------------------------------------------------------------------------------------------------


def _wanted(row: Mapping[str, Any] | None, only_failed: bool) -> bool:
    return row is not None and row["score"] is None if only_failed else row is None


def _from_cache(book: Book, cache: Cache, texts: Mapping[str, _Text], todo: Sequence[str]) -> set[str]:
    """Enter what the cache knows; the keys of it."""
    known = cache.read() if todo else {}
    found = [key for key in todo if key in known]
    rows = []
    for key in found:
        row = known[key]
        verdict = Verdict(row["score"], row["label"], row["reason"])
        rows.append(book.row(key, verdict, tokens=row["tokens"], detail="", cached=True, **texts[key].place))
    book.add(rows)
    return set(found)


def _keeper(book: Book, cache: Cache, texts: Mapping[str, _Text]) -> Keep:
    def keep(outcomes: Outcomes) -> None:
        rows = [
            book.row(key, o.verdict, tokens=o.tokens, detail=o.detail, cached=False, **texts[key].place)
            for key, o in outcomes.items()
        ]
        book.add(rows)
        cache.add(rows)

    return keep


def _counted(progress: Progress, total: int, done: int) -> Callable[[int], None]:
    count = done

    def more(number: int) -> None:
        nonlocal count
        count += number
        progress(count, total)

    progress(count, total)
    return more


def _traffic(judge: Judge | str) -> dict[str, int]:
    names = ("requests", "retries", "prompt_tokens", "answer_tokens")
    return {name: 0 if isinstance(judge, str) else getattr(judge.traffic, name) for name in names}


def _summary(book: Book, texts: Mapping[str, _Text], records: int, asked: int, cached: int, used: Mapping[str, int]) -> Judged:
    rows = [book.rows[key] for key in texts if key in book.rows]
    return Judged(
        judge=book.kept.judge,
        prompt=book.kept.version,
        file=book.kept.file,
        records=records,
        texts=len(texts),
        asked=asked,
        cached=cached,
        scored=sum(row["score"] is not None for row in rows),
        unscored=dict(Counter(row["error"] for row in rows if row["score"] is None).most_common()),
        left=len(texts) - len(rows),
        labels=dict(Counter(row["label"] for row in rows if row["label"]).most_common()),
        **used,
    )
