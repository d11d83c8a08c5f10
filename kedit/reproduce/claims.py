"""What a paper says of its figures in words, held against a run: the comparison that is left where no values can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from kedit.reproduce.published import Claim
from kedit.reproduce.reading import Quantity

Number = Callable[[Quantity], float | None]


@dataclass(frozen=True)
class Verdict:
    """A claim and whether it holds here; None where a figure that it needs is missing. ``shown`` are the figures compared."""

    claim: Claim
    holds: bool | None
    shown: str

    def __str__(self) -> str:
        said = {True: "holds", False: "does not hold", None: "not measured"}[self.holds]
        return f"{said}: {self.claim.text}; {self.shown}"


def verdict(claim: Claim, number: Number) -> Verdict:
    """Whether every quantity of ``greater`` is above every one of ``less``; ``number`` reads a quantity from a run."""
    values = {side: {str(one): _value(one, number) for one in getattr(claim, side)} for side in ("greater", "less")}
    known = [value for side in values.values() for value in side.values()]
    sign = " >= " if claim.orequal else " > "
    shown = sign.join(", ".join(_shown(name, value) for name, value in side.items()) for side in values.values())
    if any(value is None for value in known):
        return Verdict(claim, None, shown)
    pairs = [(a, b) for a, b in product(values["greater"].values(), values["less"].values()) if a is not None and b is not None]
    return Verdict(claim, all(a > b or (claim.orequal and a == b) for a, b in pairs), shown)


def _value(side: str | float, number: Number) -> float | None:
    return number(Quantity.parse(side)) if isinstance(side, str) else float(side)


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return f"{name} has no value"
    return f"{value:g}" if _is_number(name) else f"{name} {value:.1f}"


def _is_number(name: str) -> bool:
    return name.replace(".", "", 1).isdigit()
