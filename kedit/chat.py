"""A client of OpenAI-compatible chat endpoints, for models and for judges alike."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from kedit.http import JSONClient, StatusError


class Reply(NamedTuple):
    """What a model said: its text, or its refusal; tokens are None where the server does not count."""

    text: str
    tokens: int | None
    truncated: bool


class ChatClient(JSONClient):
    """A JSONClient that asks chat models at ``base_url``, such as ``http://localhost:8000/v1``."""

    @cached_property
    def _renames(self) -> set[str]:
        """Models that want the limit of tokens under its newer name."""
        return set()

    def chat(self, body: Mapping[str, Any]) -> Reply:
        """The answer to one chat request; a limit of tokens goes under the name that the model takes, found out once."""
        model = str(body.get("model"))
        sent = self._renamed(body) if model in self._renames else dict(body)
        try:
            return self._chat(sent)
        except StatusError as error:
            if "max_tokens" not in sent or "max_completion_tokens" not in error.body:
                raise self.refusal(error) from None
        self._renames.add(model)
        try:
            return self._chat(self._renamed(body))
        except StatusError as error:
            raise self.refusal(error) from None

    def _chat(self, body: Mapping[str, Any]) -> Reply:
        return self.request("POST", "chat/completions", body, self._reply)

    @staticmethod
    def _renamed(body: Mapping[str, Any]) -> dict[str, Any]:
        return {"max_completion_tokens" if name == "max_tokens" else name: value for name, value in body.items()}

    def _reply(self, content: Any) -> Reply | None:
        """The first choice; None for what has none."""
        choices = content.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        if not isinstance(first, dict) or not isinstance(message, dict):
            return None
        usage = content.get("usage") if isinstance(content.get("usage"), dict) else {}
        read, tokens = (n if isinstance(n := usage.get(f"{kind}_tokens"), int) else None for kind in ("prompt", "completion"))
        self.traffic.add(prompt_tokens=read or 0, answer_tokens=tokens or 0)
        text = _text(message.get("content")) or _text(message.get("refusal"))
        return Reply(text.strip(), tokens, first.get("finish_reason") == "length")

    def models(self) -> list[dict[str, Any]] | None:
        """What the server says of the models that it serves; None where it does not tell."""
        try:
            found = self.request("GET", "models", None, lambda content: content, 2)
        except StatusError as error:
            if error.status == 401:
                raise self.refusal(error) from None
            return None
        listed = found.get("data")
        return [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else None


def _text(content: Any) -> str:
    """Text of a message's content, which some servers give in parts."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
