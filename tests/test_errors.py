"""Numbers in words, and recognizing a lack of memory."""

from __future__ import annotations

import pytest
import torch

from gptcli.errors import duration, is_out_of_memory, size

CUBLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
MPS = "MPS backend out of memory (MPS allocated: 1.0 GB, other allocations: 1.0 GB, max allowed: 2.0 GB)."
CPU = (
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8"
)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError(),
        torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        *map(RuntimeError, (CUBLAS, MPS, CPU)),
    ],
)
def test_a_lack_of_memory_is_recognized(error: BaseException) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
        torch.AcceleratorError("CUDA error: device-side assert triggered"),
        RuntimeError("out of resource: shared memory, Required: 131072, Hardware limit: 101376."),
        OSError(28, "No space left on device"),
    ],
)
def test_other_failures_are_not(error: BaseException) -> None:
    assert not is_out_of_memory(error)


def test_torch_really_says_so_on_a_cpu() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.int8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (75_776, "75.8 kB"),
        (999_400, "999 kB"),
        (999_600, "1,000 kB"),
        (5_000_000, "5 MB"),
        (29_700_000, "29.7 MB"),
        (1_030_000_000, "1.03 GB"),
        (137_000_000_000, "137 GB"),
        (2_500_000_000_000, "2.5 TB"),
    ],
)
def test_sizes(count: int, words: str) -> None:
    assert size(count) == words


def test_durations_in_words() -> None:
    seconds = (0.2, 45, 60, 165, 3600, 24_000, 86_400, 200_000)
    words = ["1 s", "45 s", "1 min", "2 min 45 s", "1 h", "6 h 40 min", "1 day", "2 days 7 h"]
    assert [duration(one) for one in seconds] == words
