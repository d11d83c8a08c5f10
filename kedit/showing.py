"""Progress as one line that changes in place, in a notebook or a terminal: for runs, matrices and trainings alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

_EVERY = 0.2
"""Seconds between two changes of the line."""


class Line:
    """What ``progress`` arguments take: ``kedit.evaluate(..., progress=kedit.progress)``, ``editor.fit(..., progress=...)``.

    Shows what is done of what, with the time left. In a notebook each cell has a line of its own; in a terminal the line
    goes to standard error; elsewhere, such as in a file, nothing is written.
    """

    def __init__(self) -> None:
        self._of: object = None
        self._began = 0.0
        self._first = self._done = 0
        self._shown = 0.0
        self._cell: tuple[int, Any] | None = None

    def __call__(self, *told: Any, **named: Any) -> None:
        *given, last = *told, *named.values()
        values: Mapping[str, float] = last if isinstance(last, Mapping) else {}
        *names, done, total = given if values else [*given, last]
        now = time.monotonic()
        if (tuple(names), total) != self._of or done < self._done:
            self._of, self._began, self._first = (tuple(names), total), now, done
        elif now - self._shown < _EVERY and done != total:
            return
        self._shown, self._done = now, done
        self._show(_text(names, done, total, values, self._left(done, total, now)), whole=done == total)

    def _left(self, done: int, total: int, now: float) -> float | None:
        since = done - self._first
        return (now - self._began) * (total - done) / since if since and done != total else None

    def _show(self, text: str, whole: bool) -> None:
        cell = _cell()
        if cell is None:
            if sys.stderr.isatty():
                sys.stderr.write(f"\r\x1b[K{text}{chr(10) if whole else ''}")
                sys.stderr.flush()
            return
        from IPython.display import display

        data = {"text/plain": text}
        if self._cell is None or self._cell[0] != cell:
            self._cell = (cell, display(data, raw=True, display_id=True))
        else:
            self._cell[1].update(data, raw=True)


def _text(names: list[Any], done: int, total: int, values: Mapping[str, float], left: float | None) -> str:
    what = " ".join(map(str, names)) or "step"
    told = "".join(f", {name} {value:.3g}" for name, value in values.items() if name != "epoch")
    return f"{what}: {done} of {total}{told}{'' if left is None else f', {left:.0f} s left'}"


def _cell() -> int | None:
    """The number of the notebook's cell that is running; None outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return int(shell.execution_count) if shell is not None and hasattr(shell, "kernel") else None


progress = Line()
"""The one line of this process."""
