"""A model behind an OpenAI-compatible chat endpoint as a backbone: it can be asked, but neither looked into nor edited."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

from kedit.chat import ChatClient
from kedit.errors import CheckpointError, EndpointError, KeditError, NotHereError, RequestError
from kedit.http import reach
from kedit.images import open_image
from kedit.types import Answer, ImageRef, Request

PREFIX = "openai:"
SIDE = 2048
"""Longest side in pixels of an image that is sent; larger ones are scaled down."""
_PNG_BYTES = 4 << 20
"""Above this an image goes as JPEG, which is smaller and not exact."""
_CARD = ("id", "root", "parent", "owned_by", "max_model_len", "meta")
"""What servers say of a model that stays the same from one call to the next."""


class Elsewhere:
    """Stands where a model would be; whatever is wanted of it is refused with a NotHereError that says why."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        _refuse(self._name, f"its {attribute}")


class EndpointBackbone:
    """The model ``model`` of an OpenAI-compatible server as a Backbone that can only be asked; made by ``open_endpoint``.

    What needs weights, gradients or hidden states raises NotHereError. ``fields`` are added to the body of every request; one
    that is None is left out, such as ``{"temperature": None}`` for a model that refuses temperature 0: its answers are then
    sampled. Images are sent as data URIs of what kedit itself decodes: PNG, exact to the pixel up to 2048 pixels and 4 MB.
    """

    def __init__(self, client: ChatClient, model: str, *, fields: Mapping[str, Any] | None = None) -> None:
        self.client = client
        self.name = model
        self.fields = dict(fields or {})
        self.id = PREFIX + model
        self.revision: str | None = None
        self.model: Any = Elsewhere(self.id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.client.address!r})"

    @property
    def address(self) -> str:
        """Where the server is, without credentials."""
        return self.client.address

    @property
    def dtype(self) -> Any:
        """Not known here."""
        return "served"

    @property
    def device(self) -> Any:
        """Not known here."""
        return "remote"

    @property
    def settings(self) -> dict[str, Any]:
        """What decides an answer besides the model and the request."""
        return {"side": SIDE, "png": _PNG_BYTES, **self._added}

    @property
    def strategy(self) -> str:
        """How tokens are chosen, as ``run.json`` names it."""
        return "greedy" if self._added.get("temperature") == 0 else "as the endpoint samples"

    @property
    def _added(self) -> dict[str, Any]:
        return {name: value for name, value in {"temperature": 0, **self.fields}.items() if value is not None}

    @cached_property
    def _fingerprint(self) -> str:
        cards = self.client.models()
        card = next((card for card in cards or () if card.get("id") == self.name), {})
        known = [self.client.address, self.name, {name: card[name] for name in _CARD if name in card}]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 over the address, the model's name and what the server says of it: all that can be known from here.

        Raises EndpointError where the server cannot be reached or refuses the key.
        """
        return self._fingerprint

    def count_tokens(self, text: str) -> int:
        """An estimate, for the tokenizer is not here: a token for every four bytes of UTF-8."""
        return -(-len(text.encode("utf-8", "replace")) // 4)

    # -- asking ----------------------------------------------------------------------------------------------------

    def generate(self, requests: Sequence[Request], *, max_new_tokens: int = 64) -> list[Answer]:
        """Answers, same length and order; raises the error of the first request that has one."""
        answers = []
        for found in self.generate_each(requests, max_new_tokens=max_new_tokens):
            if not isinstance(found, Answer):
                raise found
            answers.append(found)
        return answers

    def generate_each(self, requests: Sequence[Request], *, max_new_tokens: int = 64) -> list[Answer | KeditError]:
        """As ``generate``, with an error in place of an answer where one request alone is at fault."""
        return self.client.each(lambda request: self._answer(request, max_new_tokens), requests)

    def _answer(self, request: Request, limit: int) -> Answer:
        reply = self.client.chat({"model": self.name, "messages": messages(request), "max_tokens": limit, **self._added})
        tokens = self.count_tokens(reply.text) if reply.tokens is None else reply.tokens
        return Answer(reply.text, tokens, truncated=reply.truncated)

    # -- what only a model in this process can do --------------------------------------------------------------------

    def loss(self, request: Request, answer: str) -> NoReturn:
        """Refused."""
        _refuse(self.id, "a loss")

    def hidden(self, requests: Sequence[Request], *, layer: int = -1) -> NoReturn:
        """Refused."""
        _refuse(self.id, "hidden states")

    def token_spans(self, request: Request) -> NoReturn:
        """Refused."""
        _refuse(self.id, "token positions")

    def layer_index(self, relative: int) -> NoReturn:
        """Refused."""
        _refuse(self.id, "layers")

    @property
    def layers(self) -> Any:
        """Refused."""
        _refuse(self.id, "layers")


def _refuse(name: str, what: str) -> NoReturn:
    raise NotHereError(
        f"{name} runs on a server and can only be asked; {what} would be needed here. Load the model itself with "
        "load_backbone(a hub id or folder), or use an editor that only changes the prompt"
    )


def endpoint_of(name: str, options: Mapping[str, Any], **loading: Any) -> EndpointBackbone | None:
    """The endpoint that a backbone's name means; None for the name of a model that is loaded here.

    ``options`` are for ``open_endpoint``, ``loading`` for a model that is loaded; raises CheckpointError where something is
    given that the other kind would need, since it would make no difference.
    """
    remote = name.startswith(PREFIX)
    useless = loading if remote else options
    if given := [option for option, value in useless.items() if value not in (None, "auto")]:
        kind = f"a model that is loaded here, not for {name!r} on a server" if remote else f"{PREFIX}MODEL, not for {name!r}"
        raise CheckpointError(f"{', '.join(given)}: this is for {kind}; leave it out")
    return open_endpoint(name, **options) if remote else None


def open_endpoint(
    name: str,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    fields: Mapping[str, Any] | None = None,
    **client: Any,
) -> EndpointBackbone:
    """The backbone called ``"openai:MODEL"``; nothing is sent yet.

    ``base_url`` defaults to the environment's KEDIT_BASE_URL, else OPENAI_BASE_URL, else OpenAI's own. The key is read from
    the variable ``api_key_env``, else OPENAI_API_KEY; a server that wants none needs none. ``client`` (``concurrency``,
    ``timeout``, ``retries``, ``backoff``) goes to ChatClient. Raises EndpointError for an empty variable or a bad address.
    """
    model = name.removeprefix(PREFIX)
    if not model:
        raise EndpointError(f"{name!r} names no model; write {PREFIX}MODEL, with the name under which the server knows it")
    url, key = reach(base_url, api_key_env)
    made = ChatClient(url, key, **{option: value for option, value in client.items() if value is not None})
    _ = made.address  # a bad one is told before anything else is done
    return EndpointBackbone(made, model, fields=fields)


def messages(request: Request) -> list[dict[str, Any]]:
    """The chat that asks a request: system prompt, then one turn of context, images and question in this order.

    Neighbouring texts are joined by a newline, and a turn of text alone is sent as plain text. Raises RequestError for an empty
    question and ImageError for an image that cannot be read.
    """
    if not request.question.strip():
        raise RequestError("the question is empty; a request needs a question with at least one visible character")
    parts: list[dict[str, Any]] = []
    for part in (*request.context, *request.images, request.question):
        if isinstance(part, ImageRef):
            parts.append({"type": "image_url", "image_url": {"url": data_uri(part)}})
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += "\n" + part
        else:
            parts.append({"type": "text", "text": part})
    turn = {"role": "user", "content": parts if len(parts) > 1 else parts[0]["text"]}
    return [{"role": "system", "content": request.system}, turn] if request.system else [turn]


def data_uri(image: ImageRef) -> str:
    """An image as a data URI, encoded anew, so that nothing but its pixels is sent."""
    pixels = open_image(image)
    pixels.thumbnail((SIDE, SIDE))  # does nothing to a smaller one
    file = io.BytesIO()
    pixels.save(file, "PNG")
    kind = "png"
    if file.tell() > _PNG_BYTES:
        file, kind = io.BytesIO(), "jpeg"
        pixels.save(file, "JPEG", quality=92)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
