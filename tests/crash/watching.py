"""Events on a session's disk: each class is a `watch` of `Disk`."""

from __future__ import annotations

import base64
import errno
import json
import os
import signal
import threading
from dataclasses import asdict
from typing import Any

from tests.crash.disk import CHANGING, Act, Operation


class Record:
    """Writes every operation to a file of JSON lines, once it is done; `kill_at` is as in `Kill`."""

    def __init__(self, file: str, kill_at: int = -1) -> None:
        self._descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        self._kill = Kill(kill_at)

    def __call__(self, operation: Operation, act: Act) -> Any:
        failed = True
        try:
            result = self._kill(operation, act)
            failed = False
            return result
        finally:
            line = asdict(operation) | {"data": base64.b64encode(operation.data).decode(), "failed": failed}
            os.write(self._descriptor, json.dumps(line).encode() + b"\n")


def read_record(file: str | os.PathLike[str]) -> list[Operation]:
    """The operations that a `Record` wrote."""
    with open(file, encoding="ascii") as lines:
        values = [json.loads(line) for line in lines]
    return [Operation(**value | {"data": base64.b64decode(value["data"])}) for value in values]


class Kill:
    """Sends SIGKILL before change number `at` (-1: never), or after `torn` bytes of it."""

    def __init__(self, at: int, torn: int | None = None) -> None:
        self._left, self._torn = at, torn
        self._counting = threading.Lock()

    def __call__(self, operation: Operation, act: Act) -> Any:
        if operation.kind in CHANGING:
            with self._counting:
                if self._left == 0:
                    if self._torn is not None and operation.kind == "write":  # with a thread, the order varies
                        act(self._torn)
                    os.kill(os.getpid(), signal.SIGKILL)
                self._left -= 1
        return act()


class Fault:
    """Raises the error `code` at operation number `at` of a kind, once or from then on."""

    def __init__(self, kind: str, code: str, at: int, lasting: bool) -> None:
        self._kinds = {"open": ("open", "look")}.get(kind, (kind,))
        self._code, self._left, self._lasting = getattr(errno, code), at, lasting
        self._counting = threading.Lock()

    def __call__(self, operation: Operation, act: Act) -> Any:
        if operation.kind in self._kinds:
            with self._counting:
                self._left -= 1
                fails = self._left < 0 and (self._lasting or self._left == -1)
            if fails:
                raise OSError(self._code, os.strerror(self._code), operation.path)
        return act()


WATCHES: dict[str, Any] = {"record": Record, "kill": Kill, "fault": Fault}
