"""The residual stream of a text: the hidden states between the blocks of a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gptcli.model.gpt import GPT

MOST_TOKENS = 256
"""Tokens of a text that are looked at: maps of attention grow with their square, and each has predictions by layer."""


def token_limit(model: GPT) -> int:
    """Number of tokens of a text that are looked at."""
    return min(MOST_TOKENS, model.config.block_size)


def cut(model: GPT, ids: list[int]) -> tuple[list[int], tuple[str, ...]]:
    """The tokens of a text that are looked at, and a sentence if these are not all."""
    limit = token_limit(model)
    notes = (f"The first {limit:,} of {len(ids):,} tokens are used.",) if len(ids) > limit else ()
    return ids[:limit], notes


@torch.inference_mode()
def residual_stream(model: GPT, ids: Sequence[int]) -> tuple[list[Tensor], Tensor | None]:
    """The input of each block and the output of the last one, L + 1 of (1, T, C); and the rotation (2, T, 1, D).

    The text passes through the model's own blocks, without a cache.
    """
    device = model.wte.weight.device
    x, rotation = model.embed(torch.tensor([ids], device=device), slice(len(ids)))
    states = [x]
    for block in model.h:
        states.append(block(states[-1], rotation, None, None))
    return states, rotation
