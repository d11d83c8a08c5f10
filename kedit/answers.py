"""Answers of the unedited backbone: each question asked once, in batches, and kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import torch

from kedit import jsonl
from kedit.backbone import Backbone
from kedit.config import package_version, settings_id
from kedit.errors import ContractError, EndpointError, ImageError, NotAttachedError, NotFittedError, StoreError
from kedit.locks import cache_folder, taking_turns
from kedit.seal import Seal
from kedit.timing import timing
from kedit.types import Answer, Request

_CHUNK = 128
"""Requests per call of the backbone: a killed run loses at most these."""


class Asked(NamedTuple):
    """What came of one request: an answer with the seconds it took (0.0 from the cache), or the error."""

    answer: Answer | None
    seconds: float = 0.0
    error: Exception | None = None


def fatal(error: BaseException) -> bool:
    """Whether an error concerns more than the request or case at hand, so that going on would make no sense."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError | StoreError | ContractError | NotAttachedError | NotFittedError):
        return True
    if isinstance(error, EndpointError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@contextmanager
def limited(backbone: Backbone, max_new_tokens: int) -> Iterator[None]:
    """Inside the block, whoever asks this backbone without naming a limit gets this one."""
    ways = [name for name in ("generate", "generate_unless") if hasattr(backbone, name)]
    own = {name: vars(backbone).get(name) for name in ways}
    for name in ways:
        vars(backbone)[name] = partial(getattr(backbone, name), max_new_tokens=max_new_tokens)
    try:
        yield
    finally:
        for name, before in own.items():
            if before is None:
                del vars(backbone)[name]
            else:
                vars(backbone)[name] = before


def conditions(backbone: Backbone) -> str:
    """Everything besides the weights and the request that decides what a backbone computes, fit for a file's name."""
    dtype = str(backbone.dtype).removeprefix("torch.")
    device = str(backbone.device).split(":")[0]
    return f"{dtype}-{device}-transformers{package_version('transformers')}-{settings_id(backbone)}"


class BaseAnswers:
    """Asks the unedited backbone and remembers, in memory and on disk.

    The file is ``<cache_dir>/<weight fingerprint>-<decoding>.jsonl``, shared by all editors, runs and processes;
    ``cache_dir`` defaults to the environment's KEDIT_CACHE, else ``~/.cache/kedit``. Make it before anything edits the
    backbone: it seals the weights as they are and raises ContractError when asked while they differ, so that a base
    answer can never come from edited weights. ``hits`` and ``misses`` count requests.
    """

    def __init__(self, backbone: Backbone, cache_dir: str | Path | None = None, max_new_tokens: int = 64) -> None:
        self.backbone = backbone
        self.cache_dir = cache_dir
        self.max_new_tokens = max_new_tokens
        self.seal = Seal(backbone.model)  # not lazily: by the first question the weights may be edited
        self.hits = 0
        self.misses = 0

    def ask(self, requests: Sequence[Request]) -> list[Answer]:
        """Base answers, same length and order; raises the error of the first request that has one."""
        answers = []
        for asked in self.try_ask(requests):
            if asked.answer is None:
                raise asked.error or ContractError("a request has neither an answer nor an error")
            answers.append(asked.answer)
        return answers

    def try_ask(self, requests: Sequence[Request]) -> list[Asked]:
        """As ``ask``, with an error in place of an answer where one request alone is at fault.

        Raises what concerns all of them: ContractError, StoreError, out of memory.
        """
        keys = [_key(request) for request in requests]
        wanted = {k: r for k, r in zip(keys, requests, strict=True) if isinstance(k, str) and k not in self._known}
        self.misses += len(wanted)
        self.hits += sum(isinstance(k, str) for k in keys) - len(wanted)
        fresh = self._ask_new(wanted)
        found = []
        for key in keys:
            if isinstance(key, Exception):
                found.append(Asked(None, error=key))
            elif key in fresh:  # its seconds are counted once; a repetition is a hit
                asked = fresh[key]
                found.append(asked)
                fresh[key] = asked._replace(seconds=0.0)
            else:
                found.append(Asked(self._known[key]))
        return found

    def _ask_new(self, wanted: dict[str, Request]) -> dict[str, Asked]:
        if wanted and (changed := self.seal.changed()):
            raise ContractError(
                f"the unedited backbone was asked while {len(changed)} of its weights are edited ({', '.join(changed[:3])}); "
                "reset the editor first"
            )
        keys = list(wanted)
        fresh: dict[str, Asked] = {}
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            asked = ask_together(self.backbone, [wanted[key] for key in chunk], self.max_new_tokens)
            fresh.update(zip(chunk, asked, strict=True))
            self._keep({key: a.answer for key, a in zip(chunk, asked, strict=True) if a.answer is not None})
        return fresh

    # -- the cache -------------------------------------------------------------------------------------------------

    @cached_property
    def path(self) -> Path:
        """The cache file; its name says by which weights and settings its answers were made."""
        return cache_folder(self.cache_dir) / f"{self.backbone.fingerprint()[:16]}-{self.decoding}.jsonl"

    @property
    def decoding(self) -> str:
        """Everything besides the weights and the request that decides an answer."""
        return f"greedy{self.max_new_tokens}-{conditions(self.backbone)}"

    @cached_property
    def _known(self) -> dict[str, Answer]:
        with taking_turns(self.path):
            jsonl.repair(self.path)
            rows = list(jsonl.read(self.path, strict=False))
        return {row["key"]: Answer(row["text"], row["tokens"], row["truncated"]) for row in rows if row.keys() >= _FIELDS}

    def _keep(self, answers: dict[str, Answer]) -> None:
        self._known.update(answers)
        sound = {key: a for key, a in answers.items() if a.finite and a.text}  # a poisoned entry would outlive its cause
        rows = [{"key": k, "text": a.text, "tokens": a.tokens, "truncated": a.truncated} for k, a in sound.items()]
        with taking_turns(self.path):
            jsonl.repair(self.path)  # another process may have died while it wrote
            jsonl.append(self.path, rows)


class PlainAnswers:
    """The same questions the plain way: one at a time, nothing remembered."""

    def __init__(self, backbone: Backbone, max_new_tokens: int = 64) -> None:
        self.backbone = backbone
        self.max_new_tokens = max_new_tokens
        self.seal = Seal(backbone.model)

    def try_ask(self, requests: Sequence[Request]) -> list[Asked]:
        """As ``BaseAnswers.try_ask``."""
        if changed := self.seal.changed():
            raise ContractError(f"the unedited backbone was asked while {changed[0]!r} is edited; reset the editor first")
        return [ask_together(self.backbone, [request], self.max_new_tokens)[0] for request in requests]


def ask_together(backbone: Backbone, requests: Sequence[Request], max_new_tokens: int) -> list[Asked]:
    """One batched call; where it fails, one call per request, so that one bad image does not cost the others.

    A backbone that says by itself what came of each request (``generate_each``) is asked once only.
    """
    ask = getattr(backbone, "generate_each", backbone.generate)
    try:
        with timing("ask", backbone.device) as lap:
            answers = ask(requests, max_new_tokens=max_new_tokens)
    except Exception as error:
        if fatal(error):
            raise
        if len(requests) == 1:
            return [Asked(None, error=error)]
        return [ask_together(backbone, [request], max_new_tokens)[0] for request in requests]
    if len(answers) != len(requests):
        raise ContractError(f"{type(backbone).__name__}.generate gave {len(answers)} answers to {len(requests)} requests")
    share = lap.seconds / len(requests)
    return [Asked(None, error=a) if isinstance(a, Exception) else Asked(a, share) for a in answers]


_FIELDS = {"key", "text", "tokens", "truncated"}


def _key(request: Request) -> str | Exception:
    try:
        return str(request.key)
    except (OSError, ValueError) as error:  # ValueError is a null byte in a path
        return ImageError(f"cannot read an image of the request {request.question[:60]!r}: {error}")
