"""The one place where exceptions become a message, a hint and an exit code."""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import typer

from gptcli.cli.flags import settings_as_flags
from gptcli.errors import GptcliError, OutOfMemoryError, StorageError, UsageError
from gptcli.signals import heeded_signals

BROKEN_PIPE_EXIT = 141
MAY_BE_EMPTY = ("prompt", "stop")
"""Parameters whose empty text means something, or is refused in words of their own."""


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that it ends by the table of exit codes; `--debug` shows the traceback too."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        for signum in heeded_signals():
            signal.signal(signum, _unwind)
        from gptcli.ui.console import wording

        wording.set(functools.partial(settings_as_flags, command))
        try:
            with _frame(options):
                _refuse_empty(options)
                command(*args, **options)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_stdout()
            raise typer.Exit(BROKEN_PIPE_EXIT) from None
        except KeyboardInterrupt:
            raise typer.Exit(128 + signal.SIGINT) from None
        except typer.Exit:
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of a Rust library
                raise
            code = tell(error, debug=bool(options.get("debug")), no_color=bool(options.get("no_color")))
            raise typer.Exit(code) from None

    return run


def _refuse_empty(options: dict[str, Any]) -> None:
    """Raise UsageError for an empty text, which as a path would be the working folder."""
    for name, value in options.items():
        if name not in MAY_BE_EMPTY and "" in (value if isinstance(value, list) else [value]):
            hint = "Give a value: a shell variable that is not set leaves an empty one."
            raise UsageError(f"An empty value was given for '{name.strip('_').replace('_', '-')}'.", hint)


def _frame(options: dict[str, Any]) -> AbstractContextManager[None]:
    """What is told around a command when it is asked to be verbose."""
    if not options.get("verbose"):
        return nullcontext()
    from gptcli.ui.console import Output
    from gptcli.ui.verbose import VerboseFrame

    return VerboseFrame(Output(verbose=True, no_color=bool(options.get("no_color"))))


def _explained(error: BaseException) -> GptcliError:
    """The error as a person should read it."""
    if isinstance(error, GptcliError):
        return error
    # torch says it in words: on a CPU there is no exception of its own for this.
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
        return OutOfMemoryError("There is not enough memory for this.", "Close other programs, or use a smaller model.")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # files of ours are told by the storage room
        return StorageError("The output could not be written: no space left on the device.")
    return GptcliError(
        f"Something unforeseen happened ({type(error).__name__}: {error}).",
        "Run the same command with --debug, and report what it shows.",
    )


def tell(error: BaseException, *, debug: bool = False, no_color: bool = False) -> int:
    """Say on standard error what went wrong; the exit code."""
    from gptcli.ui.errors import show_error

    if debug:
        traceback.print_exception(error)
    explained = _explained(error)
    show_error(explained.message, explained.hint, no_color=no_color)
    return explained.exit_code


def _unwind(signum: int, _frame: object) -> NoReturn:
    """A signal outside of training unwinds the stack, so that nothing half-written is left."""
    raise KeyboardInterrupt if signum == signal.SIGINT else SystemExit(128 + signum)


def _discard_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's last flush does not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
