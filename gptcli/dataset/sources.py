"""Sources of text: files and standard input, read as bytes.

A source is read more than once: to hash it, to scan it, to encode it. Standard input is therefore first copied to a
temporary file without a name, which disappears however the program ends. Within each pass a small file is read once
(`in_memory`), however often its reader asks for it.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from gptcli.config import DataConfig
from gptcli.dataset.compression import (
    NoZstdError,
    compression_of_content,
    compression_of_name,
    inner_name,
    unpacking,
)
from gptcli.dataset.refusals import MissingExtraError
from gptcli.errors import CorpusError, TokenizerError, UsageError, clause, reason_of
from gptcli.paths import is_elsewhere
from gptcli.storage import disk_errors, unnamed_file

STANDARD_INPUT = "-"
CHUNK_BYTES = 1 << 17
"""Bytes read at once. Small, since one rare character makes Python use two or four bytes for each in its chunk."""

OnBytes = Callable[[int], None]
"""Called with the number of bytes that were just read."""
OnProgress = Callable[[str, int, int], None]
"""Called with a stage ("downloading a.txt", "hashing", "reading", "training tokenizer", "encoding"), its bytes done,
and all of its bytes, or 0 where their number is not known."""
BeginStage = Callable[[str], OnBytes]
"""Begins a stage of the work ("encoding"), and returns the function to call with the number of bytes just done."""


@dataclass(slots=True)
class Findings:
    """Facts that a reader notes about a source while it reads it. They are those of the latest whole pass."""

    format: str = ""
    """The format that was recognized."""
    encoding: str = ""
    """The encoding that `auto` found."""
    has_mark: bool = False
    """Whether the text begins with a byte-order mark, which is left out."""
    has_crlf: bool = False
    undecodable: int = 0
    """Sequences of bytes that were replaced or skipped."""
    bad_rows: int = 0
    """Rows that were skipped."""
    problem: str = ""
    """The first of these rows and why it was skipped: "line 7: it is not JSON"."""
    column: str = ""
    """The column of the text, in words."""
    header: tuple[str, ...] = ()
    """The columns that the first row of a table named."""
    is_known_column: bool = True
    """Whether the user or a usual name, rather than its values, says that the column is the text."""
    short_rows: int = 0
    """Rows of a table with fewer fields than columns."""
    documents: int = 0
    """Documents of the source, also blank ones."""
    is_decoded: bool = False
    """Whether bytes became text by the encoding in the settings."""


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """A file that holds text, or standard input. Two sources are never equal."""

    path: Path
    name: str
    """The path relative to the argument that named it, for people and `dataset.json`."""
    label: str
    """Begins a message about the source: 'books/a.txt' in quotes, or Standard input."""
    from_folder: bool = False
    """Found in a folder rather than named. An empty or binary file is then skipped."""
    descriptor: int | None = None
    """An open file to read instead of the one at `path`."""
    settings: DataConfig = field(default_factory=DataConfig)
    """How bytes become text."""
    findings: Findings = field(default_factory=Findings)
    content: bytes | None = field(default=None, repr=False)
    """All bytes of a small file that was read already."""

    @property
    def suffix(self) -> str:
        """The suffix of the file's format in lower case: ".txt" of A.TXT.gz."""
        return inner_name(self.path).suffix.lower()


def refuse_address(given: str) -> None:
    """Raise UsageError for an address, such as https://example.com/book.txt, where a path is expected."""
    if is_elsewhere(given):
        hint = "Download it first; models on the Hugging Face Hub are hf://owner/name."
        raise UsageError(f"'{given}' is an address, not a file or folder.", hint)


@contextmanager
def opened(source: Source) -> Iterator[int]:
    """A descriptor of what the source holds, to be read with `os.pread`. A compressed file is unpacked to a temporary
    file first. An OSError becomes a CorpusError."""
    with _opened_as_it_is(source) as descriptor, ExitStack() as closing:
        if _compression(source, descriptor):
            descriptor = closing.enter_context(unnamed_file()).fileno()
            with disk_errors(Path(tempfile.gettempdir()), option="TMPDIR"):
                for chunk in chunks(source):
                    _write_all(descriptor, chunk)
        yield descriptor


def chunks(source: Source, on_bytes: OnBytes = lambda _count: None) -> Iterator[bytes]:
    """What the source holds, in pieces of `CHUNK_BYTES`, unpacked if it is compressed.

    `on_bytes` is called with the number of bytes read of the file. Raises CorpusError.
    """
    if source.content is not None:
        yield from _held_chunk(source.content, on_bytes)
        return
    with _opened_as_it_is(source) as descriptor:
        compression = _compression(source, descriptor)
        if not compression:
            yield from _chunks_of(descriptor, on_bytes)
            return
        file = _PositionedFile(descriptor)
        try:
            with unpacking(cast(BinaryIO, file), compression) as stream:
                done = 0
                while chunk := stream.read(CHUNK_BYTES):
                    yield chunk
                    on_bytes(file.tell() - done)
                    done = file.tell()
        except NoZstdError:
            raise MissingExtraError(source.label, "data") from None
        except ValueError as error:
            if compression_of_content(os.pread(descriptor, 16, 0)) != compression:
                message = f"{source.label} is no {compression} file."
                raise CorpusError(message, f"Rename it without {compression} if it is not compressed.") from None
            raise CorpusError(f"{source.label} is damaged: {error}.", "Compress or download it again.") from None


