"""Measuring side by side: figures of one run on one machine, compared by ratio.

Competitors take turns, so that a drift of the machine meets all of them; medians are quoted. Absolute figures mean
little on machines that others share.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
"""One JSON file for each question, from which `benchmarks.page` writes docs/performance.md."""


def alternate(competitors: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 2) -> dict[str, float]:
    """Median seconds of each competitor, called in turn `rounds` times after `warm_up` calls that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in competitors}
    for turn in range(warm_up + rounds):
        for name, call in competitors.items():
            start = time.perf_counter()
            call()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def matrix_rate(dtype: torch.dtype = torch.float32, size: int = 2048) -> float:
    """FLOP/s of a square matrix product, the best of several."""
    a, b = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
    return 2 * size**3 / min(_seconds(lambda: a @ b) for _ in range(12))


def read_bandwidth(megabytes: int = 512) -> float:
    """Bytes/s of reading memory with all threads, the best of several."""
    values = torch.ones(megabytes << 18)
    return values.numel() * 4 / min(_seconds(values.sum) for _ in range(8))


def machine() -> dict[str, Any]:
    """What the figures were measured on, and with."""
    packages = ("torch", "transformers", "tokenizers", "xllamacpp", "numpy")
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "date": datetime.date.today().isoformat(),
    }


def save(name: str, result: Mapping[str, Any]) -> None:
    """Write the result of one question, and show it."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), **result}, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(text + "\n")


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
