"""The text that the small trainings of these tests share, and their pace."""

from __future__ import annotations

import pytest

from gptcli.dataset.folder import Dataset
from gptcli.runs import choosing, completion
from gptcli.runs.pace import Pace
from tests.runs.small_runs import small_dataset


@pytest.fixture(scope="session")
def dataset(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """5,000 characters, 500 of them held out. Do not change it: tests share it."""
    return small_dataset(tmp_path_factory.mktemp("small"), corpus[:5000])


@pytest.fixture(autouse=True)
def _steady_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured: tests count steps, and replace clocks."""
    for module in (completion, choosing):
        monkeypatch.setattr(module, "measure_pace", lambda *_args, **_options: Pace(0.001))
