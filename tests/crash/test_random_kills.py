"""Killed up to three times at random moments, and run again: the end is that of a run which nothing disturbed."""

from __future__ import annotations

import random
import signal
import time

import pytest

from tests.conftest import CommandLine
from tests.crash.sessions import TRAIN, Sessions

RUNS = 200
SLICES = 8
LONGEST = 0.6
"""Seconds in which a session of the fork server has done most of its work."""


def check_kills(sessions: Sessions, seed: int) -> None:
    chance = random.Random(seed)
    folder = sessions.new()
    for _ in range(chance.randint(1, 3)):
        assert sessions.server.run(folder, kill_after=chance.uniform(0, LONGEST)) in (-signal.SIGKILL, 0)
    sessions.go_on(folder)
    sessions.check_end(folder)
    sessions.done_with(folder)


def test_some_runs(sessions: Sessions) -> None:
    for seed in range(3):
        check_kills(sessions, seed)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(SLICES))
def test_many_runs(sessions: Sessions, part: int) -> None:
    for seed in range(part, RUNS, SLICES):
        check_kills(sessions, seed)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(5))
def test_the_installed_command(sessions: Sessions, seed: int) -> None:
    """Without the fork server: a kill may also come while Python still imports."""
    chance, folder = random.Random(seed), sessions.new()
    gptcli = CommandLine(folder)
    for _ in range(3):
        process = gptcli.start(*TRAIN)
        time.sleep(chance.uniform(1, 6))
        process.kill()
        process.communicate()
    assert gptcli(*TRAIN).code == 0
    sessions.check_end(folder)
