"""``kedit judge``: getting to know a judge; and the options that name one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kedit.commands.shared import bars, clear_errors, json_fields

if TYPE_CHECKING:
    from kedit.judging.judges import Judge

Command = TypeVar("Command", bound=Callable[..., Any])


def judge_options(command: Command) -> Command:
    """The options that name a judge and say how it is asked."""
    for option in (
        click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="At most N requests per minute."),
        click.option("--workers", default=8, show_default=True, type=click.IntRange(min=1), help="Requests under way at once."),
        click.option(
            "--kind",
            "prompt",
            default="score",
            show_default=True,
            type=click.Choice(["score", "three-way"]),
            help="What is asked.",
        ),
        click.option("--judge-retries", type=click.IntRange(min=0), help="Repetitions of a request that failed (5)."),
        click.option("--judge-timeout", type=click.FloatRange(0, min_open=True), help="Seconds to wait for a reply (120)."),
        click.option(
            "--judge-field",
            "fields",
            multiple=True,
            metavar="NAME=VALUE",
            callback=json_fields,
            help="With openai:MODEL: a field of every request as JSON, such as reasoning_effort=null to leave it out.",
        ),
        click.option(
            "--judge-key-env", metavar="NAME", help="With openai:MODEL: the variable that holds the key (OPENAI_API_KEY)."
        ),
        click.option("--judge-base-url", metavar="URL", help="With openai:MODEL: the server; KEDIT_BASE_URL if left out."),
        click.option("--judge", "name", required=True, help="openai:MODEL, hf:PATH_OR_ID, or dummy, which only counts words."),
    ):
        command = option(command)
    return command


def opened(
    name: str,
    workers: int,
    judge_base_url: str | None,
    judge_key_env: str | None,
    fields: dict[str, Any] | None,
    judge_timeout: float | None,
    judge_retries: int | None,
) -> Judge:
    """The judge that the options name."""
    from kedit.judging import open_judge
    from kedit.judging.judges import OPENAI

    return open_judge(
        name,
        base_url=judge_base_url,
        api_key_env=judge_key_env,
        fields=fields,
        timeout=judge_timeout,
        retries=judge_retries,
        concurrency=workers if name.startswith(OPENAI) else None,
    )


@click.group()
def judge() -> None:
    """Judges: what one does before its scores are believed."""


@judge.command()
@judge_options
@click.option("--pairs", type=click.Path(path_type=Path), help="JSON lines with pairs of your own; 15 of ours if left out.")
@clear_errors
def calibrate(name: str, workers: int, prompt: str, rate: float | None, pairs: Path | None, **options: Any) -> None:
    """Show what a judge gives to the same text, to other words, to nothing, to another language, to another question's answer.

    Also with orders to the judge in the answer, and with reference and candidate exchanged.
    """
    from kedit.judging.calibrate import calibrate as run
    from kedit.judging.calibrate import read_pairs
    from kedit.report.calibration import calibration_table
    from kedit.report.text import table_text

    own = read_pairs(pairs) if pairs else None
    chosen = opened(name, workers, **options)
    with bars() as update:
        found = run(
            chosen,
            own,
            prompt=prompt,
            workers=workers,
            rate=rate,
            progress=lambda done, total: update("", "judging", done, total),
        )
    click.echo(table_text(calibration_table(found)))
