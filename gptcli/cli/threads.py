"""How long threads that wait for each other keep a core busy, told to GNU's OpenMP before torch is imported.

torch computes with it on Linux. Left alone it lets threads spin for milliseconds, so that beside another busy program
an update of a small model took 17 times as long. Threads that sleep at once cost 4 % of a training on an idle machine,
but a quarter of the speed of writing, where they meet hundreds of times a token (docs/log.md).
"""

from __future__ import annotations

import os
from pathlib import Path

SPIN_COUNT = "GOMP_SPINCOUNT"
BESIDE_OTHERS = "1000"
ALONE = "20000"
LOAD = Path("/proc/loadavg")
"""Its fourth field is `running/all` threads of the machine, this one included."""


def limit_spinning() -> None:
    """Spin shortly, unless the user has said what to do."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPIN_COUNT, BESIDE_OTHERS)


def spin_where_idle() -> None:
    """Spin longer if nothing else runs on the machine just now, for a command that ends soon."""
    if os.environ.get(SPIN_COUNT) == BESIDE_OTHERS and LOAD.exists() and running(LOAD.read_text()) <= 1:
        os.environ[SPIN_COUNT] = ALONE


def running(load: str) -> int:
    """Threads that compute at this moment.

    >>> running("0.20 0.18 0.12 1/80 11206")
    1
    """
    return int(load.split()[3].partition("/")[0])
