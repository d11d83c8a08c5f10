"""What a tracker is told, and what it is never told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

Rows: TypeAlias = Sequence[Mapping[str, str | float | None]]
"""A small table: rows that have the same columns in the same order, such as ``frame.to_dict("records")``."""

LEFT_OUT = "(left out)"
_SECRET = {"key", "apikey", "token", "secret", "password", "passwd", "credential", "credentials", "authorization", "auth"}
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")


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


class Several:
    """Tells several trackers the same."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers

    def start(self, config: Mapping[str, Any]) -> None:
        """See ``Tracker``; where one cannot start, those that have are ended."""
        started: list[Tracker] = []
        try:
            for tracker in self.trackers:
                tracker.start(config)
                started.append(tracker)
        except BaseException:
            for tracker in started:
                tracker.finish(failed=True)
            raise

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        for tracker in self.trackers:
            tracker.log(step, values)

    def table(self, name: str, rows: Rows) -> None:
        """See ``Tracker``."""
        for tracker in self.trackers:
            tracker.table(name, rows)

    def finish(self, *, failed: bool = False) -> None:
        """See ``Tracker``; all are ended, whatever one of them raises."""
        errors = []
        for tracker in self.trackers:
            try:
                tracker.finish(failed=failed)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def without_secrets(config: Any) -> Any:
    """The same with texts under names such as ``api_key`` or ``token``, and names and passwords in addresses, left out."""
    if isinstance(config, Mapping):
        return {str(name): _hidden(value) if _secret(str(name)) else without_secrets(value) for name, value in config.items()}
    if isinstance(config, list | tuple):
        return [without_secrets(value) for value in config]
    return _USERINFO.sub("", config) if isinstance(config, str) else config


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
