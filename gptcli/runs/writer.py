"""A thread that writes to the disk while training continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from gptcli.errors import StorageError
from gptcli.runs.events import CheckpointSaved, SaveFailed

SaveEvent = CheckpointSaved | SaveFailed
Outcome = Callable[[], StorageError | None]
"""Raises the error of a write that failed; returns a failure that training can ignore, or None."""


class Writer:
    """Carries out writes one after another in a thread, and reports their outcomes in the thread of the training."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saving")
        self._pending: deque[tuple[Future[StorageError | None], Callable[[Outcome], Iterator[SaveEvent]]]] = deque()

    def write(self, write: Outcome, conclude: Callable[[Outcome], Iterator[SaveEvent]]) -> Future[StorageError | None]:
        """Begin a write; once it is done, `report` or `finish` calls `conclude` for its events."""
        future = self._thread.submit(write)
        self._pending.append((future, conclude))
        return future

    def report(self) -> Iterator[SaveEvent]:
        """The events of the writes that are done by now; raises the errors that `conclude` raises."""
        while self._pending and self._pending[0][0].done():
            yield from self._conclude()

    def finish(self, last: Future[StorageError | None] | None = None) -> Iterator[SaveEvent]:
        """Wait for the writes up to `last`, by default for all; their events, and errors as in `report`."""
        while self._pending:
            future, _ = self._pending[0]
            yield from self._conclude()
            if future is last:
                return

    def close(self) -> None:
        """Wait for all writes and end the thread; their outcomes are not reported."""
        self._thread.shutdown()

    def _conclude(self) -> Iterator[SaveEvent]:
        future, conclude = self._pending.popleft()
        return conclude(future.result)
