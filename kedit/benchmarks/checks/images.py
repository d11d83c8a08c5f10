"""Images of a check: each distinct one is looked for and opened once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kedit.benchmarks.checks.report import Finding
from kedit.errors import ImageError
from kedit.images import open_image
from kedit.types import ImageRef

STATES = ("found", "missing", "broken", "too_large", "refused")


@dataclass
class Opened:
    """What became of the images that rows name: ``counts`` by state, ``findings`` for all that cannot be used."""

    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(STATES, 0)))
    findings: list[Finding] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def look(self, make: Callable[[], ImageRef], where: str) -> str:
        """What identifies the image that ``make`` refers to, opened where it is new; "" where the reference is refused.

        ``make`` raises ValueError for a reference that is not allowed.
        """
        try:
            image = make()
        except ValueError as error:
            self._count("refused", where, str(error), f"refused {error}")
            return ""
        key = str(image.path) if image.path is not None else hashlib.sha256(image.read()).hexdigest()
        if key not in self.seen:
            state, message = _state(image)
            self._count(state, where, message, key)
        return key

    def _count(self, state: str, where: str, message: str, key: str) -> None:
        if key in self.seen:
            return
        self.seen.add(key)
        self.counts[state] += 1
        if message:
            self.findings.append(Finding(f"image_{state}", where, message))


def _state(image: ImageRef) -> tuple[str, str]:
    if image.path is not None and not Path(image.path).is_file():
        return "missing", f"there is no image {image.path}"
    try:
        open_image(image)
    except ImageError as error:
        return "too_large" if "pixels" in str(error) else "broken", str(error)
    return "found", ""
