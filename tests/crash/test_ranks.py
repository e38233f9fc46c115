"""Ranks of one training killed and stopped: no process stays, and the same command resumes to the same end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.crash.sessions import RUN, Sessions, leftovers, newest_step
from tests.ranks import commands
from tests.ranks.commands import alive, train
from tests.runs.small_runs import assert_same_end

KILLED = ("0", "1", "launcher", "0,1", "0,1,launcher")
STOPPED = ("0", "1", "launcher", "0,1", "0,1,launcher")
PHASES = {"an update": 5, "saving": 2, "best weights": 2, "an evaluation": 2}
"""The call of each phase at which the signal is sent."""
SHARDED = ("--parallel", "fsdp")
SHARDED_PHASES = {"a sharded update": 5, "gathering": 4, "an evaluation": 2}


@pytest.fixture(scope="module")
def whole(sessions: Sessions) -> Path:
    """The folder of an unbroken training on two ranks."""
    folder = sessions.new()
    assert train(folder).returncode == 0
    return folder


def check_resuming(sessions: Sessions, folder: Path, whole: Path) -> None:
    assert alive(folder) == []
    done = train(folder)
    assert done.returncode == 0, done.stderr
    assert_same_end(folder / RUN, whole / RUN)
    assert leftovers(folder) == []
    sessions.done_with(folder)


@pytest.mark.campaign
@pytest.mark.parametrize("targets", KILLED)
@pytest.mark.parametrize("phase", PHASES)
def test_killed(sessions: Sessions, whole: Path, phase: str, targets: str) -> None:
    folder = sessions.new()
    done = train(folder, f"{phase} {PHASES[phase]} SIGKILL {targets}")
    assert done.returncode == (-9 if "launcher" in targets else 75), done.stderr
    check_resuming(sessions, folder, whole)


@pytest.mark.campaign
@pytest.mark.parametrize("targets", ["0", "1", "0,1"])
@pytest.mark.parametrize("phase", PHASES)
def test_killed_and_started_again(sessions: Sessions, whole: Path, phase: str, targets: str) -> None:
    folder = sessions.new()
    done = train(folder, f"{phase} {PHASES[phase]} SIGKILL {targets}", "--max-restarts", "1")
    assert (done.returncode, done.stdout) == (0, f"{RUN}\n"), done.stderr
    assert alive(folder) == []
    assert_same_end(folder / RUN, whole / RUN)
    sessions.done_with(folder)


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("targets", STOPPED)
@pytest.mark.parametrize("phase", PHASES)
def test_stopped(sessions: Sessions, whole: Path, phase: str, targets: str, name: str) -> None:
    folder = sessions.new()
    done = train(folder, f"{phase} {PHASES[phase]} {name} {targets}")
    assert done.returncode == {"SIGTERM": 143, "SIGINT": 130}[name], done.stderr
    assert done.stderr.count("Stopped at step") == 1
    assert done.stderr.count("Resume with:") == 1
    assert newest_step(folder / RUN) > 0
    check_resuming(sessions, folder, whole)


@pytest.mark.campaign
@pytest.mark.parametrize("phase", SHARDED_PHASES)
def test_sharded_killed_and_stopped(sessions: Sessions, phase: str) -> None:
    """A killed rank is started again, and a stopped training resumes: bit for bit as if undisturbed."""
    whole, killed, stopped = sessions.new(), sessions.new(), sessions.new()
    assert train(whole, "", *SHARDED).returncode == 0
    when = f"{phase} {SHARDED_PHASES[phase]}"
    done = train(killed, f"{when} SIGKILL 1", *SHARDED, "--max-restarts", "1")
    assert (done.returncode, done.stdout) == (0, f"{RUN}\n"), done.stderr
    assert alive(killed) == []
    assert_same_end(killed / RUN, whole / RUN)
    assert train(stopped, f"{when} SIGTERM 1", *SHARDED).returncode == 143
    assert newest_step(stopped / RUN) > 0
    assert train(stopped, "", *SHARDED).returncode == 0
    assert_same_end(stopped / RUN, whole / RUN)
    for folder in (whole, killed, stopped):
        sessions.done_with(folder)


def test_control_a_process_that_stays_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SECONDS_TO_END", 0.5)
    with subprocess.Popen(["sleep", "60"]) as stays, subprocess.Popen(["true"]) as ends:
        for process, pid in (("launcher", ends.pid), ("0", ends.pid), ("1", stays.pid)):
            (tmp_path / f"process-{process}").write_text(str(pid))
        assert alive(tmp_path) == ["1"]
        stays.kill()
