"""``kedit router``: what the router of a fitted editor does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit.commands.fitted import folder_of, make
from kedit.commands.shared import (
    backbone_option,
    benchmark_option,
    benchmark_options,
    clear_errors,
    known_settings,
    loading_options,
    mapping_option,
    own_fitted_option,
    set_option,
)
from kedit.errors import unknown_name
from kedit.shipped import take

if TYPE_CHECKING:
    from kedit.benchmark import Benchmark
    from kedit.routers.base import Router
    from kedit.types import Case

TRAIN = "train"


@click.group()
def router() -> None:
    """Routers of editors that keep a memory."""


@router.command("report")
@click.argument("editor")
@backbone_option
@benchmark_option
@mapping_option
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for router.md, router.json and figures.")
@click.option("--split", default=TRAIN, show_default=True, help="train, or a task of the benchmark, such as single.")
@click.option("--limit", type=click.IntRange(min=1), help="Raw cases; all if left out.")
@own_fitted_option
@set_option
@click.option("--seed", default=0, show_default=True, help="Draws the memories of fewer entries than there are.")
@loading_options
@clear_errors
def router_report(
    editor: str,
    backbone: str,
    benchmark: str,
    mapping: dict[str, str],
    out: Path,
    split: str,
    limit: int | None,
    fitted: Path | None,
    settings: tuple[str, ...],
    seed: int,
    **loading: Any,
) -> None:
    """Say what an editor's router activates, by relation, language and size of the memory.

    ROC and threshold curves, gate accuracy and retrieval accuracy apart, confusion by relation, with memories of 1, 10, 100
    and all entries. The editor needs what it learned: --fitted, or what an embedded backbone brings.
    """
    from kedit.benchmarks import benchmark as find_benchmark
    from kedit.routers.diagnostics import diagnose
    from kedit.routers.report import to_text, write

    known_settings(settings, (editor,))
    cases = _cases(find_benchmark(benchmark, **benchmark_options(mapping)), split, limit)
    found = diagnose(_router(editor, settings, backbone, fitted, loading), cases, seed=seed)
    files = write(found, out)
    click.echo(to_text(found))
    click.echo("written: " + ", ".join(map(str, files)))


def _cases(benchmark: Benchmark, split: str, limit: int | None) -> Sequence[Case]:
    if split == TRAIN:
        return benchmark.train(limit)
    if split not in benchmark.tasks:
        raise unknown_name(f"split of {benchmark.name}", split, [TRAIN, *benchmark.tasks])
    return benchmark.cases(split, limit=limit)


def _router(spec: str, settings: Sequence[str], backbone: str, fitted: Path | None, loading: dict[str, Any]) -> Router:
    """The router of an editor with what it learned; refuses an editor without one."""
    from kedit.backbone import load_backbone
    from kedit.routers.routed import Routed

    place = folder_of(fitted, spec)
    made = make(spec, settings, backbone, place)
    if not isinstance(made, Routed):
        raise click.UsageError(f"{spec} has no router: it does not decide which requests an insert concerns")
    model = load_backbone(backbone, **loading)
    if place is not None:
        made.attach(model).load(place)
    take(made, model)
    if not made.fitted:
        raise click.UsageError(f"{spec} has learned nothing yet: give --fitted FOLDER, made by kedit train {spec}")
    return made.router_
