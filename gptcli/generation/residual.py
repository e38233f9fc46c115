"""The residual stream of a text: the hidden states between the blocks of a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gptcli.model.gpt import GPT


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
