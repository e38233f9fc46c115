"""The gradient of one update, added up over micro-batches.

Letters: B sequences of an update, b of a micro-batch, T tokens each, C width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gptcli.model.gpt import GPT
from gptcli.model.loss import next_token_loss
from gptcli.model.precision import autocast

Hidden = Callable[[Tensor], Tensor]
"""`GPT.hidden`, or the same compiled: ids (B, T) → states (B, T, C)."""


def accumulate_gradients(
    model: GPT,
    hidden: Hidden,
    ids: Tensor,
    micro_batch_size: int,
    dtype: torch.dtype,
    backward: Callable[[Tensor], None],
) -> Tensor:
    """Mean next-token loss () of ids (B, T + 1), its gradient added up over micro-batches of b sequences.

    Each micro-batch counts by its share of the tokens, so that any split of the batch has the same gradient.
    """
    loss = torch.zeros((), device=ids.device, dtype=torch.float64 if dtype is torch.float64 else torch.float32)
    total = ids[:, 1:].numel()
    for micro in torch.split(ids, micro_batch_size):  # (b, T + 1)
        with autocast(ids.device, dtype):
            states = hidden(micro[:, :-1])  # (b, T, C)
            part = next_token_loss(states.flatten(0, 1), model.wte.weight, micro[:, 1:].flatten()) / total
        backward(part)
        loss += part.detach()
    return loss
