"""Details of any command with `--verbose`: versions, time and memory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sys
import time

from gptcli import __version__
from gptcli.errors import size
from gptcli.ui.console import Output

_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors")


class VerboseFrame:
    """A context that prints versions and cores at its start, and time and memory at its end."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._started = time.perf_counter()

    def __enter__(self) -> None:
        packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
        system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores"
        self._output.detail(f"gptcli {__version__}, Python {platform.python_version()}, {packages}; {system}.")

    def __exit__(self, *_: object) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        seconds = time.perf_counter() - self._started
        busy = usage.ru_utime + usage.ru_stime
        self._output.detail(f"Took {seconds:,.1f} s, {busy:,.1f} s of processor time; peak memory {size(memory)}.")
