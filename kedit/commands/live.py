"""Parts that ``kedit edit`` and ``kedit play`` have in common: options, and the session that they open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kedit.commands.fitted import folder_of, make
from kedit.commands.shared import (
    backbone_option,
    known_settings,
    loading_options,
    max_new_tokens_option,
    own_fitted_option,
    set_option,
    train_on_option,
)

if TYPE_CHECKING:
    from kedit.editor import Editor
    from kedit.live.session import Session

Command = TypeVar("Command", bound=Callable[..., Any])


def session_options(command: Command) -> Command:
    """The options that say with what a session is opened."""
    options: tuple[Callable[..., Any], ...] = (
        loading_options,
        click.option("--no-system-prompt", is_flag=True, help="Ask without the system prompts that benchmarks give."),
        max_new_tokens_option,
        click.option("--load", type=click.Path(path_type=Path), help="Insert what was saved to this folder before."),
        train_on_option,
        own_fitted_option,
        set_option,
        click.option("--editor", required=True, help="Short name, module:Class or file.py:Class."),
        backbone_option,
    )
    for option in options:
        command = option(command)
    return command


def opened(
    backbone: str,
    editor: str,
    settings: tuple[str, ...],
    fitted: Path | None,
    train_on: str,
    load: Path | None,
    max_new_tokens: int,
    no_system_prompt: bool,
    **loading: Any,
) -> Session:
    """The session that the options ask for; what a user should know of it goes to standard error."""
    from kedit.benchmarks import benchmark

    place = folder_of(fitted, editor)
    chosen = _editor(editor, settings, backbone, place)
    source = benchmark(train_on) if not chosen.needs_cases else None

    from kedit.backbone import load_backbone
    from kedit.live.session import Session, ready
    from kedit.wording import SYSTEM_PROMPTS

    model = load_backbone(backbone, **loading)
    if place is not None:
        chosen.attach(model).load(place)
    if source is not None and not chosen.fitted:
        click.echo(f"{editor} looks at the train split of {source.name} first.", err=True)
    ready(chosen, model, source)
    systems = {} if no_system_prompt else SYSTEM_PROMPTS
    session = Session(model, chosen, max_new_tokens=max_new_tokens, systems=systems)
    if load is not None:
        for note in session.load(load):
            click.echo(note, err=True)
    return session


def _editor(spec: str, settings: tuple[str, ...], backbone: str, fitted: Path | None) -> Editor:
    """The editor; one that can keep what it needs to take single edits back does, unless told otherwise."""
    known_settings(settings, (spec,))
    made = make(spec, settings, backbone, fitted)
    if not made.needs_fit and made.get_params().get("removable") is False:
        made = make(spec, settings, backbone, fitted, removable=True)
    return made
