"""From what is typed to a class: a short name, ``module:Class``, ``file.py:Class``, or what an installed package offers."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from kedit.errors import DataError, UnknownNameError, unknown_name


def resolve(spec: str, known: Mapping[str, str], group: str, kind: str) -> type:
    """The class that ``spec`` names.

    ``known`` maps short names to ``"module:Class"``; ``group`` is the entry-point group in which installed packages offer
    more; ``kind`` ("editor", "benchmark") is for messages. Own names go before offered ones. Nothing is imported but the
    class asked for. Raises UnknownNameError for a name that is not known and for a module, file or class that is not there.
    """
    if spec in known:
        return _load(known[spec], kind)
    if ":" in spec:
        return _load(spec, kind)
    offered = {point.name: point for point in entry_points(group=group)}
    if spec in offered:
        return _class(offered[spec].load(), spec, kind)
    raise unknown_name(kind, spec, {*known, *offered}, f"Your own {kind} is named 'module:Class' or 'file.py:Class'.")


def _load(spec: str, kind: str) -> type:
    place, _, name = spec.rpartition(":")
    module = _from_file(place, spec, kind) if place.endswith(".py") else _from_module(place, spec, kind)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            classes = [key for key, value in vars(module).items() if isinstance(value, type)]
            raise unknown_name(f"{kind} in {place}", name, classes)
        found = getattr(found, part)
    return _class(found, spec, kind)


def _class(found: object, spec: str, kind: str) -> type:
    if not isinstance(found, type):
        raise UnknownNameError(f"{kind} {spec!r} is {type(found).__name__} {found!r:.60}, expected a class")
    return found


def _from_module(place: str, spec: str, kind: str) -> ModuleType:
    if not all(part.isidentifier() for part in place.split(".")):
        raise UnknownNameError(f"{kind} {spec!r}: {place!r} is no module's name; expected 'module:Class' or 'file.py:Class'")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(error.name + ".")):
            raise UnknownNameError(
                f"{kind} {spec!r}: there is no module {error.name!r}; expected 'module:Class' or 'file.py:Class'"
            ) from None
        raise  # the module is there and imports something that is not


def _from_file(place: str, spec: str, kind: str) -> ModuleType:
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise UnknownNameError(
            f"{kind} {spec!r}: there is no file {path}; expected 'file.py:Class' with a path from {Path.cwd()}"
        )
    name = f"kedit_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UnknownNameError(f"{kind} {spec!r}: {path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look the module up
    try:
        found.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[name]
        raise UnknownNameError(
            f"{kind} {spec!r}: {error.filename}, line {error.lineno} is not valid Python: {error.msg}"
        ) from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def parameters_of(spec: str) -> tuple[str, dict[str, Any]]:
    """A spec's name and its parameters, which begin at the first colon that a ``word=`` follows: ``name:demos=4,seed=1``.

    Values are Python literals, or bare words, which are texts. Raises DataError for what cannot be read.
    """
    found = re.search(r":\s*(?=[^\W\d]\w*\s*=)", spec)
    if found is None:
        return spec, {}
    name, text = spec[: found.start()], spec[found.end() :]
    try:
        call = ast.parse(f"_({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("a value without a name")
        return name, {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise DataError(
            f"cannot read the parameters {text!r} of {name!r} ({getattr(error, 'msg', error)}); "
            "write name=value,name=value with Python literals, such as lr=1e-3,layers=(-1,)"
        ) from error


def _value(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)
