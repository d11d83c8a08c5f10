"""Editors by name, and the one way from what is typed to an editor."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedit.errors import ContractError, DataError, NotFittedError, unknown_name
from kedit.specs import parameters_of, resolve

if TYPE_CHECKING:
    from kedit.backbone import Backbone
    from kedit.editor import Editor
    from kedit.methods.base import Base
    from kedit.methods.context.multimodal import MultimodalContext
    from kedit.methods.context.one_shot import OneShot
    from kedit.methods.context.oracle import OracleDocument
    from kedit.methods.context.retrieved import RetrievedDocument
    from kedit.methods.context.textual import TextualContext
    from kedit.methods.context.visual import VisualContext
    from kedit.methods.context.zero_shot import ZeroShot
    from kedit.methods.finetune import FineTune
    from kedit.methods.ike import IKE
    from kedit.methods.lora import LoRA
    from kedit.methods.mcki import MCKI
    from kedit.methods.mend import MEND
    from kedit.methods.mscke import MSCKE
    from kedit.methods.serac import SERAC

__all__ = [
    "EDITORS",
    "IKE",
    "MCKI",
    "MEND",
    "MSCKE",
    "SERAC",
    "Base",
    "FineTune",
    "LoRA",
    "MultimodalContext",
    "OneShot",
    "OracleDocument",
    "RetrievedDocument",
    "TextualContext",
    "VisualContext",
    "ZeroShot",
    "editor",
    "fitted",
    "nothing",
]

EDITORS: Mapping[str, str] = {
    "base": "kedit.methods.base:Base",
    "finetune": "kedit.methods.finetune:FineTune",
    "lora": "kedit.methods.lora:LoRA",
    "ike": "kedit.methods.ike:IKE",
    "mend": "kedit.methods.mend:MEND",
    "serac": "kedit.methods.serac:SERAC",
    "mscke": "kedit.methods.mscke:MSCKE",
    "mcki": "kedit.methods.mcki:MCKI",
    "zero-shot": "kedit.methods.context.zero_shot:ZeroShot",
    "textual": "kedit.methods.context.textual:TextualContext",
    "visual": "kedit.methods.context.visual:VisualContext",
    "multimodal": "kedit.methods.context.multimodal:MultimodalContext",
    "one-shot": "kedit.methods.context.one_shot:OneShot",
    "retrieved": "kedit.methods.context.retrieved:RetrievedDocument",
    "oracle": "kedit.methods.context.oracle:OracleDocument",
}
GROUP = "kedit.editors"
_CLASSES = {place.rpartition(":")[2]: place.rpartition(":")[0] for place in EDITORS.values()}


def editor(spec: str, suggested: Mapping[str, Any] | Backbone | None = None, /, **params: Any) -> Editor:
    """An editor: a short name, ``"module:Class"`` or ``"file.py:Class"``, parameters after a colon: ``"name:demos=4,seed=1"``.

    Parameters are Python literals, or bare words, which are texts; ``params`` go before them, and ``suggested`` after: what a
    backbone asks for, or the backbone itself, which is then looked up. Raises UnknownNameError, which lists the nearest, for an
    editor or a parameter, DataError for parameters that cannot be read, and ContractError for a class that is no editor.
    """
    from kedit.editor import Editor

    name, given = parameters_of(spec)
    if suggested is not None and not isinstance(suggested, Mapping):
        from kedit.zoo.catalogue import editor_params

        suggested = editor_params(suggested.id, name)
    kind = resolve(name, EDITORS, GROUP, "editor")
    if not issubclass(kind, Editor):
        raise ContractError(f"{name!r} is {kind.__name__}, which is no editor; derive it from kedit.Editor or one of its bases")
    given = {**(suggested or {}), **given, **params}
    known = [p.name for p in inspect.signature(kind).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for parameter in given:
        if parameter not in known:
            raise unknown_name(f"parameter of {kind.__name__}", parameter, known)
    _no_texts_for_numbers(kind, given)
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


def _no_texts_for_numbers(kind: type[Editor], given: Mapping[str, Any]) -> None:
    """Refuse a word where the constructor says number, or True or False: found late it costs minutes, and "false" is true."""
    for name, parameter in inspect.signature(kind).parameters.items():
        value, hint = given.get(name), parameter.annotation
        types = set(re.findall(r"\w+", hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))))
        yes_or_no = isinstance(parameter.default, bool) or types == {"bool"}
        if isinstance(value, str) and (yes_or_no or types <= {"int", "float", "None", "NoneType"}):
            wanted = "True or False" if yes_or_no else "a number or None" if len(types - {"int", "float"}) else "a number"
            raise DataError(f"{kind.__name__}: {name} is {value!r}, expected {wanted}")


def fitted(spec: str, backbone: Backbone, folder: str | Path | None = None, /, **params: Any) -> Editor:
    """An editor that has learned, attached to a backbone: ``fitted("mcki", backbone)``; ``spec`` as for ``editor``.

    What it learned is read from ``folder``, which ``save`` or ``kedit train`` wrote, else it is what ships for an embedded
    backbone. Parameters that are not given are those it was fitted with. Raises NotFittedError where nothing is there to
    load, and DataError where it does not fit the parameters or the backbone.
    """
    from kedit.shipped import FILE, stored_params
    from kedit.zoo.catalogue import artefact, editor_params

    name = parameters_of(spec)[0]
    suggested = editor_params(backbone.id, name)
    place = artefact(backbone.id, name) if folder is None else Path(folder)
    if place is None or not (place / FILE).is_file():
        where = f"{place} has no {FILE}" if place is not None else f"nothing that {name!r} learned ships for {backbone.id!r}"
        raise NotFittedError(
            f"{where}; fit it: kedit.editor({name!r}).attach(backbone).fit(benchmark.train()), or name a folder that its "
            "save() or `kedit train` wrote"
        )
    stored = stored_params(place, editor(name, suggested).get_params())
    made: Editor = editor(spec, {**suggested, **stored}, **params).attach(backbone).load(place)
    return made


def nothing() -> Editor:
    """The editor that does nothing: the row that every table needs."""
    from kedit.methods.base import Base

    return Base()


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(importlib.import_module(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
