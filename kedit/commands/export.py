"""``kedit export``: an editor's work as a plain model, a PEFT adapter or a memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit.commands.shared import (
    backbone_option,
    benchmark_options,
    clear_errors,
    known_settings,
    known_tasks,
    loading_options,
    mapping_option,
    own_fitted_option,
    params,
    set_option,
)

if TYPE_CHECKING:
    from kedit.backbone import Backbone
    from kedit.editor import Editor
    from kedit.types import Knowledge


@click.command()
@click.argument("editor")
@backbone_option
@click.option(
    "--edits",
    type=click.Path(path_type=Path),
    help="Insert what kedit edit or an editor's save_edits saved; its own edits are loaded as they were.",
)
@click.option(
    "--benchmark", help="Insert the knowledge of a benchmark's cases instead; NAME, NAME:FOLDER, module:Class or file.py:Class."
)
@mapping_option
@click.option("--task", help="With --benchmark: the task whose cases these are; its first if left out.")
@click.option("--limit", type=click.IntRange(min=1), help="With --benchmark: raw cases; all if left out.")
@click.option(
    "--as",
    "kind",
    type=click.Choice(["model", "adapter", "memory"]),
    help="A model where weights are edited, else a memory, if left out.",
)
@click.option(
    "--weights", metavar="DTYPE", help="Type of an exported model's weights, such as float32; the model's own if left out."
)
@set_option
@own_fitted_option
@click.option("--seed", default=0, show_default=True)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write; it appears whole or not at all.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier export, with all that is in its folder.")
@loading_options
@clear_errors
def export(
    editor: str,
    backbone: str,
    edits: Path | None,
    benchmark: str | None,
    mapping: dict[str, str],
    task: str | None,
    limit: int | None,
    kind: Any,
    weights: str | None,
    settings: tuple[str, ...],
    fitted: Path | None,
    seed: int,
    out: Path,
    overwrite: bool,
    **loading: Any,
) -> None:
    """Insert knowledge with one editor and write the result for use elsewhere.

    A model is safetensors for transformers, with the edits merged; an adapter is for PEFT; a memory is for
    kedit.exporting.load_memory. Each has a card that says what was inserted.
    """
    if (edits is None) == (benchmark is None):
        raise click.UsageError("say what to insert: --edits FOLDER, or --benchmark NAME (one of the two)")
    known_settings(settings, (editor,))
    items = _knowledge(benchmark, mapping, task, limit) if benchmark is not None else []

    from kedit.backbone import load_backbone
    from kedit.exporting.making import export as write
    from kedit.exporting.making import insert_all, insert_saved
    from kedit.generators import seed_by
    from kedit.live.saved import edits_in

    saved = edits_in(edits) if edits is not None else None
    model = load_backbone(backbone, **loading)
    made = _editor(editor, model, fitted, settings)
    seed_by(seed, made.name, "export")
    count = insert_saved(made, saved) if saved is not None else insert_all(made, items)
    click.echo(f"{made.name}: {count} item(s) inserted into {backbone}")
    done = write(made, out, kind=kind, dtype=weights, overwrite=overwrite)
    told = "".join(f", {name} {value}" for name, value in done.notes.items())
    click.echo(f"{done.kind} written to {done.folder}{told}; fill in the licence in {done.folder / 'README.md'}")


def _editor(spec: str, backbone: Backbone, folder: Path | None, settings: tuple[str, ...]) -> Editor:
    from kedit.commands.fitted import make
    from kedit.methods import fitted

    made = make(spec, settings, backbone.id)
    if folder is None and not made.needs_fit:
        return made.attach(backbone)
    found: Editor = fitted(spec, backbone, folder, **params(spec, settings))
    return found


def _knowledge(name: str, mapping: dict[str, str], task: str | None, limit: int | None) -> list[Knowledge]:
    from kedit.benchmarks import benchmark as find

    found = find(name, **benchmark_options(mapping))
    known_tasks((task,) if task else None, found)
    return [one for case in found.cases(task or next(iter(found.tasks)), limit=limit) for one in case.chain]
