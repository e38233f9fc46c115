"""A campaign: many changed inputs for each target, each target in a process of its own.

    python -m tests.fuzz.campaign --inputs 100000 [TARGET...]

Each line says how many inputs were tried, accepted and refused, the processor seconds of the slowest, and by how much
the process grew. An error that is not ours, an input that takes longer than two seconds, memory beyond a gigabyte or
a file that is written ends it with exit 1, and with the number of the input: `--first NUMBER --inputs 1` repeats it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

MOST_SECONDS = 2.0
MOST_MEMORY = 1 << 30
MOST_FAILURES = 20


def main() -> int:
    """The command line: one target in this process, several in processes of their own, one after another."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    if len(options.targets) == 1:
        return campaign(options.targets[0], options.first, options.inputs)
    from tests.fuzz.targets import TARGETS

    command = [
        sys.executable,
        "-m",
        "tests.fuzz.campaign",
        "--inputs",
        str(options.inputs),
        "--first",
        str(options.first),
    ]
    return max(subprocess.run([*command, name], check=False).returncode for name in options.targets or TARGETS)


def campaign(name: str, first: int, inputs: int) -> int:
    """Try inputs number `first` and following on a target; 0 if all survived."""
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "RUST_BACKTRACE": "0"}
    import torch

    from tests.fuzz.checking import survives
    from tests.fuzz.targets import TARGETS

    torch.set_num_threads(1)
    accepted, slowest, failures, start = 0, (0.0, first), 0, time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        target = TARGETS[name](Path(folder) / name)
        survives(target, Random(0))  # memory of modules that are loaded at first use does not count
        grown = _peak_memory()
        _limit_memory()
        for number in range(first, first + inputs):
            began = time.process_time()
            try:
                accepted += survives(target, Random(f"{name} {number}"))
            except BaseException as error:  # all of them are collected; Ctrl-C ends
                if isinstance(error, KeyboardInterrupt):
                    raise
                failures += 1
                _tell("".join([f"{name}: input {number} failed\n", *traceback.format_exception(error)]))
                if failures == MOST_FAILURES:
                    break
            slowest = max(slowest, (time.process_time() - began, number))
    if slowest[0] > MOST_SECONDS:
        failures += 1
    tried, minutes = number + 1 - first, (time.perf_counter() - start) / 60
    _tell(
        f"{name}: {tried:,} tried, {tried - failures:,} survived ({accepted:,} used, {tried - failures - accepted:,} "
        f"refused); slowest {slowest[0]:.2f} s (input {slowest[1]}); memory +{(_peak_memory() - grown) / 1e6:.0f} MB; "
        f"{minutes:.1f} minutes"
    )
    return 1 if failures else 0


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _limit_memory() -> None:
    """An allocation beyond this is a MemoryError, and so a failure."""
    status = Path("/proc/self/statm")
    if status.exists():
        mapped = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_MEMORY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    sys.exit(main())
