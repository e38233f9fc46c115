"""Settings of the process before training."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

from gptcli.training import runtime

FAULTS = """
import resource, sys, torch
from gptcli.training import runtime
if sys.argv[1] == "prepared":
    runtime.prepare(torch.device("cpu"), deterministic=False)
def take_and_free():
    blocks = [torch.ones(5_000_000) for _ in range(6)]
for _ in range(5):
    take_and_free()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    take_and_free()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Page faults of six blocks of 20 MB, allocated and freed five times."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of GNU's allocator")
def test_freed_memory_is_taken_again() -> None:
    faults = {}
    at_once = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "131072"}  # where to begin, whatever the allocator learns
    for how in ("prepared", "plain"):
        arguments = [sys.executable, "-c", FAULTS, how]
        done = subprocess.run(arguments, env=at_once, capture_output=True, text=True, check=True)
        faults[how] = int(done.stdout)
    assert faults["prepared"] < 0.2 * faults["plain"]


@pytest.mark.parametrize(
    ("capability", "deterministic", "precision"),
    [((8, 0), False, "high"), ((8, 0), True, "highest"), ((7, 5), False, "highest")],
)
def test_cuda_is_quick_or_the_same_every_time(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], deterministic: bool, precision: str
) -> None:
    called: list[object] = []
    gpu = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", {gpu: capability}.__getitem__)
    monkeypatch.setattr(torch.cuda, "set_device", called.append)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", called.append)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", called.append)
    monkeypatch.setattr(os, "environ", {})
    runtime.prepare(gpu, deterministic=deterministic)
    assert called == [gpu, precision, deterministic]
    assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) is deterministic
    assert runtime.trains_in_tf32(gpu, deterministic=deterministic) is (precision == "high")
