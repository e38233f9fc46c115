"""Killed before each operation that changes something on the disk, and in the middle of each write.

The same command then goes on, and the end is the same to the last bit as that of a run which nothing disturbed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.crash.disk import CHANGING, Operation
from tests.crash.sessions import RUN, SAVE_EVERY, Sessions, newest_step, said
from tests.crash.watching import read_record

SLICES = 8
SAMPLED_EVERY = 16


@dataclass(frozen=True)
class Point:
    """Where to kill: before an operation, or after the first `torn` bytes of a write."""

    at: int
    operation: Operation
    torn: int | None = None


def points(operations: list[Operation]) -> list[Point]:
    """Every point of a session: before each operation, and three ways to tear each write."""
    found = []
    for at, operation in enumerate(operations):
        found.append(Point(at, operation))
        size = len(operation.data)
        found += [Point(at, operation, torn) for torn in sorted({1, size // 2, size - 1}) if 0 < torn < size]
    return found


def sample(found: list[Point]) -> list[Point]:
    """Some of the points, evenly spread, with the first and the last of each kind of operation."""
    chosen = set(found[::SAMPLED_EVERY])
    for kind in CHANGING:
        ofs = [point for point in found if point.operation.kind == kind]
        chosen |= {ofs[0], ofs[-1]}
    return [point for point in found if point in chosen]


@pytest.fixture(scope="session")
def operations(sessions: Sessions) -> list[Operation]:
    """What one training does to the disk, from the text to the last checkpoint."""
    folder = sessions.new()
    sessions.go_on(folder, watch={"name": "record", "options": {"file": "record"}})
    return [operation for operation in read_record(folder / "record") if operation.kind in CHANGING]


def check_kill(sessions: Sessions, point: Point, *sabotage: str) -> None:
    """Kill there, look at what is left, go on, and compare."""
    folder = sessions.new()
    watch = {"name": "kill", "options": {"at": point.at, "torn": point.torn}}
    assert sessions.server.run(folder, watch=watch) == -9, said(folder)
    kept = newest_step(folder / RUN)
    if (folder / RUN / "metrics.jsonl").exists():
        whole = (folder / RUN / "metrics.jsonl").read_bytes().rpartition(b"\n")[0]
        assert whole.count(b'"train/loss"') <= kept + SAVE_EVERY, "more than one save interval is lost"
    sessions.go_on(folder, sabotage=sabotage)
    sessions.check_end(folder)
    sessions.done_with(folder)


def check_kills(sessions: Sessions, chosen: list[Point]) -> None:
    for point in chosen:
        try:
            check_kill(sessions, point)
        except AssertionError as error:
            error.add_note(f"killed at {point}"[:300])
            raise


def test_every_kind_of_operation_is_there(operations: list[Operation]) -> None:
    assert {operation.kind for operation in operations} == set(CHANGING)


def test_killed_at_some_points(sessions: Sessions, operations: list[Operation]) -> None:
    check_kills(sessions, sample(points(operations)))


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(SLICES))
def test_killed_at_every_point(sessions: Sessions, operations: list[Operation], part: int) -> None:
    check_kills(sessions, points(operations)[part::SLICES])


def test_control_without_the_random_state(sessions: Sessions, operations: list[Operation]) -> None:
    saved = next(at for at, operation in enumerate(operations) if operation.target.endswith("step-00000006"))
    point = Point(saved + 2, operations[saved + 2])
    check_kill(sessions, point)
    with pytest.raises(AssertionError):
        check_kill(sessions, point, "random state")
