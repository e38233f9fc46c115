"""The operating system refuses once, or from then on. Training ends well, or with exit 1 and can be resumed."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.crash.sessions import RUN, STEPS, Sessions, leftovers, newest_step, said
from tests.runs.small_runs import assert_same_end, series

KINDS = ("open", "read", "write", "fsync", "rename", "mkdir", "unlink", "lock")
CODES = ("ENOSPC", "EIO", "EACCES", "EROFS", "EMFILE")
PLACES = (0.0, 0.4, 0.7, 0.99)
COUNTERS = ("best_val_loss", "best_step", "evals_since_best")
"""Counters that differ where best weights could not be stored."""


@pytest.fixture(scope="session")
def counts(sessions: Sessions) -> Counter[str]:
    """The number of operations of each kind in a training."""
    kinds = Counter(operation.kind for operation in sessions.record(sessions.new()))
    kinds["open"] += kinds["look"]
    return kinds


def check_told(folder: Path, status: int) -> None:
    """Fails unless the command ended well, or with one error message."""
    text = said(folder)
    assert status in (0, 1), text
    assert "unexpected error" not in text, text
    assert "Traceback" not in text, text
    assert ("Error: " in text) == (status == 1), text


def check_resumes(sessions: Sessions, folder: Path) -> None:
    """Without the fault the same command ends as an undisturbed run does."""
    newest_step(folder / RUN)
    sessions.resume(folder)
    assert_same_end(folder / RUN, sessions.whole / RUN, leaving_out=COUNTERS)
    assert series(folder / RUN, "train/loss") == series(sessions.whole / RUN, "train/loss")
    assert leftovers(folder) == []


def check_fault(
    sessions: Sessions, counts: Counter[str], kind: str, code: str, place: float, lasting: bool, in_thread: bool
) -> None:
    at = int(place * counts[kind])
    folder = sessions.new()
    watch: dict[str, Any] = {"name": "fault", "options": {"kind": kind, "code": code, "at": at, "lasting": lasting}}
    try:
        check_told(folder, sessions.server.run(folder, watch=watch, in_thread=in_thread))
        check_resumes(sessions, folder)
    except AssertionError as error:
        where = f"{kind} number {at} of {counts[kind]}{', in a thread' if in_thread else ''}"
        error.add_note(f"{code} at {where}{', and from then on' if lasting else ''}")
        raise
    sessions.done_with(folder)


@pytest.mark.parametrize(("number", "kind"), list(enumerate(KINDS)))
def test_some_faults(sessions: Sessions, counts: Counter[str], number: int, kind: str) -> None:
    for lasting, in_thread in product((False, True), (False, True)):
        code, place = CODES[number % len(CODES)], PLACES[1 + (number + lasting) % 3]
        check_fault(sessions, counts, kind, code, place, lasting, in_thread)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault(sessions: Sessions, counts: Counter[str], kind: str) -> None:
    for code, place, lasting, in_thread in product(CODES, PLACES, (False, True), (False, True)):
        check_fault(sessions, counts, kind, code, place, lasting, in_thread)


def renames(sessions: Sessions) -> list[str]:
    return [operation.target for operation in sessions.record(sessions.new()) if operation.kind == "rename"]


@pytest.mark.parametrize("in_thread", [False, True])
def test_one_save_that_fails_is_a_warning(sessions: Sessions, in_thread: bool) -> None:
    """Not hidden by --quiet; training ends well, with the other checkpoints."""
    at = next(number for number, target in enumerate(renames(sessions)) if target.endswith("step-00000006"))
    folder = sessions.new()
    options = {"kind": "rename", "code": "ENOSPC", "at": at, "lasting": False}
    assert sessions.server.run(folder, watch={"name": "fault", "options": options}, in_thread=in_thread) == 0
    told = " ".join(said(folder).split())
    assert all(fact in told for fact in ("step-00000006'", "no space left on device", "continues"))
    assert newest_step(folder / RUN) == STEPS
    check_resumes(sessions, folder)


@pytest.mark.parametrize("in_thread", [False, True])
def test_the_third_save_that_fails_ends_training(sessions: Sessions, in_thread: bool) -> None:
    """The checkpoint before stays; training without saves would be in vain."""
    at = next(number for number, target in enumerate(renames(sessions)) if target.endswith("step-00000006"))
    folder = sessions.new()
    options = {"kind": "rename", "code": "EROFS", "at": at, "lasting": True}
    assert sessions.server.run(folder, watch={"name": "fault", "options": options}, in_thread=in_thread) == 1
    assert newest_step(folder / RUN) == 3
    check_resumes(sessions, folder)


@pytest.mark.parametrize("largest", [500, 1_500, 5_000, 20_000, 30_000])
def test_files_that_may_not_grow(sessions: Sessions, largest: int) -> None:
    """A real limit of the operating system, which applies to TensorBoard's files too."""
    folder = sessions.new()
    status = sessions.server.run(folder, file_size=largest)
    check_told(folder, status)
    assert status == 1
    check_resumes(sessions, folder)
