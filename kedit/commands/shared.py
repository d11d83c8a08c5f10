"""Parts that several commands have in common: options, errors as messages, parameters of editors, progress bars."""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kedit.errors import KeditError, unknown_name

if TYPE_CHECKING:
    from kedit.evaluate import Progress
    from kedit.run import Run

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
    "--backbone",
    default="tiny-internvl",
    show_default=True,
    help="Embedded name, hub id, local folder or openai:MODEL.",
)
benchmark_option = click.option(
    "--benchmark", default="kibench-open", show_default=True, help="Name, NAME:FOLDER, module:Class or file.py:Class."
)
train_on_option = click.option(
    "--train-on", default="kibench-open", show_default=True, help="Benchmark with a train split for editors that learn."
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="EDITOR.PARAM=VALUE",
    help="A parameter of one editor, such as ike.demos=4; may be repeated.",
)
fitted_option = click.option(
    "--fitted",
    multiple=True,
    metavar="EDITOR=FOLDER",
    help="Load what an editor learned, as kedit train saved it, instead of fitting it; may be repeated.",
)
own_fitted_option = click.option(
    "--fitted", type=click.Path(path_type=Path), metavar="FOLDER", help="What the editor learned, as kedit train saved it."
)
max_new_tokens_option = click.option(
    "--max-new-tokens", default=64, show_default=True, type=click.IntRange(min=1), help="Length at which an answer is cut."
)
batch_size_option = click.option(
    "--batch-size",
    default=8,
    show_default=True,
    type=click.IntRange(min=1),
    help="Requests generated together; halved when out of memory.",
)


def json_fields(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> dict[str, Any] | None:
    """Fields of a request given as NAME=VALUE, values as JSON or bare words; None without any."""
    found: dict[str, Any] = {}
    for item in value:
        name, equals, text = item.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{item!r}: expected NAME=VALUE, such as temperature=null")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text  # a bare word is a string
    return found or None


def loading_options(command: Command) -> Command:
    """The options that say how a backbone is loaded."""
    for option in (
        click.option(
            "--request-field",
            "fields",
            multiple=True,
            metavar="NAME=VALUE",
            callback=json_fields,
            help="With openai:MODEL: a field of every request as JSON, such as temperature=null; may be repeated.",
        ),
        click.option("--concurrency", type=click.IntRange(min=1), help="With openai:MODEL: requests under way at once (8)."),
        click.option("--api-key-env", metavar="VARIABLE", help="With openai:MODEL: what holds the key (OPENAI_API_KEY)."),
        click.option("--base-url", help="With openai:MODEL: the server; KEDIT_BASE_URL or OPENAI_BASE_URL if left out."),
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


LIFELONG = "lifelong"
"""What ``--set`` names besides editors: the benchmark's long chains."""


def benchmark_options(mapping: dict[str, str], settings: Sequence[str] = ()) -> dict[str, Any]:
    """Arguments of a benchmark's constructor; of the settings, those of its long chains."""
    chains = params(LIFELONG, settings)
    return {**({"mapping": mapping} if mapping else {}), **({LIFELONG: chains} if chains else {})}


def of_editors(settings: Sequence[str]) -> tuple[str, ...]:
    """The settings that are not of the benchmark's long chains."""
    return tuple(setting for setting in settings if not setting.startswith(f"{LIFELONG}."))


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


def known_tasks(tasks: Sequence[str] | None, benchmark: Any) -> None:
    """A misspelt task is found before minutes are spent on loading a model."""
    for task in tasks or ():
        if task not in benchmark.tasks:
            raise unknown_name(f"task of {benchmark.name}", task, benchmark.tasks)


def left_out(benchmark: Any) -> Iterator[str]:
    """A line on the rows of its files that a benchmark does not ask, where it notes such rows."""
    from kedit.report.escape import visible

    if skipped := list(getattr(benchmark, "skipped", ())):
        where, reason = skipped[0]
        yield visible(f"{len(skipped)} rows of {benchmark.name} are left out, first {where}: {reason}")


def split(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Parts between commas; a comma before ``name=`` belongs to the parameters of the part that it is in."""
    return tuple(part.strip() for part in re.split(r",(?!\s*\w+\s*=)", value) if part.strip()) if value else None


def failures(run: Run) -> Iterator[str]:
    """Lines on the cases that failed, those of one editor and one error together."""
    from kedit.report.escape import visible

    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in run.failures:
        groups.setdefault((one["editor"], one["stage"], one["error"]), []).append(f"{one['task']} {one['case']}")
    for (editor, stage, error), cases in groups.items():
        more = f" and {len(cases) - 1} more cases" if len(cases) > 1 else ""
        yield visible(f"failed: {editor} {cases[0]}{more} ({stage}): {error}")


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


@contextlib.contextmanager
def run_bars() -> Iterator[Progress]:
    """A bar per editor and task with the time left; nothing where the output is no terminal."""
    with bars() as update:
        yield lambda editor, task, done, total: update((editor, task), f"{editor} {task}", done, total)


@contextlib.contextmanager
def matrix_bars() -> Iterator[Callable[[str, str, str, int, int], None]]:
    """As ``run_bars``, for the runs of several benchmarks."""
    with bars() as update:
        yield lambda name, editor, task, done, total: update((name, editor, task), f"{name} {editor} {task}", done, total)
