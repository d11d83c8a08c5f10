"""Who judges: a model behind an OpenAI-compatible endpoint, a model of this machine, or a count of shared words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kedit.chat import ChatClient, Reply
from kedit.errors import DataError, EndpointError, KeditError, UnansweredError, unknown_name
from kedit.http import BASE_URL, Traffic, reach
from kedit.judging.prompt import Inputs, Prompt
from kedit.rouge import MultilingualTokenizer
from kedit.types import Request

if TYPE_CHECKING:
    from kedit.backbone import Backbone

OPENAI, LOCAL, DUMMY = "openai:", "hf:", "dummy"
FIELDS: Mapping[str, Any] = {"temperature": 0, "reasoning_effort": "none"}
"""What goes into every request to an endpoint unless told otherwise: no sampling, no reasoning (paper, appendix E.3)."""
Replies: TypeAlias = list[Reply | KeditError]


class Judge(Protocol):
    """Something that replies to a prompt; ``id`` names everything that decides its replies besides the prompt.

    ``batch`` texts are asked in one call, in at most ``threads`` calls at once. ``traffic`` counts what was asked.
    """

    batch: int

    @property
    def id(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def traffic(self) -> Traffic: ...

    def ask(self, prompt: Prompt, asked: Sequence[Inputs]) -> Replies:
        """Replies, same length and order, with kedit's own error in place of one that did not come."""
        ...

    def clean(self, text: str) -> str:
        """A text from outside, fit for a file: short, and nothing in it that is a key."""
        ...


