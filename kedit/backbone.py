"""The Backbone contract and its Hugging Face implementation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from kedit.batching import FiniteWatch, join, run_batched
from kedit.checkpoints import read_checkpoint
from kedit.endpoint import EndpointBackbone, endpoint_of
from kedit.families import Structure, family_of, read_structure
from kedit.forcing import Forced
from kedit.generation import Decide, Gate, states_of
from kedit.prompts import SEQUENCES, Prompts, images_of
from kedit.trunk import tensors_digest
from kedit.types import Answer, Request

T = TypeVar("T")


class Spans(NamedTuple):
    """Where the parts of one prompt lie: token positions in the unpadded prompt, ascending."""

    question: tuple[int, ...]
    visual: tuple[int, ...]


@runtime_checkable
class Backbone(Protocol):
    """A model that can be asked, scored and looked into; text-only requests are first class.

    ``id`` and ``revision`` name the weights; ``dtype`` and ``device`` are where they live.
    """

    id: str
    revision: str | None
    model: nn.Module

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def generate(self, requests: Sequence[Request], *, max_new_tokens: int = 64) -> list[Answer]:
        """Greedy answers, same length and order as ``requests``; batched, left-padded, halving the batch when out of memory.

        Raises RequestError for an empty question and ImageError for an image that cannot be read.
        """
        ...

    def loss(self, request: Request, answer: str) -> Tensor:
        """Mean negative log-likelihood (nats, scalar with gradient) of the answer's tokens and the end-of-sequence token."""
        ...

    def hidden(self, requests: Sequence[Request], *, layer: int = -1) -> list[Tensor]:
        """Outputs of a language layer (after the final norm for -1), one (tokens, width) tensor per request, no gradient."""
        ...

    def token_spans(self, request: Request) -> Spans:
        """Positions of the question's tokens and of the visual tokens in the request's prompt, as ``hidden`` counts them."""
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of a plain text, without special tokens."""
        ...

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder layers of the language model, lowest first."""
        ...

    def layer_index(self, relative: int) -> int:
        """Absolute index of a layer given as 0.. or relative as -1 (last), -2, ...; raises ValueError outside the model."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 (64 hex digits) over names, shapes, dtypes and bytes of all parameters and buffers, as they are now."""
        ...


@dataclass
class Counters:
    """Work done since the last ``reset``; what speed claims are checked against."""

    layer_token_forwards: int = 0
    """Decoder layers times token positions that ran through them, padding included."""
    vision_calls: int = 0
    """Forward passes of the vision encoder, whatever the number of images in one."""
    prefill_tokens: int = 0
    """Prompt tokens read by ``generate`` and ``hidden``, padding excluded."""
    generations: int = 0
    """Requests answered by ``generate``."""

    def reset(self) -> None:
        """Set all counts to 0."""
        for field in fields(self):
            setattr(self, field.name, field.default)


@dataclass(frozen=True)
class Taught:
    """A prompt followed by an answer: model inputs, the rows whose logits predict, and the ids that they must predict."""

    inputs: dict[str, Any]
    rows: Tensor
    targets: Tensor


