"""Parts that several commands have in common: options, errors as messages, parameters of editors, progress bars."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

import click

from kedit.errors import KeditError

Command = TypeVar("Command", bound=Callable[..., Any])


def clear_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """kedit's own errors are messages for the user, not tracebacks; exit status 1."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except KeditError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


def _renamed(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    pairs = [item.partition("=") for item in value]
    for item, (name, equals, theirs) in zip(value, pairs, strict=True):
        if not (name and equals and theirs):
            raise click.BadParameter(f"{item!r}: expected NAME=THEIRS, such as question=their_name")
    return {name: theirs for name, _, theirs in pairs}


mapping_option = click.option(
    "--mapping",
    multiple=True,
    metavar="NAME=THEIRS",
    callback=_renamed,
    help="What the benchmark's file calls a field, such as question=their_name; may be repeated.",
)


backbone_option = click.option(
    "--backbone", default="tiny-internvl", show_default=True, help="Embedded name, hub id or local folder."
)
benchmark_option = click.option(
    "--benchmark", default="kibench-open", show_default=True, help="Name, NAME:FOLDER, module:Class or file.py:Class."
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="EDITOR.PARAM=VALUE",
    help="A parameter of one editor, such as ike.demos=4; may be repeated.",
)


def loading_options(command: Command) -> Command:
    """The options that say how a backbone is loaded."""
    for option in (
        click.option("--trust-remote-code", is_flag=True, help="Run code that comes with a hub model; off unless asked for."),
        click.option("--revision", help="Revision of a hub model."),
        click.option("--device", help="cpu, cuda, cuda:1 ...; the first accelerator if left out."),
        click.option(
            "--dtype",
            default="auto",
            show_default=True,
            help="auto (as stored; fp32 for embedded ones), float32, bfloat16 or float16.",
        ),
    ):
        command = option(command)
    return command


def benchmark_options(mapping: dict[str, str]) -> dict[str, Any]:
    """Arguments of a benchmark's constructor."""
    return {"mapping": mapping} if mapping else {}


def known_settings(settings: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a ``--set`` that is for none of the editors named."""
    for setting in settings:
        if not any(setting.startswith(f"{name}.") for name in names):
            raise click.BadParameter(
                f"{setting!r}: expected EDITOR.PARAM=VALUE with an editor named here ({', '.join(names)})", param_hint="--set"
            )


def params(name: str, settings: Sequence[str]) -> dict[str, Any]:
    """What ``--set`` says of one editor: Python literals, or bare words, which are texts."""
    found: dict[str, Any] = {}
    for setting in settings:
        if not setting.startswith(f"{name}."):
            continue
        key, equals, text = setting[len(name) + 1 :].partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r}: expected EDITOR.PARAM=VALUE", param_hint="--set")
        try:
            found[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[key] = text  # a bare word is a string
    return found


@contextlib.contextmanager
def bars() -> Iterator[Callable[[Hashable, str, int, int], None]]:
    """Bars with the time left, one per key: ``update(key, description, done, total)``; nothing where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        rows: dict[Hashable, Any] = {}

        def update(key: Hashable, description: str, done: int, total: int) -> None:
            if key not in rows:
                rows[key] = shown.add_task(description, total=total, completed=done)
            shown.update(rows[key], description=description, completed=done)

        yield update
