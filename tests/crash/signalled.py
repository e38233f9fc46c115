"""The command line with a signal that arrives when it enters a phase of its work.

    python -m tests.crash.signalled PHASE DELAY SIGNAL[,SIGNAL] [--in-thread] train book.txt …

The process sends the signals to itself: the first one DELAY seconds after it entered the phase, the second one after
the same time again. With `--in-thread` a thread writes what is saved, as it does for large models.
"""

from __future__ import annotations

import itertools
import os
import pkgutil
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from gptcli.__main__ import main

PHASES = {
    "reading": ("gptcli.dataset.preparation.scan", 1),
    "tokenizing": ("gptcli.dataset.preparation.write_dataset", 1),
    "new run": ("gptcli.runs.opening.create_run", 1),
    "first step": ("gptcli.runs.session.Session._step", 1),
    "a step": ("gptcli.runs.session.Session._step", 8),
    "compiling": ("gptcli.training.trainer.compile_hidden", 1),
    "evaluation": ("gptcli.training.trainer.evaluation_batches", 2),
    "best weights": ("gptcli.runs.saving.replace_weights", 2),
    "saving": ("gptcli.runs.saving.save_checkpoint", 2),
    "retention": ("gptcli.runs.saving.prune_checkpoints", 3),
    "sampling": ("gptcli.generation.stream.stream_samples", 1),
}
"""The function with which a phase begins, and the number of the call."""
IN_THE_THREAD = ("best weights", "saving", "retention")
"""Phases of the thread that writes, if there is one. They are tried one call earlier: training continues meanwhile, and
would be at its end at the later call."""
IMPORTED = {"import": "gptcli.cli.train", "import of torch": "torch.nn"}
"""The module whose import is the phase."""


class Importing:
    """A finder of modules that finds none, and calls a function when one is looked for."""

    def __init__(self, name: str, enter: Callable[[], None]) -> None:
        self._name, self._enter = name, enter

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        if name == self._name:
            self._enter()


def signalling(delay: float, signums: list[int]) -> Callable[[], None]:
    """A function that sends the signals."""

    def enter() -> None:
        for number, signum in enumerate(signums):
            if delay == 0:
                os.kill(os.getpid(), signum)
            else:
                threading.Timer((1 + number) * delay, os.kill, [os.getpid(), signum]).start()

    return enter


def watch(function: str, call: int, enter: Callable[[], None]) -> None:
    """Call `enter` at call number `call` of a function."""
    plain, calls = pkgutil.resolve_name(re.sub(r"[.](?=[A-Z])", ":", function)), itertools.count(1)  # a class

    def watched(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            enter()
        return plain(*arguments, **options)

    mock.patch(function, watched).start()


if __name__ == "__main__":
    phase, delay, signums, *arguments = sys.argv[1:]
    if arguments[0] == "--in-thread":
        from gptcli.runs import saving  # not earlier: it imports torch, which is a phase

        saving.DIRECT_BYTES = -1
        arguments = arguments[1:]
        if phase in IN_THE_THREAD:
            PHASES[phase] = PHASES[phase][0], PHASES[phase][1] - 1
    enter = signalling(float(delay), [int(signum) for signum in signums.split(",")])
    if phase in IMPORTED:
        sys.meta_path.insert(0, Importing(IMPORTED[phase], enter))  # type: ignore[arg-type]
    else:
        watch(*PHASES[phase], enter)
    sys.argv = ["gptcli", *arguments]
    main()
