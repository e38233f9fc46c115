"""The errors of the readers of documents, each one sentence that names the file, and a hint."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from xml.parsers.expat import ExpatError

from gptcli.dataset.refusals import MissingExtraError
from gptcli.dataset.sources import Source
from gptcli.errors import CorpusError, first_line

DAMAGE = (ValueError, EOFError, NotImplementedError, RecursionError, zipfile.BadZipFile, zlib.error, ExpatError)
"""The errors of the standard library on damaged input: zipfile raises NotImplementedError for an archive that needs a
newer version, and deep nesting exceeds Python's recursion limit. Ours are ValueErrors that say what is wrong."""


def require_package(package: str, source: Source) -> None:
    """Raise MissingExtraError if a package of the extra `documents` is not installed."""
    if find_spec(package) is None:
        raise MissingExtraError(source.label, "documents")


@contextmanager
def refusing(source: Source, what: str, hint: str) -> Iterator[None]:
    """Turn errors on damaged input into a CorpusError: "'a.docx' cannot be read as a Word document: it is …"."""
    try:
        yield
    except DAMAGE as error:
        raise CorpusError(f"{source.label} cannot be read as {what}: {_reason(error)}.", hint) from None


def _reason(error: Exception) -> str:
    """The reason in our words; the library's own where they say more."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return f"its byte 0x{error.object[error.start]:02X} cannot be decoded as {error.encoding}"
        case ExpatError():
            return f"its XML is damaged ({error})"
        case EOFError() | NotImplementedError() | zipfile.BadZipFile() | zlib.error():
            return "it is cut off or damaged"
    return first_line(error).rstrip(".")
