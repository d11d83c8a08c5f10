"""Asking a judge many things at once: paced, stopped where going on makes no sense, and losing nothing that came back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import NamedTuple

from kedit.chat import Reply
from kedit.errors import EndpointError, KeditError, RequestError
from kedit.judging.judges import Judge
from kedit.judging.prompt import Inputs, Prompt
from kedit.judging.verdict import Verdict

NO_ANSWER = "no answer from the judge"
REFUSED = "the judge's server refuses the request"
_SHOWN = 300


class Outcome(NamedTuple):
    """What came of one judgement: the verdict, the tokens of the reply, and what was said where there is no score."""

    verdict: Verdict
    tokens: int | None = None
    detail: str = ""


Outcomes = Mapping[str, Outcome]
Keep = Callable[[Outcomes], None]
Wanted = Sequence[tuple[str, Inputs]]


def ask_all(
    judge: Judge,
    prompt: Prompt,
    wanted: Wanted,
    keep: Keep,
    *,
    workers: int = 8,
    rate: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Ask everything once and hand outcomes by key to ``keep`` (from several threads) as soon as they are there.

    ``rate`` limits requests per minute, ``workers`` how many are under way. An interrupt, or an error of the disk, waits for what
    is under way, which is kept, and asks no more. An EndpointError stops everything where nothing was ever answered, or twice as
    many in a row as there are workers; else it is the outcome of one judgement. Those behind a stop have no outcome.
    """
    threads = max(1, min(workers, judge.threads))
    asking = _Asking(judge, prompt, keep, _Pace(rate), most=2 * threads)
    blocks = [wanted[at : at + judge.batch] for at in range(0, len(wanted), judge.batch)]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(asking.one, block) for block in blocks]
        try:
            for future in as_completed(futures):
                done = future.result()
                if progress is not None:
                    progress(done)
        except BaseException:
            asking.pace.stop()
            pool.shutdown(wait=False, cancel_futures=True)  # the end of the block waits for those under way
            raise
    asking.settle()


@dataclass
class _Pace:
    """Lets one request through every ``60 / rate`` seconds, all of them without a rate."""

    rate: float | None
    _next: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def wait(self, requests: int) -> bool:
        """Wait for the turn of so many requests; False where there is none any more."""
        if self.rate is None:
            return not self._stopped.is_set()
        with self._lock:
            turn = max(self._next, time.monotonic())
            self._next = turn + requests * 60 / self.rate
        return not self._stopped.wait(max(0.0, turn - time.monotonic()))

    def stop(self) -> None:
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()


@dataclass
class _Asking:
    """One go through what is wanted; ``held`` are judgements with an error that may turn out to concern all of them."""

    judge: Judge
    prompt: Prompt
    keep: Keep
    pace: _Pace
    most: int
    answered: bool = False
    held: dict[str, EndpointError] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, block: Wanted) -> int:
        """Ask one batch; how many it held."""
        if self.pace.wait(len(block)):
            replies = self.judge.ask(self.prompt, [inputs for _, inputs in block])
            found = {key: reply for (key, _), reply in zip(block, replies, strict=True)}
            stops = {key: reply for key, reply in found.items() if isinstance(reply, EndpointError)}
            # before anything is written: while it is, others may fail, and these replies say nothing of that
            passed = self._released() if any(isinstance(reply, Reply) for reply in found.values()) else {}
            stop = self._holds(stops)
            sure = {key: reply for key, reply in found.items() if key not in stops}
            self.keep({key: self._outcome(reply) for key, reply in {**passed, **sure}.items()})
            if stop is not None:
                raise stop
        return len(block)

    def _holds(self, stops: Mapping[str, EndpointError]) -> EndpointError | None:
        """Hold errors back; the one to stop with where they are too many."""
        with self._lock:
            self.held.update(stops)
            if not stops or (self.answered and len(self.held) < self.most):
                return None
        self.pace.stop()  # at once, not when the thread that waits for all of this is told
        return next(iter(stops.values()))

    def _released(self) -> dict[str, EndpointError]:
        """Something was answered: what was held back concerned single judgements, unless all is over."""
        with self._lock:
            self.answered = True
            held, self.held = self.held, {}
        return {} if self.pace.stopped else held

    def settle(self) -> None:
        """All is done, and nothing stopped it."""
        self.keep({key: self._outcome(error) for key, error in self._released().items()})

    def _outcome(self, reply: Reply | KeditError) -> Outcome:
        if isinstance(reply, KeditError):
            error = REFUSED if isinstance(reply, RequestError) else NO_ANSWER
            return Outcome(Verdict(None, error=error), detail=self.judge.clean(str(reply)))
        verdict = self.prompt.read(reply.text, reply.truncated)
        detail = self.judge.clean(reply.text)[:_SHOWN] if verdict.score is None else ""
        return Outcome(verdict._replace(reason=self.judge.clean(verdict.reason)), reply.tokens, detail)
