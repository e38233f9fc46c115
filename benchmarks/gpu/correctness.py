"""The checks of tests/gpu, one file after another, each in a process of its own.

A kernel that reads a wrong address takes its process along, so that the other files must not share it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.gpu.report import Report

ROOT = Path(__file__).parents[2]
CHECKS = ROOT / "tests" / "gpu"
LAST = ("test_commands.py", "test_memory.py")
"""Files that take minutes, since they start many processes."""
SUCCESS, NOTHING_CHOSEN = 0, 5
"""pytest's exit codes."""
REPORT_VARIABLE = "GPTCLI_GPU_REPORT"
"""Environment variable that names the folder of the report to which tests/gpu/conftest.py adds each result."""


def check(report: Report, device: torch.device, only: str, deadline: float) -> bool:
    """Run the checks on a device until the deadline, a reading of `time.monotonic`; whether all of them succeeded."""
    problems: dict[str, str] = {}
    for file in sorted(CHECKS.glob("test_*.py"), key=lambda file: (file.name in LAST, file.name)):
        left = deadline - time.monotonic()
        code = _run(file, report, device, only, left) if left > 0 else None
        report.reload()
        if code is None:
            problems[file.name] = "not finished: out of time"
        elif code not in (SUCCESS, NOTHING_CHOSEN):
            problems[file.name] = f"pytest ended with exit code {code}"
        report.put("problems", problems)
    return not problems


def _run(file: Path, report: Report, device: torch.device, only: str, seconds: float) -> int | None:
    """The exit code of pytest, or None if it took longer."""
    mark = "gpu" if device.type == "cuda" else "not gpu"
    # Warnings of another torch or driver are shown, not errors.
    options = ["-m", mark, "-k", only, "-W", "default", "--tb=short", "-rfE", "-p", "no:cacheprovider"]
    environment = os.environ | {REPORT_VARIABLE: str(report.folder)}
    command = [sys.executable, "-m", "pytest", str(file), *options]
    # A session of its own, so that the commands that a check has started end with it.
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
