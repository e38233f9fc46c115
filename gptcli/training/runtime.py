"""Settings of the process for training, made before the model is built."""

from __future__ import annotations

import ctypes
import gc
import os

import torch

from gptcli.model.devices import has_tf32, use_device

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30
_LARGEST_KEPT = 1 << 25
"""32 MiB, the limit up to which glibc raises this threshold itself; larger blocks are returned when freed."""
_LARGEST_KEPT_OF_SHARDED = 1 << 20


def prepare(device: torch.device, *, deterministic: bool) -> None:
    """Make training on `device` fast; on CUDA, optionally, bit-reproducible."""
    use_device(device, tf32=trains_in_tf32(device, deterministic=deterministic))
    torch.set_autocast_cache_enabled(True)  # sharded weights do without it
    if device.type == "cpu":
        _keep_freed_memory()
    elif device.type == "cuda":
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(deterministic)


def trains_in_tf32(device: torch.device, *, deterministic: bool) -> bool:
    """Whether training on `device` computes float32 products in TF32; not if every bit is to be the same."""
    return not deterministic and has_tf32(device)


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next allocation.

    Each update frees and allocates the same blocks. Getting them from the kernel again, page by page, takes a seventh
    of an update's time in bfloat16 (docs/log.md).
    """
    _set_allocator(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
    _set_allocator(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def return_large_blocks() -> None:
    """Let glibc return every block of a MiB or more when it is freed, for training with sharded weights on a CPU.

    Weights that are gathered and freed between other blocks would leave holes in the heap that take more memory than
    sharding saves (docs/log.md).
    """
    _set_allocator(_M_MMAP_THRESHOLD, _LARGEST_KEPT_OF_SHARDED)


def _set_allocator(option: int, value: int) -> None:
    """Set an option of glibc's allocator (mallopt(3)); other C libraries are left as they are."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(option, value)


def return_freed_memory(device: torch.device) -> None:
    """Return what a training has freed to the system or the GPU: memory kept for reuse would count as taken.

    On a CPU only glibc can (malloc_trim(3)).
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
