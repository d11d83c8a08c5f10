"""``kedit zoo``: the embedded models."""

from __future__ import annotations

from pathlib import Path

import click

from kedit.commands.shared import benchmark_option, clear_errors


@click.group()
def zoo() -> None:
    """The embedded models."""


@zoo.command("list")
def zoo_list() -> None:
    """The embedded models and whether their weights are here."""
    from kedit.zoo.catalogue import PARTS, PRESETS, available

    for name, summary in {**{name: preset.summary for name, preset in PRESETS.items()}, **PARTS}.items():
        click.echo(f"{name:20} {'here' if available(name) else 'not trained yet'}  {summary}")


@zoo.command("info")
@click.argument("name")
@clear_errors
def zoo_info(name: str) -> None:
    """The card of an embedded model: what it can do and what it was trained on."""
    from kedit.zoo.catalogue import folder

    place = folder(name)
    file = place / "README.md"
    click.echo(
        file.read_text(encoding="utf-8")
        if file.exists()
        else f"{name} has no weights here yet; make them with: kedit zoo train {name}"
    )


@zoo.command("fit")
@click.argument("name")
@click.option("--editors", help="Comma-separated short names; all that ship fitted if left out.")
@benchmark_option
@click.option("--seed", default=0, show_default=True)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Gets a folder per editor; unfinished ones go on.")
@clear_errors
def zoo_fit(name: str, editors: str | None, benchmark: str, seed: int, out: Path) -> None:
    """Fit the editors that learn for an embedded backbone, with settings and numbers of cases of what ships (minutes each)."""
    from kedit.backbone import load_backbone
    from kedit.benchmarks import benchmark as find_benchmark
    from kedit.commands import train as training
    from kedit.errors import unknown_name
    from kedit.zoo.catalogue import FITTED_ON

    wanted = editors.split(",") if editors else list(FITTED_ON)
    for one in wanted:
        if one not in FITTED_ON:
            raise unknown_name("editor that ships fitted", one, FITTED_ON)
    model, found = load_backbone(name, device="cpu"), find_benchmark(benchmark)
    for one in wanted:
        limit, share = FITTED_ON[one]
        held = training.cases(found, limit, share, seed)
        made = training.make(one, (), name, seed)
        for line in training.fit(made, model, found, held, out / one, limit=limit, seed=seed, share=share):
            click.echo(line)


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
    """Train an embedded model (up to 40 minutes on two cores), measure it and write its card.

    A model that starts from another needs that one's weights to be there. Use the result with KEDIT_ZOO=OUT.
    """
    import logging

    import torch

    from kedit.zoo.catalogue import PARTS

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    if name in PARTS:
        from kedit.zoo.train_clip import train as train_part

        click.echo(f"written to {train_part(out)}")
        return
    from kedit.zoo.train import train

    click.echo(f"written to {train(name, out, workers=workers)}")
