"""Killed before each operation that changes something on the disk, and in the middle of each write.

The same command then resumes, and the end equals that of an undisturbed run, bit for bit. Two sessions are tested: one
that begins with the text, and one that resumes after a kill.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.crash.disk import CHANGING, Operation
from tests.crash.sessions import RUN, SAVE_EVERY, TRAIN, Sessions, changes, newest_step, said

SLICES = 8
SAMPLED = 5
"""Points of each phase in `make test`."""
SCENARIOS = ("first", "resumed")
IN_A_THREAD = ("first in a thread", "resumed in a thread")
DAMAGED = 9
"""The newest checkpoint at the start of the second session, which deletes it and a half-deleted one."""
CHANGED = [*TRAIN, "--patience", "100"]
"""The second session stores another config, with the same result."""
PHASES = {
    "first": {"dataset", "new run", "lock", "log", "best weights", "checkpoint", "retention", "model card"},
    "resumed": {"lock", "leftovers", "config", "log", "best weights", "checkpoint", "retention", "model card"},
}


@dataclass(frozen=True)
class Point:
    """A moment to kill: before an operation, or after the first `torn` bytes of a write."""

    at: int
    operation: Operation
    phase: str
    torn: int | None = None


@dataclass(frozen=True)
class Scenario:
    """A session to kill."""

    start: Path
    """The folder at the start, which is copied."""
    operations: list[Operation]
    """The changes of the undisturbed session."""
    damaged: int
    """The step of a checkpoint that is damaged at the start."""
    arguments: list[str]
    in_thread: bool = False
    """Whether a thread writes checkpoints and best weights. The order of its operations among the others varies."""


@pytest.fixture(scope="session")
def scenarios(sessions: Sessions) -> dict[str, Scenario]:
    begin = sessions.new()
    first = Scenario(begin, changes(sessions.record(sessions.copy(begin))), -1, TRAIN)
    # Killed when one of the files of the oldest checkpoint was deleted; then the newest one is damaged as well.
    start = sessions.copy(begin)
    retention = [at for at, phase in enumerate(phases(first.operations)) if phase == "retention"]
    sessions.record(start, kill_at=next(at for at in retention if first.operations[at].kind == "unlink") + 1)
    assert newest_step(start / RUN) == DAMAGED
    state = start / RUN / f"checkpoints/step-{DAMAGED:08d}/state.json"
    state.write_bytes(state.read_bytes()[:-1])
    operations = changes(sessions.record(sessions.copy(start), arguments=CHANGED))
    resumed = Scenario(start, operations, DAMAGED, CHANGED)
    made = {"first": first, "resumed": resumed}
    for name, scenario in (("first", first), ("resumed", resumed)):
        job: dict[str, Any] = {"arguments": scenario.arguments, "in_thread": True}
        operations = changes(sessions.record(sessions.copy(scenario.start), **job))
        made[f"{name} in a thread"] = replace(scenario, operations=operations, in_thread=True)
    return made


def phases(operations: list[Operation]) -> Iterator[str]:
    """The phase of each operation."""
    current, being_made = "", ""
    for operation in operations:
        kind, place, name = operation.kind, operation.path, os.path.basename(operation.path)
        if kind == "mkdir" and name.startswith(".step-"):
            being_made = place
        if kind == "lock":
            current = "lock"
        elif place.startswith("data"):
            current = "dataset"
        elif place.startswith("runs/.") or place == "runs":
            current = "new run"
        elif being_made and place.startswith(being_made):
            current = "checkpoint"
        elif kind == "rename" and name.startswith("step-"):
            current = "retention"
        elif kind == "unlink" and current != "retention":
            current = "leftovers"
        elif name == "metrics.jsonl":
            current = "log"
        elif name.startswith(".model"):
            current = "best weights"
        elif name.startswith(".README"):
            current = "model card"
        elif name.startswith((".manifest", ".gptcli")) and current != "best weights":
            current = "config"
        if kind == "rename" and place == being_made:
            being_made = ""
        yield current


def points(operations: list[Operation]) -> list[Point]:
    """Every point of a session: before each operation, and three within each write."""
    found = []
    for at, (operation, phase) in enumerate(zip(operations, phases(operations), strict=True)):
        found.append(Point(at, operation, phase))
        size = len(operation.data)
        found += [Point(at, operation, phase, torn) for torn in sorted({1, size // 2, size - 1}) if 0 < torn < size]
    return found


def sample(found: list[Point]) -> list[Point]:
    """Some of the points of each phase, evenly spread, with its first and its last."""
    chosen = []
    for phase in dict.fromkeys(point.phase for point in found):
        of_phase = [point for point in found if point.phase == phase]
        last = len(of_phase) - 1
        chosen += [of_phase[place] for place in sorted({last * part // (SAMPLED - 1) for part in range(SAMPLED)})]
    return chosen


def check_kill(sessions: Sessions, scenario: Scenario, point: Point, *sabotage: str) -> None:
    """Kill at the point, check the remains, resume, and compare the end."""
    folder = sessions.copy(scenario.start)
    watch = {"name": "kill", "options": {"at": point.at, "torn": point.torn}}
    job: dict[str, Any] = {"arguments": scenario.arguments, "in_thread": scenario.in_thread}
    assert sessions.server.run(folder, watch=watch, **job) == -9, said(folder)
    kept = newest_step(folder / RUN, scenario.damaged)
    if (folder / RUN / "metrics.jsonl").exists():
        whole = (folder / RUN / "metrics.jsonl").read_bytes().rpartition(b"\n")[0]
        # Training continues while a checkpoint is written, at most until the next one is due.
        lost = SAVE_EVERY * (2 if scenario.in_thread else 1)
        assert whole.count(b'"train/loss"') <= kept + lost, "more than the work since the last checkpoint is lost"
    sessions.resume(folder, sabotage=sabotage, **job)
    sessions.check_end(folder)
    sessions.done_with(folder)


def check_kills(sessions: Sessions, scenario: Scenario, chosen: list[Point]) -> None:
    for point in chosen:
        try:
            check_kill(sessions, scenario, point)
        except AssertionError as error:
            shortened = replace(point.operation, data=point.operation.data[:50])
            error.add_note(f"killed at {replace(point, operation=shortened)}")
            raise


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_phase_is_there(scenarios: dict[str, Scenario], name: str) -> None:
    """`-rP` shows the number of points of each phase."""
    found = points(scenarios[name].operations)
    counted = Counter(point.phase for point in found)
    print(f"{name}: {counted.total()} points:", dict(counted))  # noqa: T201
    assert counted.keys() == PHASES[name]


def test_every_kind_of_operation_is_there(scenarios: dict[str, Scenario]) -> None:
    assert {operation.kind for operation in scenarios["first"].operations} == set(CHANGING)


@pytest.mark.parametrize("name", [*SCENARIOS, *IN_A_THREAD])
def test_killed_at_some_points(sessions: Sessions, scenarios: dict[str, Scenario], name: str) -> None:
    check_kills(sessions, scenarios[name], sample(points(scenarios[name].operations)))


@pytest.mark.campaign
@pytest.mark.parametrize("name", [*SCENARIOS, *IN_A_THREAD])
@pytest.mark.parametrize("part", range(SLICES))
def test_killed_at_every_point(sessions: Sessions, scenarios: dict[str, Scenario], name: str, part: int) -> None:
    check_kills(sessions, scenarios[name], points(scenarios[name].operations)[part::SLICES])


def test_control_without_the_random_state(sessions: Sessions, scenarios: dict[str, Scenario]) -> None:
    found = points(scenarios["first"].operations)
    saved = next(at for at, point in enumerate(found) if point.operation.target.endswith("step-00000006"))
    check_kill(sessions, scenarios["first"], found[saved + 2])
    with pytest.raises(AssertionError):
        check_kill(sessions, scenarios["first"], found[saved + 2], "random state")
