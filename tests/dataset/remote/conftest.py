"""A web server, and a cache of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gptcli.dataset.remote import download
from tests.dataset.remote.web_server import Web, web_server


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as web:
        yield web


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the downloads. Tests run inside `tmp_path`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "gptcli" / "downloads"


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that a download asked for. No test waits for one."""
    asked: list[float] = []
    monkeypatch.setattr(download, "sleep", asked.append)
    return asked
