"""Finding and reading text: files, folders, standard input.

Text is strict UTF-8 and is read in pieces, more than once (to hash it, to survey it, to encode it), so standard input
is first copied to a temporary file. Everything that cannot be text is refused with one sentence that says what it is.
"""

from __future__ import annotations

import codecs
import fnmatch
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gptcli.dataset.not_text import BINARY, not_text
from gptcli.errors import CorpusError, TokenizerError, UsageError, clause, reason_of
from gptcli.storage import disk_errors, sha256_of_file
from gptcli.tokenizer.document import TOKENIZER_FILE

STANDARD_INPUT = "-"
_CHUNK_BYTES = 1 << 17
"""Small: one rare character makes Python spend two or four bytes on each character of its chunk."""
_UTF8_BOM = codecs.BOM_UTF8

OnBytes = Callable[[int], None]
"""Called with the number of bytes that were just read."""


class NotTextError(CorpusError):
    """A file that is no text at all, as opposed to text in another encoding."""


@dataclass(frozen=True)
class TextFile:
    """One text to read. `name` is relative to the argument that named it, for people and `dataset.json`."""

    path: Path
    name: str
    shown: str
    """How errors call it, in quotes where it is a path: 'books/a.txt', standard input."""
    from_folder: bool = False
    """Found in a folder rather than named, so that an empty or binary file is passed over and told."""

    @property
    def subject(self) -> str:
        """`shown` at the beginning of a sentence."""
        return self.shown[:1].upper() + self.shown[1:]


@contextmanager
def find_texts(inputs: Sequence[str], include: Sequence[str]) -> Iterator[list[TextFile]]:
    """The texts that `inputs` name, in their order; a folder gives its matching files, sorted, at any depth.

    `-` is standard input, copied to a temporary file that lasts as long as the context. Hidden files and folders inside
    a folder are passed over, and so are models and datasets, which have a `tokenizer.json`. Raises CorpusError for what
    is missing, is no regular file, or matches nothing.
    """
    if not inputs:
        raise CorpusError("There is no text to read.", "Name a text file, a folder, or - for standard input.")
    if list(inputs).count(STANDARD_INPUT) > 1:
        raise CorpusError("Standard input can be read only once.", "Name - once.")
    with tempfile.TemporaryDirectory(prefix="gptcli-") as scratch:
        files: list[TextFile] = []
        for given in inputs:
            if given == STANDARD_INPUT:
                files.append(TextFile(_copy_of_standard_input(Path(scratch)), "standard input", "standard input"))
            else:
                refuse_address(given)
                files.extend(_texts_at(Path(given), include))
        yield files


def refuse_address(given: str) -> None:
    """Raise UsageError for an address, such as https://example.com/book.txt, where a path is wanted."""
    if "://" in given:
        hint = "Download it first; models on the Hugging Face Hub are hf://owner/name."
        raise UsageError(f"'{given}' is an address, not a file or folder.", hint)


def size_of(file: TextFile) -> int:
    """Size in bytes."""
    with _reading(file):
        return file.path.stat().st_size


def hash_text(file: TextFile) -> tuple[int, str]:
    """Size in bytes and hexadecimal sha256 of a file."""
    with _reading(file):
        return file.path.stat().st_size, sha256_of_file(file.path)


def read_text(file: TextFile, on_bytes: OnBytes) -> Iterator[str]:
    """The text of a file in pieces of about 128 kB, without its byte-order mark; "" never comes.

    Raises CorpusError, with the byte offset and the line, at the first byte that is not UTF-8, and for content that is
    not text at all.
    """
    offset, carried = 0, b""  # carried: the start of a character whose end is in the next chunk
    for chunk in _chunks(file):
        problem = not_text(chunk, file.path.suffix) if offset == 0 else BINARY if b"\0" in chunk else None
        if problem:
            raise NotTextError(f"{file.subject} {problem.what}.", problem.hint)
        data = chunk.removeprefix(_UTF8_BOM) if offset == 0 else carried + chunk
        try:
            text, used = codecs.utf_8_decode(data, "strict", False)
        except UnicodeDecodeError as error:
            raise _not_utf8(file, offset + len(chunk) - len(data) + error.start) from None
        carried = data[used:]
        offset += len(chunk)
        if text:
            yield text
        on_bytes(len(chunk))
    if carried:
        raise _not_utf8(file, offset - len(carried))


