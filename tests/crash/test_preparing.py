"""Killed while a dataset is prepared, and in the middle of each write: the same command continues, and the bytes are
those of an unbroken preparation."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gptcli.dataset.folder import is_dataset, open_dataset
from tests.crash.disk import Operation
from tests.crash.power import PoweredDisk
from tests.crash.sessions import Sessions, changes, leftovers, said

DATASET = Path("data/book")
MAKE = ["tokenize", "book.txt", "-o", str(DATASET), "--tokenizer", "bpe", "--vocab-size", "300"]
SAVE_EVERY = 500
SHARD_TOKENS = 600
SMALL_STEPS = {"save_every_bytes": SAVE_EVERY, "shard_tokens": SHARD_TOKENS}
SAMPLED = 25
STATES = 60
SLICES = 8


@pytest.fixture(scope="session")
def whole(sessions: Sessions) -> dict[str, bytes]:
    """The files of an unbroken preparation."""
    folder = sessions.new()
    sessions.resume(folder, arguments=MAKE, **SMALL_STEPS)
    return files(folder)


@pytest.fixture(scope="session")
def operations(sessions: Sessions) -> list[Operation]:
    """What an unbroken preparation does on the disk."""
    return sessions.record(sessions.new(), arguments=MAKE, **SMALL_STEPS)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / DATASET).iterdir()}


def saves(operations: list[Operation]) -> list[int]:
    """The changes with which a new state is in its place."""
    return [at for at, one in enumerate(changes(operations)) if one.kind == "rename" and one.target.endswith(".json")]


def check_end(sessions: Sessions, folder: Path, whole: dict[str, bytes]) -> str:
    """The same command makes the same files and leaves nothing else. Returns what it said."""
    assert not is_dataset(folder / DATASET) or open_dataset(folder / DATASET, verify=True)
    sessions.resume(folder, arguments=MAKE, **SMALL_STEPS)
    assert files(folder) == whole
    assert leftovers(folder) == []
    return said(folder)


def check_kills(
    sessions: Sessions, operations: list[Operation], whole: dict[str, bytes], points: list[tuple[int, int | None]]
) -> None:
    first, last = saves(operations)[0], len(changes(operations)) - 1
    renamed = next(at for at, one in enumerate(changes(operations)) if one.target == str(DATASET))
    for at, torn in points:
        folder = sessions.new()
        watch = {"name": "kill", "options": {"at": at, "torn": torn}}
        assert sessions.server.run(folder, watch=watch, arguments=MAKE, **SMALL_STEPS) == -9, said(folder)
        try:
            message = check_end(sessions, folder, whole)
            assert ("Continued after" in message) == (first < at <= renamed), "no work is lost"
        except AssertionError as error:
            error.add_note(f"killed at {at} of {last}, {torn} bytes: {changes(operations)[at].kind}")
            raise
        sessions.done_with(folder)


def points(operations: list[Operation]) -> list[tuple[int, int | None]]:
    """Before each change, and within each write."""
    found: list[tuple[int, int | None]] = []
    for at, operation in enumerate(changes(operations)):
        size = len(operation.data)
        found += [(at, None), *((at, torn) for torn in sorted({1, size // 2, size - 1}) if 0 < torn < size)]
    return found


def test_there_are_several_saves_and_shards(operations: list[Operation], whole: dict[str, bytes]) -> None:
    assert len(saves(operations)) > 4
    assert len(whole) > 4


def test_killed_at_some_points(sessions: Sessions, operations: list[Operation], whole: dict[str, bytes]) -> None:
    check_kills(sessions, operations, whole, random.Random(0).sample(points(operations), SAMPLED))


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(SLICES))
def test_killed_at_every_point(
    sessions: Sessions, operations: list[Operation], whole: dict[str, bytes], part: int
) -> None:
    check_kills(sessions, operations, whole, points(operations)[part::SLICES])


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(SLICES))
def test_killed_again_and_again(
    sessions: Sessions, operations: list[Operation], whole: dict[str, bytes], seed: int
) -> None:
    chance, folder = random.Random(seed), sessions.new()
    for _ in range(10):
        watch = {"name": "kill", "options": {"at": chance.randint(1, 3 * saves(operations)[1])}}
        if sessions.server.run(folder, watch=watch, arguments=MAKE, **SMALL_STEPS) == 0:
            break
    check_end(sessions, folder, whole)


def check_power(sessions: Sessions, operations: list[Operation], whole: dict[str, bytes], seed: int) -> bool:
    """Whether work was continued after a power failure."""
    chance = random.Random(seed)
    done = chance.randint(1, len(operations))
    disk = PoweredDisk()
    for operation in operations[:done]:
        disk.carry_out(operation)
    folder = sessions.new()
    (folder / "book.txt").rename(folder.parent / "book.txt")
    disk.fail(folder, chance)
    (folder.parent / "book.txt").rename(folder / "book.txt")
    message = check_end(sessions, folder, whole)
    sessions.done_with(folder)
    return "Continued after" in message


def test_the_power_fails(sessions: Sessions, operations: list[Operation], whole: dict[str, bytes]) -> None:
    continued = [check_power(sessions, operations, whole, seed) for seed in range(STATES // 4)]
    assert any(continued)


@pytest.mark.campaign
def test_the_power_fails_often(sessions: Sessions, operations: list[Operation], whole: dict[str, bytes]) -> None:
    continued = [check_power(sessions, operations, whole, seed) for seed in range(STATES // 4, STATES)]
    assert any(continued)


def test_control_without_a_check_of_the_shard(
    sessions: Sessions, operations: list[Operation], whole: dict[str, bytes]
) -> None:
    folder = sessions.new()
    watch = {"name": "kill", "options": {"at": saves(operations)[3] + 1}}
    assert sessions.server.run(folder, watch=watch, arguments=MAKE, **SMALL_STEPS) == -9
    shard = max((folder / "data").glob(".*/*.npy"))
    shard.write_bytes(shard.read_bytes()[:128].ljust(shard.stat().st_size, b"\0"))
    sessions.resume(folder, arguments=MAKE, sabotage=["shard check"], **SMALL_STEPS)
    with pytest.raises(AssertionError):
        check_end(sessions, folder, whole)
