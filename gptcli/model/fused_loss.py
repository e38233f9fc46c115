"""The choice of a fused kernel for the loss on CUDA, where log-softmax and its gradient are bound by memory.

The plain operations of `gptcli.model.loss` read and write the logits seven times, one kernel reads them twice and
writes the gradient once. They stay the reference, and what runs where triton cannot build a kernel.
"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
from collections.abc import Callable

import torch
from torch import Tensor

FusedLoss = Callable[[Tensor, Tensor, float, bool], Tensor]
"""(logits (n, V), targets (n, 1), softcap, need_grad) → summed loss (); see `gptcli.model.loss`."""


@functools.cache
def fused_kernel(device: torch.device) -> FusedLoss | None:
    """The fused kernel for a device; None where there is none.

    The first call on a GPU builds the kernel and runs it on a few logits, so that a machine without a C compiler or a
    GPU that triton does not support is noticed here.
    """
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    from triton.errors import TritonError  # imported here, since it is there only where torch has CUDA

    try:
        from gptcli.model.triton_loss import fused_loss

        logits = torch.zeros(1, 64, device=device)
        fused_loss(logits, torch.zeros(1, 1, dtype=torch.long, device=device), 0.0, True)
    except (ImportError, OSError, RuntimeError, subprocess.SubprocessError, TritonError):
        return None
    return fused_loss
