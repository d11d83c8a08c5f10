"""What a model says about the images of requests, asked once for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kedit.answers import BaseAnswers
from kedit.backbone import load_backbone
from kedit.errors import ContractError
from kedit.types import Answer, Request
from kedit.wording import caption_prompt

if TYPE_CHECKING:
    from kedit.backbone import Backbone

    Captioner: TypeAlias = Backbone | Callable[[Sequence[Request]], Sequence[str]] | str

log = logging.getLogger(__name__)


class Captions:
    """Descriptions of images by ``captioner``: a backbone, the name of one, or a function from requests to texts.

    A caption is asked for with the request's images and language and ``prompts`` (see ``kedit.wording.caption_prompt``), with
    nothing of its question, so that all questions about an image share one. Those of a backbone are kept where its other
    answers are, on the disk too; ``asked`` counts those that were not there.
    """

    def __init__(self, captioner: Captioner, prompts: str | Mapping[str, str] | None = None, *, max_new_tokens: int = 64) -> None:
        self.prompts = prompts
        self.asked = 0
        self._known: dict[str, str] = {}
        found: Any = load_backbone(captioner) if isinstance(captioner, str) else captioner
        self._answers = BaseAnswers(found, max_new_tokens=max_new_tokens) if hasattr(found, "generate") else None
        self._captioner = found

    def __call__(self, requests: Sequence[Request]) -> list[str]:
        """One caption per request; empty where there is no image, or it cannot be read or described (logged)."""
        asked = [self._question(request) for request in requests]
        new = {key: request for key, request in asked if key and key not in self._known}
        self._known.update(zip(new, self._ask(list(new.values())), strict=True))
        found = [self._known.get(key, "") for key, _ in asked]
        for key in [key for key in new if not self._known[key]]:
            del self._known[key]  # what failed may succeed the next time
        return found

    def _question(self, request: Request) -> tuple[str, Request]:
        question = caption_prompt(request.language, self.prompts)
        asked = Request(question, request.images, request.language)
        try:
            return (asked.key if request.images else ""), asked
        except (OSError, ValueError) as error:
            log.warning("an image of %r cannot be read, so that it has no caption: %s", request.question[:60], error)
            return "", asked

    def _ask(self, requests: Sequence[Request]) -> list[str]:
        if not requests:
            return []
        if self._answers is None:
            return self._by_function(requests)
        before = self._answers.misses
        found = self._answers.try_ask(requests)
        self.asked += self._answers.misses - before
        for one in found:
            if one.error is not None:
                log.warning("an image has no caption: %s", one.error)
        return [one.answer.text.strip() if one.answer is not None else "" for one in found]

    def _by_function(self, requests: Sequence[Request]) -> list[str]:
        texts = list(self._captioner(requests))
        wrong = next((text for text in texts if not isinstance(text, str | Answer)), None)
        if len(texts) != len(requests) or wrong is not None:
            got = f"{len(texts)} captions" if wrong is None else f"a {type(wrong).__name__}"
            raise ContractError(f"the captioner gave {got} for {len(requests)} requests; give one text for each")
        self.asked += len(requests)
        return [(text.text if isinstance(text, Answer) else text).strip() for text in texts]
