"""Killed while a dataset is replaced: the old or the new one is always there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gptcli.dataset.folder import is_dataset, open_dataset
from gptcli.dataset.place import restore_interrupted
from tests.conftest import CommandLine
from tests.crash.disk import Operation
from tests.crash.power import PoweredDisk
from tests.crash.sessions import Sessions, changes, leftovers

DATASET = Path("data/book")
MAKE = ["tokenize", "book.txt", "-o", str(DATASET), "--quiet"]
REPLACE = [*MAKE, "--force"]
STATES = 60


def made(sessions: Sessions) -> Path:
    """A dataset, and its text, which has changed since."""
    folder = sessions.new()
    sessions.resume(folder, arguments=MAKE)
    (folder / "book.txt").write_text("Another text. " * 100, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def operations(sessions: Sessions) -> list[Operation]:
    return sessions.record(made(sessions), arguments=REPLACE)


def check_one_is_there(sessions: Sessions, folder: Path, tokens: tuple[int, int]) -> None:
    """The old dataset or the new one can be opened; the same command then makes the new one."""
    restore_interrupted(folder / DATASET)
    assert is_dataset(folder / DATASET)
    assert open_dataset(folder / DATASET, verify=True).train.tokens in tokens
    sessions.resume(folder, arguments=REPLACE)
    assert open_dataset(folder / DATASET).train.tokens == tokens[1]
    assert leftovers(folder) == []
    sessions.done_with(folder)


@pytest.fixture(scope="session")
def tokens(sessions: Sessions) -> tuple[int, int]:
    """Training tokens of the old dataset and of the new one."""
    folder = made(sessions)
    old = open_dataset(folder / DATASET).train.tokens
    sessions.resume(folder, arguments=REPLACE)
    return old, open_dataset(folder / DATASET).train.tokens


def test_killed_before_each_operation(sessions: Sessions, operations: list[Operation], tokens: tuple[int, int]) -> None:
    for at, operation in enumerate(changes(operations)):
        folder = made(sessions)
        sessions.record(folder, kill_at=at, arguments=REPLACE)
        try:
            check_one_is_there(sessions, folder, tokens)
        except AssertionError as error:
            error.add_note(f"killed before {operation.kind} {operation.path} {operation.target}")
            raise


def test_training_finds_the_old_one(sessions: Sessions, cli: CommandLine) -> None:
    folder = made(sessions)
    (folder / DATASET).rename(folder / "data" / f".book-{2**22 + 1}.replaced")
    refusal = cli("train", DATASET, "--tokenizer", "bpe", "--dry-run", cwd=folder)
    assert "the data is a dataset, which was read already" in refusal.stderr
    assert open_dataset(folder / DATASET, verify=True)


def test_the_power_fails(sessions: Sessions, tokens: tuple[int, int]) -> None:
    folder = sessions.new()
    made_first = sessions.record(folder, arguments=MAKE)
    (folder / "book.txt").write_text("Another text. " * 100, encoding="utf-8")
    replaced = sessions.record(folder, arguments=REPLACE)
    first_rename = next(at for at, operation in enumerate(replaced) if operation.kind == "rename")
    for seed in range(STATES):
        chance = random.Random(seed)
        done = chance.randint(first_rename, len(replaced))
        disk = PoweredDisk()
        for operation in made_first + replaced[:done]:
            disk.carry_out(operation)
        folder = sessions.new()
        disk.fail(folder, chance)
        restore_interrupted(folder / DATASET)
        assert is_dataset(folder / DATASET), f"state {seed}: after {done} of {len(replaced)} operations"
        assert open_dataset(folder / DATASET, verify=True).train.tokens in tokens
        sessions.done_with(folder)
