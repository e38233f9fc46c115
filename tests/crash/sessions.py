"""Small trainings in processes of their own, and the checks at their end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from gptcli.checkpoints.checkpoint import newest_checkpoint
from gptcli.checkpoints.model_folder import checkpoint_steps
from gptcli.generation.loaded_model import open_model
from gptcli.storage import REPLACED_SUFFIX, TEMPORARY_SUFFIX, UNFINISHED_SUFFIX
from tests.conftest import ROOT
from tests.crash.disk import CHANGING, Operation
from tests.crash.watching import read_record
from tests.runs.small_runs import assert_same_end, end_state, lines, without_times

SAVE_EVERY = 3
STEPS = 12
TRAIN = [
    *("train", "book.txt", "--preset", "nano", "--n-layer", "1", "--n-head", "2", "--n-embd", "16"),
    *("--block-size", "16", "--dropout", "0.1", "--batch-size", "4", "--micro-batch-size", "4"),
    *("--max-steps", str(STEPS), "--eval-every", "4", "--save-every", str(SAVE_EVERY), "--log-every", "1"),
    *("--device", "cpu", "--dtype", "float32", "--quiet"),
]
RUN = Path("runs/book")
TEXT_CHARACTERS = 4000


class ForkServer:
    """`server.run(folder, ...)` → exit code of one gptcli process."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds a text to warm up with."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.server", str(folder)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def run(self, folder: Path, *, arguments: list[str] | None = None, **job: Any) -> int:
        """`job` may have `watch`, `sabotage`, `in_thread`, `file_size` (the largest file, in bytes) and `kill_after`
        (seconds).
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"folder": str(folder), "arguments": arguments or TRAIN, **job}) + "\n")
        self._process.stdin.flush()
        status: int = json.loads(self._process.stdout.readline())["status"]
        return status

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Sessions:
    """Folders for sessions, and an undisturbed run to compare with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self.server = ForkServer(self.new())

    def new(self) -> Path:
        """A folder with nothing but the text."""
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        source = Path(asyncio.__file__).with_name("base_events.py")
        (folder / "book.txt").write_text(source.read_text(encoding="utf-8")[:TEXT_CHARACTERS], encoding="utf-8")
        return folder

    def copy(self, of: Path) -> Path:
        """A copy of a session's folder."""
        self._number += 1
        return Path(shutil.copytree(of, self._folder / str(self._number), symlinks=True))

    def record(self, folder: Path, *, kill_at: int = -1, **job: Any) -> list[Operation]:
        """The operations of a command on the disk, to its end or until it is killed before a change."""
        with tempfile.NamedTemporaryFile() as file:
            watch = {"name": "record", "options": {"file": file.name, "kill_at": kill_at}}
            status = self.server.run(folder, watch=watch, **job)
            assert status == (0 if kill_at == -1 else -signal.SIGKILL), f"exit {status}: {said(folder)}"
            return read_record(file.name)

    def done_with(self, folder: Path) -> None:
        shutil.rmtree(folder)

    @cached_property
    def whole(self) -> Path:
        """The folder of an undisturbed run."""
        folder = self.new()
        self.resume(folder)
        return folder

    def resume(self, folder: Path, **job: Any) -> None:
        """The same command once more, which must succeed."""
        status = self.server.run(folder, **job)
        assert status == 0, f"exit {status}: {said(folder)}"

    def check_end(self, folder: Path, stopped_at: int = 0) -> None:
        """Fails unless the run ended as the undisturbed one did, with nothing half-written left.

        `stopped_at` is the step of the checkpoint that a stop saved; it may be one of those that are kept.
        """
        run, whole = folder / RUN, self.whole / RUN
        assert_same_end(run, whole)
        assert [without_times(line) for line in lines(run)] == [without_times(line) for line in lines(whole)]
        assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
        assert checkpoint_steps(run) == sorted({stopped_at, *checkpoint_steps(whole)})[-2:]
        assert leftovers(folder) == []
        assert f"| steps | {STEPS} of {STEPS} |" in (run / "README.md").read_text(encoding="utf-8")
        open_model(run)


def changes(operations: list[Operation]) -> list[Operation]:
    """The operations that change something, by which kills are numbered."""
    return [operation for operation in operations if operation.kind in CHANGING]


def said(folder: Path) -> str:
    """The output of the last session in a folder."""
    return (folder / "output.txt").read_text(encoding="utf-8")


def leftovers(folder: Path) -> list[Path]:
    found = (path.relative_to(folder) for path in folder.rglob(".*"))
    suffixes = (TEMPORARY_SUFFIX, REPLACED_SUFFIX, UNFINISHED_SUFFIX, f"{UNFINISHED_SUFFIX}.json")
    return [path for path in found if path.name.endswith(suffixes)]


def newest_step(run: Path, damaged: int = -1) -> int:
    """The step of the newest checkpoint. Fails if a resume would find a damaged one other than `damaged`."""
    checkpoint, skipped = newest_checkpoint(run)
    assert skipped.keys() <= {damaged}, skipped
    return checkpoint.progress.step if checkpoint else 0


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    """Weights, optimizer and random state of the newest checkpoint."""
    return end_state(run)[1]
