"""The text that the small runs of these tests share."""

from __future__ import annotations

import pytest

from gptcli.dataset.folder import Dataset
from tests.runs.small_runs import small_dataset


@pytest.fixture(scope="session")
def dataset(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """2,000 characters, 200 of them held out. Do not change it: tests share it."""
    return small_dataset(tmp_path_factory.mktemp("small"), corpus[:2000])
