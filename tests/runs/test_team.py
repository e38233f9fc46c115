"""Errors of a process that trains together with others; `tests/ranks` has the processes."""

from __future__ import annotations

import pytest

from gptcli.cli.flags import settings_as_flags
from gptcli.cli.train import train
from gptcli.errors import LostRank, OutOfMemoryError, StorageError
from gptcli.runs.launched import follows, has_launcher
from gptcli.runs.team import Team, is_lost, joined

OF_TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 of two, which meets nobody."""
    for name, value in OF_TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Team, "meet", lambda self: None)


def test_variables_of_a_launcher(launched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_launcher()
    assert not follows()
    monkeypatch.setenv("RANK", "1")
    assert follows()
    monkeypatch.delenv("WORLD_SIZE")  # some schedulers set a few of them
    assert not has_launcher()
    assert not follows()


def test_only_errors_of_torch_are_of_a_lost_connection() -> None:
    assert is_lost(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"))
    assert is_lost(RuntimeError("Timed out waiting 8000ms for send operation to complete"))
    assert not is_lost(StorageError("'out' cannot be written: Broken pipe."))
    assert not is_lost(RuntimeError("shapes do not match"))


def test_an_unexpected_error_asks_for_a_restart(launched: None) -> None:
    with pytest.raises(LostRank, match="ZeroDivisionError") as caught, joined():
        raise ZeroDivisionError
    assert "same command" in caught.value.hint


def test_a_rank_out_of_memory_names_the_settings_that_lower_it(launched: None) -> None:
    with pytest.raises(OutOfMemoryError, match="Rank 0 ran out of memory") as caught, joined():
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    said = settings_as_flags(train, caught.value.hint)
    assert all(flag in said for flag in ("--micro-batch-size", "--activation-checkpointing", "--preset"))
    assert "`" not in said


def test_a_closed_output_asks_for_no_restart(launched: None) -> None:
    with pytest.raises(BrokenPipeError), joined():
        raise BrokenPipeError
