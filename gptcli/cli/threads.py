"""How long waiting OpenMP threads spin before they sleep: a setting of GNU's OpenMP, made before torch is imported.

torch uses that library on Linux. By default its threads spin for milliseconds, so that an update of a small model took
17 times as long on a busy machine. Threads that sleep at once cost 4 % of training speed on an idle machine, but a
quarter of decoding speed, where threads synchronize hundreds of times per token (docs/log.md).
"""

from __future__ import annotations

import os
from pathlib import Path

SPIN_COUNT = "GOMP_SPINCOUNT"
BESIDE_OTHERS = "1000"
ALONE = "20000"
LOAD = Path("/proc/loadavg")
"""Its fourth field is the machine's number of running threads, this one included, and of all threads: `1/80`."""


def limit_spinning() -> None:
    """Let waiting threads spin only briefly, unless the user has set this."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPIN_COUNT, BESIDE_OTHERS)


def spin_where_idle() -> None:
    """Let them spin longer if the machine is idle, for a command that ends soon."""
    if os.environ.get(SPIN_COUNT) == BESIDE_OTHERS and LOAD.exists() and running(LOAD.read_text()) <= 1:
        os.environ[SPIN_COUNT] = ALONE


def running(load: str) -> int:
    """The number of running threads in a line of `/proc/loadavg`.

    >>> running("0.20 0.18 0.12 1/80 11206")
    1
    """
    return int(load.split()[3].partition("/")[0])
