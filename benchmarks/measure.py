"""Side-by-side measurements: several programs in one run on one machine, compared by ratio.

The programs take turns, so that a drift of the machine affects all of them, and the figures are medians. Absolute
figures mean little on shared machines.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from gptcli.bench import limits
from gptcli.report.machine import device_name

CPU = torch.device("cpu")
RESULTS = Path(__file__).parent / "results"
"""One JSON file per question, from which `benchmarks.page` generates docs/performance.md."""
PACKAGES = ("torch", "transformers", "tokenizers", "tiktoken", "ctranslate2", "xllamacpp", "numpy")


def alternate(competitors: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 2) -> dict[str, float]:
    """Median seconds of each competitor over `rounds` calls in turn, after `warm_up` calls that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in competitors}
    for turn in range(warm_up + rounds):
        for name, call in competitors.items():
            start = time.perf_counter()
            call()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def matrix_rate(dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> float:
    """FLOP/s of a square matrix product, the best of several."""
    return limits.matrix_rate(device, dtype)


def read_bandwidth(device: torch.device = CPU) -> float:
    """Bytes/s of memory reads with all threads, the best of several."""
    return limits.read_bandwidth(device)


def in_own_process(module: str, *arguments: str) -> Any:
    """The JSON output of a benchmark in a process of its own, whose peak memory includes nothing else."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def peak_memory() -> int:
    """Peak physical memory of this process in bytes, for `in_own_process`."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Not `ru_maxrss`, which on Linux includes the memory of the parent when it started this process.
    return held_by("self")


def held_by(process: int | Literal["self"]) -> int:
    """Peak physical memory of a process in bytes so far; 0 if the system does not report it."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def machine(device: torch.device = CPU) -> dict[str, Any]:
    """The machine and the package versions of a measurement."""
    return {
        "processor": device_name(device),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "date": datetime.date.today().isoformat(),
    }


def save(name: str, result: Mapping[str, Any], device: torch.device = CPU) -> None:
    """Write the result of one question to `RESULTS`, and print it."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(device), **result}, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(text + "\n")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
