"""The peak of memory during a piece of work."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

_RESET_PEAK = "5"
"""Written to `clear_refs`, it sets the peak of resident memory to the present size (Linux, proc_pid_clear_refs(5))."""


def reset_peak(device: torch.device) -> None:
    """Begin a new peak."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")


def peak_memory(device: torch.device) -> int | None:
    """The peak since `reset_peak` in bytes; None where the system does not say.

    On CUDA it is what tensors allocated, on a CPU the resident memory of the whole process.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None
