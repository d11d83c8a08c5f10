"""``kedit play``: the page on which people insert and ask."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import click

from kedit.commands.live import opened, session_options
from kedit.commands.shared import clear_errors


@click.command()
@session_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on; there is no password.")
@click.option("--port", type=click.IntRange(1, 65535), help="The first free one from 7860 if left out.")
@click.option("--save", type=click.Path(path_type=Path), help="Folder that the page's Save button writes to; none without it.")
@clear_errors
def play(host: str, port: int | None, save: Path | None, **options: Any) -> None:
    """Serve a page: insert knowledge with an image, ask around it, see before and after side by side.

    Needs the extra play (pip install "kedit[play]"). Works without a network; nothing is shared. Ctrl-C ends it.
    """
    from kedit.live.page import build, gradio, serve

    gradio()  # where it is missing, that is told before a model is loaded
    page = build(opened(**options), save)
    if host not in ("127.0.0.1", "localhost", "::1"):
        click.echo(f"Whoever reaches {host} can edit this model: there is no password.", err=True)
    click.echo(f"Open {serve(page, host=host, port=port)} in a browser; Ctrl-C ends it.")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        page.close(verbose=False)
