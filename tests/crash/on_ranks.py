"""The command line on several ranks, of which some get a signal when rank 0 enters a phase of its work.

    ON_RANKS='PHASE CALL SIGNAL TARGETS' python tests/crash/on_ranks.py train book.txt … --devices 2

`TARGETS` are ranks and `launcher`, with commas between them. The signal is sent once, also where the launcher starts
the processes again. Each process leaves its id in the working folder.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from unittest import mock

sys.path[0] = str(Path(__file__).parents[2])  # in place of this file's folder

from gptcli.__main__ import main  # noqa: E402
from gptcli.runs.pace import Pace  # noqa: E402
from tests.crash.signalled import watch  # noqa: E402

PHASES = {
    "an update": "gptcli.training.ranks.GradientSums.finish",
    "saving": "gptcli.runs.saving.save_checkpoint",
    "best weights": "gptcli.runs.saving.replace_weights",
    "an evaluation": "gptcli.training.trainer.evaluation_batches",
    "a sharded update": "gptcli.training.sharding.Shards.finish",
    "gathering": "gptcli.training.sharding.Shards.gathered",
    "the end": "gptcli.runs.followers.end_followers",
}
"""The functions with which phases begin on rank 0."""


SECONDS_TO_HEAR = 3.0
"""Time in which rank 0 hears of a signal to another process; the training would be done before."""


def process_file(process: str) -> Path:
    """The file with the id of a process, a rank or `launcher`."""
    return Path(f"process-{process}")


def send(signum: int, targets: list[str]) -> None:
    """Send a signal to processes, once; this one comes last."""
    sent = Path("sent")
    if not sent.exists():
        sent.touch()
        for pid in sorted((int(process_file(target).read_text()) for target in targets), key=os.getpid().__eq__):
            os.kill(pid, signum)
        if signum != signal.SIGKILL:
            time.sleep(SECONDS_TO_HEAR)


if __name__ == "__main__":
    process_file(os.environ.get("RANK", "launcher")).write_text(str(os.getpid()))
    if os.environ.get("RANK") == "0":
        mock.patch("gptcli.runs.completion.measure_pace", return_value=Pace(0.001)).start()
    if os.environ.get("RANK") == "0" and "ON_RANKS" in os.environ:
        phase, call, name, targets = os.environ["ON_RANKS"].rsplit(" ", 3)
        watch(PHASES[phase], int(call), lambda: send(signal.Signals[name], targets.split(",")))
    main()
