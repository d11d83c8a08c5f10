"""A real HTTP server on the loopback that speaks the OpenAI chat protocol and misbehaves on request."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kedit.backbone import Backbone
from kedit.types import ImageRef, Request

Say = Callable[[dict[str, Any]], dict[str, Any]]
"""From a chat request's body to the message and its finish reason: content, refusal, finish_reason."""


def digest(body: dict[str, Any]) -> dict[str, Any]:
    """An answer that the messages alone decide."""
    text = json.dumps(body["messages"], sort_keys=True)
    return {"content": f"answer {hashlib.sha256(text.encode()).hexdigest()[:8]}"}


class ChatServer(ThreadingHTTPServer):
    """``plan`` says how the next chat requests are treated, one word each; when it is used up, all are answered.

    ok, 429 (retry after ``wait`` seconds), 429-date, a status such as 500, quota, hang, cut, broken, empty, renamed (only
    max_completion_tokens is taken), cold (temperature 0 is not taken), moved, wrapped (an error under status 200).
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, say: Say = digest, plan: Sequence[str] = (), *, key: str | None = None, seconds: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.say = say
        self.plan = list(plan)
        self.always: str | None = None
        self.key = key
        self.seconds = seconds
        self.wait = "0"
        self.bodies: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.authorizations: list[str | None] = []
        self.cards: list[dict[str, Any]] | None = [{"id": "tiny", "root": "tiny", "created": 1}]
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.let_go = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to print."""


@contextmanager
def serving(*args: Any, **kwargs: Any) -> Iterator[ChatServer]:
    server = ChatServer(*args, **kwargs)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.let_go.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def log_message(self, *_: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        if not self._allowed():
            return
        if self.path.endswith("/models") and self.server.cards is not None:
            with self.server.lock:
                for card in self.server.cards:
                    card["created"] += 1  # as some servers do
            self._send(200, {"object": "list", "data": self.server.cards})
        else:
            self._send(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.bodies.append(body)
            server.times.append(time.monotonic())
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            word = server.always or (server.plan.pop(0) if server.plan else "ok")
        if server.seconds:
            time.sleep(server.seconds)
        with server.lock:
            server.at_once -= 1  # before the reply: from then on its client may send the next request
        if self._allowed():
            self._treat(word, body)

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization")
        with self.server.lock:
            self.server.authorizations.append(given)
        if self.server.key is None or given == f"Bearer {self.server.key}":
            return True
        self._send(401, {"error": {"message": f"Incorrect API key provided: {given}", "code": "invalid_api_key"}})
        return False

    def _treat(self, word: str, body: dict[str, Any]) -> None:
        if word == "ok" or (word == "renamed" and "max_tokens" not in body) or (word == "cold" and "temperature" not in body):
            self._answer(body)
        elif word == "hang":
            self.server.let_go.wait(20)
        elif word == "cut":
            self._raw(200, b'{"choices": [{"mess', length=500)
        elif word == "broken":
            self._raw(200, b'{"choices": [{"message": {"content": "half')
        elif word == "empty":
            self._raw(200, b"{}")
        elif word == "moved":
            self._raw(302, b"", Location=f"{self.server.url}/elsewhere")
        elif word == "renamed":
            text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            self._send(400, {"error": {"message": text, "param": "max_tokens", "code": "unsupported_parameter"}})
        elif word == "cold":
            text = "Unsupported value: 'temperature' does not support 0 with this model."
            self._send(400, {"error": {"message": text, "param": "temperature", "code": "unsupported_value"}})
        elif word == "quota":
            self._send(429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}})
        elif word == "wrapped":
            self._send(200, {"error": {"message": "upstream is busy", "code": 503}})
        elif word == "429":
            self._send(429, {"error": {"message": "slow down"}}, **{"Retry-After": self.server.wait})
        else:
            self._send(int(word), {"error": {"message": f"status {word}"}})

    def _answer(self, body: dict[str, Any]) -> None:
        said = self.server.say(body)
        message = {"role": "assistant", "content": said.get("content"), "refusal": said.get("refusal")}
        choice = {"index": 0, "message": message, "finish_reason": said.get("finish_reason", "stop")}
        usage = {"prompt_tokens": 11, "completion_tokens": said.get("tokens", 3)}
        self._send(200, {"id": "1", "choices": [choice], **({} if said.get("uncounted") else {"usage": usage})})

    def _send(self, status: int, content: Any, **headers: str) -> None:
        self._raw(status, json.dumps(content).encode(), **headers)

    def _raw(self, status: int, data: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data) if length is None else length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def images_in(body: dict[str, Any]) -> list[bytes]:
    """The encoded images of a chat request, in order."""
    parts = [part for message in body["messages"] if isinstance(message["content"], list) for part in message["content"]]
    return [base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in parts if part["type"] == "image_url"]


def answering(backbone: Backbone) -> Say:
    """A server's answers by a backbone of this process: what vLLM does, in small."""
    lock = threading.Lock()

    def say(body: dict[str, Any]) -> dict[str, Any]:
        system = next((m["content"] for m in body["messages"] if m["role"] == "system"), None)
        content = body["messages"][-1]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        images = iter(images_in(body))
        seen = [part["text"] if part["type"] == "text" else ImageRef(data=next(images)) for part in parts]
        request = Request(seen[-1], (), system=system, context=tuple(seen[:-1]))
        with lock:
            answer = backbone.generate([request], max_new_tokens=body["max_tokens"])[0]
        return {"content": answer.text, "tokens": answer.tokens, "finish_reason": "length" if answer.truncated else "stop"}

    return say
