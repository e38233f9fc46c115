"""The one place where exceptions become a message, a hint and an exit code."""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import typer

from gptcli.cli.flags import settings_as_flags
from gptcli.errors import GptcliError, Interrupted, OutOfMemoryError, StorageError, UsageError, is_out_of_memory
from gptcli.runs.launched import follows
from gptcli.signals import announce_stop, unwind_on_signal

BROKEN_PIPE_EXIT = 141


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with errors as messages, exit codes and clean-up after a signal; `--debug` shows tracebacks too."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        code = 0
        with unwind_on_signal() as received:
            try:
                from gptcli.ui.console import wording

                wording.set(functools.partial(settings_as_flags, command))
                with _frame(options):
                    command(*args, **options)
                sys.stdout.flush()
            except BaseException as error:
                if received():
                    _announce(error, quiet=bool(options.get("quiet")))
                else:
                    flags = {name: bool(options.get(name)) for name in ("debug", "no_color", "quiet")}
                    code = _handle(error, **flags)
        if received():
            code = 128 + received()
        if code:
            raise typer.Exit(code)

    return run


def exit_code_of(run: Callable[[], int | None]) -> int:
    """Call `run`, which returns an exit code or None, and turn the errors of typer and of its help into exit codes."""
    try:
        code = run() or 0
        if not code:
            sys.stdout.flush()
        return code
    except SystemExit as ended:  # of typer and rich, which exit with 1 when the reader of a pipe is gone
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _handle(ended.__context__)
    except BaseException as error:  # of typer, or of a command's module as it is imported
        return _handle(error, debug="--debug" in sys.argv)


def replace_closed_outputs() -> None:
    """Open closed output streams: writing to standard output then fails, and to standard error is ignored.

    A character that the encoding of a stream lacks is escaped.
    """
    for name, number, mode in (("stdout", 1, os.O_RDONLY), ("stderr", 2, os.O_WRONLY)):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, mode), number)  # a file that is opened next must not get this number
            setattr(sys, name, open(number, "w", encoding="utf-8"))  # noqa: SIM115 - for the whole process
        getattr(sys, name).reconfigure(errors="backslashreplace")


def _handle(error: BaseException, *, debug: bool = False, no_color: bool = False, quiet: bool = False) -> int:
    """Report an error on standard error; returns the exit code. SystemExit and the like are raised again."""
    if isinstance(error, KeyboardInterrupt):
        _announce(error, quiet=quiet)
        return 128 + getattr(error, "signum", signal.SIGINT)
    if isinstance(error, BrokenPipeError):
        _discard_stdout()
        return BROKEN_PIPE_EXIT
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of a Rust library
        raise error
    from gptcli.ui.console import show_error

    if debug:
        traceback.print_exception(error)
    explained = _explained(error)
    if follows() and not explained.unheard:
        return explained.exit_code  # rank 0 shows it
    label = "" if isinstance(explained, Interrupted) else "Error"
    show_error(explained.message, explained.hint, label=label, no_color=no_color)
    return explained.exit_code


def _announce(error: BaseException, *, quiet: bool = False) -> None:
    """Say on a terminal that a signal stopped the command, unless that was said."""
    if not (quiet or getattr(error, "announced", False)):
        announce_stop()


def _explained(error: BaseException) -> GptcliError:
    """The error as a person should read it."""
    if isinstance(error, GptcliError):
        return error
    if hasattr(error, "format_message"):  # typer's usage errors, whose class is private
        return _usage_error(error, sys.argv[1:])
    if is_out_of_memory(error):
        return OutOfMemoryError("There is not enough memory for this.", "Close other programs, or use a smaller model.")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EBADF):  # files raise a StorageError
        reason = "standard output is closed" if error.errno == errno.EBADF else "no space left on the device"
        return StorageError(f"The output could not be written: {reason}.")
    return GptcliError(
        f"An unexpected error occurred ({type(error).__name__}: {error}).",
        "Run the same command with --debug, and report what it shows.",
    )


def _usage_error(error: Any, arguments: Sequence[str]) -> UsageError:
    """A usage error of typer as one of ours."""
    from gptcli.cli.arguments import explained

    dashed = next((given for given in arguments if given.startswith("-") and Path(given).is_file()), None)
    if not dashed and (known := explained(error)):
        return known
    help_ = f"See {error.ctx.command_path} --help" if error.ctx else ""
    message = error.format_message().replace("Value error, ", "")
    message = message if message.endswith((".", "?")) else f"{message}."
    return UsageError(message, f"For a file whose name begins with a dash write ./{dashed}" if dashed else help_)


def _frame(options: dict[str, Any]) -> AbstractContextManager[None]:
    """The details that `--verbose` prints before and after a command."""
    if not options.get("verbose"):
        return nullcontext()
    from gptcli.ui.console import Output
    from gptcli.ui.verbose import VerboseFrame

    return VerboseFrame(Output(verbose=True, no_color=bool(options.get("no_color"))))


def _discard_stdout() -> None:
    """Redirect standard output to the null device, so that the last flush of the interpreter does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
