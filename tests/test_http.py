"""The client against a real server on the loopback: what is repeated, what is not, how often, and what never leaks."""

from __future__ import annotations

import logging
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from chat_server import ChatServer, serving

from kedit.chat import ChatClient, Reply
from kedit.errors import EndpointError, KeditError, RequestError, UnansweredError
from kedit.http import _retry_after

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serving() as running:
        yield running


def client(server: ChatServer, **options: Any) -> ChatClient:
    return ChatClient(server.url, **{"backoff": 0.01, "timeout": 5.0, **options})


def body(text: str = "hello") -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 8}


def test_an_ordinary_answer_comes_with_its_tokens_and_is_counted(server: ChatServer) -> None:
    asking = client(server)
    reply = asking.chat(body())
    assert reply.text.startswith("answer ") and reply[1:] == (3, False)
    assert server.bodies == [body()]
    traffic = asking.traffic
    assert (traffic.requests, traffic.retries, traffic.prompt_tokens, traffic.answer_tokens) == (1, 0, 11, 3)


@pytest.mark.parametrize("trouble", ["500", "503", "408", "cut", "broken", "empty", "wrapped", "429"])
def test_what_may_pass_is_asked_again_and_gives_the_same_answer(server: ChatServer, trouble: str) -> None:
    asking = client(server)
    plain = asking.chat(body())
    server.plan = [trouble, trouble]
    assert asking.chat(body()) == plain
    assert (asking.traffic.requests, asking.traffic.retries) == (4, 2)


def test_a_server_that_hangs_is_left_at_the_timeout_and_asked_again(server: ChatServer) -> None:
    server.plan = ["hang"]
    asking = client(server, timeout=2.0)
    assert asking.chat(body()).text.startswith("answer ")
    assert asking.traffic.retries == 1


def test_a_server_that_dribbles_meets_the_timeout_too(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, pytest.raises(EndpointError, match="nothing within 0.3 seconds"):

        def dribble() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    try:
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                        for _ in range(100):
                            connection.sendall(b" ")
                            time.sleep(0.05)
                    except OSError:
                        pass

        threading.Thread(target=dribble, daemon=True).start()
        ChatClient(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=0.3, retries=0).chat(body())


def test_retry_after_holds_back_every_request_of_the_client(server: ChatServer) -> None:
    server.wait = "1"
    server.plan = ["429"]
    asking = client(server, backoff=0.0)
    refused = threading.Thread(target=asking.chat, args=[body("refused")])
    refused.start()
    while asking._not_before == 0.0:
        time.sleep(0.001)
    asking.chat(body("another"))
    refused.join()
    assert len(server.times) == 3
    assert min(server.times[1:]) - server.times[0] > 0.9


def test_retry_after_may_be_a_date_and_nonsense_is_ignored() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=1000), usegmt=True)
    assert 900 < (_retry_after({"retry-after": later}) or 0) <= 1000
    assert _retry_after({"Retry-After": "1.5"}) == 1.5
    assert _retry_after({"Retry-After": "-3"}) == 0
    assert _retry_after({"Retry-After": "soon"}) is None and _retry_after({}) is None


def test_a_server_that_asks_for_an_hour_is_left_alone(server: ChatServer) -> None:
    server.wait, server.always = "3600", "429"
    with pytest.raises(EndpointError, match="3600 seconds"):
        client(server).chat(body())
    assert len(server.bodies) == 1


def test_no_more_requests_are_under_way_than_allowed() -> None:
    with serving(seconds=0.1) as server:
        asking = client(server, concurrency=3)
        replies = asking.each(asking.chat, [body(str(k)) for k in range(12)])
    assert all(isinstance(reply, Reply) for reply in replies)
    assert 1 < server.most_at_once <= 3


def test_answers_come_in_the_order_of_the_questions(server: ChatServer) -> None:
    asking = client(server, concurrency=4)
    several = asking.each(asking.chat, [body(str(k)) for k in range(8)])
    assert several == [asking.chat(body(str(k))) for k in range(8)]


def test_the_limit_of_tokens_goes_under_the_name_that_the_model_takes(server: ChatServer) -> None:
    server.always = "renamed"
    asking = client(server)
    assert asking.chat(body()).text and asking.chat(body("again")).text
    assert [("max_tokens" in sent, "max_completion_tokens" in sent) for sent in server.bodies] == [
        (True, False),
        (False, True),
        (False, True),
    ]


def test_a_setting_that_the_model_refuses_is_named_and_stops_everything(server: ChatServer) -> None:
    server.always = "cold"
    with pytest.raises(EndpointError, match="leave the field 'temperature' out"):
        client(server).chat({**body(), "temperature": 0})


