"""``kedit diagnose``: what a backbone says to a benchmark's questions before anything is inserted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kedit.commands.shared import (
    backbone_option,
    batch_size_option,
    benchmark_option,
    benchmark_options,
    clear_errors,
    failures,
    known_tasks,
    loading_options,
    mapping_option,
    max_new_tokens_option,
    run_bars,
    split,
)


@click.command()
@backbone_option
@benchmark_option
@mapping_option
@click.option("--protocols", "tasks", callback=split, help="Comma-separated tasks of the benchmark; all if left out.")
@click.option("--limit", type=click.IntRange(min=1), help="Raw cases per task; all if left out.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the run; an unfinished one is continued.")
@max_new_tokens_option
@batch_size_option
@loading_options
@clear_errors
def diagnose(
    backbone: str,
    benchmark: str,
    mapping: dict[str, str],
    tasks: tuple[str, ...] | None,
    limit: int | None,
    out: Path,
    max_new_tokens: int,
    **loading: Any,
) -> None:
    """Ask a backbone, unedited, what a benchmark has reference answers to, and show where it is weak.

    Scores by topic group and partition (or what else the benchmark tells), with intervals, as a table and as bars in
    OUT/diagnosis. The same command again continues an unfinished run. `kedit report OUT` shows every answer.
    """
    from kedit.benchmarks import benchmark as find_benchmark

    cases = find_benchmark(benchmark, **benchmark_options(mapping))
    known_tasks(tasks, cases)

    from kedit import diagnosis
    from kedit.backbone import load_backbone
    from kedit.report.text import table_text

    model = load_backbone(backbone, **loading)
    with run_bars() as progress:
        run = diagnosis.diagnose(
            model, cases, tasks=tasks, limit=limit, out=out, max_new_tokens=max_new_tokens, progress=progress
        )
    for line in failures(run):
        click.echo(line, err=True)
    for table in diagnosis.tables(run):
        click.echo(table_text(table) + "\n")
    written = diagnosis.write(run)
    click.echo(f"{len(run.records())} records in {out}; tables and figures in {written[0].parent}")
