"""Saves that the disk refuses: reported, and only a checkpoint's message says that training continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptcli.dataset.folder import Dataset
from gptcli.errors import StorageError
from gptcli.runs import saving, session
from gptcli.runs.events import RunFinished, SaveFailed
from tests.runs.small_runs import run

REFUSED = "Writing failed: no space left on device."


def refuse(*arguments: object, **options: object) -> None:
    raise StorageError(REFUSED)


def told(dataset: Dataset, path: Path) -> list[tuple[int, str]]:
    """Step and message of every failed save of a run that ends well, with checkpoints at its steps 10 and 20."""
    events = run(dataset, path)
    assert isinstance(events[-1], RunFinished)
    return [(event.step, event.message) for event in events if isinstance(event, SaveFailed)]


def test_a_checkpoint_in_the_middle(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = saving.save_checkpoint
    monkeypatch.setattr(
        saving,
        "save_checkpoint",
        lambda path, checkpoint, **options: (refuse if checkpoint.progress.step == 10 else plain)(path, checkpoint),
    )
    [(step, message)] = told(dataset, tmp_path / "run")
    assert step == 10
    assert message.startswith(REFUSED)
    assert "continues" in message


@pytest.mark.parametrize(
    ("where", "name", "steps"), [(session, "write_card", [20]), (saving, "prune_checkpoints", [10, 20])]
)
def test_other_failures_at_the_end(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str, steps: list[int]
) -> None:
    monkeypatch.setattr(where, name, refuse)
    assert told(dataset, tmp_path / "run") == [(step, REFUSED) for step in steps]