class HFBackbone:
    """A transformers model and its processor as a Backbone; made by ``load_backbone`` or ``HFBackbone.wrap``."""

    def __init__(self, model: Any, processor: Any, *, id: str, revision: str | None = None, batch_size: int = 8) -> None:
        self.model = model
        self.processor = processor
        self.id = id
        self.revision = revision
        self.batch_size = batch_size
        self.counters = Counters()

    @classmethod
    def wrap(cls, model: Any, processor: Any, *, id: str, revision: str | None = None, batch_size: int = 8) -> Self:
        """A backbone of a model in memory, which is put in evaluation mode, frozen and given counting hooks.

        Raises FamilyError when the model's structure cannot be read.
        """
        backbone = cls(model.eval().requires_grad_(False), processor, id=id, revision=revision, batch_size=batch_size)
        backbone._count_work()
        return backbone

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    @cached_property
    def structure(self) -> Structure:
        """Where decoder, layers and vision encoder are."""
        return read_structure(self.model)

    @cached_property
    def prompts(self) -> Prompts:
        """How requests become prompts."""
        return Prompts(self.processor, family_of(self.model), self.structure.image_token_id)

    @property
    def layers(self) -> nn.ModuleList:
        return self.structure.layers

    def layer_index(self, relative: int) -> int:
        count = len(self.layers)
        if not -count <= relative < count:
            raise ValueError(f"no layer {relative}; the model has {count}: use 0 to {count - 1}, or -1 (last) to -{count}")
        return relative % count

    def count_tokens(self, text: str) -> int:
        return len(self.prompts.tokenizer(text, add_special_tokens=False)["input_ids"])

    def token_spans(self, request: Request) -> Spans:
        """As the contract says; visual tokens are those of ``request.images``, not of images in the context.

        Raises FamilyError when the processor does not tell how it expands images.
        """
        return Spans(*self.prompts.spans(request))

    def fingerprint(self) -> str:
        return tensors_digest([*sorted(self.model.named_parameters()), *sorted(self.model.named_buffers())])

    @cached_property
    def base_fingerprint(self) -> str:
        """``fingerprint`` when it was first asked for: ask before editing."""
        return self.fingerprint()

    # -- asking --------------------------------------------------------------------------------------------------------

    def generate(self, requests: Sequence[Request], *, max_new_tokens: int = 64) -> list[Answer]:
        """As the contract says; answers are stripped of surrounding blanks. In fp32 the tokens do not depend on the batch."""
        return self._batched(requests, lambda batch: self._generate(batch, max_new_tokens))

    def generate_unless(
        self, requests: Sequence[Request], decide: Decide, *, layer: int = -1, max_new_tokens: int = 64
    ) -> list[Answer | None]:
        """As ``generate``, but None for requests that ``decide`` takes once their prompts are read, before a token is written.

        ``decide(batch, states)`` is called once per batch, with its requests and what ``hidden`` gives for them at ``layer``;
        after running out of memory again, with smaller batches. Those taken cost their prompt, the others nothing more than
        ``generate``.
        """
        watched = self._watched(layer)
        return self._batched(requests, lambda batch: self._generate_unless(batch, decide, watched, max_new_tokens))

    def _generate_unless(
        self, requests: Sequence[Request], decide: Decide, watched: nn.Module, max_new_tokens: int
    ) -> list[Answer | None]:
        gate, inputs = Gate(decide, requests), self._batch(requests)
        with states_of(watched, inputs["attention_mask"].sum(-1), gate.look):
            answers = self._write(inputs, max_new_tokens, stopping_criteria=[gate])
        self.counters.generations += gate.taken.count(False)
        return [None if taken else answer for taken, answer in zip(gate.taken, answers, strict=True)]

    def _generate(self, requests: Sequence[Request], max_new_tokens: int) -> list[Answer]:
        answers = self._write(self._batch(requests), max_new_tokens)
        self.counters.generations += len(requests)
        return answers

    def _write(self, inputs: Mapping[str, Any], max_new_tokens: int, **options: Any) -> list[Answer]:
        length = inputs["input_ids"].shape[1]
        watch = FiniteWatch(length, self.stop_ids)
        self.counters.prefill_tokens += int(inputs["attention_mask"].sum())
        with torch.no_grad(), self._greedy(max_new_tokens):
            output = self.model.generate(**inputs, logits_processor=[watch], **options)
        rows = output[:, length:].tolist()
        return [self._answer(row, max_new_tokens, ok) for row, ok in zip(rows, watch.finite(len(rows)), strict=True)]

    def _answer(self, ids: list[int], max_new_tokens: int, finite: bool) -> Answer:
        end = next((i for i, token in enumerate(ids) if token in self.stop_ids), None)
        text = self.prompts.tokenizer.decode(ids[:end], skip_special_tokens=True).strip()
        return Answer(text, tokens=len(ids[:end]), truncated=end is None and len(ids) >= max_new_tokens, finite=finite)

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids at which generation stops: those of the prompt format and those that the model names."""
        named = getattr(self.model.generation_config, "eos_token_id", None)
        named = named if isinstance(named, list) else [] if named is None else [named]
        return tuple(dict.fromkeys([*self.prompts.end_ids, *named]))

    @property
    def pad_id(self) -> int:
        """The id that fills up shorter prompts; any would do, for it is masked."""
        found = self.prompts.tokenizer.pad_token_id
        return found if found is not None else next(iter(self.stop_ids), 0)

    @contextmanager
    def _greedy(self, max_new_tokens: int) -> Iterator[None]:
        """Plain greedy decoding, whatever sampling or penalties the checkpoint's own configuration asks for."""
        from transformers import GenerationConfig

        before = self.model.generation_config
        stop = list(self.stop_ids) or None
        self.model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=max_new_tokens, do_sample=False, num_beams=1, eos_token_id=stop, pad_token_id=self.pad_id
        )
        try:
            yield
        finally:
            self.model.generation_config = before

    # -- scoring -------------------------------------------------------------------------------------------------------

    def loss(self, request: Request, answer: str, *, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """As the contract says, over the whole model; ``parameters`` stand in for the model's own of the same names.

        The answer's ids are those of the bare text appended to the prompt's, with no blank invented between; the
        end-of-sequence token is the one that closes an assistant's turn in the chat template, else the tokenizer's.
        Gradients reach whatever requires them. ``kedit.trunk`` has the fast way for the top layers.
        """
        taught = self.teach(request, answer)
        return self.nll(self.forward(taught.inputs, rows=taught.rows, parameters=parameters), taught.rows, taught.targets)

    def teach(self, request: Request, answer: str) -> Taught:
        """The inputs for a forward pass over prompt and answer (batch of one), with rows and targets of the loss."""
        inputs = self._batch([request])
        tokens = self.prompts.tokenizer(answer, add_special_tokens=False)["input_ids"]
        targets = torch.tensor([*tokens, *self.prompts.end_ids[:1]], device=self.device)
        length = inputs["input_ids"].shape[1]
        rows = torch.arange(length - 1, length - 1 + len(targets), device=self.device)
        return Taught(self.extended(inputs, tokens), rows, targets)

    def forced(self, requests: Sequence[Request], answers: Sequence[str], k: int = 1) -> list[Forced]:
        """The ``k`` likeliest tokens at every position of each prompt and answer, one forward pass each, no gradient."""
        return [self._forced(request, answer, k) for request, answer in zip(requests, answers, strict=True)]

    def _forced(self, request: Request, answer: str, k: int) -> Forced:
        taught = self.teach(request, answer)
        with torch.no_grad():
            logits = self.forward(taught.inputs).logits[0]  # (positions, vocabulary)
        top = logits.topk(min(k, logits.shape[-1]), dim=-1).indices.cpu()
        ends = int(bool(self.prompts.end_ids))
        return Forced(top, taught.targets[: len(taught.targets) - ends].cpu(), bool(torch.isfinite(logits).all()))

    def extended(self, inputs: Mapping[str, Any], tokens: Sequence[int]) -> dict[str, Any]:
        """Model inputs of one prompt with tokens of an answer after it."""
        longer = dict(inputs)
        for name in SEQUENCES:
            if name in longer:
                more = {"input_ids": list(tokens), "attention_mask": [1] * len(tokens)}.get(name)
                filler = self.prompts.family.answer_type_id if name == "token_type_ids" else 0
                longer[name] = torch.cat([longer[name], longer[name].new_tensor([more or [filler] * len(tokens)])], dim=1)
        return longer

    def forward(
        self, inputs: Mapping[str, Any], *, rows: Tensor | int = 0, parameters: Mapping[str, Tensor] | None = None
    ) -> Any:
        """The model's own forward pass without cache; ``rows`` limits the logits to those positions (0: all) where supported."""
        options = {**inputs, "use_cache": False, **({"logits_to_keep": rows} if self._keeps_rows else {})}
        if parameters is None:
            return self.model(**options)
        return torch.func.functional_call(self.model, dict(parameters), args=(), kwargs=options)

    def nll(self, output: Any, rows: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy (fp32, nats) of ``targets`` under a forward pass that was asked for ``rows``."""
        return nn.functional.cross_entropy(self.logits(output, rows), targets)

    def logits(self, output: Any, rows: Tensor) -> Tensor:
        """The logits (rows, vocabulary; fp32) of a forward pass that was asked for ``rows``, of the first prompt in it."""
        logits: Tensor = output.logits[0] if self._keeps_rows else output.logits[0, rows]
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    @cached_property
    def _keeps_rows(self) -> bool:
        return "logits_to_keep" in inspect.signature(self.model.forward).parameters

    # -- looking inside ------------------------------------------------------------------------------------------------

    def hidden(self, requests: Sequence[Request], *, layer: int = -1) -> list[Tensor]:
        watched = self._watched(layer)
        return self._batched(requests, lambda batch: self._hidden(batch, watched))

    def _watched(self, layer: int) -> nn.Module:
        return self.structure.decoder if layer == -1 else self.layers[self.layer_index(layer)]

    def _hidden(self, requests: Sequence[Request], watched: nn.Module) -> list[Tensor]:
        inputs = self._batch(requests)
        mask = inputs["attention_mask"]
        if not mask.all() and not self.structure.counts_positions_itself:
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(0)
        self.counters.prefill_tokens += int(mask.sum())
        found: list[Tensor] = []
        with states_of(watched, mask.sum(-1), found.extend), torch.no_grad():
            self.forward(inputs, rows=1)
        return found

    # -- batches -------------------------------------------------------------------------------------------------------

    def _batched(self, requests: Sequence[Request], run: Callable[[Sequence[Request]], list[T]]) -> list[T]:
        keys = [(len(images_of(request)), self.count_tokens(self.prompts.text(request))) for request in requests]
        return run_batched(keys, self.batch_size, lambda batch: run([requests[index] for index in batch]))

    def _batch(self, requests: Sequence[Request]) -> dict[str, Any]:
        """Model inputs of several requests, left-padded, on the model's device and in its dtype."""
        encoded = [self.prompts.encode(request) for request in requests]
        names = [name for name in encoded[0] if name in self._inputs]
        joined = {n: join([one[n] for one in encoded], n, self.pad_id) for n in names}
        return {n: value.to(self.device, self.dtype if value.is_floating_point() else None) for n, value in joined.items()}

    @cached_property
    def _inputs(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.model.forward).parameters) - {"labels"}

    def _count_work(self) -> None:
        def layer_ran(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            states = args[0] if args else kwargs["hidden_states"]
            self.counters.layer_token_forwards += states.shape[0] * states.shape[1]

        def vision_ran(module: nn.Module, args: tuple[Any, ...]) -> None:
            self.counters.vision_calls += 1

        for layer in self.layers:
            layer.register_forward_pre_hook(layer_ran, with_kwargs=True)
        if self.structure.vision is not None:
            self.structure.vision.register_forward_pre_hook(vision_ran)


def load_backbone(
    name_or_path: str,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    batch_size: int = 8,
    trust_remote_code: bool = False,
    processor_options: Mapping[str, Any] | None = None,
    **endpoint: Any,
) -> HFBackbone | EndpointBackbone:
    """Load an embedded backbone (``tiny-...``), a Hugging Face id or a local folder; weights must be safetensors.

    ``dtype`` "auto" is the checkpoint's, except that fp16 becomes fp32 on a CPU; ``device`` is the GPU where there is one.
    ``processor_options`` (such as ``{"max_pixels": 200704}``) go to the processor. ``"openai:MODEL"`` is a model on a server,
    reached as ``endpoint`` says (see ``kedit.endpoint.open_endpoint``). Raises OSError when nothing is found and FamilyError
    for a model that cannot be read.
    """
    if remote := endpoint_of(str(name_or_path), endpoint, revision=revision, dtype=dtype, device=device):
        return remote
    model, processor = read_checkpoint(
        name_or_path, revision=revision, dtype=dtype, device=device, remote=trust_remote_code, options=processor_options or {}
    )
    return HFBackbone.wrap(model, processor, id=str(name_or_path), revision=revision, batch_size=batch_size)
