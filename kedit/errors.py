"""Every error that kedit raises on purpose; each also subclasses the builtin that old ``except`` clauses catch."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any

_SHOWN = 60
"""Names that a message lists; a large model has thousands of parameters."""


class KeditError(Exception):
    """Base of all of kedit's own errors; the message says what was got, what was expected and what to do."""


class ImageError(KeditError, OSError):
    """An image is missing, broken, too large, or not allowed to be read."""


class RequestError(KeditError, ValueError):
    """A request cannot be asked: an empty question, an unknown part in its context."""


class DataError(KeditError, ValueError):
    """A benchmark's file does not have the expected form; the message names file and line or row."""


class UnknownNameError(KeditError, KeyError, ValueError):
    """A name is not among those known; the message lists the nearest."""

    def __str__(self) -> str:  # KeyError would print the repr, quotes and all
        return str(self.args[0]) if self.args else ""


class NotAttachedError(KeditError, ValueError, AttributeError):
    """An editor was used before ``attach(backbone)``."""


class NotFittedError(KeditError, ValueError, AttributeError):
    """An editor that learns was used before ``fit(cases)`` or ``load(path)``."""


class NotRemovableError(KeditError, NotImplementedError):
    """This edit cannot be taken back alone; ``reset()`` undoes all of them."""


class DivergedError(KeditError, ArithmeticError):
    """Training an edit gave NaN or infinity; the message names the step, and no weight has changed."""


class ContractError(KeditError, AssertionError):
    """An editor broke a promise of the Editor contract; the message names the promise."""


class ExportError(KeditError, ValueError):
    """An editor's work cannot be written in the form asked for; the message says why and names a form that it has."""


class MissingPackageError(KeditError, ImportError):
    """What was asked for needs a package that is not installed; the message names it and the extra that brings it."""


class StoreError(KeditError, OSError):
    """A run folder cannot be read or written, is in use, or holds another configuration."""


class CheckpointError(KeditError, OSError):
    """A model cannot be found or read under the name given."""


class FamilyError(KeditError, ValueError):
    """A model's structure is not one that kedit knows how to read."""


class NotHereError(FamilyError, AttributeError):
    """A model that runs on a server was to be looked into or changed; it can only be asked."""


class EndpointError(KeditError, OSError):
    """A server cannot be used as it was asked: not reached, wrong key, unknown model; going on would make no sense."""


class UnansweredError(KeditError, OSError):
    """A server that is there gave no usable answer to one request, however often it was asked."""


def package(name: str, extra: str, what: str) -> Any:
    """A package that not every installation has; raises MissingPackageError, which says what it is needed for."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{what} needs the package {name} ({error}); install it: pip install 'kedit[{extra}]'"
        ) from error


def unknown_name(kind: str, got: str, known: Iterable[str], hint: str = "") -> UnknownNameError:
    """The error for a misspelt name: what was got, the nearest known names, and all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(got, names, n=3, cutoff=0.5)
    mean = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = ", ".join(names[:_SHOWN]) or "none"
    return UnknownNameError(f"unknown {kind} {got!r}.{mean} Known: {listed}{more}.{' ' + hint if hint else ''}")
