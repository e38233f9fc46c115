"""`python -m gptcli` and the `gptcli` command."""

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from gptcli.cli.threads import limit_spinning
from gptcli.signals import STOP_SIGNALS, heeded_signals


def main() -> None:
    """Run the command line and exit with its code."""
    limit_spinning()
    _make_writable()
    for signum in heeded_signals():
        signal.signal(signum, lambda signum, _frame: os._exit(128 + signum))  # until there is something to clean up
    from gptcli.cli.app import app

    try:
        app()
    except KeyboardInterrupt:  # one more, while the first is being dealt with
        _end_now(128 + signal.SIGINT)
    except SystemExit as ended:
        if ended.code in {128 + signum for signum in STOP_SIGNALS}:
            _end_now(int(ended.code or 0))
        raise
    except OSError as error:  # of the help: commands tell theirs themselves
        from gptcli.cli.boundary import tell

        sys.exit(tell(error))


def _make_writable() -> None:
    """Let nothing that is written fail for where it goes: what is closed swallows it, ASCII gets escapes."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed; and its number must not fall to a file that is opened next
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the whole process
        getattr(sys, name).reconfigure(errors="backslashreplace")


def _end_now(code: int) -> NoReturn:
    """End without waiting for threads: a library's may still be at work, and Python must not be taken down under it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
