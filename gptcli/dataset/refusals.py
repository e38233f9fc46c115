"""Why a file is not read: errors that a folder can skip, or that are listed for all files at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gptcli.errors import CorpusError, install_hint


class NotTextError(CorpusError):
    """A file that is not text at all, as opposed to text in another encoding. Skipped in folders."""


class NotRowsError(NotTextError):
    """A file of values that are not rows, such as the settings of a program. Skipped in folders."""


class MissingExtraError(CorpusError):
    """A file whose reader needs packages that are not installed. Skipped in folders."""

    def __init__(self, what: str, extra: str) -> None:
        """`what` begins the message ('a.parquet' in quotes); `extra` is the name of gptcli's optional extra."""
        super().__init__(f"{what} needs further packages.", install_hint(extra))
        self.extra = extra


class UndecodableError(CorpusError):
    """Text in another encoding than the stated one. All such files are listed at once."""

    def __init__(self, message: str, hint: str, conversion: str = "") -> None:
        """`conversion` is a hint for commands that read UTF-8 alone."""
        super().__init__(message, hint)
        self.conversion = conversion


@contextmanager
def utf8_alone() -> Iterator[None]:
    """Hints about other encodings say how to convert a file, for commands that do not read them."""
    try:
        yield
    except UndecodableError as error:
        raise CorpusError(error.message, error.conversion) from None
