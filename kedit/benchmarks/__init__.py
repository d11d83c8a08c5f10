"""Benchmarks by name, and what they share: reading files of rows, and cases that are made when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from inspect import getdoc, signature
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from kedit.benchmark import Benchmark
from kedit.errors import DataError, UnknownNameError
from kedit.specs import resolve

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

    ``options`` go to its constructor. Raises UnknownNameError, which lists the nearest names, and TypeError for an option
    that the benchmark does not take.
    """
    short, colon, path = name.partition(":")
    if colon and short in BENCHMARKS:
        name, options = short, {"path": path, **options}
    made = resolve(name, BENCHMARKS, GROUP, "benchmark")
    if "path" in signature(made).parameters and "path" not in options:
        raise UnknownNameError(
            f"benchmark {name!r} is read from files: write {name}:PATH with the folder or file that holds them"
        )
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


def read_objects(path: Path) -> Iterator[tuple[str, Any]]:
    """("line 3" or "row 3", object) of a JSON-lines, JSON or parquet file, told apart by content; DataError names both."""
    if path.suffix == ".parquet":
        yield from ((f"row {k}", row) for k, row in enumerate(_read_parquet(path), 1))
        return
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text: {error}") from error
    lines = [(k, line) for k, line in enumerate(text.split("\n"), 1) if line.strip()]
    whole = not lines or text.lstrip().startswith("[") or (lines[0][1].strip() == "{")
    if not whole:
        found = [(f"line {k}", _load(line, f"{path}, line {k}")) for k, line in lines]
        if len(found) > 1 or not _wrapped(found[0][1]):
            yield from found
            return
    content = _load(text, str(path)) if lines else []
    if isinstance(content, dict):
        content = _wrapped(content) or [content]
    yield from ((f"row {k}", row) for k, row in enumerate(content, 1))


def _wrapped(value: Any) -> list[Any]:
    """The rows in an object such as ``{"data": [...]}``, none where it is a row itself."""
    parts = (value.get(key) for key in ("data", "rows", "cases", "examples")) if isinstance(value, dict) else ()
    return next((part for part in parts if isinstance(part, list)), [])


def _load(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON: {error}") from error


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path}: parquet needs the package pyarrow (pip install pyarrow); or convert it to JSONL") from error
    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
        return rows
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error
