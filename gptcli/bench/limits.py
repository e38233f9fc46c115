"""The limits of the machine, measured: the rate of matrix products and the bandwidth of memory.

Speed is judged as a share of these, since absolute figures vary from machine to machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gptcli.machine import free_memory

MATRIX_SIZE = {"cpu": 2048, "cuda": 8192, "mps": 4096}
"""Rows and columns of the matrices by device type: large enough for the full rate."""
READ_BYTES = {"cpu": 512 << 20, "cuda": 4 << 30, "mps": 1 << 30}
"""Bytes read per call by device type: many times the size of caches."""
FREE_SHARE = 0.5
"""Share of the free memory that a measurement may take, so that a small GPU is measured too, with less."""
CALLS_AT_ONCE = {"cpu": 1, "cuda": 10, "mps": 10}
"""Calls per measurement by device type: waiting for a GPU takes time too."""
LIMIT_SECONDS = 1.0
"""Seconds spent on measuring each limit."""


def wait_for(device: torch.device) -> None:
    """Wait for the work that is queued on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def seconds_per_call(call: Callable[[], object], device: torch.device, least_seconds: float, least: int) -> list[float]:
    """Seconds per call, from at least `least` measurements over at least `least_seconds`, after two warm-up calls.

    On a GPU a measurement is the mean of several calls.
    """
    calls, taken = CALLS_AT_ONCE[device.type], list[float]()
    for _ in range(2):
        call()
    wait_for(device)
    begun = time.perf_counter()
    while len(taken) < least or time.perf_counter() - begun < least_seconds:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait_for(device)
        taken.append((time.perf_counter() - start) / calls)
    return taken


def matrix_rate(device: torch.device, dtype: torch.dtype, size: int | None = None) -> float:
    """FLOP/s of a product of two square random matrices in `dtype`, the best of several measurements."""
    n, free = size or MATRIX_SIZE[device.type], free_memory(device)
    while 3 * n**2 * dtype.itemsize > FREE_SHARE * free:  # two factors and a product
        n //= 2
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    return float(2 * n**3 / min(seconds_per_call(lambda: torch.mm(a, b), device, LIMIT_SECONDS, 8)))


def read_bandwidth(device: torch.device, size: int | None = None) -> float:
    """Bytes/s of reading the device's memory, the best of several measurements; on a GPU, copying is tried too."""
    tensors = 2 if device.type == "cuda" else 1
    count = min(size or READ_BYTES[device.type], int(FREE_SHARE * free_memory(device)) // tensors)
    values = torch.ones(count // 4, device=device)
    best = count / min(seconds_per_call(values.sum, device, LIMIT_SECONDS, 8))
    if device.type == "cuda":
        other = torch.empty_like(values)
        best = max(best, 2 * count / min(seconds_per_call(lambda: other.copy_(values), device, LIMIT_SECONDS, 8)))
    return float(best)
