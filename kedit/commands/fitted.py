"""Artefacts in place of fitting: ``--fitted EDITOR=FOLDER``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit.commands.shared import known_settings, params
from kedit.errors import DataError
from kedit.shipped import FILE, stored_params

if TYPE_CHECKING:
    from kedit.backbone import Backbone
    from kedit.editor import Editor


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
        if not (found[name] / FILE).is_file():
            raise DataError(f"{found[name]} holds no fitted editor: it has no {FILE}; make one with: kedit train {name}")
    return found


def folder_of(fitted: Path | None, name: str) -> Path | None:
    """The folder of what the one editor of a command learned, as ``folders`` checks it; None where none is given."""
    return folders([f"{name}={fitted}"], [name])[name] if fitted is not None else None


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


def load(editors: Mapping[str, Editor], names: Sequence[str], places: Mapping[str, Path], backbone: Backbone) -> None:
    """Attach and load those of ``editors_of(names, ...)`` that have a folder in ``places``.

    What ships is not loaded here: evaluate brings it.
    """
    named = list(editors.values())[len(editors) - len(names) :]  # without a do-nothing editor that nobody named
    for name, editor in zip(names, named, strict=True):
        if name in places:
            editor.attach(backbone).load(places[name])


def editors_of(
    names: Sequence[str], settings: Sequence[str], backbone: str, places: Mapping[str, Path] | None = None
) -> dict[str, Editor]:
    """Editors by display name with their parameters, what an embedded backbone asks for, and the do-nothing editor first.

    One with a folder in ``places`` has the parameters that it was fitted with, where nothing else is said here.
    """
    from kedit.methods import nothing

    known_settings(settings, names)
    made = [make(name, settings, backbone, (places or {}).get(name)) for name in names]
    if not any(e.does_nothing for e in made):
        made.insert(0, nothing())
    seen = Counter[str]()
    found = {}
    for one in made:
        seen[one.name] += 1  # two of one class are told apart by a number
        found[one.name if seen[one.name] == 1 else f"{one.name}-{seen[one.name]}"] = one
    return found
