"""One fork server for the tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.sessions import Sessions


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    made = Sessions(tmp_path_factory.mktemp("crash"))
    yield made
    made.server.close()
