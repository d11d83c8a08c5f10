"""A backbone and an editor in live use: insert, ask before and after, take back, save, go on another day."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from kedit.answers import BaseAnswers, limited
from kedit.editor import ContextEditor, Editor, ReplacementEditor
from kedit.errors import ContractError, DataError, KeditError, NotFittedError, NotRemovableError
from kedit.generators import generators_restored, seed_by
from kedit.live.inserts import Image, image_of, knowledge_of, read_knowledge, request_of
from kedit.live.saved import find_saved, write_saved
from kedit.shipped import mismatch, take
from kedit.types import Answer, Knowledge, Request
from kedit.wording import SYSTEM_PROMPTS

if TYPE_CHECKING:
    from kedit.backbone import Backbone
    from kedit.benchmark import Benchmark

_ENTRIES = ("entry", "nearest", "entries")
"""What a trace calls knowledge by its edit id."""
_open: WeakSet[Session] = WeakSet()
"""Every session that is in use somewhere in this process."""


@dataclass(frozen=True)
class Entry:
    """Something inserted, and the number by which its user takes it back."""

    number: int
    knowledge: Knowledge


@dataclass(frozen=True)
class Inserted:
    """What an insert did: the entries that are new, and what a user should know of the others."""

    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What the unedited backbone and the edited one say to one request, and what the editor did with it."""

    request: Request
    before: Answer | None
    """The unedited backbone's answer; None where it cannot be had, and ``missing`` says why."""
    after: Answer
    trace: Mapping[str, str | float]
    """As ``Record.trace``, with the session's numbers for the entries."""
    missing: str = ""

    @property
    def changed(self) -> bool:
        """Whether the edits made a difference to the words, as far as that can be told."""
        return self.before is None or self.before.text != self.after.text