def has_byte_order_mark(file: TextFile) -> bool:
    """Whether the file starts with a UTF-8 byte-order mark."""
    with _reading(file), open(file.path, "rb") as stream:
        return stream.read(len(_UTF8_BOM)) == _UTF8_BOM


@contextmanager
def naming(file: TextFile) -> Iterator[None]:
    """Say in a TokenizerError which text it is about."""
    try:
        yield
    except TokenizerError as error:
        raise TokenizerError(f"{file.subject} cannot be encoded: {clause(error.message)}.", error.hint) from None


def _texts_at(path: Path, include: Sequence[str]) -> list[TextFile]:
    try:
        if path.is_dir():
            return _texts_in_folder(path, include)
        if not path.exists():
            raise CorpusError(f"There is no file or folder '{path}'.", "Check the path.")
    except OSError as error:
        where = error.filename or path
        raise CorpusError(f"'{where}' cannot be read: {reason_of(error)}.") from None
    if not path.is_file():
        raise CorpusError(
            f"'{path}' is a device, pipe or socket, not a regular file.", "To read from a pipe, use - (standard input)."
        )
    return [TextFile(path, path.name, f"'{path}'")]


def _texts_in_folder(folder: Path, include: Sequence[str]) -> list[TextFile]:
    def stop(error: OSError) -> None:
        raise error

    found: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=stop):
        if TOKENIZER_FILE in names and Path(parent) != folder:
            folders.clear()  # a model or dataset, such as a run: its model card is no text to learn from
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        matching = (name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in include))
        found += [Path(parent, name) for name in matching if not name.startswith(".")]
    files = sorted((path for path in found if path.is_file()), key=lambda path: path.relative_to(folder).parts)
    if not files:
        patterns = ", ".join(include)
        raise CorpusError(
            f"The folder '{folder}' holds no file that matches {patterns}.",
            "Name other patterns with --include '*.py'.",
        )
    return [TextFile(path, path.relative_to(folder).as_posix(), f"'{path}'", from_folder=True) for path in files]


def _copy_of_standard_input(scratch: Path) -> Path:
    copy = scratch / "standard-input"
    with disk_errors(copy, option="TMPDIR"), open(copy, "wb") as file:
        while piece := _read_standard_input():
            file.write(piece)
    return copy


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        return b""
    try:
        return sys.stdin.buffer.read(_CHUNK_BYTES)
    except OSError as error:
        raise CorpusError(f"Standard input cannot be read: {reason_of(error)}.") from None


def _chunks(file: TextFile) -> Iterator[bytes]:
    with _reading(file), open(file.path, "rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


@contextmanager
def _reading(file: TextFile) -> Iterator[None]:
    """Turn an OSError while reading into a CorpusError."""
    try:
        yield
    except OSError as error:
        raise CorpusError(
            f"{file.subject} cannot be read: {reason_of(error)}.", "Check the file's permissions."
        ) from None


def _not_utf8(file: TextFile, offset: int) -> CorpusError:
    """The error for a byte at `offset`; its line is counted only now, so that good text costs nothing."""
    line, left = 1, offset
    with open(file.path, "rb") as stream:
        while left > 0 and (piece := stream.read(min(left, _CHUNK_BYTES))):
            line += piece.count(b"\n")
            left -= len(piece)
        byte = stream.read(1)
    return CorpusError(
        f"{file.subject} is not UTF-8 text: byte 0x{byte.hex().upper()} at offset {offset:,}, line {line:,}.",
        "If it is Latin-1, convert it: iconv -f ISO-8859-1 -t UTF-8 OLD > NEW.",
    )


def printable(name: str) -> str:
    """A file name as text that UTF-8 can write: names may hold any byte."""
    return name.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")
