"""``kedit play``: the page in a browser without a network, its endpoints, users at once."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakes
import pytest
from chromium import Browser
from click.testing import CliRunner
from fakes import FakeBackbone, Prepend
from samples import A

from kedit.cli import main
from kedit.errors import KeditError
from kedit.live.page import POLICY, Acts, build, gradio, serve
from kedit.live.session import Session


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEDIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield Session(FakeBackbone(), Prepend())


@pytest.fixture(scope="module")
def page(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of the page, and the folder that it saves to."""
    pytest.importorskip("gradio")
    saved = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("uploads")))
        made = build(session, saved)
        yield serve(made), saved
        made.close(verbose=False)


@pytest.fixture(autouse=True)
def _nothing_inserted(session: Session) -> None:
    session.reset()


def act(session: Session) -> Acts:
    return Acts(session, lambda message, **_: RuntimeError(message))


# -- what the buttons do -----------------------------------------------------------------------------------------------


def test_the_buttons_insert_ask_and_take_back(session: Session) -> None:
    acts = act(session)
    before, after, told = acts.ask(None, "Which gift?", "en")
    assert before == after and "The answer is the same" in told and "does not say" in told
    said, [row] = acts.insert(None, "What is it?", "A clock.", "as written", "Clock")
    assert said.startswith("Inserted as ") and row[1:] == ["en", "What is it?", "A clock.", "0", "Clock"]
    said, rows = acts.insert(None, "What is it?", "A clock.", "as written")
    assert "already" in said and len(rows) == 1
    assert acts.ask(None, "Which gift?", "en")[0] == before != acts.ask(None, "Which gift?", "en")[1]
    assert acts.remove(float(row[0])) == (f"Took {row[0]} back.", [])
    assert acts.undo() == ("There is no insert to take back.", [])


def test_errors_are_told_as_text_and_change_nothing(session: Session) -> None:
    acts = act(session)
    for wrong in (
        lambda: acts.insert(None, " ", "x", "en"),
        lambda: acts.insert("gone.png", "What?", "x", "en"),
        lambda: acts.ask(None, None, None),  # type: ignore[arg-type]
        lambda: acts.remove(77),
        lambda: acts.remove(None),
        lambda: acts.ask(None, "What?", "<b>"),
    ):
        with pytest.raises(RuntimeError) as caught:
            wrong()
        assert "<" not in str(caught.value)
    assert session.entries == ()


def test_what_a_model_says_reaches_the_page_with_its_control_characters_written_out(session: Session) -> None:
    assert act(session).insert(None, "What?", "red\u202e\x1b[31m", "en")[1][0][3] == "red\\u202e\\x1b[31m"


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_person_inserts_with_an_image_asks_and_takes_back_in_a_browser_that_reaches_nothing_else(
    session: Session, page: tuple[str, Path], tmp_path: Path, browser: Browser
) -> None:
    address, saved = page
    file = tmp_path / "a.png"
    file.write_bytes(A.read())
    browser.visit(address)
    browser.until("!!document.querySelector('#insert-question textarea')")
    browser.upload("#insert-image input[type=file]", file)
    browser.until("!!document.querySelector('#insert-image img')")
    browser.type("#insert-question textarea", "What is it?")
    browser.type("#insert-answer textarea", "A <b>clock</b>.")
    browser.click("#insert")
    said = browser.until("document.querySelector('#status textarea').value")
    browser.until("document.querySelector('#entries').innerText.includes('A <b>clock</b>.')")
    [entry] = session.entries
    assert said == f"Inserted as {entry.number}."
    assert [image.digest for image in entry.knowledge.request.images] == [A.digest]  # the very file, not a copy of its pixels
    browser.type("#ask-question textarea", "Which gift?")
    browser.click("#ask")
    browser.until("document.querySelector('#routing textarea').value")
    reply = session.ask("Which gift?")
    assert reply.before is not None
    assert browser.run("document.querySelector('#before textarea').value") == reply.before.text
    assert browser.run("document.querySelector('#after textarea').value") == reply.after.text != reply.before.text
    browser.click("#save")
    browser.until("document.querySelector('#status textarea').value.startsWith('Saved')")
    browser.click("#undo")
    browser.until("document.querySelector('#status textarea').value.startsWith('Took')")
    assert session.entries == () and (saved / "session.json").is_file()
    assert [url for url in browser.requested if not url.startswith((address, "blob:", "about:"))] == []


@pytest.mark.slow
def test_users_at_once_wait_in_line_and_are_told_their_errors(session: Session, page: tuple[str, Path]) -> None:
    from gradio_client import Client
    from gradio_client.exceptions import AppError

    with urllib.request.urlopen(page[0]) as reply:
        assert reply.headers["content-security-policy"] == POLICY
    client = Client(page[0], verbose=False)
    found: list[Any] = []

    def use(user: int) -> None:
        found.append(client.predict(None, f"Is it {user}?", f"It is {user}.", "en", "", "", api_name="/insert"))

    users = [threading.Thread(target=use, args=(user,)) for user in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert sorted(entry.knowledge.answer for entry in session.entries) == [f"It is {user}." for user in range(4)]
    assert sorted(len(table["data"]) for _, table in found) == [1, 2, 3, 4]
    with pytest.raises(AppError, match="the question is empty"):
        client.predict(None, "", "x", "en", "", "", api_name="/insert")
    assert len(client.predict(api_name="/entries")["data"]) == 4


# -- the command -------------------------------------------------------------------------------------------------------


def test_without_gradio_the_command_says_what_to_install_before_it_loads_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gradio", None)
    with pytest.raises(KeditError, match=r"pip install 'kedit\[play\]'"):
        gradio()
    monkeypatch.setattr("kedit.backbone.load_backbone", lambda *_, **__: pytest.fail("loaded"))
    done = CliRunner().invoke(main, ["play", "--editor", f"{fakes.__file__}:Prepend"])
    assert done.exit_code == 1 and "pip install 'kedit[play]'" in done.output
