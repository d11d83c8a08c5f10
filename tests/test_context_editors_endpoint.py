"""Texts encoded by a server: a real one on this machine, which fails as servers do."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import FakeBackbone, FakeBenchmark

from kedit.encoders import EndpointEncoder, text_encoder
from kedit.errors import EndpointError, RequestError, UnansweredError
from kedit.evaluate import evaluate
from kedit.methods import RetrievedDocument
from kedit.types import Knowledge, Request

SECRET = "sk-a-secret-that-must-not-be-seen"


class Server(ThreadingHTTPServer):
    """Encodes a text by its length and its vowels; ``answers`` are (status, body or None for the true one) given first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, Any]] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.headers: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


def vector(text: str) -> list[float]:
    return [len(text), text.count("a"), text.count("e"), 1]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.reply(200, {"data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.keys.append(self.headers.get("Authorization"))
        status, content = self.server.answers.pop(0) if self.server.answers else (200, None)
        if content is None:
            rows = [{"index": at, "embedding": vector(text)} for at, text in enumerate(body["input"])]
            content = {"data": rows[::-1], "model": body["model"]}  # order is not promised
        if self.path != "/v1/embeddings":
            status, content = 404, {"error": "not here"}
        self.reply(status, content)

    def reply(self, status: int, content: Any) -> None:
        data = json.dumps(content).encode() if not isinstance(content, bytes) else content
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "KEDIT_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def encoder(server: Server, **params: Any) -> EndpointEncoder:
    return EndpointEncoder("embed-1", server.url, **{"backoff": 0.001, "retries": 2, **params})


def test_texts_come_back_as_vectors_in_their_order_in_batches(server: Server) -> None:
    texts = ["a", "bee", "", "areas"]
    found = encoder(server, batch_size=3)(texts)
    assert found.tolist() == [vector(text or " ") for text in texts]
    assert found.dtype == np.float32
    assert sorted(map(len, (body["input"] for body in server.bodies))) == [1, 3]
    assert {body["model"] for body in server.bodies} == {"embed-1"}
    assert set(server.keys) == {f"Bearer {SECRET}"}


def test_a_server_that_wants_no_key_needs_none(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    encoder(server)(["a"])
    assert server.keys == [None]
    monkeypatch.setenv("MY_KEY", "mine")
    encoder(server, api_key_env="MY_KEY")(["a"])
    assert server.keys[1] == "Bearer mine"
    with pytest.raises(EndpointError, match="NO_KEY is to hold the key"):
        encoder(server, api_key_env="NO_KEY")(["a"])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_asked_again(server: Server, status: int) -> None:
    server.answers = [(status, {"error": "busy"}), (200, b"no json")]
    assert encoder(server)(["a"]).tolist() == [vector("a")]
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": []},
        {"data": "none"},
        {"data": [{"index": 0, "embedding": [1, "x"]}]},
        {"data": [{"index": 0, "embedding": []}]},
        {"data": [{"index": 1, "embedding": [1.0]}]},
        {"data": [{"embedding": [float("nan")]}]},
        {"data": [3]},
    ],
    ids=str,
)
def test_what_is_no_vector_for_each_text_is_no_answer(server: Server, wrong: Any) -> None:
    server.answers = [(200, wrong)] * 3
    with pytest.raises(UnansweredError, match="3 attempts"):
        encoder(server)(["a"])
    assert len(server.bodies) == 3


def test_vectors_of_different_widths_are_refused(server: Server) -> None:
    server.answers = [(200, {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]})]
    with pytest.raises(UnansweredError, match="different widths"):
        encoder(server)(["a", "b"])


def test_what_no_repetition_changes_is_told_at_once_and_without_the_key(server: Server) -> None:
    for status, error in ((401, EndpointError), (404, EndpointError), (400, RequestError), (307, EndpointError)):
        server.answers = [(status, {"error": {"message": f"wrong key {SECRET}"}})]
        server.headers = {"Location": server.url.replace("127.0.0.1", "localhost") + "/embeddings"} if status == 307 else {}
        asked = len(server.bodies)
        with pytest.raises(error) as caught:
            encoder(server)(["a"])
        assert SECRET not in str(caught.value)
        assert len(server.bodies) == asked + 1, "a redirection would carry the key elsewhere"


def test_a_server_that_is_not_there_is_named(server: Server) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(EndpointError, match="127.0.0.1"):
        encoder(server, timeout=2.0)(["a"])


def test_a_name_says_the_model_and_where_it_is(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    assert text_encoder("openai:embed-1") == EndpointEncoder("embed-1")
    assert text_encoder(f"openai:org/embed@2@{server.url}") == EndpointEncoder("org/embed@2", server.url)
    assert text_encoder(f"openai:embed-1@{server.url}")(["a"]).tolist() == [vector("a")]
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert EndpointEncoder("embed-1")(["a"]).tolist() == [vector("a")]


def test_an_address_or_a_name_that_holds_a_key_is_refused_without_showing_it() -> None:
    for wrong in (
        {"base_url": f"http://me:{SECRET}@host/v1"},
        {"base_url": f"http://host/v1?key={SECRET}"},
        {"api_key_env": SECRET},
    ):
        with pytest.raises(EndpointError) as caught:
            EndpointEncoder("m", **wrong)
        assert SECRET not in str(caught.value)


def test_a_run_that_looks_documents_up_by_a_server_writes_the_key_nowhere(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [(503, {"error": SECRET})]
    pages = [Knowledge(Request("?"), "", "Tea", "Dried leaves.")]
    with caplog.at_level(logging.DEBUG):
        editor = RetrievedDocument(encoder=f"openai:embed-1@{server.url}", documents=pages, query="question")
        run = evaluate(editor, FakeBackbone(), FakeBenchmark(1), tasks="single", out=tmp_path / "run")
        editor.save(tmp_path / "editor")
    assert not run.failures
    assert len(run.records("retrieved")) == 4
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 4
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert "embed-1" in (tmp_path / "run" / "run.json").read_text()
    assert SECRET not in caplog.text + repr(editor) + repr(text_encoder(editor.encoder))
