"""The gradient of one update, accumulated over micro-batches.

Letters: B sequences of an update, b of a micro-batch, T tokens each, C width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gptcli.model.devices import autocast
from gptcli.model.experts import ExpertLoad, Routing
from gptcli.model.gpt import GPT

Hidden = Callable[..., Tensor]
"""`GPT.hidden`, or the same compiled: ids (B, T) → states (B, T, C)."""


def accumulate_gradients(
    model: GPT,
    hidden: Hidden,
    ids: Tensor,
    *,
    micro_batch_size: int,
    dtype: torch.dtype,
    backward: Callable[[Tensor], None],
    batch_size: int | None = None,
    expert_balance: float = 0.0,
    spread: ExpertLoad | None = None,
    passes: int = 0,
) -> Tensor:
    """Mean next-token loss () of ids (B, T + 1); its gradient is accumulated over micro-batches of b sequences.

    Each micro-batch is weighted by its share of the tokens, so that any split of the batch gives the same gradient;
    `backward` is called with its part of the loss. Where `ids` are part of a batch of `batch_size` sequences, the loss
    and its gradient are this part of the mean. For a model with experts the balance loss is added, times
    `expert_balance`, and `spread` collects how tokens were spread.

    `passes` is the least number of passes: ranks with sharded weights gather them together in each, so that a rank with
    one micro-batch fewer repeats one with weight 0.
    """
    loss = torch.zeros((), device=ids.device, dtype=torch.float64 if dtype is torch.float64 else torch.float32)
    sequences, experts = batch_size or len(ids), model.config.n_expert > 0
    total = sequences * (ids.shape[1] - 1)
    micros = torch.split(ids, micro_batch_size)
    for number in range(max(passes, len(micros))):
        counts = number < len(micros)
        micro = micros[number if counts else 0]  # (b, T + 1)
        routing, share = Routing() if experts else None, counts * len(micro) / sequences
        with autocast(ids.device, dtype):
            states = hidden(micro[:, :-1], None, routing)  # (b, T, C)
            part = model.summed_loss(states, micro[:, 1:]) / total
            part = part if counts else 0 * part
        if routing and spread:
            spread.add(routing, share)  # before the backward pass, in which recomputed blocks route once more
        backward(part + expert_balance * share * routing.balance_loss() if routing else part)
        loss += part.detach()
    return loss


class UpdateStopped(Exception):  # noqa: N818 - a request to stop is not an error
    """A stop was asked for between two micro-batches of an update."""


def unless_stopped(backward: Callable[[Tensor], None], should_stop: Callable[[], bool]) -> Callable[[Tensor], None]:
    """`backward` for the micro-batches of an update, which may take minutes.

    Raises UpdateStopped before any but the first if a stop was asked for.
    """
    begun = False

    def backward_or_stop(loss: Tensor) -> None:
        nonlocal begun
        if begun and should_stop():
            raise UpdateStopped
        begun = True
        backward(loss)

    return backward_or_stop
