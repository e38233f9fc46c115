"""Competitors that take turns, each in a process of its own.

In one process they slow each other down even while they wait: next to an idle llama.cpp server that had been used,
gptcli generated text a tenth to a fifth more slowly (docs/log.md).
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

Rates = dict[str, float]
"""Figures of one call, by the suffix to the competitor's name; "" for the main figure."""
PAUSE = 0.5
"""Seconds until the waiting threads of the previous competitor are asleep."""


@contextmanager
def competitor(
    make: Callable[..., Callable[[], Rates]], *arguments: Any, environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], Rates]]:
    """A function that calls `make(*arguments)()` in another process, with `environment` added to its variables."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
    before = dict(os.environ)
    os.environ.update(environment or {})
    process.start()
    os.environ.clear()
    os.environ.update(before)
    theirs.close()  # so that the end of the process is noticed

    def call() -> Rates:
        ours.send(True)
        rates: Rates = ours.recv()
        return rates

    ours.recv()  # the process has loaded everything
    try:
        yield call
    finally:
        ours.close()
        process.join()


def _serve(connection: Connection, make: Callable[..., Callable[[], Rates]], arguments: tuple[Any, ...]) -> None:
    measure = make(*arguments)
    connection.send(True)
    try:
        while connection.recv():
            measure()  # warm-up: after idle seconds, even the code has left the caches
            connection.send(measure())
    except EOFError:  # the parent closed the connection
        return


def medians(
    competitors: Mapping[str, tuple[Any, ...]],
    rounds: int = 5,
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, float]:
    """Median rates of the competitors, each given by `make` and its arguments, called in turn."""
    values: dict[str, list[float]] = {}
    with ExitStack() as stack:
        calls = {
            name: stack.enter_context(competitor(*what, environment=(environments or {}).get(name)))
            for name, what in competitors.items()
        }
        for _ in range(rounds):
            for name, call in calls.items():
                time.sleep(PAUSE)
                for what, rate in call().items():
                    values.setdefault(name + what, []).append(rate)
    return {name: statistics.median(rates) for name, rates in values.items()}
