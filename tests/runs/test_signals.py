"""Ctrl-C and SIGTERM, from outside: saved, told how to go on, and going on exactly."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gptcli.checkpoints.checkpoint import read_progress
from gptcli.dataset.folder import open_dataset
from gptcli.runs.events import RunFinished
from gptcli.runs.interrupt import graceful_stop
from tests.conftest import ROOT, CommandLine
from tests.runs.small_runs import FLAGS, assert_same_end, lines, run, small_dataset, without_times

LONG = {"optim.schedule": "constant", "train.max_steps": 10**8, "train.eval_every": 100, "train.save_every": 100}
"""More steps than there is time for, so that no signal comes too late; the learning rate does not depend on them."""
OPTIONS = ["--preset", "nano", "--family", "gpt2", *(f"--set={key}={value}" for key, value in (FLAGS | LONG).items())]


def wait_for(condition: object, process: subprocess.Popen[str]) -> None:
    """Until the condition holds; a process that ends before that fails the test."""
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


def test_stopped_by_each_signal_and_gone_on_exactly(cli: CommandLine, corpus: str) -> None:
    """The command that is printed goes on; the end is that of a run that was left alone."""
    (cli.folder / "book.txt").write_text(corpus[:3000])
    command = ["train", "book.txt", "-o", "run", *OPTIONS]
    code, out, err = interrupt(cli, command, signal.SIGINT)
    assert (code, out) == (130, "")
    assert "Stopping: saving first. Once more ends at once." in err
    assert "saved." in err
    going_on = shlex.split(err.split("Go on with: ")[1])
    assert going_on == ["gptcli", *command]
    code, out, err = interrupt(cli, going_on[1:], signal.SIGTERM)
    assert (code, out) == (143, "")
    assert "Resuming 'run' at step" in err
    code, out, err = interrupt(cli, going_on[1:], signal.SIGHUP)  # the terminal was closed
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
    """The update that was begun leaves no trace, dropout's random numbers included: 4 asks belong to each update."""
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
from gptcli.runs.interrupt import graceful_stop

with graceful_stop(lambda: print("heard", flush=True)) as received:
    os.kill(os.getpid(), signal.SIGINT)
    print(received(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("still here", flush=True)
"""


def test_a_second_signal_ends_at_once() -> None:
    """In a process of its own, which it ends; whatever runs at that moment does not go on."""
    done = subprocess.run([sys.executable, "-c", SECOND_SIGNAL], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "heard\n2\n", "")


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
    with graceful_stop(lambda: None) as received:
        assert received() == 0
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)] == before
