"""``kedit figures``: a run's figures as files that a paper can print."""

from __future__ import annotations

from pathlib import Path

import click

from kedit.commands.shared import clear_errors, split


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Where to write; RUN/figures if left out.")
@click.option(
    "--format", "formats", default="pdf,svg,png", show_default=True, callback=split, help="Comma-separated: pdf, svg, png."
)
@click.option("--judge", metavar="ID", help="Draw by a judge's scores of the run instead of ROUGE-L.")
@click.option(
    "--only",
    metavar="KIND",
    multiple=True,
    help="dimensions, groups, retention, retention-matrix, joint, router or comparison; may be repeated. All if left out.",
)
@clear_errors
def figures(folder: Path, out: Path | None, formats: tuple[str, ...] | None, judge: str | None, only: tuple[str, ...]) -> None:
    """Draw every figure that a run has, each in every format: the same run gives the same bytes.

    RUN may be the folder of a matrix: then editors by benchmarks are drawn, and its runs are in the folders inside.
    """
    from kedit.figures import write_figures

    written = write_figures(folder, out, formats=formats or (), only=only or None, judge=judge)
    for path in written:
        click.echo(path)
