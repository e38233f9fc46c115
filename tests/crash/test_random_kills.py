"""Killed up to three times at random moments, and run again: the end is that of an undisturbed run."""

from __future__ import annotations

import random
import signal
import time

import pytest

from tests.conftest import CommandLine
from tests.crash.sessions import TRAIN, Sessions

RUNS = 200
COMMAND_RUNS = 40
"""Number of runs of the command line itself, which imports for seconds; the others are forked."""
SAMPLED = 5
SLICES = 8
MOST_KILLS = 3
LONGEST = 0.6
"""Seconds in which a session of the fork server does most of its work."""
LONGEST_COMMAND = 5.0
"""The same of the command line."""


def check_kills(sessions: Sessions, seed: int) -> None:
    chance = random.Random(seed)
    folder = sessions.new()
    for _ in range(chance.randint(1, MOST_KILLS)):
        status = sessions.server.run(folder, kill_after=chance.uniform(0, LONGEST), in_thread=seed % 2 == 1)
        assert status in (-signal.SIGKILL, 0)
    sessions.resume(folder)
    sessions.check_end(folder)
    sessions.done_with(folder)


def check_command(sessions: Sessions, seed: int) -> None:
    chance, folder = random.Random(seed), sessions.new()
    for _ in range(chance.randint(1, MOST_KILLS)):
        process = CommandLine(folder).start(*TRAIN)
        time.sleep(chance.uniform(0, LONGEST_COMMAND))
        process.kill()
        process.communicate()
        assert process.returncode in (-signal.SIGKILL, 0)
    sessions.resume(folder)
    sessions.check_end(folder)
    sessions.done_with(folder)


@pytest.mark.parametrize("seed", range(SAMPLED))
def test_the_command_line(sessions: Sessions, seed: int) -> None:
    check_command(sessions, seed)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(SLICES))
def test_many_runs_of_the_command_line(sessions: Sessions, part: int) -> None:
    for seed in range(SAMPLED + part, COMMAND_RUNS, SLICES):
        check_command(sessions, seed)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(SLICES))
def test_many_forked_runs(sessions: Sessions, part: int) -> None:
    for seed in range(COMMAND_RUNS + part, RUNS, SLICES):
        check_kills(sessions, seed)
