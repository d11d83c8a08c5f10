"""A page on which people insert knowledge, ask around it and see what changed; drawn by gradio, served from this machine."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from kedit.errors import KeditError, StoreError
from kedit.live.session import Reply, Session, routing
from kedit.report.escape import html_text, visible

HEADERS = ["No.", "Language", "Question", "Answer", "Images", "Title"]
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; base-uri 'self'; form-action 'self'"
"""What a browser may load for the page: nothing from other places."""
_GUESS = "as written"
_QUEUE: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "model"}
"""There is one model: whoever comes while it is busy waits in line and sees the place in it."""
_FULL = 64
_HOURS = 3600


def gradio() -> Any:
    """The package gradio with all that would call home turned off; raises KeditError where it is not installed."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    try:
        import gradio as package
    except ImportError as error:
        raise KeditError(f"the page needs the package gradio ({error}); install it: pip install 'kedit[play]'") from error
    if int(package.__version__.partition(".")[0]) < 6:
        raise KeditError(
            f"the page needs gradio 6 or later, here is {package.__version__}; install it: pip install 'kedit[play]'"
        )
    return package


def build(session: Session, save: str | Path | None = None) -> Any:
    """The page of a session as ``gradio.Blocks``; everyone who opens it uses the same model and sees the same entries.

    ``save`` is the folder that the page's button saves to; without it there is no such button, since whoever can open the page
    could write to this machine. Endpoints: /insert, /ask, /remove, /undo, /entries and /save.
    """
    gr = gradio()
    acts = Acts(session, gr.Error, save)
    with gr.Blocks(title="kedit", analytics_enabled=False, delete_cache=(_HOURS, 24 * _HOURS)) as page:
        gr.Markdown(
            f"# kedit play\n{html_text(session.backbone.id)}, edited by {html_text(session.editor.name)}. "
            "Everyone who opens this page edits the same model; requests wait in line."
        )
        with gr.Row():
            taught = _insert_form(gr)
            asked = _ask_form(gr)
        status = gr.Textbox(label="What was done", interactive=False, elem_id="status")
        table = gr.Dataframe(headers=HEADERS, datatype="str", label="Inserted", interactive=False, wrap=True, elem_id="entries")
        with gr.Row():
            number = gr.Number(label="No. to take back", precision=0, elem_id="number")
            remove = gr.Button("Remove", elem_id="remove")
            undo = gr.Button("Undo the last insert", elem_id="undo")
            if save is not None:
                gr.Button("Save", elem_id="save").click(acts.save, None, status, api_name="save", **_QUEUE)
        taught.pop("button").click(acts.insert, list(taught.values()), [status, table], api_name="insert", **_QUEUE)
        button, shown = asked.pop("button"), asked.pop("shown")
        button.click(acts.ask, list(asked.values()), shown, api_name="ask", **_QUEUE)
        remove.click(acts.remove, number, [status, table], api_name="remove", **_QUEUE)
        undo.click(acts.undo, None, [status, table], api_name="undo", **_QUEUE)
        page.load(acts.entries, None, table, api_name="entries", **_QUEUE)
    return page


def _insert_form(gr: Any) -> dict[str, Any]:
    with gr.Column():
        gr.Markdown("### Insert")
        return {
            "image": _picture(gr, "insert-image"),
            "question": gr.Textbox(label="Question", elem_id="insert-question"),
            "answer": gr.Textbox(label="The answer it is to get", lines=2, elem_id="insert-answer"),
            "language": _language(gr),
            "title": gr.Textbox(label="Title (for editors that show one)"),
            "text": gr.Textbox(label="Document (for editors that show one)", lines=2),
            "button": gr.Button("Insert", variant="primary", elem_id="insert"),
        }


def _ask_form(gr: Any) -> dict[str, Any]:
    with gr.Column():
        gr.Markdown("### Ask")
        form = {
            "image": _picture(gr, "ask-image"),
            "question": gr.Textbox(label="Question", elem_id="ask-question"),
            "language": _language(gr),
            "button": gr.Button("Ask", variant="primary", elem_id="ask"),
        }
        with gr.Row():
            before = gr.Textbox(label="Before: the unedited model", lines=3, interactive=False, elem_id="before")
            after = gr.Textbox(label="After: with what is inserted", lines=3, interactive=False, elem_id="after")
        told = gr.Textbox(label="What the editor did", lines=2, interactive=False, elem_id="routing")
        return {**form, "shown": [before, after, told]}


