"""What the process that trains is set to, before the model is there."""

from __future__ import annotations

import ctypes
import os

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30
_LARGEST_KEPT = 1 << 25
"""32 MiB, the most that GNU's allocator itself raises this limit to; larger blocks go back when they are freed."""


def prepare(device: torch.device, *, deterministic: bool) -> None:
    """Set what makes training on `device` fast; on CUDA, or what makes it give the same bits every time."""
    if device.type == "cpu":
        _keep_freed_memory()
    elif device.type == "cuda" and deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    elif device.type == "cuda":
        torch.set_float32_matmul_precision("high")


def _keep_freed_memory() -> None:
    """Let GNU's allocator keep what is freed for what is taken next (mallopt(3)); other C libraries stay as they are.

    Each update frees some blocks and takes the same ones again. Got anew from the kernel, page by page, they cost an
    update in bfloat16 a seventh of its time (docs/log.md).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
