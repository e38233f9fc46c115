"""Reading a document from bytes, as the tests of every format do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gptcli.dataset.readers import read_documents
from gptcli.dataset.sources import Source

Read = Callable[[bytes | str, str], list[str]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write content to a file of this name, and return its documents: the same in each of two readings."""

    def read(content: bytes | str, name: str) -> list[str]:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        source = Source(path, name, f"'{name}'")
        reported: list[int] = []
        pieces = [list(document) for document in read_documents(source, reported.append)]
        assert all(all(document) for document in pieces), "an empty piece"
        assert sum(reported) == path.stat().st_size
        assert pieces == [list(document) for document in read_documents(source, lambda _: None)]
        return ["".join(document) for document in pieces]

    return read