def stored_chunks(source: Source) -> Iterator[bytes]:
    """The bytes of the file as it is, packed or not. Raises CorpusError."""
    if source.content is not None:
        yield from _held_chunk(source.content, lambda _count: None)
        return
    with _opened_as_it_is(source) as descriptor:
        yield from _chunks_of(descriptor, lambda _count: None)


def first_bytes(source: Source) -> bytes:
    """The first chunk of what the source holds. Raises CorpusError."""
    return next(chunks(source), b"")


def in_memory(source: Source) -> Source:
    """The source with its content, if it is a small file that is not compressed; else as it is. Raises CorpusError."""
    if source.descriptor is not None or compression_of_name(source.path):
        return source
    try:
        descriptor = os.open(source.path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            if size >= CHUNK_BYTES or len(content := os.pread(descriptor, size + 1, 0)) != size:
                return source
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unreadable(source, error) from None
    return Source(  # faster than `dataclasses.replace`
        source.path, source.name, source.label, source.from_folder, None, source.settings, source.findings, content
    )


def status_of(source: Source) -> os.stat_result:
    """The status of the file. Raises CorpusError."""
    try:
        return os.stat(source.path if source.descriptor is None else source.descriptor)
    except OSError as error:
        raise _unreadable(source, error) from None


def size_of(source: Source) -> int:
    """Size of the file in bytes. Raises CorpusError."""
    return status_of(source).st_size


@contextmanager
def as_file(source: Source, on_bytes: OnBytes = lambda _count: None) -> Iterator[BinaryIO]:
    """What the source holds as a file object, for libraries that read files in any order.

    `on_bytes` gets the size of the source, packed or not, in total, whatever is read of it. An OSError becomes a
    CorpusError.
    """
    with opened(source) as descriptor:
        raw = _PositionedFile(descriptor, _scaled(on_bytes, os.fstat(descriptor).st_size, size_of(source)))
        with io.BufferedReader(raw) as file:
            yield file
            raw.report_rest()


@contextmanager
def naming(source: Source) -> Iterator[None]:
    """Add the name of the source to the message of a TokenizerError."""
    try:
        yield
    except TokenizerError as error:
        raise TokenizerError(f"{source.label} cannot be encoded: {clause(error.message)}.", error.hint) from None


def copy_standard_input(descriptor: int) -> None:
    """Write all of standard input to an open file. Raises CorpusError or StorageError."""
    with disk_errors(Path(tempfile.gettempdir()), option="TMPDIR"):
        while piece := _read_standard_input():
            _write_all(descriptor, piece)


class _PositionedFile(io.RawIOBase):
    """A file object over a descriptor, with a position of its own: several can read one descriptor.

    `on_bytes` is called with the bytes read until they add up to the size of the file: parts may be read twice.
    """

    def __init__(self, descriptor: int, on_bytes: OnBytes = lambda _count: None) -> None:
        self._descriptor, self._position, self._on_bytes = descriptor, 0, on_bytes
        self._size = self._unreported = os.fstat(descriptor).st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = os.pread(self._descriptor, len(buffer), self._position)
        count = len(data)
        buffer[:count] = data
        self._position += count
        self._report(count)
        return count

    def report_rest(self) -> None:
        """Report the bytes that were not read."""
        self._report(self._unreported)

    def _report(self, count: int) -> None:
        new = min(count, self._unreported)
        self._unreported -= new
        self._on_bytes(new)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if position < 0:
            raise ValueError("it is cut off")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position


@contextmanager
def _opened_as_it_is(source: Source) -> Iterator[int]:
    with ExitStack() as closing:
        try:
            descriptor = source.descriptor
            if descriptor is None:
                descriptor = os.open(source.path, os.O_RDONLY)
                closing.callback(os.close, descriptor)
            yield descriptor
        except OSError as error:
            raise _unreadable(source, error) from None


def changed(source: Source) -> CorpusError:
    """The error for a source that another program changed."""
    return CorpusError(f"{source.label} changed while it was read.", "Run the same command again.")


def _unreadable(source: Source, error: OSError) -> CorpusError:
    return CorpusError(f"{source.label} cannot be read: {reason_of(error)}.", "Check the file's permissions.")


def _compression(source: Source, descriptor: int) -> str:
    """The suffix of a compressed source, or "". That of standard input is found in its content."""
    if source.descriptor is None:
        return compression_of_name(source.path)
    return compression_of_content(os.pread(descriptor, 16, 0))


def _held_chunk(content: bytes, on_bytes: OnBytes) -> Iterator[bytes]:
    """The content of a small file in one piece; none of an empty one."""
    if content:
        yield content
        on_bytes(len(content))


def _chunks_of(descriptor: int, on_bytes: OnBytes) -> Iterator[bytes]:
    offset = 0
    while chunk := os.pread(descriptor, CHUNK_BYTES, offset):
        yield chunk
        offset += len(chunk)
        on_bytes(len(chunk))


def _scaled(on_bytes: OnBytes, unpacked: int, packed: int) -> OnBytes:
    """A function that takes numbers of unpacked bytes, and passes on those of packed ones."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        before, done = done * packed // max(1, unpacked), done + count
        on_bytes(done * packed // max(1, unpacked) - before)

    return add


def _write_all(descriptor: int, piece: bytes) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        return b""
    try:
        return sys.stdin.buffer.read(CHUNK_BYTES)
    except OSError as error:
        raise CorpusError(f"Standard input cannot be read: {reason_of(error)}.") from None