def _picture(gr: Any, name: str) -> Any:
    # no image_mode: the file as it was uploaded, since routers know an image by its content
    return gr.Image(label="Image", type="filepath", image_mode=None, sources=["upload", "clipboard"], height=224, elem_id=name)


def _language(gr: Any) -> Any:
    return gr.Dropdown([_GUESS, "en", "zh", "ar"], value=_GUESS, label="Language", allow_custom_value=True)


class Acts:
    """What the page's buttons do; every error is told to the user as ``failure`` and leaves the session as it was."""

    def __init__(self, session: Session, failure: Callable[..., Exception], folder: str | Path | None = None) -> None:
        self.session = session
        self.failure = failure
        self.folder = folder

    def insert(
        self, image: str | None, question: str, answer: str, language: str, title: str = "", text: str = ""
    ) -> tuple[str, list[list[str]]]:
        """(what was done, rows of the table)."""
        images = [image] if image else []
        done = self._do(
            lambda: self.session.insert(
                question or "", answer or "", images, language=_spoken(language), title=title or "", text=text or ""
            )
        )
        lines = [*(f"Inserted as {entry.number}." for entry in done.entries), *done.notes]
        return visible("\n".join(lines), keep="\n"), self.entries()

    def ask(self, image: str | None, question: str, language: str) -> tuple[str, str, str]:
        """(answer before, answer after, what the editor did)."""
        reply: Reply = self._do(lambda: self.session.ask(question or "", [image] if image else [], language=_spoken(language)))
        before = f"({reply.missing})" if reply.before is None else reply.before.text
        told = routing(reply.trace) or "This editor does not say what it does with a request."
        if not reply.changed:
            told += " The answer is the same."
        return tuple(visible(text, keep="\n\t") for text in (before, reply.after.text, told))  # type: ignore[return-value]

    def remove(self, number: float | None) -> tuple[str, list[list[str]]]:
        """(what was done, rows of the table)."""
        if number is None:
            raise self.failure("Give the number of an entry; the table has them in its first column.")
        self._do(lambda: self.session.remove(int(number)))
        return f"Took {int(number)} back.", self.entries()

    def undo(self) -> tuple[str, list[list[str]]]:
        """(what was done, rows of the table)."""
        gone = self._do(self.session.undo)
        told = ", ".join(str(entry.number) for entry in gone)
        return (f"Took {told} back." if gone else "There is no insert to take back."), self.entries()

    def save(self) -> str:
        """What was done."""
        folder = self._do(lambda: self.session.save(str(self.folder)))
        return f"Saved to {visible(str(folder))}."

    def entries(self) -> list[list[str]]:
        """Rows of the table, the newest last."""
        items = [(entry.number, entry.knowledge) for entry in self.session.entries]
        rows = [[n, k.request.language, k.request.question, k.answer, len(k.request.images), k.title] for n, k in items]
        return [[visible(str(cell)) for cell in row] for row in rows]

    def _do(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except KeditError as error:
            raise self.failure(html_text(str(error)), print_exception=False) from error
        except Exception as error:  # noqa: BLE001 - whatever an editor raises, the page stays
            raise self.failure(html_text(f"{type(error).__name__}: {error}")) from error


def _spoken(language: str | None) -> str | None:
    return None if not language or language == _GUESS else language


def serve(page: Any, *, host: str = "127.0.0.1", port: int | None = None) -> str:
    """Serve a page in the background and return its address; ``page.close()`` ends it.

    Nothing is shared through other machines, and browsers are told to load nothing from other places. ``port`` is the first
    free one from 7860 if left out. Raises StoreError where it cannot be had.
    """
    gr = gradio()
    from starlette.middleware import Middleware

    font = [gr.themes.Font("system-ui"), gr.themes.Font("sans-serif")]
    theme = gr.themes.Default(font=font, font_mono=[gr.themes.Font("monospace")])
    page.queue(max_size=_FULL)
    try:
        _, address, _ = page.launch(
            server_name=host,
            server_port=port,
            share=False,
            quiet=True,
            prevent_thread_lock=True,
            show_error=True,
            ssr_mode=False,
            mcp_server=False,
            theme=theme,
            footer_links=["api"],
            app_kwargs={"middleware": [Middleware(OnlyHere)]},
        )
    except OSError as error:
        where = f"{host}:{port}" if port else f"{host}, ports 7860 to 7959"
        raise StoreError(f"cannot serve on {where}: in use, or not this machine's; name another port (--port) or host") from error
    return str(address)


class OnlyHere:
    """ASGI middleware that sends ``POLICY`` with every answer."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        """Pass a request on; its answer gets the header."""

        async def with_policy(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        await self.app(scope, receive, with_policy)
