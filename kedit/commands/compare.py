"""``kedit compare``: which editors differ, by how much, and what the cases cannot tell."""

from __future__ import annotations

from pathlib import Path

import click

from kedit.commands.shared import clear_errors, split


@click.command()
@click.argument("folders", metavar="RUN_A [RUN_B ...]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--editors", callback=split, help="Comma-separated names of editors; all if left out.")
@click.option("--against", metavar="EDITOR", help="Compare each with this one only; fewer tests tell smaller differences apart.")
@click.option("--all-pairs", is_flag=True, help="Of several runs, all editors with all, not only those of one name.")
@click.option("--task", "tasks", multiple=True, help="A task, such as single; may be repeated. All if left out.")
@click.option("--dimension", "dimensions", multiple=True, help='A dimension, such as reliability, or "overall"; may be repeated.')
@click.option("--scorer", metavar="rouge|judge:ID", help="What scores the answers; each dimension's own way if left out.")
@click.option("--unit", default="raw", show_default=True, help='Tag of cases that belong together; "case" for each alone.')
@click.option("--no-pool", is_flag=True, help="Take each seed of an editor as an editor of its own.")
@click.option("--alpha", default=0.05, show_default=True, type=click.FloatRange(0, 1, min_open=True, max_open=True))
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, numbers in full, instead of the table.")
@clear_errors
def compare(
    folders: tuple[Path, ...],
    editors: tuple[str, ...] | None,
    against: str | None,
    all_pairs: bool,
    tasks: tuple[str, ...],
    dimensions: tuple[str, ...],
    scorer: str | None,
    unit: str,
    no_pool: bool,
    alpha: float,
    as_csv: bool,
) -> None:
    """Compare the editors of a run, or those of one name between runs, on the cases that both answered.

    Runs and editors that differ only in a seed are pooled. The table says which differences are distinguishable after Holm's
    correction, on how many cases, and the smallest difference that they could have shown.
    """
    from kedit.comparison import compare as compare_runs
    from kedit.run import Run

    found = compare_runs(
        *(Run.load(folder) for folder in folders),
        editors=editors,
        tasks=tasks or None,
        dimensions=dimensions or None,
        scorer=scorer,
        against=against,
        all_pairs=all_pairs,
        pool=not no_pool,
        unit=unit,
        alpha=alpha,
    )
    click.echo(found.csv() if as_csv else repr(found), nl=not as_csv)
