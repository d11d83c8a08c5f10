"""``kedit reproduce``: a table or figure of a paper made again, beside what the paper prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit.commands.fitted import folders, make
from kedit.commands.fitted import load as load_fitted
from kedit.commands.shared import (
    backbone_option,
    batch_size_option,
    clear_errors,
    failures,
    fitted_option,
    known_settings,
    loading_options,
    matrix_bars,
    max_new_tokens_option,
    set_option,
    split,
)

if TYPE_CHECKING:
    from kedit.editor import Editor
    from kedit.reproduce.planning import Data, Plan
    from kedit.reproduce.published import Artefact, Paper

_ASKING = ("limit", "train_limit", "judge", "published", "seed", "max_new_tokens")
"""Options that say what is asked; the others say how the backbone is loaded."""


@click.command()
@click.argument("paper", required=False)
@click.argument("what", required=False)
@backbone_option
@click.option(
    "--benchmark",
    "benchmarks",
    multiple=True,
    help="NAME:FOLDER of the published data, module:Class or file.py:Class; what ships in its place if left out. "
    "May be repeated where a table has several.",
)
@click.option("--editors", callback=split, help="Comma-separated: some of the table's editors, by short name; all if left out.")
@click.option("--limit", type=click.IntRange(min=1), help="Raw cases; all if left out.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of the runs and of what is made; an unfinished one is continued."
)
@click.option("--plan", "planned", is_flag=True, help="Say what would be run, with which settings, and stop.")
@click.option("--train-limit", type=click.IntRange(min=1), help="Raw cases that editors learn from; all if left out.")
@set_option
@fitted_option
@click.option("--judge", metavar="ID", help="Show a judge's columns too: its id, of one that has judged the runs.")
@click.option("--published", metavar="MODEL", help="The paper's model to stand beside; the nearest to the backbone if left out.")
@click.option("--seed", default=0, show_default=True)
@max_new_tokens_option
@batch_size_option
@loading_options
@clear_errors
def reproduce(
    paper: str | None,
    what: str | None,
    backbone: str,
    benchmarks: tuple[str, ...],
    editors: tuple[str, ...] | None,
    out: Path | None,
    planned: bool,
    settings: tuple[str, ...],
    fitted: tuple[str, ...],
    **options: Any,
) -> None:
    """Make a table or figure of a paper again (PAPER WHAT, such as crosscult table2) and print it beside the published one.

    Without WHAT, or without both, names what there is. The runs are in OUT, which tables and figures of one paper share: the
    same command again goes on where it stopped, and another one asks only what is missing. What is made is in OUT as Markdown,
    CSV, JSON and, of figures, PNG and SVG.
    """
    from kedit.reproduce.published import paper as published_paper
    from kedit.reproduce.published import papers

    if paper is None or what is None:
        from kedit.reproduce.planning import listing

        click.echo("\n".join(listing([published_paper(key) for key in ([paper] if paper else papers())])))
        return
    asked = _Asked(published_paper(paper), published_paper(paper).artefact(what), backbone, benchmarks, editors, settings, fitted)
    if planned:
        click.echo(repr(asked.plan(options["limit"], options["train_limit"])))
        return
    if out is None:
        raise click.UsageError("name a folder for the runs: --out FOLDER; --plan says what would be run")
    asked.make(out, options)


@dataclass(frozen=True)
class _Asked:
    """What the command line names."""

    paper: Paper
    artefact: Artefact
    backbone: str
    benchmarks: tuple[str, ...]
    chosen: tuple[str, ...] | None
    settings: tuple[str, ...]
    fitted: tuple[str, ...]

    def editors(self, found: Data) -> tuple[dict[str, Editor], dict[str, Path]]:
        """The editors by name, and the folders of what some of them learned, whose parameters go before the paper's."""
        from kedit.reproduce.planning import documents, names_of, presets

        names = names_of(self.paper, self.artefact, self.chosen)
        known_settings(self.settings, names)
        places = folders(self.fitted, names)
        given = {name: dict(params) for name, params in presets(self.paper, self.backbone).items() if name not in places}
        for run in self.artefact.runs:
            for name, more in documents(found, self.paper.runs[run]).items():
                given[name] = {**given.get(name, {}), **more}
        made = {name: make(name, self.settings, self.backbone, places.get(name), **given.get(name, {})) for name in names}
        return made, places

    def plan(self, limit: int | None, train_limit: int | None) -> Plan:
        """What would be run."""
        from kedit.reproduce.planning import data, plan

        found = data(self.paper, self.artefact, self.benchmarks)
        editors, _ = self.editors(found)
        return plan(self.paper, self.artefact, self.backbone, found, editors, limit=limit, train_limit=train_limit)

    def make(self, out: Path, options: dict[str, Any]) -> None:
        """Run, print and write."""
        from kedit.reproduce.planning import data

        editors, places = self.editors(data(self.paper, self.artefact, self.benchmarks))

        from kedit.backbone import load_backbone
        from kedit.reproduce.making import reproduce as make_again

        asking = {name: options.pop(name) for name in _ASKING}
        model = load_backbone(self.backbone, **options)
        load_fitted(editors, tuple(editors), places, model)
        with matrix_bars() as progress:
            done = make_again(
                self.paper.key,
                self.artefact.key,
                model,
                benchmarks=self.benchmarks,
                editors=editors,
                out=out,
                progress=progress,
                **asking,
            )
        for name, reading in done.readings.items():
            for line in failures(reading.run):
                click.echo(f"{name}: {line}", err=True)
        click.echo(repr(done))
        click.echo(f"Written: {', '.join(path.name for path in done.write(out))} in {out}.")