@pytest.mark.parametrize(("status", "kind"), [("400", RequestError), ("413", RequestError), ("404", EndpointError)])
def test_what_no_repetition_changes_is_asked_once(server: ChatServer, status: str, kind: type[KeditError]) -> None:
    server.always = status
    with pytest.raises(kind, match=f"status {status}"):
        client(server).chat(body())
    assert len(server.bodies) == 1


def test_a_quota_that_is_used_up_is_not_waited_for(server: ChatServer) -> None:
    server.always = "quota"
    with pytest.raises(EndpointError, match="exceeded your current quota"):
        client(server).chat(body())
    assert len(server.bodies) == 1


def test_a_request_that_fails_for_good_costs_no_other(server: ChatServer) -> None:
    server.always = "500"
    asking = client(server, retries=1)
    with pytest.raises(UnansweredError, match="2 attempts"):
        asking.chat(body())  # the list of models still comes, so that the server is there
    server.always = None
    server.plan = ["400"]
    found = client(server, concurrency=1).each(asking.chat, [body("a"), body("b")])
    assert isinstance(found[0], RequestError) and isinstance(found[1], Reply)


def test_a_server_that_is_gone_stops_everything() -> None:
    with serving() as server:
        asking = client(server, retries=1)
        asking.chat(body())
    with pytest.raises(EndpointError, match="see whether it runs"):
        asking.each(asking.chat, [body(str(k)) for k in range(50)])
    assert asking.traffic.requests < 40, "the rest is not tried"


def test_a_wrong_key_is_told_once_and_shown_nowhere(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(key="another-key") as server:
        asking = client(server, key=KEY, concurrency=1)
        with pytest.raises(EndpointError, match="status 401") as caught:
            asking.each(asking.chat, [body(str(k)) for k in range(6)])
        assert len(server.bodies) == 1
        assert server.authorizations[0] == f"Bearer {KEY}"
    shown = "".join(traceback.format_exception(caught.value)) + repr(asking) + repr(caught.value) + caplog.text
    shown += "".join(capfd.readouterr())
    assert "very-secret" not in shown
    assert "OPENAI_API_KEY" in str(caught.value)


@pytest.mark.parametrize("key", [f"{KEY}\nX-Evil: 1", "schlüssel-geheim"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(server: ChatServer, key: str) -> None:
    with pytest.raises(EndpointError, match="holds characters") as caught:
        client(server, key=key).chat(body())
    assert "secret" not in str(caught.value) and "geheim" not in str(caught.value)
    assert server.bodies == []


def test_credentials_in_the_address_are_sent_and_not_shown(server: ChatServer) -> None:
    address = server.url.replace("http://", "http://me:pass%21word@") + "?token=hush"
    asking = ChatClient(address)
    asking.chat(body())
    assert server.authorizations == ["Basic bWU6cGFzcyF3b3Jk"]
    server.always = "404"
    with pytest.raises(EndpointError) as caught:
        asking.chat(body())
    for text in (str(caught.value), repr(asking), asking.address):
        assert "pass" not in text and "hush" not in text


def test_a_redirection_is_not_followed_for_it_would_take_the_key_along(server: ChatServer) -> None:
    server.always = "moved"
    with pytest.raises(EndpointError, match="sends elsewhere"):
        client(server, key=KEY).chat(body())
    assert len(server.bodies) == len(server.authorizations) == 1


@pytest.mark.parametrize("address", ["", "localhost:8000", "ftp://host/v1", "http://", "http://host:port/v1"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(EndpointError, match="no http address"):
        ChatClient(address).chat(body())


def test_the_generators_of_the_process_are_left_alone(server: ChatServer) -> None:
    import random

    server.plan = ["500", "500"]
    random.seed(3)
    wanted = random.random()
    random.seed(3)
    client(server).chat(body())
    assert random.random() == wanted


@pytest.mark.parametrize(
    ("said", "text", "truncated"),
    [
        ({"content": " padded \n"}, "padded", False),
        ({"content": None, "refusal": "I cannot say."}, "I cannot say.", False),
        ({"content": None, "finish_reason": "content_filter"}, "", False),
        ({"content": "cut of", "finish_reason": "length"}, "cut of", True),
        ({"content": [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]}, "in parts", False),
    ],
)
def test_every_form_of_an_answer_is_understood(said: dict[str, Any], text: str, truncated: bool) -> None:
    with serving(lambda _: said) as server:
        assert client(server).chat(body()) == Reply(text, 3, truncated)
