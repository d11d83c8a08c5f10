"""The command line: each command reads its arguments, calls one function of the library, and prints what came back."""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit import __version__
from kedit.errors import KeditError, unknown_name

if TYPE_CHECKING:
    from kedit.editor import Editor
    from kedit.evaluate import Progress


def _clear_errors(command: Callable[..., Any]) -> Callable[..., Any]:
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


_mapping = click.option(
    "--mapping",
    multiple=True,
    metavar="NAME=THEIRS",
    callback=_renamed,
    help="What the benchmark's file calls a field, such as question=their_name; may be repeated.",
)


def _options(mapping: dict[str, str]) -> dict[str, Any]:
    return {"mapping": mapping} if mapping else {}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="kedit")
def main() -> None:
    """Insert, edit and measure knowledge in vision-language models.

    Start with:  kedit run --limit 5 --out runs/first   then   kedit report runs/first
    """


# -- run and report ------------------------------------------------------------------------------------------------------


def _split(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Parts between commas; a comma before ``name=`` belongs to the parameters of the part that it is in."""
    return tuple(part.strip() for part in re.split(r",(?!\s*\w+\s*=)", value) if part.strip()) if value else None


@main.command()
@click.option("--backbone", default="tiny-internvl", show_default=True, help="Embedded name, hub id or local folder.")
@click.option("--benchmark", default="kibench-open", show_default=True, help="Name, NAME:FOLDER, module:Class or file.py:Class.")
@_mapping
@click.option(
    "--editors",
    default="base,finetune,lora,ike",
    show_default=True,
    callback=_split,
    help="Comma-separated: short names, module:Class or file.py:Class. The do-nothing row is always there.",
)
@click.option(
    "--protocols",
    "tasks",
    callback=_split,
    help="Comma-separated tasks of the benchmark, such as single,sequential; all if left out.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Raw cases per task; all if left out.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the run; an unfinished one is continued.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="EDITOR.PARAM=VALUE",
    help="A parameter of one editor, such as ike.demos=4; may be repeated.",
)
@click.option("--seed", default=0, show_default=True)
@click.option("--max-new-tokens", default=64, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--batch-size",
    default=8,
    show_default=True,
    type=click.IntRange(min=1),
    help="Requests generated together; halved when out of memory.",
)
@click.option(
    "--dtype", default="auto", show_default=True, help="auto (as stored; fp32 for embedded ones), float32, bfloat16 or float16."
)
@click.option("--device", help="cpu, cuda, cuda:1 ...; the first accelerator if left out.")
@click.option("--revision", help="Revision of a hub model.")
@click.option("--trust-remote-code", is_flag=True, help="Run code that comes with a hub model; off unless asked for.")
@click.option("--plain", is_flag=True, help="One request at a time, no caches: the same answers, slowly.")
@_clear_errors
def run(
    backbone: str,
    benchmark: str,
    mapping: dict[str, str],
    editors: tuple[str, ...] | None,
    tasks: tuple[str, ...] | None,
    limit: int | None,
    out: Path,
    settings: tuple[str, ...],
    seed: int,
    max_new_tokens: int,
    plain: bool,
    **loading: Any,
) -> None:
    """Insert knowledge with several editors, ask, and record every answer.

    The same command again continues an unfinished run and does nothing to a finished one. Look at it with `kedit report`.
    """
    from kedit.benchmarks import benchmark as find_benchmark

    chosen = _editors(editors or (), settings, backbone)
    cases = find_benchmark(benchmark, **_options(mapping))
    _known_tasks(tasks, cases)

    from kedit.backbone import load_backbone
    from kedit.evaluate import evaluate

    model = load_backbone(backbone, **loading)
    with _progress() as progress:
        done = evaluate(
            chosen,
            model,
            cases,
            tasks=tasks,
            limit=limit,
            out=out,
            seed=seed,
            max_new_tokens=max_new_tokens,
            plain=plain,
            progress=progress,
        )
    for failure in done.failures:
        click.echo(
            f"failed: {failure['editor']} {failure['task']} {failure['case']} ({failure['stage']}): {failure['error']}", err=True
        )
    click.echo(f"{len(done.records())} records in {out}. Next: kedit report {out}")


def _known_tasks(tasks: Sequence[str] | None, benchmark: Any) -> None:
    """A misspelt task is found before minutes are spent on loading a model."""
    for task in tasks or ():
        if task not in benchmark.tasks:
            raise unknown_name(f"task of {benchmark.name}", task, benchmark.tasks)


def _editors(names: Sequence[str], settings: Sequence[str], backbone: str) -> dict[str, Editor]:
    """Editors by display name with their parameters, what an embedded backbone asks for, and the do-nothing editor first."""
    from kedit.methods import editor, nothing
    from kedit.zoo.catalogue import editor_params

    given = {name: _params(name, settings) for name in names}
    for setting in settings:
        if not any(setting.startswith(f"{name}.") for name in names):
            raise click.BadParameter(
                f"{setting!r}: expected EDITOR.PARAM=VALUE with an editor of --editors ({', '.join(names)})", param_hint="--set"
            )
    made = [editor(name, editor_params(backbone, name.partition(":")[0]), **params) for name, params in given.items()]
    if not any(e.does_nothing for e in made):
        made.insert(0, nothing())
    seen = Counter[str]()
    found = {}
    for one in made:
        seen[one.name] += 1  # two of one class are told apart by a number
        found[one.name if seen[one.name] == 1 else f"{one.name}-{seen[one.name]}"] = one
    return found


def _params(name: str, settings: Sequence[str]) -> dict[str, Any]:
    import ast

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
def _progress() -> Iterator[Progress]:
    """A bar per editor and task with the time left; nothing where the output is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        rows: dict[tuple[str, str], Any] = {}

        def update(editor: str, task: str, done: int, total: int) -> None:
            if (editor, task) not in rows:
                rows[editor, task] = bars.add_task(f"{editor} {task}", total=total, completed=done)
            bars.update(rows[editor, task], completed=done)

        yield update


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Where to write; FOLDER/report if left out.")
@_clear_errors
def report(folder: Path, out: Path | None) -> None:
    """Print a run's tables and write CSV, Markdown, curves (PNG, SVG) and one HTML page."""
    from kedit.report import report as make
    from kedit.report import run_text
    from kedit.run import Run

    found = Run.load(folder)
    click.echo(run_text(found))
    written = make(found, out)
    click.echo(f"Written to {written.folder}; open {written.page}")


# -- data ----------------------------------------------------------------------------------------------------------------


@main.group()
def data() -> None:
    """Benchmarks: what there is, what it holds, and whether a folder of files is sound."""


@data.command("list")
@_clear_errors
def data_list() -> None:
    """The benchmarks that kedit knows by name."""
    from kedit.benchmarks import BENCHMARKS, summary

    for name in BENCHMARKS:
        click.echo(f"{name:15} {summary(name)}")


@data.command("info")
@click.argument("benchmark")
@_mapping
@_clear_errors
def data_info(benchmark: str, mapping: dict[str, str]) -> None:
    """Name, revision, tasks, dimensions and numbers of cases of a benchmark."""
    from kedit.benchmarks import benchmark as find

    found = find(benchmark, **_options(mapping))
    click.echo(f"{found.name}  revision {found.revision[:12]}")
    for name, task in found.tasks.items():
        labels = ", ".join(dimension.label for dimension in task.dimensions)
        click.echo(f"  {name}: {len(found.cases(name))} cases, protocol {task.protocol.__name__}, {labels}")
    click.echo(f"  train: {len(found.train())} cases")


@data.command("build")
@click.argument("benchmark", default="kibench-open")
@click.option("--cases", default=20, show_default=True, type=click.IntRange(1, 200), help="Raw cases per scenario.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write to.")
@_clear_errors
def data_build(benchmark: str, cases: int, out: Path) -> None:
    """Write a drawn benchmark as files: JSON lines and pictures, in the layout that kedit also reads."""
    from kedit.benchmarks import buildable

    click.echo(f"written to {buildable(benchmark).build(out, cases=cases)}")


@data.command("check")
@click.argument("path", type=click.Path(path_type=Path))
@_mapping
@_clear_errors
def data_check(path: Path, mapping: dict[str, str]) -> None:
    """Say what a folder or file holds and what is wrong with it; exit status 1 when something is. Never downloads."""
    from kedit.benchmarks.check import check

    found = check(path, mapping=mapping)
    click.echo(str(found))
    raise SystemExit(0 if found.ok else 1)


@data.command("show")
@click.argument("benchmark", default="kibench-open")
@click.option("--sheet", required=True, type=click.Path(path_type=Path), help="PNG file to write.")
@_clear_errors
def data_show(benchmark: str, sheet: Path) -> None:
    """A contact sheet: one picture of every scenario."""
    from kedit.benchmarks import buildable

    click.echo(f"written to {buildable(benchmark).sheet(sheet)}")


# -- zoo and editors -----------------------------------------------------------------------------------------------------


@main.group()
def zoo() -> None:
    """The embedded backbones."""


@zoo.command("list")
def zoo_list() -> None:
    """The embedded backbones and whether their weights are here."""
    from kedit.zoo.catalogue import PRESETS, available

    for name, preset in PRESETS.items():
        click.echo(f"{name:15} {'here' if available(name) else 'not trained yet'}  {preset.summary}")


@zoo.command("info")
@click.argument("name")
@_clear_errors
def zoo_info(name: str) -> None:
    """The card of an embedded backbone: what it can do and what it was trained on."""
    from kedit.zoo.catalogue import folder

    place = folder(name)
    file = place / "README.md"
    click.echo(
        file.read_text(encoding="utf-8")
        if file.exists()
        else f"{name} has no weights here yet; make them with: kedit zoo train {name}"
    )


@zoo.command("train")
@click.argument("name")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for checkpoints and the result; an unfinished training is continued.",
)
@click.option("--workers", default=2, show_default=True, type=click.IntRange(min=1), help="Processes of one thread each.")
@_clear_errors
def zoo_train(name: str, out: Path, workers: int) -> None:
    """Train an embedded backbone from nothing (about 40 minutes on two cores), measure it and write its card.

    Use the result with KEDIT_ZOO=OUT.
    """
    import importlib
    import logging

    import torch

    from kedit.zoo.catalogue import PRESETS, folder

    folder(name)  # a misspelt name is found before anything is made
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    click.echo(f"written to {importlib.import_module(PRESETS[name].module).train(out, workers=workers)}")


@main.command()
@click.argument("spec")
@click.option("--backbone", default="tiny-internvl", show_default=True, help="Embedded name, hub id or local folder.")
@_clear_errors
def check(spec: str, backbone: str) -> None:
    """Run every promise of the Editor contract against an editor (short name, module:Class or file.py:Class)."""
    from kedit.backbone import load_backbone
    from kedit.methods import editor
    from kedit.testing import check_editor
    from kedit.zoo.catalogue import editor_params

    click.echo(str(check_editor(editor(spec, editor_params(backbone, spec.partition(":")[0])), load_backbone(backbone))))


@main.command()
def editors() -> None:
    """The editors that kedit knows by name, with their parameters and defaults."""
    from kedit.methods import EDITORS, editor

    for name in EDITORS:
        made = editor(name)
        click.echo(f"{name:10} {(type(made).__doc__ or '').splitlines()[0]}\n{'':10} {made!r}")


if __name__ == "__main__":
    main()
