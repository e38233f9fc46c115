"""The reader of PDF: the text of the pages, in the order in which the file has it, each page ended by a line end.

pypdf reads it: it keeps lists and tables in their order, and limits what a stream unpacks to. Lines, running heads and
page numbers stay as they are printed, since a PDF does not say what they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from gptcli.dataset.formats.archive import MAX_RATIO
from gptcli.dataset.formats.library_errors import require_package
from gptcli.dataset.formats.text_flow import whole_characters
from gptcli.dataset.refusals import NotTextError
from gptcli.dataset.sources import OnBytes, Source, as_file, first_bytes, size_of
from gptcli.errors import CorpusError, first_line

RATIO_COUNTS_FROM = 1 << 20
"""Characters before their ratio to the file's size counts. Any number of pages may share one stream."""
_BEGINS_WITHIN = 1024
"""Bytes in which the first line of a PDF must be, as programs that show it expect (ISO 32000-1, annex H)."""
_SOFT_HYPHEN = re.compile("\u00ad\n?")
_SPACES_AT_END = re.compile(r"[ \t]+$", re.MULTILINE)


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of PDF (see `readers`): the file is one document. Raises CorpusError."""
    yield _text(source, on_bytes)


def _text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    require_package("pypdf", source)
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs each object that it repairs
    length, most = 0, max(RATIO_COUNTS_FROM, MAX_RATIO * size_of(source))
    with as_file(source, on_bytes) as file, _refusing(source):
        for page in PdfReader(file).pages:
            if text := _tidied(page.extract_text()):
                length += len(text)
                if length > most:
                    raise ValueError(f"it unpacks to more than {MAX_RATIO} times its size")
                yield text + "\n"
    if not length:
        hint = "If its pages are scans, recognize their text first: ocrmypdf OLD.pdf NEW.pdf."
        raise NotTextError(f"{source.label} is a PDF without text.", hint)


def _tidied(page: str) -> str:
    """The text of a page without spaces at the ends of lines, soft hyphens, and blank lines at its start and end."""
    return _SPACES_AT_END.sub("", _SOFT_HYPHEN.sub("", whole_characters(page))).strip("\n")


@contextmanager
def _refusing(source: Source) -> Iterator[None]:
    """Turn pypdf's errors into a CorpusError. A damaged file makes it raise errors of any kind."""
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

    try:
        yield
    except (OSError, MemoryError):
        raise
    except FileNotDecryptedError:
        message, hint = f"{source.label} is protected by a password.", "Save a copy without a password."
        raise CorpusError(message, hint) from None
    except DependencyError as error:
        message = f"{source.label} cannot be decrypted: {first_line(error).rstrip('.')}."
        raise CorpusError(message, "Install the package: pip install cryptography") from None
    except Exception as error:
        reason = first_line(error).rstrip(".")
        if b"%PDF-" not in first_bytes(source)[:_BEGINS_WITHIN]:
            reason = "it does not begin as a PDF does"
        elif isinstance(error, PyPdfError):
            reason = "it is cut off" if "ended unexpectedly" in reason else f"it is damaged ({reason})"
        message = f"{source.label} cannot be read as PDF: {reason}."
        raise CorpusError(message, "Print it to a new PDF, or convert it to text: pdftotext OLD.pdf NEW.txt.") from None
