"""``kedit score``: a judge reads the answers of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit.commands.judge import judge_options, opened
from kedit.commands.shared import bars, clear_errors, split

if TYPE_CHECKING:
    from kedit.judging import Judged


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@judge_options
@click.option("--only-failed", is_flag=True, help="Ask again for what has no score, and nothing else.")
@click.option("--replay", is_flag=True, help="Take judgements from the cache only; the beginning of the judge's id is enough.")
@click.option("--editors", callback=split, help="Comma-separated editors of the run; all if left out.")
@click.option("--protocols", "tasks", callback=split, help="Comma-separated tasks of the run; all if left out.")
@click.option(
    "--price", nargs=2, type=float, metavar="IN OUT", help="Price of a million tokens read and written, to show the cost."
)
@click.option("--strict", is_flag=True, help="Exit status 1 where anything has no score.")
@clear_errors
def score(
    folder: Path,
    name: str,
    workers: int,
    prompt: str,
    rate: float | None,
    only_failed: bool,
    replay: bool,
    editors: tuple[str, ...] | None,
    tasks: tuple[str, ...] | None,
    price: tuple[float, float] | None,
    strict: bool,
    **options: Any,
) -> None:
    """Have a run's free-text answers judged, each distinct one once, and keep the judgements in FOLDER/judgements.

    The same command again goes on where it was stopped. Look at the scores with `kedit report FOLDER --judge ID`.
    """
    from kedit.judging import score_run
    from kedit.run import Run

    run = Run.load(folder)
    judge = name if replay else opened(name, workers, **options)
    with bars() as update:
        done = score_run(
            run,
            judge,
            prompt=prompt,
            only_failed=only_failed,
            replay=replay,
            editors=editors,
            tasks=tasks,
            workers=workers,
            rate=rate,
            progress=lambda done, total: update("", "judging", done, total),
        )
    for line in _lines(done, price):
        click.echo(line)
    click.echo(f"Next: kedit report {folder} --judge '{done.judge}'")
    if strict and (done.unscored or done.left):
        raise SystemExit(1)


def _lines(done: Judged, price: tuple[float, float] | None) -> Iterator[str]:
    yield f"{done.judge}, prompt {done.prompt}: {done.texts} distinct texts in {done.records} answers"
    yield f"  scored {done.scored}; asked now {done.asked}, from the cache {done.cached}, not judged yet {done.left}"
    for reason, count in done.unscored.items():
        yield f"  unscored {count}: {reason}"
    if done.labels:
        yield "  " + ", ".join(f"{label} {count} ({100 * count / done.texts:.1f} %)" for label, count in done.labels.items())
    yield (
        f"  {done.requests} requests, {done.retries} of them repetitions; "
        f"{done.prompt_tokens} tokens read, {done.answer_tokens} written" + (f", cost {done.cost(*price):.4f}" if price else "")
    )