class Session:
    """Insert, ask, take back and save, one at a time: what ``kedit edit`` and ``kedit play`` stand on.

    The editor is attached and loads what ships for it where it has learned nothing; NotFittedError where nothing does.
    Entries are numbered from 1, and a number is never given twice. ``max_new_tokens`` limits answers. A request in a language
    of ``systems`` gets its system prompt (those of benchmarks by default; ``{}`` for none). Several threads may use a session;
    they wait for each other, since there is one model. DataError while another session changes the same backbone: what is
    unedited, and what a reset goes back to, could not be told.
    """

    def __init__(
        self,
        backbone: Backbone,
        editor: Editor,
        *,
        max_new_tokens: int = 64,
        systems: Mapping[str, str] = SYSTEM_PROMPTS,
        cache_dir: str | Path | None = None,
    ) -> None:
        self.backbone = backbone
        self.editor = editor
        self._alone()
        ready(editor, backbone)
        self.max_new_tokens = max_new_tokens
        self.systems = systems
        self.unsaved = 0
        """Changes since the last save or load."""
        self._lock = threading.RLock()
        self._edits = dict(enumerate(editor.edits_, 1))
        self._last = len(self._edits)
        self._undo: list[list[int]] = []
        self._folders: list[tempfile.TemporaryDirectory[str]] = []  # images of what was loaded live there
        with editor.unedited():
            self._answers = BaseAnswers(backbone, cache_dir, max_new_tokens)
        _open.add(self)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What is inserted now, in the order of insertion."""
        with self._lock:
            return tuple(Entry(number, self.editor.edits_[edit]) for number, edit in self._edits.items())

    def _alone(self) -> None:
        for other in list(_open):
            if other.backbone is self.backbone and other.editor is not self.editor and other._edits and other._changes_the_model:
                raise DataError(
                    f"another session has {len(other._edits)} entries in this backbone by {other.editor.name}; reset it, or "
                    "load the backbone again for this one"
                )

    @property
    def _changes_the_model(self) -> bool:
        return not isinstance(self.editor, ContextEditor | ReplacementEditor)

    # -- inserting -------------------------------------------------------------------------------------------------

    def insert(
        self,
        question: str,
        answer: str,
        images: Sequence[Image] = (),
        *,
        language: str | None = None,
        title: str = "",
        text: str = "",
    ) -> Inserted:
        """Insert one item; one that is inserted already is left out, and a note says so.

        Raises RequestError for an empty question or answer, ImageError for an image that cannot be opened, and what the
        editor raises; nothing has changed then.
        """
        return self._insert([("this", knowledge_of(self.request(question, images, language), answer, title, text))])

    def insert_file(self, path: str | Path) -> Inserted:
        """Insert every row of a file (``read_knowledge``), or none: an error takes back the rows before it and names its row.

        Rows that are inserted already are left out, and notes name them.
        """
        return self._insert(read_knowledge(path, self.systems))

    def _insert(self, items: Sequence[tuple[str, Knowledge]]) -> Inserted:
        new: list[int] = []
        notes: list[str] = []
        with self._lock:
            self._begin()
            held = {(e.knowledge.request.key, e.knowledge.answer): e.number for e in self.entries}
            asked = {key: number for (key, _), number in held.items()}
            for where, item in items:
                key = item.request.key
                if (key, item.answer) in held:
                    notes.append(f"{where} is inserted already, as {held[key, item.answer]}; left out")
                    continue
                if key in asked:
                    notes.append(f"{where} asks what {asked[key]} asks and answers otherwise; both are inserted")
                with self._all_or_none(new, where if len(items) > 1 else ""):
                    asked[key] = held[key, item.answer] = self._add(item)
                new.append(asked[key])
            if new:
                self._undo.append(new)
                self.unsaved += 1
            return Inserted(tuple(entry for entry in self.entries if entry.number in new), tuple(notes))

    def _begin(self) -> None:
        """What must be so, and must be known, before anything is inserted."""
        self._alone()
        if self._changes_the_model and type(self.editor).unedited is Editor.unedited:
            _ = self._identity  # afterwards there is no way back to the unedited weights

    def _add(self, knowledge: Knowledge) -> int:
        edit = self._learn(knowledge)
        self._last += 1
        self._edits[self._last] = edit
        return self._last

    def _learn(self, knowledge: Knowledge) -> str:
        """Insert, with random numbers that depend on nothing else, so that the same again gives the same."""
        with generators_restored():
            seed_by(0, self.editor.name, knowledge.request.key, knowledge.answer)
            return self.editor.insert(knowledge)

    @contextmanager
    def _all_or_none(self, done: Sequence[int], where: str) -> Iterator[None]:
        """An error, or Ctrl-C, takes back what the same call has inserted so far."""
        try:
            yield
        except BaseException as error:
            self._take_back(done)
            if where and isinstance(error, KeditError):
                raise DataError(f"{where}: {error} Nothing of the file is inserted.") from error
            raise

    # -- taking back -----------------------------------------------------------------------------------------------

    def undo(self) -> tuple[Entry, ...]:
        """Take back what the last insert that is not yet taken back inserted (all rows of a file); () where there is none."""
        with self._lock:
            while self._undo:
                if left := [number for number in self._undo[-1] if number in self._edits]:
                    return self.remove(*left)
                self._undo.pop()
            return ()

    def remove(self, *numbers: int) -> tuple[Entry, ...]:
        """Take entries back by number and return them; DataError, with nothing changed, for a number that is not there.

        Where the editor cannot take one back alone, all are undone and the others inserted again in their order.
        """
        with self._lock:
            if wrong := [number for number in numbers if number not in self._edits]:
                there = ", ".join(map(str, self._edits)) or "none"
                raise DataError(f"there is no entry {', '.join(map(str, wrong))}; inserted are: {there}")
            gone = tuple(entry for entry in self.entries if entry.number in numbers)
            self._take_back(numbers)
            self.unsaved += 1
            return gone

    def reset(self) -> tuple[Entry, ...]:
        """Take everything back and return it; the backbone is as it was before the first insert."""
        with self._lock:
            gone = self.entries
            self.editor.reset()
            self._edits.clear()
            self._undo.clear()
            self.unsaved += bool(gone)
            return gone

    def _take_back(self, numbers: Sequence[int]) -> None:
        left = sorted(set(numbers), reverse=True)  # the newest first, as they would be undone
        while left:
            try:
                self.editor.remove(self._edits[left[0]])
            except NotRemovableError:
                return self._rebuild(left)
            del self._edits[left.pop(0)]
        return None

    def _rebuild(self, without: Sequence[int]) -> None:
        """Undo everything and insert again what is to stay; where that fails, everything is as it was."""
        kept = {entry.number: entry.knowledge for entry in self.entries if entry.number not in without}
        folder = tempfile.TemporaryDirectory(prefix="kedit-")
        self.editor.save_edits(folder.name)
        try:
            self.editor.reset()
            fresh = {number: self._learn(knowledge) for number, knowledge in kept.items()}
        except BaseException:
            self._folders.append(folder)
            self._restore(Path(folder.name))
            raise
        folder.cleanup()
        self._edits = fresh

    def _restore(self, folder: Path) -> None:
        """Everything as it was saved to a folder; where that fails too, what could be restored is what is inserted."""
        count = len(self._edits)
        try:
            self.editor.reset()
            self.editor.load_edits(folder)
        except BaseException as error:
            raise DataError(f"only {len(self.editor.edits_)} of {count} entries could be inserted again: {error}") from error
        finally:
            self._edits = dict(zip(self._edits, self.editor.edits_, strict=False))

    # -- asking ----------------------------------------------------------------------------------------------------

    def request(self, question: str, images: Sequence[Image] = (), language: str | None = None) -> Request:
        """The request that a question makes; its language is told from its script where none is given (en, zh or ar).

        Raises RequestError for an empty question and ImageError for an image that cannot be opened.
        """
        return request_of(question, tuple(map(image_of, images)), language, self.systems)

    def ask(self, question: str, images: Sequence[Image] = (), *, language: str | None = None) -> Reply:
        """Ask the unedited and the edited backbone; raises as ``request`` does."""
        request = self.request(question, images, language)
        with self._lock, generators_restored():  # what is inserted next does not depend on what was asked
            before, missing = self._before(request)
            after = self._after(request, before)
            [trace] = self.editor.trace([request])
            return Reply(request, before, after, self._numbered(trace), missing)

    def _before(self, request: Request) -> tuple[Answer | None, str]:
        try:
            with self.editor.unedited():
                [asked] = self._answers.try_ask([request])
        except ContractError:
            return None, f"{self.editor.name} changes the model in a way that cannot be set aside; ask before you insert"
        if asked.answer is None:
            raise asked.error or ContractError("a request has neither an answer nor an error")
        return asked.answer, ""

    def _after(self, request: Request, before: Answer | None) -> Answer:
        if before is not None and self.editor.deferrable and self.editor.postpone([request])[0] == request:
            return before  # no edit concerns it: the same model is asked the same
        with limited(self.backbone, self.max_new_tokens):
            [answer] = self.editor.generate([request])
        return Answer(answer, self.backbone.count_tokens(answer)) if isinstance(answer, str) else answer

    def _numbered(self, trace: Mapping[str, str | float]) -> dict[str, str | float]:
        numbers = {edit: str(number) for number, edit in self._edits.items()}

        def told(value: str | float) -> str | float:
            if isinstance(value, str) and value.startswith("["):
                return ", ".join(numbers.get(edit, edit) for edit in json.loads(value))
            return numbers.get(value, value) if isinstance(value, str) else value

        return {name: told(value) if name in _ENTRIES else value for name, value in trace.items()}

    # -- another day -----------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write everything inserted to a folder that is new, empty, or a session saved before; killed, the old one stays.

        Raises StoreError for a folder with anything else in it, or one that cannot be written.
        """
        with self._lock:
            folder = write_saved(path, self.editor, tuple(self._edits), self._identity)
            self.unsaved = 0
        return folder

    def load(self, path: str | Path) -> tuple[str, ...]:
        """Insert what ``save`` wrote, with the numbers it had; returns notes on what differs in the editor since then.

        Raises DataError where the folder holds no saved session, for another backbone's or editor's, and where something is
        inserted already; nothing has changed then.
        """
        with self._lock:
            if self._edits:
                raise DataError(f"{len(self._edits)} entries are inserted already; reset, or load into a new session")
            self._begin()
            found = find_saved(path, self.editor, self._identity)
            own = tempfile.TemporaryDirectory(prefix="kedit-")  # the saved folder may be saved to again, or go
            try:
                shutil.copytree(found.edits, own.name, dirs_exist_ok=True)
                self.editor.load_edits(own.name)
                self._edits = dict(zip(found.numbers, self.editor.edits_, strict=True))
            except BaseException as error:
                self.editor.reset()
                if isinstance(error, OSError | ValueError | LookupError | TypeError) and not isinstance(error, KeditError):
                    raise DataError(f"{path} cannot be loaded: {error}; nothing is inserted") from error
                raise
            self._folders.append(own)
            self._last = max([self._last, *self._edits])
            self._undo.clear()  # numbers of before may now be those of what was loaded
            self.unsaved = 0
            return found.notes

    @cached_property
    def _identity(self) -> dict[str, str]:
        with self.editor.unedited():
            return {"id": self.backbone.id, "fingerprint": self.backbone.fingerprint()}


