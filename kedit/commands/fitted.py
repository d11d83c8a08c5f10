"""Artefacts in place of fitting: ``--fitted EDITOR=FOLDER``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit.artefacts import read_json
from kedit.commands.shared import params
from kedit.errors import DataError

if TYPE_CHECKING:
    from kedit.backbone import Backbone
    from kedit.editor import Editor

_FILE = "editor.json"


def folders(fitted: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """From editors, as they are named on the command line, to the folders of what they learned."""
    found = {}
    for item in fitted:
        name = max((name for name in names if item.startswith(f"{name}=")), key=len, default=None)
        if name is None:
            listed = ", ".join(names)
            raise click.BadParameter(
                f"{item!r}: expected EDITOR=FOLDER with an editor of --editors ({listed})", param_hint="--fitted"
            )
        found[name] = Path(item[len(name) + 1 :])
        if not (found[name] / _FILE).is_file():
            raise DataError(f"{found[name]} holds no fitted editor: it has no {_FILE}; make one with: kedit train {name}")
    return found


def make(spec: str, settings: Sequence[str], backbone: str, place: Path | None = None, **more: Any) -> Editor:
    """The editor that is named: parameters by ``--set``, else ``more``, else those it was fitted with, else the backbone's.

    ``place`` is the folder of what it learned, where there is one.
    """
    from kedit.methods import editor
    from kedit.zoo.catalogue import editor_params

    suggested = editor_params(backbone, spec.partition(":")[0])
    if place is not None:
        suggested |= stored_params(place, editor(spec, suggested).get_params())
    return editor(spec, {**suggested, **more}, **params(spec, settings))


def stored_params(folder: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that an artefact was fitted with, where they differ from ``defaults``."""
    stored = read_json(folder / _FILE).get("params", {})
    given = {name: stored[name] for name in defaults if name in stored and stored[name] != _as_stored(defaults[name])}
    return {name: _as_tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def shipped(editors: Sequence[Editor], names: Sequence[str], backbone: str, places: Mapping[str, Path]) -> dict[str, Path]:
    """Folders of what editors outside ``places`` learned, where an embedded backbone brings that for just their parameters."""
    from kedit.zoo.catalogue import artefact

    found = {}
    for name, editor in zip(names, editors, strict=True):
        folder = artefact(backbone, name.partition(":")[0]) if editor.needs_fit and name not in places else None
        if folder is not None and read_json(folder / _FILE).get("params") == _as_stored(editor.get_params()):
            found[name] = folder
    return found


def load(editors: Sequence[Editor], names: Sequence[str], places: Mapping[str, Path], backbone: Backbone) -> None:
    """Attach and load those of the editors, named by ``names`` in order, that have an artefact."""
    for name, editor in zip(names, editors, strict=True):
        if name in places:
            editor.attach(backbone).load(places[name])


def _as_stored(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return json.loads(json.dumps(value, default=repr))


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(part) for part in value) if isinstance(value, list) else value
