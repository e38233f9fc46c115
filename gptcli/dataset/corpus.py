"""The corpus: the documents of all sources, scanned once before anything is encoded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gptcli.dataset.plain_text import NotTextError, has_byte_order_mark
from gptcli.dataset.readers import read_documents
from gptcli.dataset.sources import OnBytes, Source
from gptcli.errors import CorpusError, counted
from gptcli.tokenizer.code_points import beyond_ascii
from gptcli.tokenizer.tokenizer import Tokenizer

_DEFAULT_TRAIN_SHARE = 0.9
_MAX_HELD_OUT_BYTES = 10_000_000
_NAMED_CHARACTERS = 10


@dataclass(frozen=True)
class Document:
    """A document that is not blank. Its sizes do not count skipped characters."""

    source: Source
    index: int
    """Its place among all documents of the source, from 0."""
    characters: int
    bytes: int
    """UTF-8 bytes, without a byte-order mark."""


@dataclass(frozen=True)
class Corpus:
    """The documents of all sources, in order."""

    documents: tuple[Document, ...]
    sources: tuple[Source, ...] = ()
    """The sources that have a document."""
    alphabet: tuple[str, ...] = ()
    """The distinct characters, sorted."""
    notes: tuple[str, ...] = ()
    has_skipped: bool = False
    """Whether there were characters to skip."""
    skip_unknown: Tokenizer | None = None
    """The tokenizer whose unknown characters are skipped."""

    @property
    def characters(self) -> int:
        return sum(document.characters for document in self.documents)

    @property
    def bytes(self) -> int:
        return sum(document.bytes for document in self.documents)

    def training_characters(self, val_fraction: float | None) -> int:
        """The number of characters, from the first on, for training; the others are held out for validation.

        By default int(0.9 × characters), as nanoGPT cuts Shakespeare into 1,003,854 and 111,540, but at most 10 MB of
        text are held out.
        """
        if val_fraction is not None:
            return int((1 - val_fraction) * self.characters)
        max_held_out = _MAX_HELD_OUT_BYTES * self.characters // self.bytes
        return max(int(_DEFAULT_TRAIN_SHARE * self.characters), self.characters - max_held_out)

    def read(self, source: Source) -> Iterator[Iterator[str]]:
        """Every document of a source, each in non-empty pieces, without the characters to skip."""
        documents = read_documents(source, lambda _: None)
        if self.skip_unknown is None:
            return documents
        known_part = self.skip_unknown.known_part
        return (filter(None, map(known_part, pieces)) for pieces in documents)


def scan(sources: Sequence[Source], on_bytes: OnBytes, *, skip_unknown: Tokenizer | None = None) -> Corpus:
    """Read every source once. Raises CorpusError for a source that is not text, empty or blank.

    Empty, blank and binary files of a folder are skipped with a note. With `skip_unknown`, characters that this
    tokenizer does not know are skipped too.
    """
    seen = np.zeros(sys.maxunicode + 1, dtype=np.bool_)
    scans: list[_SourceScan] = []
    binary: list[Source] = []
    for source in sources:
        found = _SourceScan(source, skip_unknown)
        try:
            seen_here = found.read(on_bytes)
        except NotTextError:
            if not source.from_folder:
                raise
            binary.append(source)
            continue
        scans.append(found)
        if found.documents:
            seen |= seen_here
        elif not source.from_folder:
            raise found.blank_error()
    used = [found for found in scans if found.documents]
    if not used:
        raise CorpusError("The files of the folder hold no text.", "Name a folder or file with text in UTF-8.")
    return Corpus(
        documents=tuple(document for found in used for document in found.documents),
        sources=tuple(found.source for found in used),
        alphabet=tuple(chr(point) for point in np.flatnonzero(seen)),
        notes=tuple(filter(None, _notes(binary, scans))),
        has_skipped=any(found.skipped for found in scans),
        skip_unknown=skip_unknown,
    )


class _SourceScan:
    """The documents and characters of one source, counted piece by piece."""

    def __init__(self, source: Source, skip_unknown: Tokenizer | None) -> None:
        self.source = source
        self.documents: list[Document] = []
        self.crlf, self.is_empty = False, True
        self.skipped = 0
        self.unknown: set[str] = set()
        self._skip_unknown = skip_unknown
        self._known = bytes(range(0x80, 0x100))
        """Bytes to ignore: the ASCII characters that were seen before, and all bytes beyond ASCII."""

    def read(self, on_bytes: OnBytes) -> np.ndarray:
        """Read the source. For each code point, bool (0x110000,), whether it occurs. Raises CorpusError."""
        seen = np.zeros(sys.maxunicode + 1, dtype=np.bool_)
        for index, pieces in enumerate(read_documents(self.source, on_bytes)):
            characters = size = 0
            is_blank = True
            for piece in pieces:
                self.is_empty = False
                kept = self._without_unknown(piece) if self._skip_unknown else piece
                characters += len(kept)
                size += self._add(kept, seen)
                is_blank = is_blank and (not kept or kept.isspace())
            if not is_blank:
                self.documents.append(Document(self.source, index, characters, size))
        return seen

    def blank_error(self) -> CorpusError:
        """The error for a named source without a document."""
        what = "is empty" if self.is_empty else "is blank: it holds nothing but white space"
        if self.skipped:
            what = "holds no character that the tokenizer knows"
        hint = "Name a file that holds text."
        if self.skipped:
            hint = "Use a text in the characters that the tokenizer was made for."
        elif self.source.descriptor is not None:
            hint = "Pipe a text into the command, or name a text file."
        return CorpusError(f"{self.source.label} {what}.", hint)

    def _without_unknown(self, piece: str) -> str:
        assert self._skip_unknown is not None
        kept = self._skip_unknown.known_part(piece)
        if len(kept) < len(piece):
            self.skipped += len(piece) - len(kept)
            self.unknown.update(self._skip_unknown.unknown_characters(piece))
        return kept

    def _add(self, piece: str, seen: np.ndarray) -> int:
        """Mark the characters of a piece as seen. Returns its size in bytes."""
        data = piece.encode()
        if new := data.translate(None, delete=self._known):
            self._known += bytes(set(new))
            seen[list(set(new))] = True
        if len(data) > len(piece):
            _, points = beyond_ascii(np.frombuffer(data, dtype=np.uint8))
            seen[points] = True
        self.crlf = self.crlf or "\r\n" in piece
        return len(data)


def _notes(binary: list[Source], scans: list[_SourceScan]) -> Iterator[str]:
    """A note about each kind of surprising source; "" where there is none."""
    yield _note(binary, "was skipped: it is not text", "were skipped: they are not text")
    used = [found.source for found in scans if found.documents]
    blank = [found.source for found in scans if not found.documents]
    yield _note(blank, "was skipped: it is blank", "were skipped: they are blank")
    marked = [source for source in used if has_byte_order_mark(source)]
    dropped = "starts with a byte-order mark, which is dropped", "start with byte-order marks, which are dropped"
    yield _note(marked, *dropped)
    crlf = [found.source for found in scans if found.documents and found.crlf]
    yield _note(crlf, "has CRLF line ends; they are kept", "have CRLF line ends; they are kept")
    if skipped := sum(found.skipped for found in scans):
        unknown = sorted(set().union(*(found.unknown for found in scans)))
        named = ", ".join(map(repr, unknown[:_NAMED_CHARACTERS])) + (", …" if len(unknown) > _NAMED_CHARACTERS else "")
        yield f"Skipped {counted(skipped, 'character')} that the tokenizer does not know: {named}."


def _note(sources: list[Source], one: str, several: str) -> str:
    if len(sources) < 2:
        return f"{sources[0].label} {one}." if sources else ""
    return f"{len(sources):,} files {several} (the first: {sources[0].label})."