class EndpointJudge:
    """The model ``model`` at a chat endpoint; ``fields`` go into every request, one that is None is left out.

    The address belongs to the id unless it is OpenAI's own, as do fields that differ from the standard ones: the same name may
    mean other weights elsewhere.
    """

    batch = 1

    def __init__(self, client: ChatClient, model: str, *, fields: Mapping[str, Any] | None = None) -> None:
        self.client = client
        self.model = model
        self.fields = dict(fields or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def threads(self) -> int:
        """As many as the client lets through."""
        return int(self.client.concurrency)

    @property
    def traffic(self) -> Traffic:
        """The client's."""
        return self.client.traffic

    @property
    def id(self) -> str:
        """``openai:MODEL``, with ``@ADDRESS`` and ``;FIELD=VALUE`` where they are not the usual ones."""
        place = "" if self.client.address == BASE_URL else f"@{self.client.address}"
        own = {name: value for name, value in self.fields.items() if FIELDS.get(name, self) != value}
        return OPENAI + self.model + place + "".join(f";{name}={json.dumps(own[name])}" for name in sorted(own))

    def ask(self, prompt: Prompt, asked: Sequence[Inputs]) -> Replies:
        """One request each."""
        sent = {name: value for name, value in {**FIELDS, **self.fields}.items() if value is not None}
        replies: Replies = []
        for inputs in asked:
            body = {"model": self.model, "messages": prompt.chat(inputs).messages, "max_tokens": prompt.max_tokens, **sent}
            try:
                replies.append(self.client.chat(body))
            except KeditError as error:
                replies.append(error)
        return replies

    def clean(self, text: str) -> str:
        """Without the key, which a server may send back."""
        return str(self.client.clean(text))


class LocalJudge:
    """A model that is loaded here, asked through its chat template, greedily; the id holds a hash of its weights."""

    threads = 1

    def __init__(self, backbone: Backbone, name: str, *, batch: int = 8) -> None:
        self.backbone = backbone
        self.name = name
        self.batch = batch
        self.traffic = Traffic()

    @cached_property
    def id(self) -> str:
        """``hf:NAME#HASH;DTYPE``, since a reply may differ in another precision."""
        dtype = str(self.backbone.dtype).removeprefix("torch.")
        return f"{LOCAL}{self.name}#{self.backbone.fingerprint()[:12]};{dtype}"

    def ask(self, prompt: Prompt, asked: Sequence[Inputs]) -> Replies:
        """All in one batch; a request that fails costs no other."""
        from kedit.answers import ask_together

        chats = [prompt.chat(inputs) for inputs in asked]
        requests = [Request(chat.user, system=chat.system) for chat in chats]
        replies: Replies = []
        for chat, found in zip(chats, ask_together(self.backbone, requests, prompt.max_tokens), strict=True):
            read = self.backbone.count_tokens(chat.system) + self.backbone.count_tokens(chat.user)
            self.traffic.add(requests=1, prompt_tokens=read, answer_tokens=found.answer.tokens if found.answer else 0)
            if found.answer is not None:
                replies.append(Reply(found.answer.text, found.answer.tokens, found.answer.truncated))
            else:
                replies.append(UnansweredError(f"{type(found.error).__name__}: {found.error}"))
        return replies

    def clean(self, text: str) -> str:
        """There is no key here."""
        return " ".join(text.split())[:300]


class WordCounter:
    """No judge: the share of words that candidate and reference have in common, to try everything out without a model.

    F1 over words as ROUGE-L counts them, in any order, rounded to a whole number of 10; the same text always gets the same.
    """

    id = "dummy-word-overlap-1"
    batch = 64
    threads = 1

    def __init__(self) -> None:
        self.traffic = Traffic()

    def ask(self, prompt: Prompt, asked: Sequence[Inputs]) -> Replies:
        """Replies in the form that the prompt asks for."""
        self.traffic.add(requests=len(asked))
        return [Reply(_overlap(prompt, inputs), 0, False) for inputs in asked]

    def clean(self, text: str) -> str:
        """There is no key here."""
        return text


def _overlap(prompt: Prompt, inputs: Inputs) -> str:
    words = [Counter(MultilingualTokenizer().tokenize(text)) for text in (inputs.reference, inputs.candidate)]
    total = sum(count.total() for count in words)
    share = 2 * (words[0] & words[1]).total() / total if total else float(inputs.reference == inputs.candidate)
    reason = f"no judge: {100 * share:.0f} % of the words are shared"
    if not prompt.labels:
        return json.dumps({"score": round(10 * share), "reason": reason})
    right, wrong, none = prompt.labels
    return json.dumps({"label": right if share >= 0.5 else wrong if inputs.candidate.strip() else none, "reason": reason})


def open_judge(
    name: str,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    fields: Mapping[str, Any] | None = None,
    device: str | None = None,
    dtype: str = "auto",
    **client: Any,
) -> Judge:
    """The judge called ``openai:MODEL`` (or ``openai:MODEL@ADDRESS``), ``hf:PATH_OR_ID`` or ``dummy``.

    ``base_url`` and ``api_key_env`` as in ``kedit.http.reach``; ``client`` (``concurrency``, ``timeout``, ``retries``,
    ``backoff``) goes to ChatClient. A local model is loaded; nothing is sent to an endpoint yet. Raises UnknownNameError,
    EndpointError for the address or key, DataError for options that the judge has no use for, and what ``load_backbone`` raises.
    """
    given = {"base_url": base_url, "api_key_env": api_key_env, "fields": fields, **client}
    used = {option: value for option, value in given.items() if value is not None}
    if name.startswith(OPENAI):
        model, _, place = name.removeprefix(OPENAI).partition("@http")
        if not model:
            raise EndpointError(f"{name!r} names no model; write {OPENAI}MODEL, with the name under which the server knows it")
        url, key = reach(base_url or (f"http{place}" if place else None), api_key_env)
        made = ChatClient(url, key, **{option: value for option, value in client.items() if value is not None})
        _ = made.address  # a bad one is told before anything else is done
        return EndpointJudge(made, model, fields=fields)
    if not name.startswith(LOCAL) and name != DUMMY:
        raise unknown_name("judge", name, (f"{OPENAI}MODEL", f"{LOCAL}PATH_OR_ID", DUMMY))
    if used:
        raise DataError(f"{', '.join(used)}: this is for {OPENAI}MODEL, not for {name!r}; leave it out")
    if name == DUMMY:
        return WordCounter()
    from kedit.backbone import load_backbone

    path = name.removeprefix(LOCAL)
    return LocalJudge(load_backbone(path, device=device, dtype=dtype), path)
