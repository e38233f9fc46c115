"""`python -m gptcli` and the `gptcli` command."""

import os

from gptcli.cli.app import app


def main() -> None:
    """Run the command line and exit with its code."""
    # Threads that wait for each other sleep instead of spinning: torch reads this when it is loaded. Beside another busy
    # program spinning made an update of `tiny` on two cores 17 times slower; alone it is 5 % faster (docs/log.md).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()


if __name__ == "__main__":
    main()
