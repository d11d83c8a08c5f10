"""``kedit retention``: what chains of inserts leave of each item."""

from __future__ import annotations

from pathlib import Path

import click

from kedit.commands.shared import clear_errors


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--task", help="A task with chains, such as sequential or lifelong; the first one if left out.")
@click.option("--order", help="An order of the chains, such as en-zh-ar or shuffled; the original one if left out.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to write; RUN/retention if left out.")
@click.option("--judge", metavar="ID", help="Draw by a judge's scores of the run instead of ROUGE-L.")
@clear_errors
def retention(folder: Path, task: str | None, order: str | None, out: Path | None, judge: str | None) -> None:
    """Print what a run's chains leave of each item, and write tables (CSV) and figures (PNG, SVG).

    Of chains of up to 12 the matrix R[asked after t][inserted at i]; of longer ones reliability, generality and locality by
    memory size and by further inserts. Run a long chain with: kedit run --protocols lifelong --set lifelong.chain=1000
    """
    from kedit.retention import retention as retained
    from kedit.run import Run

    run = Run.load(folder)
    judged = None
    if judge is not None:
        from kedit.judging import judge_scoring

        judged = judge_scoring(run, judge)
    found = retained(run, task=task, order=order, judged=judged)
    click.echo(repr(found))
    written = found.write(out)
    click.echo(f"Written to {written[0].parent}")
