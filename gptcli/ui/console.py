"""Output: the result goes to standard output, everything else to standard error.

Text from a model, a corpus or a file never acts on the terminal: rich does not read it as markup, and control
characters are escaped when the output is a terminal.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

if TYPE_CHECKING:
    from rich.live import Live

PIPE_WIDTH = 10_000
"""Width without a terminal, in columns: nothing is wrapped."""

wording: ContextVar[Callable[[str], str]] = ContextVar("wording", default=str)
"""Turns the settings that errors and notes name into flags. The command line sets it for the command that runs."""

_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Output:
    """The output of a command: `quiet` drops notes, `verbose` adds details, `as_json` makes the result JSON."""

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False
    no_color: bool = False

    @property
    def out(self) -> Console:
        """Standard output as a rich console."""
        return _console(sys.stdout, self.no_color)

    @property
    def err(self) -> Console:
        """Standard error as a rich console."""
        return _console(sys.stderr, self.no_color)

    def note(self, text: str) -> None:
        """Print a line on standard error unless `quiet` is set."""
        if not self.quiet:
            self._print(text, "")

    def detail(self, text: str) -> None:
        """Print a line on standard error if `verbose` is set."""
        if self.verbose:
            self._print(text, "dim")

    def warn(self, text: str) -> None:
        """Print a line on standard error, even if `quiet` is set."""
        self._print(text, "yellow")

    def show(self, *parts: RenderableType) -> None:
        """Print a result for people, such as a table, on standard output; on a pipe no line ends with spaces."""
        console = self.out
        with nullcontext() if console.is_terminal else console.capture() as captured:
            for part in parts:
                console.print(printable(part) if isinstance(part, str) else part, markup=False, highlight=False)
        if captured:
            sys.stdout.write(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE))

    def result(self, text: str) -> None:
        """Print one line of result on standard output: unchanged on a pipe, escaped on a terminal."""
        sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + "\n")
        sys.stdout.flush()

    def json(self, value: Any) -> None:
        """Print a result for programs on standard output; NaN and infinity become null, as JSON has neither.

        On a terminal control characters are escaped as JSON does, so that the value is the same.
        """
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
        self.result(re.sub("[^ -~\n]", _json_escaped, text) if sys.stdout.isatty() else text)

    def _print(self, text: str, style: str) -> None:
        text = printable(wording.get()(text))
        self.err.print(text, style=style, markup=False, highlight=False, soft_wrap=not self.err.is_terminal)


def show_error(message: str, hint: str, *, label: str = "Error", no_color: bool = False) -> None:
    """Print a message and its hint ("" for none) on standard error, with `label` ("" for none) before the message."""
    console = Output(no_color=no_color).err
    for name, style, text in ((label, "bold red", message), ("Hint", "bold", hint)):
        if text:
            line = Text.assemble((f"{name}: ", style) if name else "", printable(wording.get()(text)))
            console.print(line, soft_wrap=True)


@contextmanager
def live_display(live: Live) -> Iterator[None]:
    """Run a live display. Ctrl-Z removes it and shows the cursor again, and `fg` starts it below the shell's lines."""

    def suspend(_signum: int, _frame: object) -> None:
        shown, transient, overflow = live.get_renderable(), live.transient, live.vertical_overflow
        live.transient = True
        live.update("")  # else the next refresh would go up by the old height, over the shell's lines
        live.stop()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)  # returns when the process is continued
        signal.signal(signal.SIGTSTP, suspend)
        live.transient, live.vertical_overflow = transient, overflow
        live.update(shown)
        live.start()

    live.start()
    previous = signal.getsignal(signal.SIGTSTP)
    if previous is not signal.SIG_IGN:  # as in a shell without job control
        signal.signal(signal.SIGTSTP, suspend)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, previous)
        live.stop()


def one_line(text: str) -> str:
    """The text with line breaks and tabs escaped too: a file name may have them."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def printable(text: str) -> str:
    """The text with control characters (except newline and tab) and bidirectional overrides escaped: `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _acts_on_terminal(char) else char for char in text)


def on_terminal(text: str, *, trim: bool = False) -> str:
    """A generated text as a terminal shows it: `printable`, CR LF as a line end, with `trim` no blank lines first."""
    text = text.replace("\r\n", "\n")
    return printable(text.lstrip("\n") if trim else text)


def _acts_on_terminal(char: str) -> bool:
    return (unicodedata.category(char) == "Cc" and char not in "\n\t") or char in _BIDI_CONTROLS


def _json_escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}" if _acts_on_terminal(found[0]) else found[0]


def _escaped(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError for the command line to handle; rich would exit with 1."""
        raise BrokenPipeError


def _console(stream: IO[str], no_color: bool) -> Console:
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return _Console(file=stream, width=width, no_color=no_color or None, emoji=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
