"""Sources of text: files, folders and standard input, found and read as bytes.

A source is read more than once: to hash it, to scan it, to encode it. Standard input is therefore first copied to a
temporary file without a name, which disappears however the program ends.
"""

from __future__ import annotations

import fnmatch
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gptcli.errors import CorpusError, TokenizerError, UsageError, clause, reason_of
from gptcli.storage import disk_errors, unnamed_file
from gptcli.tokenizer.document import TOKENIZER_FILE

STANDARD_INPUT = "-"
CHUNK_BYTES = 1 << 17
"""Bytes read at once. Small, since one rare character makes Python use two or four bytes for each in its chunk."""

OnBytes = Callable[[int], None]
"""Called with the number of bytes that were just read."""
BeginStage = Callable[[str], OnBytes]
"""Begins a stage of the work ("encoding"), and returns the function to call with the number of bytes just done."""


@dataclass(frozen=True)
class Source:
    """A file that holds text, or standard input."""

    path: Path
    name: str
    """The path relative to the argument that named it, for people and `dataset.json`."""
    label: str
    """Begins a message about the source: 'books/a.txt' in quotes, or Standard input."""
    from_folder: bool = False
    """Found in a folder rather than named. An empty or binary file is then skipped with a note."""
    descriptor: int | None = None
    """An open file to read instead of the one at `path`."""


@contextmanager
def find_sources(inputs: Sequence[str], include: Sequence[str]) -> Iterator[list[Source]]:
    """The sources that `inputs` name, in their order; a folder gives its matching files, sorted, at any depth.

    `-` is standard input, whose copy lasts as long as the context. Hidden files and folders inside a folder are
    skipped, and so are models and datasets, which have a `tokenizer.json`. Raises CorpusError for a path that is
    missing or no regular file, and for a folder without a match.
    """
    if not inputs:
        raise CorpusError("There is no text to read.", "Name a text file, a folder, or - for standard input.")
    if list(inputs).count(STANDARD_INPUT) > 1:
        raise CorpusError("Standard input can be read only once.", "Name - once.")
    with ExitStack() as open_copies:
        sources: list[Source] = []
        for given in inputs:
            if given == STANDARD_INPUT:
                descriptor = open_copies.enter_context(unnamed_file()).fileno()
                _copy_standard_input(descriptor)
                sources.append(Source(Path("-"), "standard input", "Standard input", descriptor=descriptor))
            else:
                refuse_address(given)
                sources.extend(_sources_at(Path(given), include))
        yield sources


def refuse_address(given: str) -> None:
    """Raise UsageError for an address, such as https://example.com/book.txt, where a path is expected."""
    if "://" in given:
        hint = "Download it first; models on the Hugging Face Hub are hf://owner/name."
        raise UsageError(f"'{given}' is an address, not a file or folder.", hint)


@contextmanager
def opened(source: Source) -> Iterator[int]:
    """A descriptor of the source, to be read with `os.pread`; an OSError becomes a CorpusError."""
    with ExitStack() as closing:
        try:
            descriptor = source.descriptor
            if descriptor is None:
                descriptor = os.open(source.path, os.O_RDONLY)
                closing.callback(os.close, descriptor)
            yield descriptor
        except OSError as error:
            hint = "Check the file's permissions."
            raise CorpusError(f"{source.label} cannot be read: {reason_of(error)}.", hint) from None


def chunks(source: Source) -> Iterator[bytes]:
    """The bytes of a source, in pieces of `CHUNK_BYTES`. Raises CorpusError."""
    with opened(source) as descriptor:
        offset = 0
        while chunk := os.pread(descriptor, CHUNK_BYTES, offset):
            yield chunk
            offset += len(chunk)


def size_of(source: Source) -> int:
    """Size in bytes."""
    with opened(source) as descriptor:
        return os.fstat(descriptor).st_size


@contextmanager
def naming(source: Source) -> Iterator[None]:
    """Add the name of the source to the message of a TokenizerError."""
    try:
        yield
    except TokenizerError as error:
        raise TokenizerError(f"{source.label} cannot be encoded: {clause(error.message)}.", error.hint) from None


def _sources_at(path: Path, include: Sequence[str]) -> list[Source]:
    try:
        if path.is_dir():
            return _sources_in_folder(path, include)
        if not path.exists():
            raise CorpusError(f"There is no file or folder '{path}'.", "Check the path.")
    except OSError as error:
        where = error.filename or path
        hint = "Check its permissions, or name a folder with nothing but your texts."
        raise CorpusError(f"'{where}' cannot be read: {reason_of(error)}.", hint) from None
    if not path.is_file():
        raise CorpusError(
            f"'{path}' is a device, pipe or socket, not a regular file.", "To read from a pipe, use - (standard input)."
        )
    return [Source(path, path.name, f"'{path}'")]


def _sources_in_folder(folder: Path, include: Sequence[str]) -> list[Source]:
    def stop(error: OSError) -> None:
        raise error

    found: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=stop):
        if TOKENIZER_FILE in names and Path(parent) != folder:
            folders.clear()  # a model or a dataset, such as a run: its model card is not part of the text
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        matching = (name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in include))
        found += [Path(parent, name) for name in matching if not name.startswith(".")]
    files = sorted((path for path in found if path.is_file()), key=lambda path: path.relative_to(folder).parts)
    if not files:
        message = f"The folder '{folder}' holds no file that matches {', '.join(include)}."
        raise CorpusError(message, "Choose other patterns with `data.include`, such as *.py.")
    return [Source(path, path.relative_to(folder).as_posix(), f"'{path}'", from_folder=True) for path in files]


def _copy_standard_input(descriptor: int) -> None:
    with disk_errors(Path(tempfile.gettempdir()), option="TMPDIR"):
        while piece := _read_standard_input():
            while piece:
                piece = piece[os.write(descriptor, piece) :]


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        return b""
    try:
        return sys.stdin.buffer.read(CHUNK_BYTES)
    except OSError as error:
        raise CorpusError(f"Standard input cannot be read: {reason_of(error)}.") from None
