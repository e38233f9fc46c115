"""What to say when the device runs out of memory: the micro-batch size that fits."""

from __future__ import annotations

import torch
from torch import Tensor

from gptcli.errors import OutOfMemoryError
from gptcli.model.gpt import GPT
from gptcli.training.gradients import Hidden, accumulate_gradients
from gptcli.training.optimizer import Optimizer

DEVICE_NAMES = {"cpu": "CPU", "cuda": "GPU", "mps": "Apple GPU"}
SMALLER = "Use a smaller model or context."
"""What helps where no micro-batch is small enough."""


def no_room_for_gradients(
    model: GPT, hidden: Hidden, optimizer: Optimizer, ids: Tensor, micro_batch_size: int, dtype: torch.dtype
) -> OutOfMemoryError:
    """The error for a micro-batch of ids (B, T + 1) that does not fit, with the largest half, quarter, … that does."""
    model.zero_grad()
    size = micro_batch_size // 2
    while size and not _fits(model, hidden, optimizer, ids[:size], dtype):
        size //= 2
    hint = f"--micro-batch-size {size} fits, and gives the same result." if size else SMALLER
    device = DEVICE_NAMES[ids.device.type]
    return OutOfMemoryError(f"The {device} ran out of memory with {micro_batch_size} sequences at once.", hint)


def no_room_for_optimizer(device: torch.device) -> OutOfMemoryError:
    """The error for AdamW's state, which the first update allocates."""
    return OutOfMemoryError(f"The {DEVICE_NAMES[device.type]} has no room for AdamW's state.", SMALLER)


def _fits(model: GPT, hidden: Hidden, optimizer: Optimizer, ids: Tensor, dtype: torch.dtype) -> bool:
    """Whether a gradient of ids (b, T + 1) can be had beside what AdamW will keep."""
    try:
        kept = optimizer.state_to_come()
        accumulate_gradients(model, hidden, ids, len(ids), dtype, optimizer.backward)
    except torch.OutOfMemoryError:
        return False
    finally:
        kept = []  # noqa: F841 - let go of, together with the gradients
        model.zero_grad()
    return True
