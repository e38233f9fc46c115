"""Why a file is not read: errors that a folder can skip, or that are listed for all files at once."""

from __future__ import annotations

from gptcli.errors import CorpusError


class NotTextError(CorpusError):
    """A file that is not text at all, as opposed to text in another encoding. Skipped in folders."""


class NotRowsError(NotTextError):
    """A file of values that are not rows, such as the settings of a program. Skipped in folders."""


class MissingExtraError(CorpusError):
    """A file whose reader needs packages that are not installed. Skipped in folders."""

    def __init__(self, what: str, extra: str) -> None:
        """`what` begins the message ('a.parquet' in quotes); `extra` is the name of gptcli's optional extra."""
        super().__init__(f"{what} needs further packages.", f"Install them with pip install 'gptcli[{extra}]'.")
        self.extra = extra


class UndecodableError(CorpusError):
    """Text in another encoding than the stated one. All such files are listed at once."""
