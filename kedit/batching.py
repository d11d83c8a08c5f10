"""Putting prompts together: batches of similar length, left padding, and smaller batches when memory runs out."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from kedit.prompts import SEQUENCES

log = logging.getLogger(__name__)
T = TypeVar("T")


def run_batched(keys: Sequence[tuple[int, int]], size: int, run: Callable[[Sequence[int]], list[T]]) -> list[T]:
    """Call ``run`` on batches of indices and return its results in the order of ``keys``.

    A key is (images, text tokens): similar prompts share a batch, and prompts with and without images never do, because not
    every processor and model can mix them. Out of memory halves the batch for the rest of the call and logs a warning; a
    single prompt that does not fit, and every other error, is raised as it is.
    """
    order = sorted(range(len(keys)), key=keys.__getitem__)
    results: dict[int, T] = {}
    while len(results) < len(order):
        rest = order[len(results) :]
        batch = [index for index in rest[:size] if bool(keys[index][0]) == bool(keys[rest[0]][0])]
        found = _unless_out_of_memory(run, batch)
        if found is None:  # outside the except block: the failed run's tensors are no longer referenced
            size = max(1, len(batch) // 2)
            _free_memory()
            log.warning("out of memory with a batch of %d; going on with %d", len(batch), size)
        else:
            results.update(zip(batch, found, strict=True))
    return [results[index] for index in range(len(keys))]


def _unless_out_of_memory(run: Callable[[Sequence[int]], list[T]], batch: Sequence[int]) -> list[T] | None:
    try:
        return run(batch)
    except RuntimeError as error:
        if len(batch) == 1 or not is_out_of_memory(error):
            raise
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on an accelerator or (a plain RuntimeError) on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def join(tensors: Sequence[Tensor], name: str, pad_id: int) -> Tensor:
    """One batch of a model input: token sequences are padded on the left, anything else joined along the first dimension.

    Where trailing dimensions differ (images cut into different numbers of tiles), zeros fill up at the end, as processors do.
    """
    if name in SEQUENCES:
        width = max(tensor.shape[1] for tensor in tensors)
        filler = pad_id if name == "input_ids" else 0
        return torch.cat([nn.functional.pad(tensor, (width - tensor.shape[1], 0), value=filler) for tensor in tensors])
    shape = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors), strict=True)]
    return torch.cat([_filled(tensor, shape) for tensor in tensors])


def _filled(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    sizes = zip(reversed(tensor.shape[1:]), reversed(shape), strict=True)
    missing = [amount for have, want in sizes for amount in (0, want - have)]
    return nn.functional.pad(tensor, missing) if any(missing) else tensor


class FiniteWatch:
    """A logits processor that changes nothing and notes in which rows NaN or infinity appeared before their end."""

    def __init__(self, prompt_length: int, stop_ids: Sequence[int]) -> None:
        self.prompt_length = prompt_length
        self.stop_ids = stop_ids
        self._broken: Any = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        written = input_ids[:, self.prompt_length :]
        ended = torch.isin(written, written.new_tensor(list(self.stop_ids))).any(-1)
        self._broken = self._broken | (~torch.isfinite(scores).all(-1) & ~ended)
        return scores

    def finite(self, rows: int) -> list[bool]:
        """For each row whether all logits that chose its tokens were finite."""
        return [True] * rows if self._broken is False else (~self._broken).tolist()
