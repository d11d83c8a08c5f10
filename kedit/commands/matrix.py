"""``kedit matrix``: several editors on several benchmarks, one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kedit.commands.fitted import editors_of, folders
from kedit.commands.fitted import load as load_fitted
from kedit.commands.shared import (
    backbone_option,
    batch_size_option,
    clear_errors,
    failures,
    fitted_option,
    loading_options,
    matrix_bars,
    max_new_tokens_option,
    set_option,
    split,
    train_on_option,
)


@click.command()
@backbone_option
@click.option(
    "--editors",
    default="base",
    show_default=True,
    callback=split,
    help="Comma-separated: short names, module:Class or file.py:Class. The do-nothing row is always there.",
)
@click.option(
    "--benchmarks",
    required=True,
    callback=split,
    help="Comma-separated: names, NAME:FOLDER, module:Class or file.py:Class; `kedit data list` names what there is.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder; gets a run per benchmark, and the table.")
@click.option(
    "--protocols", "tasks", callback=split, help="Comma-separated tasks of the benchmarks, such as single,test; all if left out."
)
@click.option("--limit", type=click.IntRange(min=1), help="Raw cases per task; all if left out.")
@train_on_option
@click.option("--train-limit", type=click.IntRange(min=1), help="Raw cases of it; all if left out.")
@set_option
@fitted_option
@click.option("--seed", default=0, show_default=True)
@max_new_tokens_option
@batch_size_option
@loading_options
@clear_errors
def matrix(
    backbone: str,
    editors: tuple[str, ...] | None,
    benchmarks: tuple[str, ...] | None,
    out: Path,
    tasks: tuple[str, ...] | None,
    limit: int | None,
    train_on: str,
    train_limit: int | None,
    settings: tuple[str, ...],
    fitted: tuple[str, ...],
    seed: int,
    max_new_tokens: int,
    **loading: Any,
) -> None:
    """Run every editor on every benchmark and print one table of headline numbers.

    Each benchmark's run is in OUT/<benchmark>, to be looked at with `kedit report`. The same command again goes on where it
    stopped. An editor that learns takes what ships for the backbone, else it is fitted once on --train-on and kept in
    OUT/fitted-editors. An editor that cannot be fitted is left out and named under the table; the others go on.
    """
    from kedit.benchmarks import benchmark as find_benchmark

    names = editors or ()
    places = folders(fitted, names)
    chosen = editors_of(names, settings, backbone, places)
    found = [find_benchmark(spec) for spec in benchmarks or ()]
    source = find_benchmark(train_on)

    from kedit.backbone import load_backbone
    from kedit.matrix import matrix as run_all

    model = load_backbone(backbone, **loading)
    load_fitted(chosen, names, places, model)
    with matrix_bars() as progress:
        done = run_all(
            chosen,
            model,
            found,
            out=out,
            train=source,
            train_limit=train_limit,
            tasks=tasks,
            limit=limit,
            seed=seed,
            max_new_tokens=max_new_tokens,
            progress=progress,
        )
    for name, run in done.runs.items():
        for line in failures(run):
            click.echo(f"{name}: {line}", err=True)
    click.echo(repr(done))
    written = done.write(out)
    click.echo(f"Written: {', '.join(path.name for path in written)} in {out}. Next: kedit report {out}/<benchmark>")
