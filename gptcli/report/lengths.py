"""The cost of attention by the length of a sequence: its T × T matrices, keys and values, and FLOPs.

Letters: T tokens, H heads, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gptcli.config import ModelConfig
from gptcli.model.cost import cache_bytes, crossover, forward_flops_by_part
from gptcli.model.memory import FLOAT32, stores_scores

LENGTHS = tuple(2**power for power in range(7, 18))
"""128 to 131,072 tokens."""


@dataclass(frozen=True)
class LengthCost:
    """The cost of one sequence; the bytes of matrices are those that training keeps for the backward pass."""

    length: int
    scores: int
    """Numbers in the T × T matrices of all heads and layers."""
    stored_bytes: int
    """Bytes of these matrices, where every layer keeps them."""
    recomputed_bytes: int
    """The same with activation checkpointing: those of one layer at a time."""
    fused_bytes: int
    """A fused kernel keeps no T × T matrix, but one float32 number per row: the logarithm of its sum."""
    cache_bytes: int
    """Keys and values in the dtype of sampling."""
    forward_per_token: int
    """FLOPs of a token that attends to the whole sequence, as `FLOPS_FORMULA` counts."""
    attention_share: float
    """Share of the scores in these FLOPs."""
    mlp_share: float
    head_share: float


@dataclass(frozen=True)
class Lengths:
    costs: tuple[LengthCost, ...]
    crossover: int | None
    """Tokens from which on attention scores take at least half of the FLOPs; None if windows prevent it."""
    stores_scores: bool
    """Whether training on this device stores the T × T matrices, because it has no fused kernel for this model."""


def describe_lengths(config: ModelConfig, dtype: torch.dtype, sampling_dtype: torch.dtype, device_type: str) -> Lengths:
    """The costs for `LENGTHS`, with products in `dtype`; the context window of the model is ignored."""
    costs = tuple(_cost(config, length, dtype.itemsize, sampling_dtype.itemsize) for length in LENGTHS)
    return Lengths(costs, crossover(config), stores_scores(config, device_type))


def _cost(config: ModelConfig, length: int, item: int, sampling_item: int) -> LengthCost:
    scores = config.n_layer * config.n_head * length**2
    work = forward_flops_by_part(config, length)
    forward = sum(work.values())
    return LengthCost(
        length=length,
        scores=scores,
        stored_bytes=scores * item,
        recomputed_bytes=scores * item // config.n_layer,
        fused_bytes=config.n_layer * config.n_head * length * FLOAT32,
        cache_bytes=cache_bytes(config, sampling_item, length),
        forward_per_token=forward,
        attention_share=work["attention scores"] / forward,
        mlp_share=work["mlp"] / forward,
        head_share=work["head"] / forward,
    )
