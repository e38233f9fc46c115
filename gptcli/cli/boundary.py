"""The one place where exceptions become a message, a hint and an exit code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from gptcli.errors import GptcliError

BROKEN_PIPE_EXIT = 141
INTERRUPT_EXIT = 130


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that it ends by the table of exit codes; with `--debug` exceptions pass through."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_stdout()
            raise typer.Exit(BROKEN_PIPE_EXIT) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPT_EXIT) from None
        except GptcliError as error:
            if options.get("debug"):
                raise
            _fail(error.message, error.hint, error.exit_code, options)
        except MemoryError:
            if options.get("debug"):
                raise
            _fail("There is not enough memory for this.", "Close other programs, or use a smaller model.", 1, options)

    return run


def _fail(message: str, hint: str, exit_code: int, options: dict[str, Any]) -> None:
    from gptcli.ui.errors import show_error

    show_error(message, hint, no_color=bool(options.get("no_color")))
    raise typer.Exit(exit_code)


def _discard_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's last flush does not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
