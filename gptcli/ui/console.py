"""Where output goes: the result to standard output, everything else to standard error.

Text from a model, a corpus or a file never acts on the terminal: it is not read as rich markup, and its control
characters are shown escaped when a terminal is there to obey them.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, Any

from rich.console import Console, RenderableType

PIPE_WIDTH = 10_000
"""Columns where no terminal limits them, so that nothing is wrapped."""

wording: ContextVar[Callable[[str], str]] = ContextVar("wording", default=str)
"""Turns the settings that errors and notes name into flags. The command line sets it for the command that runs."""

_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Output:
    """How a command speaks: `quiet` drops notes, `verbose` adds details, `as_json` makes the result JSON."""

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False
    no_color: bool = False

    @property
    def out(self) -> Console:
        """rich's view of standard output."""
        return _console(sys.stdout, self.no_color)

    @property
    def err(self) -> Console:
        """rich's view of standard error."""
        return _console(sys.stderr, self.no_color)

    def note(self, text: str) -> None:
        """Tell something on standard error, unless quiet."""
        if not self.quiet:
            self._tell(text, "")

    def detail(self, text: str) -> None:
        """Tell something on standard error when asked to be verbose."""
        if self.verbose:
            self._tell(text, "dim")

    def warn(self, text: str) -> None:
        """Tell something on standard error even when quiet."""
        self._tell(text, "yellow")

    def show(self, *parts: RenderableType) -> None:
        """A result for people, such as a table, on standard output."""
        console = self.out
        for part in parts:
            console.print(printable(part) if isinstance(part, str) else part, markup=False, highlight=False)

    def result(self, text: str) -> None:
        """One line of result on standard output: exactly as it is on a pipe, made harmless on a terminal."""
        sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + "\n")
        sys.stdout.flush()

    def json(self, value: Any) -> None:
        """A result for programs on standard output; NaN and infinity become null, as JSON has neither.

        On a terminal it is the same value: JSON has its own way to write control characters.
        """
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
        self.result(re.sub("[^ -~\n]", _json_escaped, text) if sys.stdout.isatty() else text)

    def _tell(self, text: str, style: str) -> None:
        text = printable(wording.get()(text))
        self.err.print(text, style=style, markup=False, highlight=False, soft_wrap=not self.err.is_terminal)


def printable(text: str) -> str:
    """The text with control characters (all but newline and tab) and bidirectional overrides escaped: `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _acts_on_terminal(char) else char for char in text)


def _acts_on_terminal(char: str) -> bool:
    return (unicodedata.category(char) == "Cc" and char not in "\n\t") or char in _BIDI_CONTROLS


def _json_escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}" if _acts_on_terminal(found[0]) else found[0]


def _escaped(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave a closed pipe to the command line, which knows the exit code; rich would exit with 1."""
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
