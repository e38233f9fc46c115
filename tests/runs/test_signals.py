"""Signals: the training is saved, the command that resumes it is printed, and it resumes exactly."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gptcli.checkpoints.checkpoint import read_progress
from gptcli.cli.graceful_stop import GracefulStop
from gptcli.dataset.folder import open_dataset
from gptcli.runs.events import RunFinished
from tests.conftest import ROOT, CommandLine
from tests.runs.small_runs import FLAGS, assert_same_end, lines, run, small_dataset, without_times

LONG = {
    "optim.schedule": "constant",
    "train.max_steps": 10**8,
    "train.compile": "off",
    "train.eval_every": 100,
    "train.save_every": 100,
}
"""More steps than there is time for, so that no signal comes too late; the learning rate does not depend on them."""
OPTIONS = ["--preset", "nano", "--family", "gpt2", *(f"--set={key}={value}" for key, value in (FLAGS | LONG).items())]


def wait_for(condition: object, process: subprocess.Popen[str]) -> None:
    """Wait until the condition holds; fails if the process ends before."""
    deadline = time.monotonic() + 100
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def interrupt(cli: CommandLine, arguments: list[str], signum: int) -> tuple[int, str, str]:
    """Start a training, send the signal once it has logged some steps; exit code, stdout, stderr."""
    log = cli.folder / "run/metrics.jsonl"
    log.unlink(missing_ok=True)
    process = cli.start(*arguments)
    wait_for(lambda: log.exists() and log.read_bytes().count(b"\n") >= 5, process)
    process.send_signal(signum)
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def test_stopped_by_each_signal_and_resumed_exactly(cli: CommandLine, corpus: str) -> None:
    """The printed command resumes; the end is that of an undisturbed run."""
    (cli.folder / "book.txt").write_text(corpus[:3000])
    command = ["train", "book.txt", "-o", "run", *OPTIONS]
    code, out, err = interrupt(cli, command, signal.SIGINT)
    assert (code, out) == (130, "")
    assert "Ctrl-C again" in err
    assert "saved" in err
    resuming = shlex.split(err.split("Resume with: ")[1])
    assert resuming == ["gptcli", *command]
    code, out, err = interrupt(cli, resuming[1:], signal.SIGTERM)
    assert (code, out) == (143, "")
    assert "Resuming 'run' at step" in err
    code, out, err = interrupt(cli, resuming[1:], signal.SIGHUP)  # the terminal was closed
    assert (code, out) == (129, "")
    [data] = (cli.folder / "data").glob("book-*")
    progress = read_progress(cli.folder / "run")
    assert progress is not None
    for path in (cli.folder / "run", cli.folder / "whole"):
        run(open_dataset(data), path, LONG | {"train.max_steps": progress.step + 50})
    assert_same_end(cli.folder / "run", cli.folder / "whole")
    whole = [without_times(line) for line in lines(cli.folder / "whole")]
    parts = [without_times(line) for line in lines(cli.folder / "run")]  # those of the first session were removed
    assert parts == whole[-len(parts) :]


@pytest.mark.parametrize("asked", range(4, 8))
def test_stopped_between_micro_batches(tmp_path: Path, corpus: str, asked: int) -> None:
    """The abandoned update leaves no trace, not even in dropout's random numbers; each update asks 4 times."""
    dataset = small_dataset(tmp_path, corpus[:3000])
    flags = {"train.micro_batch_size": 1, "train.max_steps": 6, "train.save_every": 3, "train.eval_every": 3}
    events = run(dataset, tmp_path / "run", flags, stop_after=asked)
    assert isinstance(events[-1], RunFinished)
    assert (events[-1].stopped, events[-1].step) == ("interrupted", 1)
    for path in (tmp_path / "run", tmp_path / "whole"):
        run(dataset, path, flags)
    assert_same_end(tmp_path / "run", tmp_path / "whole")


SECOND_SIGNAL = """
import os, signal
from gptcli.cli.graceful_stop import GracefulStop

with GracefulStop(lambda: print("received", flush=True)) as stop:
    stop.arm()
    os.kill(os.getpid(), signal.SIGINT)
    print(stop.requested(), stop.signum, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("still here", flush=True)
"""


def test_a_second_signal_ends_at_once() -> None:
    """It ends the process, whatever runs at that moment."""
    done = subprocess.run([sys.executable, "-c", SECOND_SIGNAL], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "received\nTrue 2\n", "")


def test_handlers_are_restored() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]

    before = handlers()
    with GracefulStop(lambda: None) as stop:
        assert handlers() == before, "until training begins, signals end the process as usual"
        stop.arm()
        assert not stop.requested()
        assert not set(handlers()) & set(before)
    assert handlers() == before
