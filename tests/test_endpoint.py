"""A served model as a backbone: asked over a real connection by the runner, refused where it would have to be opened."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_server import ChatServer, answering, images_in, serving
from click.testing import CliRunner, Result
from fakes import AddNoise, DoNothing, FakeBackbone, FakeBenchmark, Lookup, Prepend
from PIL import Image
from samples import A, B, picture

from kedit.answers import BaseAnswers
from kedit.artefacts import read_json
from kedit.backbone import Backbone, load_backbone
from kedit.cli import main
from kedit.config import settings_id
from kedit.editor import Editor
from kedit.endpoint import PREFIX, EndpointBackbone, messages
from kedit.errors import CheckpointError, EndpointError, FamilyError, ImageError, NotHereError, RequestError, UnansweredError
from kedit.evaluate import evaluate
from kedit.images import open_image
from kedit.types import ImageRef, Request

KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDIT_CACHE", str(tmp_path / "cache"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "KEDIT_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serving() as running:
        yield running


def served(server: ChatServer, **options: Any) -> EndpointBackbone:
    found = load_backbone("openai:tiny", base_url=server.url, **{"backoff": 0.01, "timeout": 5.0, **options})
    assert isinstance(found, EndpointBackbone)
    return found


# -- what is sent ----------------------------------------------------------------------------------------------------------


def pixels(image: Image.Image) -> str:
    return hashlib.sha256(str(image.size).encode() + image.convert("RGB").tobytes()).hexdigest()


def test_images_arrive_as_they_are_and_in_their_order(server: ChatServer) -> None:
    served(server).generate([Request("Which?", (B,), context=("This is a clock.", A, "And this?"))])
    seen = [pixels(Image.open(io.BytesIO(data))) for data in images_in(server.bodies[0])]
    assert seen == [pixels(open_image(A)), pixels(open_image(B))]
    kinds = [part.get("text", part["type"]) for part in server.bodies[0]["messages"][0]["content"]]
    assert kinds == ["This is a clock.", "image_url", "And this?", "image_url", "Which?"]


def test_a_large_image_is_scaled_down_and_nothing_but_pixels_is_sent(
    tmp_path: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kedit.endpoint._PNG_BYTES", 50_000)
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    Image.new("RGB", (3000, 1500), "teal").save(tmp_path / "a.jpg", exif=exif)
    served(server).generate(
        [Request("What?", (ImageRef(path=str(tmp_path / "a.jpg")),)), Request("And?", (picture(0, 150, 140),))]
    )
    sent = {Image.open(io.BytesIO(data)).size: data for body in server.bodies for data in images_in(body)}
    assert set(sent) == {(2048, 1024), (150, 140)}
    assert b"taken at home" not in sent[2048, 1024]
    assert sent[150, 140].startswith(b"\xff\xd8"), "noise of this size is too large as PNG"


def test_the_chat_is_system_prompt_and_one_turn_with_settings_of_greedy_decoding(server: ChatServer) -> None:
    request = Request("Why?", system="Be brief.", context=("A gift.", "A guest."))
    served(server, fields={"top_k": 1}).generate([request], max_new_tokens=7)
    assert server.bodies == [
        {
            "model": "tiny",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A gift.\nA guest.\nWhy?"}],
            "max_tokens": 7,
            "temperature": 0,
            "top_k": 1,
        }
    ]


def test_a_field_set_to_none_is_left_out_and_the_run_says_that_answers_are_sampled(server: ChatServer) -> None:
    server.always = "cold"
    backbone = served(server, fields={"temperature": None})
    assert backbone.generate([Request("Why?")])[0].text
    assert "temperature" not in server.bodies[0]
    assert (backbone.strategy, served(server).strategy) == ("as the endpoint samples", "greedy")
    assert settings_id(backbone) != settings_id(served(server))


def test_a_request_that_nobody_can_be_asked_is_not_sent(server: ChatServer) -> None:
    found = served(server).generate_each([Request(" "), Request("Why?"), Request("What?", (ImageRef(path="/nowhere.png"),))])
    assert [type(one).__name__ for one in found] == ["RequestError", "Answer", "ImageError"]
    assert len(server.bodies) == 1
    with pytest.raises(RequestError):
        messages(Request(""))
    with pytest.raises(ImageError):
        served(server).generate([Request("What?", (ImageRef(path="/nowhere.png"),))])


def test_tokens_are_estimated_where_the_server_does_not_count() -> None:
    with serving(lambda _: {"content": "four words in here", "uncounted": True, "finish_reason": "length"}) as server:
        answer = served(server).generate([Request("Why?")])[0]
    assert (answer.text, answer.tokens, answer.truncated) == ("four words in here", 5, True)


# -- where it is -----------------------------------------------------------------------------------------------------------


def test_address_and_key_come_from_the_environment_unless_given(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("KEDIT_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("MY_KEY", "mine-0123")
    for options in ({}, {"api_key_env": "MY_KEY"}):
        backbone = load_backbone("openai:tiny", **options)
        backbone.generate([Request("Why?")])
    assert server.authorizations == [f"Bearer {KEY}", "Bearer mine-0123"]
    assert "secret" not in repr(backbone)
    with pytest.raises(EndpointError, match="OTHER is to hold the key"):
        load_backbone("openai:tiny", api_key_env="OTHER")
    with pytest.raises(EndpointError, match="expected the name") as caught:
        load_backbone("openai:tiny", api_key_env=KEY)
    assert "secret" not in str(caught.value)


def test_options_that_would_make_no_difference_are_refused() -> None:
    with pytest.raises(CheckpointError, match="device"):
        load_backbone("openai:tiny", device="cpu")
    with pytest.raises(CheckpointError, match="base_url"):
        load_backbone("tiny-internvl", base_url="http://localhost/v1")
    with pytest.raises(EndpointError, match="names no model"):
        load_backbone(PREFIX)


def test_the_fingerprint_is_the_address_the_name_and_what_the_server_says_that_lasts(server: ChatServer) -> None:
    first = served(server).fingerprint()
    assert served(server).fingerprint() == first, "although the server gives another time of creation at every call"
    assert load_backbone("openai:tiny", base_url=server.url.replace("//", "//me:word@")).fingerprint() == first
    assert load_backbone("openai:other", base_url=server.url).fingerprint() != first
    server.cards = [{"id": "tiny", "root": "another", "created": 0}]
    assert served(server).fingerprint() != first
    server.cards = None
    assert served(server).fingerprint() != first


# -- the runner --------------------------------------------------------------------------------------------------------------


def all_editors() -> dict[str, Editor]:
    return {"nothing": DoNothing(), "noise": AddNoise(), "prepend": Prepend(), "lookup": Lookup()}


def test_context_editors_run_and_a_weight_editor_fails_without_costing_them(server: ChatServer, tmp_path: Path) -> None:
    run = evaluate(all_editors(), served(server), FakeBenchmark(2), tasks="single", out=tmp_path / "run")
    assert {name: len(run.records(name)) for name in run.editors} == {"nothing": 8, "noise": 0, "prepend": 8, "lookup": 8}
    assert {f["editor"] for f in run.failures} == {"noise"} and len(run.failures) == 2
    assert all("runs on a server" in f["error"] for f in run.failures)
    by_key = {r.key: r for r in run.records("nothing")}
    prepended = [r for r in run.records("prepend") if r.dimension == "reliability"]
    assert all(r.output != by_key[r.key].output for r in prepended)
    local = [r for r in run.records("prepend") if r.dimension == "cross_language_locality"]
    assert local and all(r.output == r.reference for r in local)
    identity = run.config["identity"]
    assert identity["backbone"]["id"] == "openai:tiny" and identity["decoding"]["strategy"] == "greedy"


def test_an_editor_that_trains_is_refused_when_it_is_attached_and_the_others_go_on(server: ChatServer) -> None:
    from kedit.methods import FineTune, LoRA

    editors = {"nothing": DoNothing(), "finetune": FineTune(), "lora": LoRA()}
    run = evaluate(editors, served(server), FakeBenchmark(1), tasks="single")
    assert len(run.records("nothing")) == 4
    assert {f["editor"] for f in run.failures} == {"finetune", "lora"}
    for name in ("loss", "hidden", "token_spans", "layer_index"):
        with pytest.raises(NotHereError, match="can only be asked"):
            getattr(served(server), name)(*(["Why?"] * (2 if name == "loss" else 1)))
    with pytest.raises(FamilyError, match="its named_parameters would be needed"):
        served(server).model.named_parameters()


def test_an_editor_that_reads_hidden_states_is_refused_and_the_others_go_on(server: ChatServer) -> None:
    from kedit.methods import editor

    run = evaluate({"nothing": DoNothing(), "mcki": editor("mcki")}, served(server), FakeBenchmark(1), tasks="single")
    assert len(run.records("nothing")) == 4
    assert [(f["editor"], f["stage"]) for f in run.failures] == [("mcki", "attach")]


def test_a_run_that_is_repeated_asks_nothing_again(server: ChatServer, tmp_path: Path) -> None:
    editors = {"nothing": DoNothing(), "prepend": Prepend()}
    evaluate(editors, served(server), FakeBenchmark(2), out=tmp_path / "run")
    asked = len(server.bodies)
    evaluate({"nothing": DoNothing(), "prepend": Prepend()}, served(server), FakeBenchmark(2), out=tmp_path / "run")
    evaluate(DoNothing(), served(server), FakeBenchmark(2), out=tmp_path / "another")  # from the cache
    assert len(server.bodies) == asked > 0


def test_what_was_answered_beside_a_failure_is_kept_and_not_paid_for_twice(server: ChatServer) -> None:
    server.plan = ["ok", "400", "ok"]
    answers = BaseAnswers(served(server, concurrency=1))
    requests = [Request(f"q {k}?") for k in range(4)]
    found = answers.try_ask(requests)
    assert [type(one.error) for one in found] == [type(None), RequestError, type(None), type(None)]
    assert len(server.bodies) == 4
    again = BaseAnswers(served(server)).try_ask(requests)
    assert [one.answer for one in again][2:] == [one.answer for one in found][2:]
    assert len(server.bodies) == 5


def test_an_unanswered_request_is_a_failure_of_its_case_alone(server: ChatServer, tmp_path: Path) -> None:
    server.plan = ["500"] * 2
    run = evaluate(DoNothing(), served(server, retries=1, concurrency=1), FakeBenchmark(2), tasks="single", out=tmp_path / "r")
    assert [f["case"] for f in run.failures] == ["s0"] and UnansweredError.__name__ in run.failures[0]["error"]
    healed = evaluate(DoNothing(), served(server), FakeBenchmark(2), tasks="single", out=tmp_path / "r")
    assert healed.failures == [] and len(healed.records()) == 8


def test_a_wrong_key_stops_the_run_and_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(key="another") as server, pytest.raises(EndpointError, match="status 401"):
        evaluate(DoNothing(), served(server), FakeBenchmark(2), out=tmp_path / "run")
    with serving(key=KEY) as server:
        evaluate(DoNothing(), served(server), FakeBenchmark(1), out=tmp_path / "good")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written and not any(b"very-secret" in path.read_bytes() for path in written)


def test_a_served_model_gives_the_answers_that_it_gives_here(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    here = load_backbone("tiny-internvl", device="cpu")
    assert isinstance(here, Backbone)
    requests = [
        Request("What is shown in this picture?", (A,)),
        Request("这张图片里有什么?", (B,), language="zh", system="请用一句话回答。"),
        Request("And this one?", context=("This is a clock.", A)),
        Request("Why?"),
    ]
    wanted = here.generate(requests, max_new_tokens=12)
    with serving(answering(here)) as server:
        assert served(server, timeout=60).generate(requests, max_new_tokens=12) == wanted


def test_the_request_survives_a_scripted_backbone(server: ChatServer) -> None:
    """The fake backbone answers by the request's key, so that any change on the way would show."""
    fake = FakeBackbone()
    server.say = answering(fake)
    request = Request("Why?", system="Be brief.")
    assert served(server).generate([request])[0].text == fake.generate([request])[0].text
    assert json.loads(json.dumps(server.bodies[0]))["max_tokens"] == 64


