"""`python -m gptcli` and the `gptcli` command."""

import os
import signal
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    # GNU's OpenMP, which torch computes with on Linux, lets waiting threads spin for milliseconds. Beside another busy
    # program an update of a small model took 17 times longer; spinning less costs 4 % when alone (docs/log.md).
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        from gptcli.cli.app import app

        app()
    except KeyboardInterrupt:  # while modules are still being imported
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
