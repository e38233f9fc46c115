"""The power fails: data that was not flushed may be lost, cut off, zeroed, or written in another order."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gptcli.checkpoints import names
from gptcli.checkpoints.model_folder import verify_run_files
from gptcli.checkpoints.run_folder import is_run, read_run
from gptcli.checkpoints.tensors import verify_tensors
from gptcli.dataset.folder import open_dataset
from gptcli.storage import is_occupied
from tests.crash.disk import Operation
from tests.crash.power import PoweredDisk, saved_steps
from tests.crash.sessions import RUN, SAVE_EVERY, Sessions, changes, newest_step

STATES = 2000
SLICES = 8
SAMPLED = 50
RESUMED_EVERY = 5
"""Every state is checked; after one in this many, training resumes to its end."""
SCENARIOS = ("first", "resumed", "first in a thread", "resumed in a thread")


def record(sessions: Sessions, scenario: str, *sabotage: str) -> list[Operation]:
    """The operations from the text to the last checkpoint: in one session, or with a kill and a resume.

    The kill happens while an old checkpoint is deleted, or close to that where a thread deletes it.
    """
    job: dict[str, Any] = {"sabotage": sabotage, "in_thread": scenario.endswith("in a thread")}
    done = sessions.record(sessions.new(), **job)
    if scenario.startswith("resumed"):
        folder, at = sessions.new(), first_deletion(changes(done))
        done = sessions.record(folder, kill_at=at, **job) + sessions.record(folder, **job)
    return [operation for operation in done if not operation.failed]


def first_deletion(operations: list[Operation]) -> int:
    """The number of the operation that deletes the second file of the oldest checkpoint."""
    deletions = (
        number
        for number, operation in enumerate(operations)
        if operation.kind == "unlink" and "/.step-" in operation.path
    )
    next(deletions)
    return next(deletions)


@pytest.fixture(scope="session")
def records(sessions: Sessions) -> dict[str, list[Operation]]:
    return {scenario: record(sessions, scenario) for scenario in SCENARIOS}


def check_folder(folder: Path, saved: int) -> None:
    """Fails unless the next session finds a sound run with every saved checkpoint."""
    run = folder / RUN
    assert newest_step(run) >= saved, "a checkpoint that was saved is gone"
    assert is_run(run) or not is_occupied(run), "half a run"
    if is_run(run):
        verify_run_files(run)
        read_run(run)
        if (run / names.MODEL).exists():
            verify_tensors(run / names.MODEL)
    for dataset in (folder / "data").glob("[!.]*"):
        open_dataset(dataset)


def check_states(sessions: Sessions, operations: list[Operation], seeds: Iterable[int]) -> None:
    """The power fails after some of the operations, differently for each seed."""
    moments = sorted((random.Random(seed).randint(1, len(operations)), seed) for seed in seeds)
    disk, followed = PoweredDisk(), 0
    for done, seed in moments:
        for operation in operations[followed:done]:
            disk.carry_out(operation)
        followed = done
        folder = sessions.new()
        disk.fail(folder, random.Random(seed))
        try:
            check_folder(folder, max((step for at, step in saved_steps(operations) if at <= done), default=0))
            if seed % RESUMED_EVERY == 0:
                sessions.resume(folder)
                sessions.check_end(folder)
        except BaseException as error:
            error.add_note(f"state {seed}: the power failed after {done} of {len(operations)} operations")
            raise
        sessions.done_with(folder)


@pytest.mark.parametrize(("number", "scenario"), list(enumerate(SCENARIOS)))
def test_some_states(sessions: Sessions, records: dict[str, list[Operation]], number: int, scenario: str) -> None:
    check_states(sessions, records[scenario], range(number, SAMPLED, len(SCENARIOS)))


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(SLICES))
def test_many_states(sessions: Sessions, records: dict[str, list[Operation]], part: int) -> None:
    check_states(sessions, records[SCENARIOS[part % len(SCENARIOS)]], range(part, STATES, SLICES))


def test_control_without_fsync(sessions: Sessions) -> None:
    """The check alone shows it; nothing is trained here."""
    operations = record(sessions, "first", "fsync")
    assert not any(operation.kind == "fsync" for operation in operations)
    with pytest.raises(Exception, match=r"damaged|gone|cannot be|missing|half"):
        check_states(sessions, operations, [seed for seed in range(SAMPLED) if seed % RESUMED_EVERY])


def test_saves_are_seen(records: dict[str, list[Operation]]) -> None:
    saved = [SAVE_EVERY, 2 * SAVE_EVERY, 3 * SAVE_EVERY, 4 * SAVE_EVERY]
    for operations in records.values():
        assert [step for _, step in saved_steps(operations)] == saved
