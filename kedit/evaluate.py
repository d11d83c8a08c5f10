"""The only runner: benchmark, protocol, editor and backbone in; a folder of records out."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

from kedit.answers import Asked, BaseAnswers, PlainAnswers, fatal, limited
from kedit.attempts import LONG, Attempt, Parts, Question, todo
from kedit.backbone import Backbone
from kedit.benchmark import Benchmark, Task
from kedit.casebook import Casebook
from kedit.config import run_config
from kedit.editor import TRAIN_SPLIT, Editor, Hit, ReplacementEditor
from kedit.errors import ContractError, FamilyError
from kedit.flags import flags_of
from kedit.following import RunSteps, following
from kedit.generators import generators_restored, seed_by
from kedit.measuring import Forcing
from kedit.protocols import Ask, Insert
from kedit.run import Run
from kedit.shipped import bring, learning
from kedit.store import RunStore
from kedit.timing import Timings, timing
from kedit.tracking import Tracker
from kedit.types import Answer, Case, Record, Request
from kedit.work import by_name, keys_of, tasks_of

log = logging.getLogger(__name__)
T = TypeVar("T")

_BLOCK = 32
"""Cases whose base answers, and whose rewritten requests, are asked together."""
_PART = 128
"""Questions of one long chain that are put off at most: what a kill may cost."""


class Progress(Protocol):
    """Called after every case of every editor, finished ones of an earlier run included."""

    def __call__(self, editor: str, task: str, done: int, total: int) -> None: ...


def evaluate(
    editors: Editor | Sequence[Editor] | Mapping[str, Editor],
    backbone: Backbone,
    benchmark: Benchmark,
    *,
    tasks: str | Sequence[str] | None = None,
    limit: int | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    max_new_tokens: int = 64,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
    plain: bool = False,
    legacy: bool = False,
    tracker: Tracker | None = None,
) -> Run:
    """Insert, ask and record every case of a benchmark with every editor, and return the run.

    ``editors`` is one editor, several, or a mapping from display names. ``tasks`` defaults to all of the benchmark's,
    ``limit`` counts raw cases of each. ``out`` is the run's folder: what it already holds is not asked again; without it
    the records live in a temporary folder as long as the returned run. ``seed`` sets the generators of random, NumPy and
    torch anew for each editor and case, so that a case's result does not depend on those before it. ``plain`` asks one
    request at a time and remembers nothing: the same answers in fp32, slowly. ``legacy`` also takes the field's
    teacher-forced metrics into the records, one forward pass per probe and two for locality. ``tracker`` is told the progress and
    the final scores (``kedit.tracking``).

    An editor that learns and has not yet is given what ships for the backbone with just its parameters, else it is fitted on
    the whole train split, with a warning; NotFittedError where there is neither. ``kedit.fitted`` makes one that has learned.

    A case that fails is noted in the run's failures and tried again by the next call; so are all cases of an editor that does
    not go with this backbone (FamilyError when it is attached or fitted), and the others go on. Raises UnknownNameError for a
    task, StoreError for the folder, ContractError when an editor breaks a promise; out of memory passes through. Whatever
    happens, every edit is reset; where that leaves the backbone edited, a ContractError says so.
    """
    named = by_name(editors)
    for name, editor in named.items():
        if getattr(editor, "edits_", None):
            _reset(name, editor, "what was inserted before the run")  # the run starts from the unedited backbone
    work = {name: (benchmark.tasks[name], benchmark.cases(name, limit=limit)) for name in tasks_of(benchmark, tasks)}
    bring(named, backbone, benchmark)
    config = run_config(
        named, backbone, benchmark, work, limit=limit, seed=seed, max_new_tokens=max_new_tokens, plain=plain, legacy=legacy
    )
    folder = tempfile.TemporaryDirectory(prefix="kedit-") if out is None else None
    answers = PlainAnswers(backbone, max_new_tokens) if plain else BaseAnswers(backbone, cache_dir, max_new_tokens)
    steps = RunSteps(tracker, progress)
    with (
        RunStore.open(folder.name if folder else str(out), config) as store,
        limited(backbone, max_new_tokens),
        following(tracker, config["identity"]),
    ):
        book = Casebook(store.path)
        for name, editor in named.items():
            _EditorRun(name, editor, backbone, benchmark, work, store, book, answers, seed, steps, plain, legacy).run()
        run = Run.load(store.path, keep=folder)
        steps.end(run)
    return run


@dataclass
class _EditorRun:
    """All cases of one editor."""

    name: str
    editor: Editor
    backbone: Backbone
    benchmark: Benchmark
    work: Mapping[str, tuple[Task, Sequence[Case]]]
    store: RunStore
    book: Casebook
    answers: BaseAnswers | PlainAnswers
    seed: int
    progress: Progress | None
    plain: bool
    legacy: bool

    def run(self) -> None:
        done = self.store.done(self.name)
        waiting = {name: todo(name, task, cases, done, self.parts) for name, (task, cases) in self.work.items()}
        if any(waiting.values()):
            refused = self._prepared()
            for name, attempts in waiting.items():
                self._task(name, attempts) if refused is None else self._refuse(name, attempts, refused)
            self.store.note(self.name, {} if refused else self.editor.notes())
            if self.backbone.fingerprint() != self.store.config["identity"]["backbone"]["fingerprint"]:
                raise ContractError(f"{self.name}: the weights after reset() differ from those before the first insert")
        # Also where all is there: the run before may have been killed just before it did this.
        for name, (_, cases) in self.work.items():
            tried = {attempt.case.id for attempt in waiting[name]}
            self.store.settle(self.name, name, (case.id for case in cases if case.id not in tried))
        self.store.arrange(self.name, (key for name, (task, cases) in self.work.items() for key in keys_of(name, task, cases)))

    @cached_property
    def parts(self) -> Parts:
        """What is kept of long chains before they are done."""
        return Parts(self.store.path, self.name)

    @cached_property
    def deferred(self) -> bool:
        """The editor only rewrites or routes requests, so that they can be answered later, many at once."""
        return not self.plain and self.editor.deferrable

    def _prepared(self) -> FamilyError | None:
        """Attach and fit; gives the error that says why this editor and this backbone do not go together."""
        try:
            self._prepare()
        except FamilyError as error:
            self._sealed("a failed fit() or attach()")
            return error
        return None

    def _refuse(self, task: str, attempts: Sequence[Attempt], error: FamilyError) -> None:
        for attempt in attempts:
            attempt.stage, attempt.error = "attach", error
            self._finish(task, attempt)
        self._report(task, len(self.work[task][1]), len(self.work[task][1]))

    def _prepare(self) -> None:
        if getattr(self.editor, "backbone_", None) is self.backbone:
            _reset(self.name, self.editor, "an earlier use")  # attaching again would build anew what fit has trained
        else:
            self.editor.attach(self.backbone)
        if not self.editor.fitted:
            cases = self.benchmark.train()
            log.warning("%s", learning(self.name, self.editor, self.backbone, self.benchmark, len(cases)))
            seed_by(self.seed, self.name, "fit")
            self.editor.fit(cases)
            self.editor.learned_ = TRAIN_SPLIT
        self._sealed("fit() or attach()")

    def _task(self, task: str, attempts: Sequence[Attempt]) -> None:
        total = len(self.work[task][1])
        finished = total - len(attempts)
        self._report(task, finished, total)
        for start in range(0, len(attempts), _BLOCK):
            for _ in self._block(task, attempts[start : start + _BLOCK]):
                finished += 1
                self._report(task, finished, total)

    def _report(self, task: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(self.name, task, done, total)

    def _block(self, task: str, attempts: Sequence[Attempt]) -> Iterator[None]:
        """References of all cases before any edit, then case by case; what is deferred, together at the end."""
        self._ask_references(attempts)
        for attempt in attempts:
            if attempt.error is None:
                self._attempt(task, attempt)
            if not self.deferred:
                self._finish(task, attempt)
                yield
        if self.deferred:
            self._ask_deferred(attempts)
            for attempt in attempts:
                self._finish(task, attempt)
                yield

    def _ask_references(self, attempts: Sequence[Attempt]) -> None:
        wanted = []
        for attempt in attempts:
            probes = sorted({probe for _, probe in attempt.missing if attempt.case.probes[probe].reference is None})
            wanted += [(attempt, probe) for probe in probes]
        found = self.answers.try_ask([attempt.case.probes[probe].request for attempt, probe in wanted])
        for (attempt, probe), asked in zip(wanted, found, strict=True):
            attempt.references[probe] = asked
            attempt.error = attempt.error or asked.error
        if self.legacy:
            self._sealed("what came before")
            for attempt in attempts:
                self._force(attempt)

    def _force(self, attempt: Attempt) -> None:
        """What the unedited backbone predicts along given answers; an error concerns the case alone."""
        try:
            attempt.forcing = Forcing.before(self.backbone, attempt.case, attempt.missing, attempt.references)
        except Exception as error:
            if fatal(error):
                raise
            attempt.error = attempt.error or error

    def _attempt(self, task: str, attempt: Attempt) -> None:
        """One case's events; an error that concerns the case alone is kept in the attempt."""
        seed_by(self.seed, self.name, task, attempt.case.id)
        try:
            self._events(task, attempt)
        except Exception as error:
            if fatal(error):
                raise
            attempt.error = error
        finally:
            self._undo(f"case {attempt.case.id}")

    def _events(self, task: str, attempt: Attempt) -> None:
        clock = Timings(self.backbone.device, {"insert": attempt.inserts})
        for event in self.work[task][0].protocol(attempt.case):
            if not attempt.missing:
                break  # the rest was asked before the run was killed
            if isinstance(event, Insert):
                attempt.stage = "insert"
                with clock.timing("insert"):
                    self.editor.insert(event.knowledge)
            else:
                attempt.stage = "generate"
                with generators_restored():  # what is inserted next does not depend on what was asked
                    self._ask(attempt, event)
                    self._keep_part(task, attempt)

    def _keep_part(self, task: str, attempt: Attempt) -> None:
        """Answer and keep what was asked of a long chain so far; what may be put off is answered many at once."""
        waits = sum(question.waits for question in attempt.questions)
        if len(attempt.case.chain) < LONG or (self.deferred and waits < _PART):
            return
        if waits:
            self._ask_deferred([attempt])
        if attempt.error is not None:
            raise attempt.error
        records = [self._record(task, attempt, question) for question in attempt.questions]
        self.parts.keep(task, attempt.case, records)
        attempt.kept += records
        attempt.questions = []

    def _ask(self, attempt: Attempt, event: Ask) -> None:
        probes = [p for p in dict.fromkeys(event.probes) if (event.after, p) in attempt.missing]
        attempt.missing -= {(event.after, p) for p in probes}  # a protocol that asks the same twice has one record
        requests = [attempt.case.probes[p].request for p in probes]
        size = 1 if self.plain else max(len(requests), 1)
        for start in range(0, len(requests), size):
            asked = requests[start : start + size]
            found = self.editor.postpone(asked) if self.deferred else self._generate(asked)
            traces = self.editor.trace(asked)
            if len(traces) != len(asked):
                raise ContractError(f"{self.name}: trace() gave {len(traces)} results for {len(asked)} requests")
            part = probes[start : start + size]
            measured = attempt.forcing.measure(self.editor, attempt.case, part) if attempt.forcing else [{}] * len(part)
            attempt.questions += [Question(event.after, *one) for one in zip(part, found, traces, measured, strict=True)]

    def _generate(self, requests: Sequence[Request]) -> list[Asked]:
        if not requests:
            return []
        with timing("ask", self.backbone.device) as lap:
            answers = list(self.editor.generate(requests))
        if len(answers) != len(requests):
            raise ContractError(f"{self.name}: generate() gave {len(answers)} answers to {len(requests)} requests")
        return [Asked(self._answer(answer), lap.seconds / len(requests)) for answer in answers]

    def _answer(self, answer: Answer | str) -> Answer:
        if isinstance(answer, str):
            return Answer(answer, self.backbone.count_tokens(answer))
        if not isinstance(answer, Answer):
            raise ContractError(f"{self.name}: generate() gave a {type(answer).__name__}; give Answer(text) or a string")
        return answer

    def _ask_deferred(self, attempts: Sequence[Attempt]) -> None:
        open_ = [(a, q) for a in attempts if a.error is None for q in a.questions if q.waits]
        base = iter(self.answers.try_ask([q.found for _, q in open_ if isinstance(q.found, Request)]))
        hits = iter(self._ask_replacement([q.found for _, q in open_ if isinstance(q.found, Hit)]))
        for attempt, question in open_:
            question.found = next(base if isinstance(question.found, Request) else hits)
            attempt.error = attempt.error or question.found.error
            attempt.stage = "generate"

    def _ask_replacement(self, hits: Sequence[Hit]) -> list[Asked]:
        """The replacement's answers to all of them in one call; where that fails, one by one."""
        if not hits or not isinstance(self.editor, ReplacementEditor):
            return []
        seed_by(self.seed, self.name, "replace")
        try:
            with timing("ask", self.backbone.device) as lap:
                answers = self.editor.replace([hit.request for hit in hits], [hit.knowledge for hit in hits])
        except Exception as error:
            if fatal(error):
                raise
            if len(hits) == 1:
                return [Asked(None, error=error)]
            return [asked for hit in hits for asked in self._ask_replacement([hit])]
        if len(answers) != len(hits):
            raise ContractError(f"{self.name}: replace() gave {len(answers)} answers to {len(hits)} requests")
        return [Asked(self._answer(answer), lap.seconds / len(hits)) for answer in answers]

    def _finish(self, task: str, attempt: Attempt) -> None:
        case = attempt.case
        self.book.add(task, case)  # before the records, so that whoever has these has it too
        if attempt.error is not None:
            self.store.fail(self.name, task, case.id, attempt.stage, attempt.error)
            return
        records = [*attempt.kept, *(self._record(task, attempt, question) for question in attempt.questions)]
        self.store.append(self.name, records)
        if len(case.chain) >= LONG:
            self.parts.drop(task, case)
        seconds = {"insert": attempt.inserts, "ask": [record.seconds for record in records]}
        self.store.succeed(self.name, task, case.id, seconds)

    def _record(self, task: str, attempt: Attempt, question: Question) -> Record:
        probe = attempt.case.probes[question.probe]
        if not isinstance(question.found, Asked) or question.found.answer is None:
            raise ContractError(f"case {attempt.case.id}, probe {question.probe} was not answered")
        answer = question.found.answer
        reference = probe.reference
        if reference is None:
            base = attempt.references[question.probe].answer
            reference = base.text if base is not None else ""
        limit = self.answers.max_new_tokens
        return Record(
            task=task,
            case=attempt.case.id,
            probe=question.probe,
            dimension=probe.dimension,
            step=probe.step,
            asked_at=question.after,
            language=probe.request.language,
            output=answer.text,
            reference=reference,
            from_base=probe.reference is None,
            tokens=answer.tokens,
            seconds=question.found.seconds,
            flags=flags_of(answer, probe.request.language, reference_tokens=self._tokens(reference), max_new_tokens=limit),
            tags={**attempt.case.tags, **probe.tags},
            trace=question.trace,
            measured=question.measured,
        )

    def _tokens(self, text: str) -> int:
        if text not in self._counted:
            self._counted[text] = self.backbone.count_tokens(text)
        return self._counted[text]

    @cached_property
    def _counted(self) -> dict[str, int]:
        return {}

    def _undo(self, when: str) -> None:
        _reset(self.name, self.editor, when)
        if not self.deferred:  # what only rewrites requests is checked when the unedited backbone is asked
            self._sealed(f"reset() after {when}")

    def _sealed(self, what: str) -> None:
        if changed := self.answers.seal.changed():
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise ContractError(f"{self.name}: {what} left weights changed: {', '.join(changed[:3])}{more}; the run stops")


def _reset(name: str, editor: Editor, when: str) -> None:
    try:
        editor.reset()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ContractError(f"{name}: reset() failed after {when} ({reason}); the run stops") from error
