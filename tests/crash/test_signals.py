"""Ctrl-C once and twice, SIGTERM and SIGHUP, in each phase of the real command line.

The command ends with the exit code of the signal and no traceback, after saving; the same command then resumes to the
end of an undisturbed run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.crash.sessions import RUN, TRAIN, Sessions, leftovers, newest_step
from tests.crash.signalled import IMPORTED, PHASES
from tests.runs.small_runs import assert_same_end

SIGNALS = {
    "SIGINT": [signal.SIGINT],
    "SIGINT twice": [signal.SIGINT, signal.SIGINT],
    "SIGTERM": [signal.SIGTERM],
    "SIGHUP": [signal.SIGHUP],
}
DELAYS = (0.0, 0.004)
"""Seconds after which the signal arrives: at once, in a Python function, or a moment later, anywhere."""
SAVING = ("new run", "first step", "a step", "evaluation", "best weights", "saving", "retention")
"""Phases in which the first signal only asks to stop after a step and a save."""
WRITING = ("a step", "best weights", "saving", "retention")
"""Phases that are tried with a thread that writes, too."""
TRAINING = (*IMPORTED, "reading", "tokenizing", *SAVING)
COMPILED = [*TRAIN, "--compile", "on"]
SAMPLE = ["sample", str(RUN), "-n", "300", "--seed", "1", "--quiet"]


def run_signalled(
    prefix: list[str], folder: Path, phase: str, signums: list[signal.Signals], delay: float, arguments: list[str]
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with signals that arrive in a phase."""
    sent = ",".join(str(int(signum)) for signum in signums)
    command = [*prefix, sys.executable, "-m", "tests.crash.signalled", phase, str(delay), sent, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "inductor")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def signalled(folder: Path, phase: str, name: str, delay: float, arguments: list[str]) -> str:
    """The output of a command that ended by a signal; fails unless it ended properly."""
    sent = SIGNALS[name]
    done = run_signalled([], folder, phase, sent, delay, arguments)
    assert done.returncode == 128 + sent[0], f"exit {done.returncode}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    assert done.stdout == "" or arguments[0] == "sample", done.stdout
    return done.stderr


def check_training(sessions: Sessions, phase: str, name: str, delay: float, in_thread: bool = False) -> None:
    folder = sessions.new()
    text = signalled(folder, phase, name, delay, ["--in-thread", *TRAIN] if in_thread else TRAIN)
    if phase in SAVING and name != "SIGINT twice":
        assert "Stopped at step" in text, text
        assert "Resume with: gptcli train" in text
        assert (newest_step(folder / RUN) > 0) == (", saved." in text)
        assert leftovers(folder) == []
    saved = newest_step(folder / RUN)
    sessions.resume(folder)
    sessions.check_end(folder, stopped_at=saved)
    sessions.done_with(folder)


@pytest.mark.parametrize(
    ("phase", "name", "in_thread"),
    [
        ("import of torch", "SIGINT", False),
        ("tokenizing", "SIGTERM", False),
        ("a step", "SIGINT", False),
        ("saving", "SIGINT twice", False),
        ("retention", "SIGHUP", False),
        ("saving", "SIGINT", True),
        ("best weights", "SIGTERM", True),
        ("saving", "SIGINT twice", True),
    ],
)
def test_some_signals(sessions: Sessions, phase: str, name: str, in_thread: bool) -> None:
    check_training(sessions, phase, name, DELAYS[0], in_thread)


def test_nohup_keeps_its_word(sessions: Sessions) -> None:
    """A process started with SIGHUP ignored, as by `nohup`, ignores it in every phase."""
    folder = sessions.new()
    for phase in ("tokenizing", "a step"):
        done = run_signalled(["nohup"], folder, phase, [signal.SIGHUP], 0.0, TRAIN)
        assert (done.returncode, done.stdout) == (0, f"{RUN}\n"), done.stderr
        sessions.check_end(folder)
        shutil.rmtree(folder / "data")
        shutil.rmtree(folder / "runs")


@pytest.mark.campaign
@pytest.mark.parametrize("phase", TRAINING)
def test_every_signal_in(sessions: Sessions, phase: str) -> None:
    for name, delay, in_thread in product(SIGNALS, DELAYS, (False, True) if phase in WRITING else (False,)):
        try:
            check_training(sessions, phase, name, delay, in_thread)
        except AssertionError as error:
            error.add_note(f"{name} {delay} s after {phase} began{', in a thread' if in_thread else ''}")
            raise


@pytest.mark.campaign
@pytest.mark.parametrize("name", SIGNALS)
def test_every_signal_while_sampling(sessions: Sessions, name: str) -> None:
    for delay in DELAYS:
        signalled(sessions.whole, "sampling", name, delay, SAMPLE)


@pytest.mark.campaign
@pytest.mark.parametrize("name", SIGNALS)
def test_every_signal_while_compiling(sessions: Sessions, name: str) -> None:
    """Without a compiler nothing is compiled, and this phase does not exist."""
    if shutil.which("g++"):
        whole, folder = sessions.new(), sessions.new()
        sessions.resume(whole, arguments=COMPILED)
        for delay in (0.0, 1.0):
            signalled(folder, "compiling", name, delay, COMPILED)
        sessions.resume(folder, arguments=COMPILED)
        assert_same_end(folder / RUN, whole / RUN)


def test_every_phase_is_tried() -> None:
    assert {*TRAINING, "sampling", "compiling"} == {*IMPORTED, *PHASES}
