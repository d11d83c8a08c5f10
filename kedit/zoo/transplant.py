"""Give a new model the language of a trained one: what both have is copied, what only the new one has learns to do the same.

Copied are word embeddings, norms, MLPs and full-attention layers. Linear-attention layers learn to give what the attention
in their place gave, and the eyes to give the same visual tokens. Language then has to be practised, not learned anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kedit.weights.modules import name_of
from kedit.zoo.encode import Batch

log = logging.getLogger(__name__)


def keep_layers(model: Any, parent: Any, kept: Sequence[int]) -> None:
    """Copy everything of a parent of the same class into a model with only its layers ``kept``, lowest first."""
    prefix = name_of(parent, parent.get_decoder().layers)
    place = {f"{prefix}.{old}.": f"{prefix}.{new}." for new, old in enumerate(kept)}
    weights = {}
    for name, tensor in parent.state_dict().items():
        found = next((old for old in place if name.startswith(old)), None)
        if found is not None:
            weights[place[found] + name[len(found) :]] = tensor
        elif not name.startswith(f"{prefix}."):
            weights[name] = tensor
    model.load_state_dict(weights)


def copy_decoder(model: Any, parent: Any) -> list[int]:
    """Copy a decoder layer by layer and give the indices of the layers whose attention has no counterpart.

    Output gates, which the parent's attention lacks, start half open whatever they see, and output projections twice as
    large, so that a copied layer computes what the parent's does.
    """
    own, other = model.get_decoder(), parent.get_decoder()
    missing = []
    with torch.no_grad():
        own.embed_tokens.weight.copy_(other.embed_tokens.weight)
        _norm(own.norm, other.norm)
        for at, (layer, source) in enumerate(zip(own.layers, other.layers, strict=True)):
            layer.mlp.load_state_dict(source.mlp.state_dict())
            _norm(layer.input_layernorm, source.input_layernorm)
            _norm(layer.post_attention_layernorm, source.post_attention_layernorm)
            if hasattr(layer, "self_attn"):
                _attention(layer.self_attn, source.self_attn)
            else:
                missing.append(at)
    return missing


def _norm(norm: nn.Module, source: nn.Module) -> None:
    """These norms multiply by one plus their weight."""
    norm.weight.copy_(source.weight - 1)


def _attention(attention: nn.Module, source: nn.Module) -> None:
    width, size = attention.head_dim, source.q_proj.weight.shape[1]
    queries = source.q_proj.weight.reshape(-1, width, size)  # per head: its queries, then its gates
    attention.q_proj.weight.copy_(torch.cat([queries, torch.zeros_like(queries)], 1).reshape(-1, size))
    attention.k_proj.weight.copy_(source.k_proj.weight)
    attention.v_proj.weight.copy_(source.v_proj.weight)
    attention.o_proj.weight.copy_(2 * source.o_proj.weight)
    _norm(attention.q_norm, source.q_norm)
    _norm(attention.k_norm, source.k_norm)


def imitate_mixer(
    model: Any, parent: Any, at: int, batches: Iterator[Batch], steps: int, rate: float, step: Callable[..., None]
) -> None:
    """Train the linear attention of layer ``at`` to give what the parent's attention gives at the same words and pictures."""
    layer, source = model.get_decoder().layers[at], parent.get_decoder().layers[at]
    mixer = layer.linear_attn
    optimiser = torch.optim.AdamW(mixer.parameters(), lr=rate, betas=(0.9, 0.98))
    for count in range(steps):
        batch = next(batches)
        with torch.no_grad():
            seen, wanted = _through(parent, source.self_attn, batch)
        given = mixer(hidden_states=seen, attention_mask=batch.mask)
        real = batch.mask.bool()
        loss = F.mse_loss(given[real], wanted[real]) / wanted[real].var()
        step(mixer, optimiser, loss, rate * min(1, (count + 1) / 20))
        if count % 20 == 0 or count == steps - 1:
            log.info("layer %d imitates, step %d, unexplained %.3f", at, count, float(loss.detach()))


def _through(parent: Any, attention: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """What enters an attention of the parent and what leaves it."""
    kept: list[Tensor] = []

    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        kept.extend([kwargs["hidden_states"] if "hidden_states" in kwargs else args[0], output[0]])

    hook = attention.register_forward_hook(keep, with_kwargs=True)
    try:
        parent.model(input_ids=batch.ids, attention_mask=batch.mask, pixel_values=batch.pixels, use_cache=False)
    finally:
        hook.remove()
    return kept[0], kept[1]


def imitate_eyes(
    eyes: nn.Module, see: Callable[[Tensor], Tensor], parent_sees: Callable[[Tensor], Tensor], draws: Iterator[Tensor],
    steps: int, rate: float, step: Callable[..., None],
) -> None:  # fmt: skip
    """Train the eyes to give the parent's visual tokens for the same pictures (images, 3, 64, 64)."""
    optimiser = torch.optim.AdamW(eyes.parameters(), lr=rate, betas=(0.9, 0.98))
    for count in range(steps):
        pixels = next(draws)
        with torch.no_grad():
            wanted = parent_sees(pixels)
        loss = F.mse_loss(see(pixels), wanted) / wanted.var()
        falling = min(1, (count + 1) / 20) * (1 - 0.95 * count / steps)
        step(eyes, optimiser, loss, rate * falling)
        if count % 20 == 0 or count == steps - 1:
            log.info("eyes imitate, step %d, unexplained %.3f", count, float(loss.detach()))
