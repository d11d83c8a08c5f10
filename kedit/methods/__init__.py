"""Editors by name, and the one way from what is typed to an editor."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kedit.errors import ContractError, DataError, unknown_name
from kedit.specs import resolve

if TYPE_CHECKING:
    from kedit.editor import Editor
    from kedit.methods.base import Base
    from kedit.methods.finetune import FineTune
    from kedit.methods.ike import IKE
    from kedit.methods.lora import LoRA
    from kedit.methods.mcki import MCKI
    from kedit.methods.mend import MEND
    from kedit.methods.mscke import MSCKE
    from kedit.methods.serac import SERAC

__all__ = ["EDITORS", "IKE", "MCKI", "MEND", "MSCKE", "SERAC", "Base", "FineTune", "LoRA", "editor", "nothing"]

EDITORS: Mapping[str, str] = {
    "base": "kedit.methods.base:Base",
    "finetune": "kedit.methods.finetune:FineTune",
    "lora": "kedit.methods.lora:LoRA",
    "ike": "kedit.methods.ike:IKE",
    "mend": "kedit.methods.mend:MEND",
    "serac": "kedit.methods.serac:SERAC",
    "mscke": "kedit.methods.mscke:MSCKE",
    "mcki": "kedit.methods.mcki:MCKI",
}
GROUP = "kedit.editors"
_CLASSES = {place.rpartition(":")[2]: place.rpartition(":")[0] for place in EDITORS.values()}


def editor(spec: str, suggested: Mapping[str, Any] | None = None, /, **params: Any) -> Editor:
    """An editor: a short name, ``"module:Class"`` or ``"file.py:Class"``, parameters after a colon: ``"name:demos=4,seed=1"``.

    Parameters are Python literals, or bare words, which are texts; ``params`` go before them, and ``suggested`` (what a
    backbone asks for) after. Raises UnknownNameError, which lists the nearest, for an editor or a parameter, DataError for
    parameters that cannot be read, and ContractError for a class that is no editor.
    """
    from kedit.editor import Editor

    name, given = _split(spec)
    kind = resolve(name, EDITORS, GROUP, "editor")
    if not issubclass(kind, Editor):
        raise ContractError(f"{name!r} is {kind.__name__}, which is no editor; derive it from kedit.Editor or one of its bases")
    given = {**(suggested or {}), **given, **params}
    known = [p.name for p in inspect.signature(kind).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for parameter in given:
        if parameter not in known:
            raise unknown_name(f"parameter of {kind.__name__}", parameter, known)
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(getattr(kind, "__abstractmethods__", ())))
        raise ContractError(f"{name!r}: {kind.__name__} does not implement {missing}; write what its base class leaves open")
    try:
        inspect.signature(kind).bind(**given)
    except TypeError as error:
        raise ContractError(
            f"{name!r}: {kind.__name__} cannot be made ({error}); a constructor takes keyword-only arguments with defaults, "
            "or give the value: --set NAME.PARAM=VALUE, or NAME:PARAM=VALUE"
        ) from error
    return kind(**given)


def nothing() -> Editor:
    """The editor that does nothing: the row that every table needs."""
    from kedit.methods.base import Base

    return Base()


def _split(spec: str) -> tuple[str, dict[str, Any]]:
    """A spec's name and its parameters, which begin at the first colon that a ``word=`` follows."""
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


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(importlib.import_module(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
