"""Resources of this machine: memory, cores, compiler."""

from __future__ import annotations

import importlib
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing it takes seconds
    import torch

_CGROUPS = Path("/sys/fs/cgroup")


def free_memory(device: torch.device) -> int:
    """Bytes that this process can still allocate on `device`.

    On Linux this is the kernel's estimate (MemAvailable), or the rest of the control groups' limits if that is less, so
    that a container's limit counts; on macOS, the free and reclaimable pages. On a GPU, memory that torch holds for its
    next tensors counts as free.
    """
    import torch

    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type == "mps":
        return max(0, torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    if sys.platform == "darwin":
        return _mac_free_memory(subprocess.run(["vm_stat"], capture_output=True, text=True, check=True).stdout)
    return min([_kilobytes(Path("/proc/meminfo"), "MemAvailable"), *_cgroup_room(Path("/proc/self/cgroup"), _CGROUPS)])


def total_memory(device: torch.device) -> int:
    """Total bytes of memory of `device`."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def process_memory(device_type: str, *, trains: bool) -> int:
    """Resident bytes of this process (macOS: their peak), the base of a peak on a CPU; 0 on other devices.

    Call it before a model is built. With `trains` it includes torch's compiler (80 MB), which AdamW imports at its
    first step.
    """
    if device_type != "cpu":
        return 0
    if trains:
        importlib.import_module("torch._dynamo")
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _kilobytes(Path("/proc/self/status"), "VmRSS")


def cores() -> int:
    """Processor cores that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def compiler() -> str | None:
    """Name of the C++ compiler for torch.compile; None if there is none."""
    return next((name for name in (os.environ.get("CXX"), "g++", "clang++") if name and shutil.which(name)), None)


def _kilobytes(file: Path, key: str) -> int:
    match = re.search(rf"^{key}:\s+(\d+) kB", file.read_text(), re.MULTILINE)
    assert match, f"{file} has no {key}"
    return int(match[1]) * 1024


def _cgroup_room(membership: Path, root: Path) -> list[int]:
    """Bytes left under each memory limit of the process's control groups and their parents."""
    room = []
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = base / path.lstrip("/")
        for folder in [group, *group.parents]:
            if folder.is_relative_to(base):
                room += _room_in(folder, *names)
    return room


def _room_in(group: Path, limit_name: str, usage_name: str, cache_name: str) -> list[int]:
    """Bytes left under one group's limit, [] if it has none. Cached file pages count as free: they can be dropped."""
    try:
        limit, usage = (group / limit_name).read_text().strip(), int((group / usage_name).read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return []  # the root group has no limit, and a container may not show its parents
    return [max(0, int(limit) - usage + int(statistics.get(cache_name, 0)))] if limit.isdecimal() else []


def _mac_free_memory(vm_stat: str) -> int:
    """Bytes of free, inactive, speculative and purgeable pages in the output of macOS's `vm_stat`."""
    page = re.search(r"page size of (\d+) bytes", vm_stat)
    pages = re.findall(r"^Pages (?:free|inactive|speculative|purgeable):\s+(\d+)\.", vm_stat, re.MULTILINE)
    return (int(page[1]) if page else 4096) * sum(map(int, pages))
