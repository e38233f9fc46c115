"""`gptcli train --devices 2` in processes of its own, some of which are killed or stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import ROOT
from tests.crash.sessions import RUN, TRAIN

__all__ = ["RUN", "alive", "processes", "train"]

PROCESSES = ("launcher", "0", "1")
SECONDS_TO_END = 60.0
"""Longest time that processes may take to end after the one that was waited for."""


def train(folder: Path, on_ranks: str = "", *options: str) -> subprocess.CompletedProcess[str]:
    """Train on two ranks to the end; `on_ranks` says what is sent to whom, as in `tests.crash.on_ranks`."""
    (folder / "sent").unlink(missing_ok=True)
    base = {name: value for name, value in os.environ.items() if name != "ON_RANKS"}
    environment = base | {"PYTHONPATH": str(ROOT)} | ({"ON_RANKS": on_ranks} if on_ranks else {})
    command = [sys.executable, str(ROOT / "tests/crash/on_ranks.py"), *TRAIN, "--devices", "2", *options]
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def processes(folder: Path) -> dict[str, int]:
    """The ids of the processes of the last training, by rank."""
    return {process: int((folder / f"process-{process}").read_text()) for process in PROCESSES}


def alive(folder: Path) -> list[str]:
    """The processes of the last training that do not end."""
    left = processes(folder)
    end = time.monotonic() + SECONDS_TO_END
    while left and time.monotonic() < end:
        left = {process: pid for process, pid in left.items() if _runs(pid)}
        time.sleep(0.2)
    return [*left]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"  # nobody may wait for it
