"""What a tracker is told, and what it is never told."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

Rows: TypeAlias = Sequence[Mapping[str, str | float | None]]
"""A small table: rows that have the same columns in the same order, such as ``frame.to_dict("records")``."""

LEFT_OUT = "(left out)"
_SECRET = {"key", "apikey", "token", "secret", "password", "passwd", "pwd", "passphrase", "credential", "credentials"} | {
    *("authorization", "auth", "bearer", "cookie", "cookies", "sig", "signature", "accesskey", "accesstoken", "authtoken")
}
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_NAMED = re.compile(rf"(?i)(?<![a-z])((?:[\w-]*[_-])?(?:{'|'.join(sorted(_SECRET))})=)[^\s&#;,'\"]+")
"""A secret in an address or a command: ``?api_key=...``, ``--token=...``."""
_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]+")
log = logging.getLogger(__name__)


@runtime_checkable
class Tracker(Protocol):
    """Follows one training or one run: ``start``, then ``log`` and ``table`` in any order, then ``finish``, each in the first
    process alone. Steps never go down.
    """

    def start(self, config: Mapping[str, Any]) -> None:
        """Begin, with what decides the result, as JSON could hold it."""
        ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers by name at a step."""
        ...

    def table(self, name: str, rows: Rows) -> None:
        """A small table, such as the final scores."""
        ...

    def finish(self, *, failed: bool = False) -> None:
        """End, so that everything is kept; ``failed`` where an error ended the work."""
        ...


def listens(tracker: Tracker, what: str, *values: Any, **named: Any) -> bool:
    """Tell a tracker that has started; False, with a warning, where it raises: no hours of work may be lost for that."""
    try:
        getattr(tracker, what)(*values, **named)
    except Exception as error:  # noqa: BLE001 - whatever a tracker raises, the work goes on
        told = without_secrets(f"{type(error).__name__}: {error}")
        log.warning("%s: %s failed (%s); it is told nothing more, the work goes on", type(tracker).__name__, what, told)
        return False
    return True


class Several:
    """Tells several trackers the same; one that fails after it has started is told nothing more but the end."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers
        self._listening = list(trackers)

    def start(self, config: Mapping[str, Any]) -> None:
        """See ``Tracker``; where one cannot start, those that have are ended."""
        started: list[Tracker] = []
        try:
            for tracker in self.trackers:
                tracker.start(config)
                started.append(tracker)
        except BaseException:
            for tracker in started:
                listens(tracker, "finish", failed=True)
            raise

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._listening = [tracker for tracker in self._listening if listens(tracker, "log", step, values)]

    def table(self, name: str, rows: Rows) -> None:
        """See ``Tracker``."""
        self._listening = [tracker for tracker in self._listening if listens(tracker, "table", name, rows)]

    def finish(self, *, failed: bool = False) -> None:
        """See ``Tracker``; all are ended, whatever one of them raises."""
        for tracker in self.trackers:
            listens(tracker, "finish", failed=failed)


def without_secrets(config: Any) -> Any:
    """The same without secrets: texts under names such as ``api_key`` or ``token``, what follows such a name or "Bearer" in a
    text, and names and passwords in addresses.
    """
    if isinstance(config, Mapping):
        return {str(name): _hidden(value) if _secret(str(name)) else without_secrets(value) for name, value in config.items()}
    if isinstance(config, list | tuple):
        return [without_secrets(value) for value in config]
    return _clean(config) if isinstance(config, str) else config


def _clean(text: str) -> str:
    return _BEARER.sub(rf"\1{LEFT_OUT}", _NAMED.sub(rf"\1{LEFT_OUT}", _USERINFO.sub("", text)))


def _secret(name: str) -> bool:
    return not _SECRET.isdisjoint(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))


def _hidden(value: Any) -> Any:
    """A number under such a name (how many tokens, which key of a map) is no secret; texts and what holds them may be."""
    return value if value is None or isinstance(value, bool | int | float) else LEFT_OUT


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level, names joined by dots."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) and value else {f"{prefix}{name}": value}
    return found
