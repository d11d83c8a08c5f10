"""From a request to a prompt: the one place where messages, prompt text and token ids are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError

from kedit.errors import FamilyError, RequestError
from kedit.families import PLAIN_TEMPLATE, Family
from kedit.images import open_image
from kedit.types import ImageRef, Request

_MARK = "kedit0question0mark"
SEQUENCES = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
"""Model inputs that hold one value per token."""
_TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, KeyError)


class Prompts:
    """Builds the same prompt for generation, loss, hidden states and token positions.

    One user turn follows the system prompt: context, images, question, in this order, as far as the model's chat template
    keeps it (some put all images first). Neighbouring texts are joined by a newline; what separates an image from a text is
    the template's choice. A template that has no system prompt gets it as the first line of the user's turn. Templates that
    can switch reasoning off are asked to.
    """

    def __init__(self, processor: Any, family: Family, image_token_id: int | None) -> None:
        self.processor = processor
        self.family = family
        self.image_token_id = image_token_id

    @property
    def tokenizer(self) -> Any:
        return getattr(self.processor, "tokenizer", self.processor)

    @property
    def image_token(self) -> str | None:
        """The placeholder of one image in the prompt's text, None for a text-only model."""
        token = getattr(self.processor, "image_token", None)
        return token if isinstance(token, str) and self.image_token_id is not None else None

    @property
    def templated(self) -> bool:
        """Whether the model comes with a chat template."""
        return bool(self._template)

    @property
    def _template(self) -> Any:
        return getattr(self.processor, "chat_template", None) or getattr(self.tokenizer, "chat_template", None)

    # -- text ----------------------------------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        """Raise RequestError for what no model can be asked: a blank question, unknown parts, placeholders in the text."""
        if not request.question.strip():
            raise RequestError("the question is empty; a request needs a question with at least one visible character")
        for part in request.context:
            if not isinstance(part, str | ImageRef):
                raise RequestError(f"context holds {type(part).__name__}; expected texts and ImageRef")
        if self.image_token is None and images_of(request):
            raise RequestError(f"the request has {len(images_of(request))} image(s), but the model takes text only")
        texts = [request.question, request.system or "", *(part for part in request.context if isinstance(part, str))]
        for token in getattr(self.processor, "all_special_multimodal_tokens", ()):
            if any(token in text for text in texts):
                raise RequestError(f"a text of the request holds {token!r}, which stands for an image in this model's prompts")

    def text(self, request: Request) -> str:
        """The prompt's text, one placeholder per image, up to where the answer begins."""
        self.check(request)
        rendered = self._render(self._messages(request))
        if self.templated or self.family.processor_completes and images_of(request):
            return rendered
        return self.family.plain_end(rendered, self.image_token, self.tokenizer.bos_token or "")

    def _messages(self, request: Request) -> list[dict[str, Any]]:
        parts: list[str | ImageRef] = [*request.context, *request.images, request.question]
        if request.system and not self._takes_system:
            parts.insert(0, request.system)
        turn = {"role": "user", "content": self._content(parts)}
        if request.system and self._takes_system:
            return [{"role": "system", "content": self._content([request.system])}, turn]
        return [turn]

    def _content(self, parts: Sequence[str | ImageRef]) -> str | list[dict[str, str]]:
        joined: list[dict[str, str]] = []
        for part in parts:
            if isinstance(part, ImageRef):
                joined.append({"type": "image"})
            elif joined and joined[-1]["type"] == "text":
                joined[-1]["text"] += "\n" + part
            else:
                joined.append({"type": "text", "text": part})
        return joined if self.image_token is not None else "\n".join(part["text"] for part in joined)

    def _render(self, messages: list[dict[str, Any]], generation: bool = True) -> str:
        options: dict[str, Any] = {"add_generation_prompt": generation, "tokenize": False}
        if "enable_thinking" in str(self._template):
            options["enable_thinking"] = False
        if not self.templated:
            options |= {"chat_template": PLAIN_TEMPLATE, "image_token": self.image_token or ""}
        if getattr(self.processor, "chat_template", None) is None:  # a processor does not look at its tokenizer's template
            return str(self.tokenizer.apply_chat_template(messages, **options))
        return str(self.processor.apply_chat_template(messages, **options))

    @cached_property
    def _takes_system(self) -> bool:
        """Whether the template shows a system prompt (tried out, since some ignore it and some raise)."""
        turn = {"role": "user", "content": self._content(["hello"])}
        try:
            shown = self._render([{"role": "system", "content": self._content([_MARK])}, turn])
        except _TEMPLATE_ERRORS:
            return False
        return _MARK in shown and "'text'" not in shown

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end an answer, the one to learn first: what closes an assistant's turn in the template, then EOS."""
        found: list[int] = []
        if self.templated:
            found.extend(self._end_of_turn())
        if self.tokenizer.eos_token_id is not None:
            found.append(self.tokenizer.eos_token_id)
        return tuple(dict.fromkeys(found))

    def _end_of_turn(self) -> list[int]:
        turns = [
            {"role": "user", "content": self._content(["hello"])},
            {"role": "assistant", "content": self._content([_MARK])},
        ]
        try:
            tail = self._render(turns, generation=False).rpartition(_MARK)[2]
        except _TEMPLATE_ERRORS:
            return []
        special = {*self.tokenizer.all_special_ids, *self.tokenizer.added_tokens_decoder}
        ids = self.tokenizer(tail, add_special_tokens=False)["input_ids"]
        return [next(token for token in ids if token in special)] if special.intersection(ids) else []

    # -- tokens --------------------------------------------------------------------------------------------------------

    def encode(self, request: Request) -> dict[str, Any]:
        """The model's inputs for one request, tensors with a batch of one; raises RequestError and ImageError."""
        return dict(self._process(self.text(request), request))

    def _process(self, text: str, request: Request, **options: Any) -> Mapping[str, Any]:
        options |= {"add_special_tokens": self._adds_special(text), "return_tensors": "pt"}
        if not images_of(request) and (self.image_token is None or self.family.processor_completes):
            typed = {"return_token_type_ids": True} if self.family.processor_completes else {}
            return self.tokenizer([text], **options, **typed)  # type: ignore[no-any-return]
        images = {"images": [open_image(image) for image in images_of(request)]} if images_of(request) else {}
        return self.processor(text=[text], **images, **options)  # type: ignore[no-any-return]

    def _adds_special(self, text: str) -> bool:
        bos = self.tokenizer.bos_token
        return not (bos and text.startswith(bos))  # else the template's own token would be doubled

    def spans(self, request: Request) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token positions of the question and of the request's own images (context images are not counted), ascending."""
        text = self.text(request)
        start, end = self._question_chars(text, request)
        replaced: list[dict[str, Any]] = []
        if images_of(request):
            output = self._process(text, request, return_text_replacement_offsets=True)
            replaced = list(output["text_replacement_offsets"][0])
            text, shift = self._completed(text)
            start, end = start + shift, end + shift
            text, images, grown = _expand(text, [(item["text"], item["replacement"]) for item in replaced], start)
            start, end = start + grown, end + grown
        else:
            output, images = self._process(text, request), []
        ids = output["input_ids"][0].tolist()
        offsets = self._offsets(text, ids)
        own = images[len(images) - len(request.images) :] if request.images else []
        question = tuple(i for i, (a, b) in enumerate(offsets) if a < end and b > start)
        visual = tuple(
            i for i, (a, b) in enumerate(offsets) if ids[i] == self.image_token_id and any(a < e and b > s for s, e in own)
        )
        return question, visual

    def _completed(self, text: str) -> tuple[str, int]:
        """The text as the processor completes it, and by how much that moves the question."""
        if self.templated or not self.family.processor_completes:
            return text, 0
        bos = self.tokenizer.bos_token or ""
        return self.family.plain_end(text, self.image_token, bos), len(bos)

    def _question_chars(self, text: str, request: Request) -> tuple[int, int]:
        """Where the question is in the prompt's text, found by rendering a mark in its place."""
        marked = self.text(Request(_MARK, request.images, request.language, request.system, request.context))
        before, _, after = marked.rpartition(_MARK)
        middle = text[len(before) : len(text) - len(after)]
        if not (text.startswith(before) and text.endswith(after)) or middle.strip() != request.question.strip():
            raise FamilyError("the chat template changes the question, so its tokens cannot be found; a template must copy it")
        if self.image_token and self.image_token in after:
            raise FamilyError("the chat template puts an image after the question; kedit expects images before it")
        return len(before), len(before) + len(middle)

    def _offsets(self, text: str, ids: list[int]) -> list[tuple[int, int]]:
        found = self.tokenizer(text, add_special_tokens=self._adds_special(text), return_offsets_mapping=True)
        if list(found["input_ids"]) != ids:
            raise FamilyError("the processor's prompt is not its expanded text tokenised, so token positions cannot be found")
        return [(int(a), int(b)) for a, b in found["offset_mapping"]]


def images_of(request: Request) -> list[ImageRef]:
    """All images of a request in the order of the prompt: those in the context, then its own."""
    return [*(part for part in request.context if isinstance(part, ImageRef)), *request.images]


def _expand(text: str, replacements: Sequence[tuple[str, str]], position: int) -> tuple[str, list[tuple[int, int]], int]:
    """Put each replacement in place of its placeholder: the text, the replacements' spans, growth before ``position``."""
    done, cursor, grown, spans = "", 0, 0, []
    for placeholder, replacement in replacements:
        at = text.index(placeholder, cursor)
        done += text[cursor:at]
        spans.append((len(done), len(done) + len(replacement)))
        done += replacement
        cursor = at + len(placeholder)
        grown += len(replacement) - len(placeholder) if at < position else 0
    return done + text[cursor:], spans, grown
