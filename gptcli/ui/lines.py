"""Lines that a person types."""

from __future__ import annotations

import sys
from collections.abc import Iterator

MARK = "> "


def typed_lines() -> Iterator[str]:
    """Lines from standard input until it ends (Ctrl-D), without their newlines; a mark asks for each on a terminal.

    Bytes that are not UTF-8 come as lone surrogates, as they do from the command line.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n").decode("utf-8", errors="surrogateescape")
        return
    import readline  # noqa: F401 - gives `input` line editing and history

    while True:
        try:
            yield input(MARK)
        except EOFError:
            sys.stdout.write("\n")
            return
