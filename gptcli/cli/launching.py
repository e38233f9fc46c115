"""Starting the processes of `gptcli train --devices N` with torchrun's launcher, and handing on signals and exit codes.

This process becomes the launcher. Rank 0 shows everything; its exit code becomes this one's. A process that ends as
intended, also by an error or a stop signal, exits with 0 for the launcher, which starts all again when one is lost.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from gptcli.errors import LostRank, UsageError
from gptcli.machine import cores
from gptcli.runs.launched import follows, has_launcher
from gptcli.signals import Stopped, heeded_signals
from gptcli.storage import scratch_folder

CHANNEL = "GPTCLI_LAUNCHER"
"""Environment variable with a folder in which rank 0 leaves its process id and its exit code for the launcher."""
COPIES_SECONDS = 1.0
"""Seconds in which a signal comes to rank 0 both from its sender and through the launcher."""
_PID, _EXIT_CODE = "pid", "exit-code"


def is_launched() -> bool:
    """Whether this is one of the processes that `launch` has started."""
    return CHANNEL in os.environ


def introduce() -> None:
    """Let the launcher know rank 0."""
    if is_launched() and not follows():
        (Path(os.environ[CHANNEL]) / _PID).write_text(str(os.getpid()))


def report_exit(code: int) -> int:
    """The code to exit with: `code`, or under our launcher 0, unless this rank failed in a way that a restart may mend.

    The launcher learns the code of rank 0.
    """
    if not is_launched() or code == LostRank.exit_code:
        return code
    if not follows():
        (Path(os.environ[CHANNEL]) / _EXIT_CODE).write_text(str(code))
    return 0


def launch(devices: str, max_restarts: int) -> int:
    """Run this command in several processes; the exit code of rank 0. Raises UsageError and LostRank."""
    if has_launcher():
        raise UsageError("torchrun says how many processes there are.", "Leave `devices` and `max_restarts` out.")
    processes = _number_of(devices)
    with scratch_folder() as folder:
        os.environ[CHANNEL] = str(folder)
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        sent: list[int] = []
        previous = {signum: signal.signal(signum, _handing_on(folder, sent)) for signum in heeded_signals()}
        try:
            return _run(folder, processes, max_restarts, sent)
        finally:
            for signum, handler in previous.items():
                signal.signal(signum, handler)
            del os.environ[CHANNEL]


def _number_of(devices: str) -> int:
    """The number of processes; raises UsageError for another word."""
    if devices == "all":
        import torch

        return max(1, torch.cuda.device_count())
    if not devices.isdecimal() or not 1 <= int(devices) <= 1024:
        raise UsageError(f"`devices` cannot be '{devices}'.", "Use a number from 1 to 1,024, or all.")
    return int(devices)


def _handing_on(folder: Path, sent: list[int]) -> Callable[[int, FrameType | None], None]:
    """A handler that hands signals on to rank 0: after the first one it saves and stops, the second one ends all."""

    def handle(signum: int, _frame: FrameType | None) -> None:
        sent.append(signum)
        with suppress(OSError, ValueError):
            os.kill(int((folder / _PID).read_text()), signum)
            if len(sent) == 1:
                return
        raise Stopped(signum)  # the launcher ends the processes that are left

    return handle


def _run(folder: Path, processes: int, max_restarts: int, sent: list[int]) -> int:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)  # the launcher's own reports
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=max_restarts,
        signals_to_handle="SIGQUIT",  # the others are handed on
        logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
    )
    try:
        elastic_launch(config, sys.executable)(*_command())
    except ChildFailedError as error:
        if sent:
            return 128 + sent[0]
        rank, failure = error.get_first_failure()
        if failure.exitcode == LostRank.exit_code:
            return failure.exitcode  # it has said why
        if failure.exitcode > 128:
            return int(failure.exitcode)  # a signal, before there was anything to save
        if failure.exitcode < 0:
            how = f"was ended by {signal.Signals(-failure.exitcode).name}"
        else:
            how = f"exited with code {failure.exitcode}"
        raise LostRank(f"The process of rank {rank} {how}.") from None
    return int((folder / _EXIT_CODE).read_text())


def _command() -> list[str]:
    """The arguments with which Python runs this command again."""
    program = ["-m", "gptcli"] if Path(sys.argv[0]).name == "__main__.py" else [sys.argv[0]]
    return [*program, *sys.argv[1:]]
