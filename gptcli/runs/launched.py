"""Whether a launcher, such as torchrun, has started this process. Its variables are read without importing torch."""

from __future__ import annotations

import os

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def has_launcher() -> bool:
    """Whether torchrun, or `gptcli train --devices`, has started this process."""
    return all(name in os.environ for name in _VARIABLES)


def follows() -> bool:
    """Whether another process of the same training leads it."""
    return has_launcher() and int(os.environ["RANK"]) > 0
