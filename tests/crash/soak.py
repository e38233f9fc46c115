"""One run for an hour: trained, killed, resumed, sampled from and inspected, over and over.

    python -m tests.crash.soak --minutes 60

Each round raises the number of steps of the same run, kills the command at random moments, lets it end, and uses the
result. The same commands also run repeatedly inside one process, whose memory and open files are measured. At the end
the run must equal an undisturbed one, bit for bit. The figures are printed as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from typer.testing import CliRunner

from gptcli.checkpoints.checkpoint import newest_checkpoint
from gptcli.cli.app import app
from tests.conftest import CommandLine
from tests.runs.small_runs import assert_same_end, lines, without_times

ROUND_STEPS = 400
"""A multiple of every interval below, so that the end of a round adds nothing to an undisturbed run."""
LATEST_KILL = 6.0
"""Seconds; import, a round of training and its saves take less on most machines."""
LONGEST = 6 * 3600.0
"""Seconds for one command: a machine may be put to sleep in between."""
MOST_GROWTH = 0.05
"""Share by which memory may differ between the middle and the end, since allocators fluctuate."""
RUN_NAMES = re.compile(
    r"config\.json|generation_config\.json|gptcli\.toml|manifest\.json|metrics\.jsonl|model\.safetensors|README\.md"
    r"|tokenizer\.json|tokenizer_config\.json|events\.out\.tfevents\..+|checkpoints|checkpoints/step-[0-9]{8}"
    r"|checkpoints/step-[0-9]{8}/(model\.safetensors|optimizer\.safetensors|state\.json|manifest\.json)"
)


def training(out: str, steps: int) -> list[str]:
    return [
        *("train", "book.txt", "-o", out, "--preset", "nano", "--n-layer", "1", "--n-head", "2", "--n-embd", "16"),
        *("--block-size", "16", "--dropout", "0.1", "--batch-size", "4", "--micro-batch-size", "4"),
        *(
            "--schedule",
            "constant",
            "--set",
            "optim.warmup_steps=20",
            "--eval-every",
            "100",
            "--save-every",
            "40",
            "--log-every",
            "20",
        ),
        *("--max-steps", str(steps), "--device", "cpu", "--dtype", "float32", "--quiet"),
    ]


def using(out: str) -> list[list[str]]:
    """The commands that people use on a run."""
    return [["sample", out, "-n", "50", "--seed", "1", "-q"], ["inspect", out, "--json"], ["inspect", "book.txt"]]


class Soak:
    """One folder, one run, and the counts."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        source = Path(asyncio.__file__).with_name("base_events.py").read_text(encoding="utf-8")
        (folder / "book.txt").write_text(source[:8000], encoding="utf-8")
        self.gptcli = CommandLine(folder)
        self.kills: dict[str, int] = {}
        self.commands = 0
        self.rounds = 0
        self.memory: list[int] = []
        """Bytes of this process after each round."""
        self.open_files: list[int] = []
        self.threads: list[int] = []

    def round(self) -> None:
        """Kill, resume, use and check the run."""
        self.rounds += 1
        command = training("runs/long", self.rounds * ROUND_STEPS)
        for _ in range(self.chance.randint(1, 3)):
            self.interrupt(command)
        self.run(command)
        for one in using("runs/long"):
            self.run(one)
        self.look_for_strays()
        self.inside()

    def interrupt(self, command: list[str]) -> None:
        signum = self.chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        before = self.newest_step()
        process = self.gptcli.start(*command)
        self.commands += 1
        time.sleep(self.chance.uniform(0.05, LATEST_KILL))
        process.send_signal(signum)
        out, err = process.communicate()
        killed = {signal.SIGKILL: -9}.get(signum, 128 + signum)
        # Before Python runs the program, a signal has its default action.
        assert process.returncode in (killed, -signum, 0), f"exit {process.returncode} after {signum!r}: {out}{err}"
        assert "Traceback" not in err or process.returncode == -signal.SIGINT, err
        if process.returncode:
            self.kills[signum.name] = self.kills.get(signum.name, 0) + 1
        assert self.newest_step() >= before, "a checkpoint is gone"

    def newest_step(self) -> int:
        checkpoint, skipped = newest_checkpoint(self.folder / "runs/long")
        assert skipped == {}, skipped
        return checkpoint.progress.step if checkpoint else 0

    def run(self, command: list[str]) -> None:
        self.commands += 1
        done = self.gptcli(*command, timeout=LONGEST)
        assert done.code == 0, f"{command}: exit {done.code}: {done.stderr}"
        assert done.stdout, f"{command} said nothing"

    def inside(self) -> None:
        """The same in this process: a new run, one that resumes, and their use."""
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            for command in [training("runs/inside", 40), training("runs/inside", 80), *using("runs/inside")]:
                result = CliRunner().invoke(app, command)
                assert result.exit_code == 0, f"{command}: {result.output}"
        finally:
            os.chdir(here)
        run = self.folder / "runs/inside"
        for path in sorted(run.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        run.rmdir()
        self.memory.append(resident_bytes())
        self.open_files.append(len(os.listdir("/proc/self/fd")))
        self.threads.append(len(os.listdir("/proc/self/task")))

    def look_for_strays(self) -> None:
        run = self.folder / "runs/long"
        names = [str(path.relative_to(run)) for path in run.rglob("*")]
        strays = [name for name in names if not RUN_NAMES.fullmatch(name)]
        assert strays == [], strays
        assert sum(name.count("/") == 1 for name in names) == 2, "two checkpoints are kept"
        assert {path.name for path in self.folder.iterdir()} == {"book.txt", "data", "runs"}
        assert [path.name for path in (self.folder / "runs").iterdir()] == ["long"]
        assert len(list((self.folder / "data").iterdir())) == 1

    def compare(self) -> None:
        """Fails unless the run that was killed equals an undisturbed one."""
        self.run(training("runs/whole", self.rounds * ROUND_STEPS))
        one, other = self.folder / "runs/long", self.folder / "runs/whole"
        assert_same_end(one, other)
        assert [without_times(line) for line in lines(one)] == [without_times(line) for line in lines(other)]
        assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()

    def figures(self) -> dict[str, Any]:
        """The counts, and memory in the middle of the second quarter of the rounds and of the last quarter."""
        quarter = max(1, self.rounds // 4)
        growth = {}
        for name in ("memory", "open_files", "threads"):
            values = getattr(self, name)
            growth[name] = [median(values[quarter : 2 * quarter] or values), median(values[-quarter:])]
        return {
            "rounds": self.rounds,
            "commands": self.commands,
            "kills": self.kills,
            "steps": self.rounds * ROUND_STEPS,
            "largest_command_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
            **growth,
        }


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), options.seed)
        while time.monotonic() < end:
            soak.round()
            print(json.dumps(soak.figures()), flush=True)  # noqa: T201 - this is a program
        soak.compare()
    figures = soak.figures()
    assert figures["open_files"][1] <= figures["open_files"][0], "open files grow"
    assert figures["threads"][1] <= figures["threads"][0], "threads grow"
    assert figures["memory"][1] <= (1 + MOST_GROWTH) * figures["memory"][0], "memory grows"
    print("survived", json.dumps(figures))  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
