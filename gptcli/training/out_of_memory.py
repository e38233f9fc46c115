"""Out-of-memory errors that name the micro-batch size that fits."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from gptcli.errors import OutOfMemoryError, is_out_of_memory
from gptcli.model.gpt import GPT
from gptcli.training.gradients import Hidden, accumulate_gradients
from gptcli.training.optimizer import Optimizer

DEVICE_NAMES = {"cpu": "CPU", "cuda": "GPU", "mps": "Apple GPU"}
SMALLER = "Use a smaller `preset`, or lower `model.n_layer` or `model.n_embd`."
"""The hint where no micro-batch is small enough."""
FEWER_ACTIVATIONS = f"Use `train.activation_checkpointing = true`, or lower `model.block_size`. Else: {SMALLER}"

LESS_MEMORY = "Lower `train.micro_batch_size`, use `train.activation_checkpointing = true`, or a smaller `preset`."
"""The hint where it is not known what has taken the memory."""


@contextmanager
def room_for_gradients(
    model: GPT,
    hidden: Hidden,
    optimizer: Optimizer,
    ids: Tensor,
    *,
    micro_batch_size: int,
    dtype: torch.dtype,
    searches: bool = True,
) -> Iterator[None]:
    """A context for passes over ids (B, T + 1) in micro-batches.

    Raises OutOfMemoryError if they do not fit; its hint names the largest half, quarter, … of a micro-batch that does.
    `hidden` is the uncompiled pass of the run, with its activation checkpointing: each size would be compiled anew.
    Unless it `searches`, which one of several ranks with sharded weights cannot do alone, the hint is the half.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # the frames hold activations
        model.zero_grad()
        size = micro_batch_size // 2
        while searches and size and not _fits(model, hidden, optimizer, ids[:size], dtype):
            size //= 2
        hint = f"Use `train.micro_batch_size = {size}`: the result is the same." if size else FEWER_ACTIVATIONS
        device = DEVICE_NAMES[ids.device.type]
        message = f"The {device} ran out of memory with {micro_batch_size} sequences at once."
        raise OutOfMemoryError(message, hint) from error


@contextmanager
def room_for_optimizer(device: torch.device) -> Iterator[None]:
    """A context for an update, the first of which allocates the optimizer's state. Raises OutOfMemoryError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = f"The {DEVICE_NAMES[device.type]} has no room for the optimizer's state."
        raise OutOfMemoryError(message, SMALLER) from error


def _fits(model: GPT, hidden: Hidden, optimizer: Optimizer, ids: Tensor, dtype: torch.dtype) -> bool:
    """Whether a gradient of ids (b, T + 1) fits beside the optimizer's state."""
    _return_cached_memory(ids.device)
    try:
        kept = optimizer.state_to_come()
        accumulate_gradients(model, hidden, ids, micro_batch_size=len(ids), dtype=dtype, backward=optimizer.backward)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        kept = []  # noqa: F841 - freed together with the gradients
        model.zero_grad()
    return True


def _return_cached_memory(device: torch.device) -> None:
    """Return the memory that torch keeps for reuse: cuBLAS and the compiled kernels allocate beside it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()
