"""The command line on two ranks: it trains, stops as one process does, loses a rank, and resumes to the same end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.crash.sessions import Sessions, newest_step
from tests.ranks.commands import RUN, alive, train
from tests.runs.small_runs import assert_same_end, end_state


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    made = Sessions(tmp_path)
    yield made
    made.server.close()


def test_stopped_and_killed_it_ends_as_if_undisturbed(sessions: Sessions) -> None:
    whole, folder = sessions.new(), sessions.new()
    done = train(whole)
    assert (done.returncode, done.stdout) == (0, f"{RUN}\n"), done.stderr
    stopped = train(folder, "an update 5 SIGTERM 1")
    assert stopped.returncode == 143, stopped.stderr
    assert "Stopped at step" in stopped.stderr
    assert stopped.stdout == ""
    assert alive(folder) == []
    step = newest_step(folder / RUN)
    assert 5 <= step < 12
    alone = Path(shutil.copytree(folder, sessions.new() / "alone"))
    killed = train(folder, "saving 1 SIGKILL 1", "--max-restarts", "1")
    assert (killed.returncode, killed.stdout) == (0, f"{RUN}\n"), killed.stderr
    assert alive(folder) == []
    assert_same_end(folder / RUN, whole / RUN)
    # A training that leaves its second rank out rounds differently: the comparison is of bits.
    assert end_state(folder / RUN)[0]["progress"]["step"] == 12
    sessions.resume(alone)
    with pytest.raises(AssertionError):
        assert_same_end(alone / RUN, whole / RUN)


@pytest.mark.parametrize(("devices", "is_noted"), [([], False), (["--devices", "2"], True)])
def test_a_dry_run_plans_for_one_process(sessions: Sessions, devices: list[str], is_noted: bool) -> None:
    folder = sessions.new()
    options = ["--device", "cpu", "--preset", "nano", "--max-steps", "1", "--dry-run", *devices]
    command = [sys.executable, "-m", "gptcli", "train", "book.txt", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("one process" in done.stderr) is is_noted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--devices", "none"], "--devices"),
        (["--devices", "0"], "--devices"),
        (["--devices", "2", "--max-restarts", "1", "--resume", "never"], "--resume"),
        (["--devices", "2", "--batch-size", "1"], "--batch-size"),
    ],
)
def test_refusals_come_once(sessions: Sessions, options: list[str], words: str) -> None:
    folder = sessions.new()
    command = [sys.executable, "-m", "gptcli", "train", "book.txt", "--device", "cpu", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("Error:") == 1
    assert words in done.stderr
    assert not (folder / "runs").exists()
