"""``--track``: who else is told of a run or a training."""

from __future__ import annotations

import click

from kedit.commands.shared import split

track_option = click.option(
    "--track",
    metavar="NAMES",
    callback=split,
    help="Comma-separated: tensorboard, wandb, mlflow. All stay on this machine unless their own variables say otherwise.",
)
