"""``kedit zoo``: the embedded backbones."""

from __future__ import annotations

from pathlib import Path

import click

from kedit.commands.shared import clear_errors


@click.group()
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
@clear_errors
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
@clear_errors
def zoo_train(name: str, out: Path, workers: int) -> None:
    """Train an embedded backbone from nothing (about 40 minutes on two cores), measure it and write its card.

    Use the result with KEDIT_ZOO=OUT.
    """
    import logging

    import torch

    from kedit.zoo.train import train

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    click.echo(f"written to {train(name, out, workers=workers)}")
