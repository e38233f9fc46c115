"""Paths as people give them: refused with a hint where no file can have them."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from gptcli.errors import GptcliError, UsageError

_SHOWN = 60


def given_path(given: object) -> Path:
    """The path that a person gave, whether there is a file or not.

    Raises UsageError for one that no file can have: empty, or with characters that names cannot hold. GptcliError
    is raised for one that is too long for this file system.
    """
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"{given!r} is not a path.", "Give the path of a file or folder as text.")
    text = os.fspath(given)
    if not text:
        raise UsageError("An empty path was given.", "Name a file or folder; the current folder is '.'.")
    try:
        os.lstat(text)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            message = f"'{shown}' is too long for the name of a file or folder ({len(text):,} characters)."
            raise GptcliError(message, "Check the path, or use a shorter name.") from None
    except ValueError:  # a NUL, or half a character
        raise UsageError(f"{text[:_SHOWN]!r} has a character that no path can have.", "Check the path.") from None
    return Path(text)


def hint_for_missing(path: Path) -> str:
    """A hint for a path where there is nothing, from what is beside it."""
    try:
        beside = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return "Check the path."
    if spaced := [name for name in beside if name.startswith(f"{path.name} ")]:
        return f"Put a path with spaces in quotes: '{path.with_name(spaced[0])}'."
    similar = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.75)
    return f"Did you mean '{path.with_name(similar[0])}'?" if similar else "Check the path."


def output_path(given: str | Path) -> Path:
    """The path that a person gave for something to write; raises as `given_path` does, and UsageError for an address.

    An address, such as hf://owner/name, would become a folder called `hf:`.
    """
    path = given_path(given)
    if is_elsewhere(str(given)):
        hint = "Give a path on this machine; `gptcli export --to hf --push owner/name` uploads a trained model."
        raise UsageError(f"'{given}' is an address, which cannot be written to.", hint)
    return path


def text_paths(given: object) -> tuple[str, ...]:
    """The texts that a person gave, one path or address or several, as they were given; raises as `given_path` does."""
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    return tuple(str(path) for path in several if is_elsewhere(path) or given_path(path))


def is_elsewhere(given: object) -> bool:
    """Whether what a person gave is an address, such as https://example.com/book.txt, rather than a path."""
    return isinstance(given, str) and "://" in given