# -- parts -------------------------------------------------------------------------------------------------------------


def ready(editor: Editor, backbone: Backbone, benchmark: Benchmark | None = None) -> Editor:
    """The editor, attached, with what ships for it where it has learned nothing.

    One that only collects cases (``needs_cases`` is False) collects those of ``benchmark``'s train split, where one is given.
    Raises NotFittedError for an editor that has still learned nothing: a session trains nothing by itself.
    """
    take(editor, backbone)
    if not editor.fitted and not editor.needs_cases and benchmark is not None:
        editor.fit(benchmark.train())
    if not editor.fitted:
        other = mismatch(editor, backbone.id)
        ships = f"what ships for {backbone.id} has other parameters ({'; '.join(other)})" if other else "nothing ships for it"
        raise NotFittedError(
            f"{editor.name} must learn before anything is inserted, and {ships}. Give what it learned: --fitted FOLDER (made by "
            f"kedit train), or in Python kedit.fitted(...)"
        )
    return editor


def routing(trace: Mapping[str, str | float]) -> str:
    """What an editor did with a request, in one line; "" where it does not say."""
    parts = [f"{name} {value if isinstance(value, str) else format(value, '.4g')}" for name, value in trace.items()]
    return ("no entry applies: " if "nearest" in trace else "") + ", ".join(parts)
