"""The power fails: what was not flushed may be lost, cut off, zeroed, or there in another order."""

from __future__ import annotations

import random

import pytest

from tests.crash.disk import Operation
from tests.crash.power import PoweredDisk, saved_steps
from tests.crash.sessions import RUN, SAVE_EVERY, Sessions, newest_step
from tests.crash.watching import read_record

STATES = 400
SLICES = 8
SAMPLED = 30


def record(sessions: Sessions, *sabotage: str) -> list[Operation]:
    """What a training does to the disk, from the text to the last checkpoint."""
    folder = sessions.new()
    sessions.go_on(folder, watch={"name": "record", "options": {"file": "record"}}, sabotage=sabotage)
    return [operation for operation in read_record(folder / "record") if not operation.failed]


@pytest.fixture(scope="session")
def operations(sessions: Sessions) -> list[Operation]:
    return record(sessions)


def check_failure(sessions: Sessions, operations: list[Operation], seed: int) -> None:
    """One state after a power failure: what was saved is there, and training goes on to the same end."""
    chance = random.Random(seed)
    done = chance.randint(1, len(operations))
    disk = PoweredDisk()
    for operation in operations[:done]:
        disk.carry_out(operation)
    folder = sessions.new()
    disk.fail(folder, chance)
    saved = max((step for at, step in saved_steps(operations) if at <= done), default=0)
    try:
        assert newest_step(folder / RUN) >= saved, "a checkpoint that was saved is gone"
        sessions.go_on(folder)
        sessions.check_end(folder)
    except AssertionError as error:
        error.add_note(f"state {seed}: the power failed after {done} of {len(operations)} operations")
        raise
    sessions.done_with(folder)


def test_some_states(sessions: Sessions, operations: list[Operation]) -> None:
    for seed in range(SAMPLED):
        check_failure(sessions, operations, seed)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(SLICES))
def test_many_states(sessions: Sessions, operations: list[Operation], part: int) -> None:
    for seed in range(part, STATES, SLICES):
        check_failure(sessions, operations, seed)


def test_control_without_fsync(sessions: Sessions) -> None:
    operations = record(sessions, "fsync")
    assert not any(operation.kind == "fsync" for operation in operations)

    def check_all() -> None:
        for seed in range(SAMPLED):
            check_failure(sessions, operations, seed)

    with pytest.raises(AssertionError):
        check_all()


def test_saves_are_seen(operations: list[Operation]) -> None:
    assert [step for _, step in saved_steps(operations)] == [SAVE_EVERY, 2 * SAVE_EVERY, 3 * SAVE_EVERY, 4 * SAVE_EVERY]