def test_the_run_file_names_the_server_without_credentials(server: ChatServer, tmp_path: Path) -> None:
    backbone = load_backbone("openai:tiny", base_url=server.url.replace("//", "//me:pass-word@"))
    evaluate(DoNothing(), backbone, FakeBenchmark(1), tasks="single", out=tmp_path / "run")
    environment = read_json(tmp_path / "run" / "run.json")["environment"]
    assert environment["machine"]["endpoint"] == server.url
    assert "pass-word" not in json.dumps(environment)


# -- the command line --------------------------------------------------------------------------------------------------------


def kedit(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


FAKES = f"{Path(__file__).parent / 'fakes.py'}:FakeBenchmark"


def test_the_command_line_asks_a_served_model_as_it_is_told(server: ChatServer, tmp_path: Path) -> None:
    words = ["diagnose", "--backbone", "openai:tiny", "--base-url", server.url, "--benchmark", FAKES, "--limit", "2"]
    fields = ["--request-field", "temperature=null", "--request-field", 'extra={"a": [1]}', "--concurrency", "2"]
    result = kedit(*words, *fields, "--out", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    assert "openai:tiny without any insertion" in result.output
    assert all("temperature" not in body and body["extra"] == {"a": [1]} for body in server.bodies)
    assert "expected NAME=VALUE" in kedit(*words, "--request-field", "temperature", "--out", str(tmp_path / "no")).output


def test_failures_of_one_cause_are_one_line(server: ChatServer, tmp_path: Path) -> None:
    words = ["run", "--backbone", "openai:tiny", "--base-url", server.url, "--benchmark", FAKES, "--protocols", "single"]
    result = kedit(*words, "--editors", "finetune", "--limit", "3", "--out", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if line.startswith("failed:")]
    assert len(lines) == 1 and lines[0].startswith("failed: finetune single s0 and 2 more cases (insert): FamilyError")


def test_a_server_that_is_not_there_is_told_without_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kedit.http.JSONClient._pause", lambda *_: None)
    result = kedit("diagnose", "--backbone", "openai:tiny", "--base-url", "http://127.0.0.1:9/v1", "--out", str(tmp_path / "run"))
    assert result.exit_code == 1 and "see whether it runs" in result.output
    assert isinstance(result.exception, SystemExit)
