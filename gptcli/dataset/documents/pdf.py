"""The reader of PDF: the text of the pages, in the order in which the file has it, each page ended by a line end.

pypdf reads it: it keeps lists and tables in their order, and limits what a stream unpacks to. Lines, running heads and
page numbers stay as they are printed, since a PDF does not say what they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from gptcli.dataset.documents.refusals import require_package
from gptcli.dataset.documents.source_file import source_file
from gptcli.dataset.documents.text_flow import whole_characters
from gptcli.dataset.plain_text import NotTextError
from gptcli.dataset.sources import OnBytes, Source
from gptcli.errors import CorpusError, first_line

_HINT = "Print it to a new PDF, or convert it to text: pdftotext OLD.pdf NEW.txt."
_SOFT_HYPHEN = re.compile("\u00ad\n?")
_SPACES_AT_END = re.compile(r"[ \t]+$", re.MULTILINE)


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of PDF (see `readers`): the file is one document. Raises CorpusError."""
    yield _text(source, on_bytes)


def _text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    require_package("pypdf", source)
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs each object that it repairs
    has_text = False
    with source_file(source, on_bytes) as file:
        try:
            for page in pypdf.PdfReader(file).pages:
                if text := _tidied(page.extract_text()):
                    has_text = True
                    yield text + "\n"
        except (OSError, MemoryError):
            raise
        except pypdf.errors.FileNotDecryptedError:
            raise CorpusError(
                f"{source.label} is protected by a password.", "Save a copy without a password."
            ) from None
        except pypdf.errors.DependencyError as error:
            message = f"{source.label} cannot be decrypted: {first_line(error)}."
            raise CorpusError(message, "Install the package: pip install cryptography") from None
        except Exception as error:  # a damaged file can raise anything in pypdf
            message = f"{source.label} cannot be read as PDF: {first_line(error).rstrip('.')}."
            raise CorpusError(message, _HINT) from None
    if not has_text:
        hint = "If its pages are scans, recognize their text first: ocrmypdf OLD.pdf NEW.pdf."
        raise NotTextError(f"{source.label} is a PDF without text.", hint)


def _tidied(page: str) -> str:
    """The text of a page without spaces at the ends of lines, soft hyphens, and blank lines at its start and end."""
    return _SPACES_AT_END.sub("", _SOFT_HYPHEN.sub("", whole_characters(page))).strip("\n")
