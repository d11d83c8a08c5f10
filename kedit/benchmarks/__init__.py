"""Benchmarks by name, and what they share: cases that are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import getdoc, signature
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from kedit.benchmark import Benchmark
from kedit.errors import DataError, UnknownNameError, unknown_name
from kedit.specs import parameters_of, resolve

T = TypeVar("T")
BENCHMARKS: dict[str, str] = {
    "kibench": "kedit.benchmarks.kibench:KIBench",
    "kibench-open": "kedit.benchmarks.kibench_open:KIBenchOpen",
    "crope": "kedit.benchmarks.crope:CROPE",
    "mini-crope": "kedit.benchmarks.mini_crope:MiniCROPE",
    "kviscuit": "kedit.benchmarks.kviscuit:KViscuit",
    "mini-kviscuit": "kedit.benchmarks.mini_kviscuit:MiniKViscuit",
    "pope": "kedit.benchmarks.pope:POPE",
    "cvqa": "kedit.benchmarks.cvqa:CVQA",
    "easyedit": "kedit.benchmarks.easyedit:EasyEdit",
}
GROUP = "kedit.benchmarks"


def benchmark(name: str, **options: Any) -> Benchmark:
    """A benchmark: ``"kibench-open"``, ``"kibench:PATH"`` (a folder of data), ``"module:Class"`` or ``"file.py:Class"``.

    Options may follow a colon, as Python literals or bare words: ``"kviscuit:PATH:circular=True"``; ``options`` go before
    them. Raises UnknownNameError, which lists the nearest, for a name or an option, and DataError for unreadable options.
    """
    name, given = parameters_of(name)
    options = {**given, **options}
    short, colon, path = name.partition(":")
    if colon and short in BENCHMARKS:
        name, options = short, {"path": path, **options}
    made = resolve(name, BENCHMARKS, GROUP, "benchmark")
    if "path" in signature(made).parameters and "path" not in options:
        raise UnknownNameError(
            f"benchmark {name!r} is read from files: write {name}:PATH with the folder or file that holds them"
        )
    known = [parameter.name for parameter in signature(made).parameters.values()]
    for option in options:
        if option not in known:
            short = name.partition(":")[0]
            if option == "mapping":
                raise DataError(f"{short} takes no mapping: its fields have fixed names; rename them in the file")
            raise unknown_name(f"option of the benchmark {short}", option, known)
    found: Benchmark = made(**options)
    return found


def summary(name: str) -> str:
    """The first sentence of a benchmark's documentation."""
    text = getdoc(resolve(name, BENCHMARKS, GROUP, "benchmark")) or ""
    return " ".join(text.split("\n\n")[0].split())


@runtime_checkable
class Buildable(Protocol):
    """A benchmark that is made here, so that it can be written to files and looked at."""

    def build(self, out: str | Path, *, cases: int = 20) -> Path: ...

    def sheet(self, out: str | Path) -> Path: ...


def buildable(name: str) -> Buildable:
    """A benchmark that can be built; raises UnknownNameError for one that is only read from files."""
    made = resolve(name.partition(":")[0] if name.partition(":")[0] in BENCHMARKS else name, BENCHMARKS, GROUP, "benchmark")
    if not (hasattr(made, "build") and hasattr(made, "sheet")):
        raise UnknownNameError(
            f"benchmark {name!r} is only read from files; one that is drawn here can be built, such as kibench-open"
        )
    found: Buildable = made()
    return found


class Lazy(Sequence[T]):
    """A sequence whose elements are made when they are asked for, so that images are drawn or opened only then."""

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self.length = length
        self.make = make

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            chosen = range(self.length)[index]
            return Lazy(len(chosen), lambda i: self.make(chosen[i]))
        return self.make(range(self.length)[index])
