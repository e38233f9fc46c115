"""The corpus: the documents of all sources, scanned once before anything is encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gptcli.dataset.documents import Document
from gptcli.dataset.readers import has_documents, read_documents
from gptcli.dataset.sources import Source, in_memory
from gptcli.dataset.spool import Spool
from gptcli.dataset.summary import ReadSummary
from gptcli.tokenizer.tokenizer import Tokenizer

_DEFAULT_TRAIN_SHARE = 0.9
MAX_HELD_OUT_BYTES = 10_000_000


@dataclass(frozen=True)
class Corpus:
    """The documents of all sources, in order."""

    documents: Sequence[Document]
    sources: tuple[Source, ...] = ()
    """The sources that have a document."""
    alphabet: tuple[str, ...] = ()
    """The distinct characters, sorted."""
    notes: tuple[str, ...] = ()
    summary: ReadSummary = field(default_factory=ReadSummary)
    beginnings: tuple[str, ...] = ()
    """The first characters of the first two documents."""
    has_skipped: bool = False
    """Whether there were characters to skip."""
    skip_unknown: Tokenizer | None = None
    """The tokenizer whose unknown characters are skipped."""
    spool: Spool | None = None
    """The texts of small documents."""

    @cached_property
    def characters(self) -> int:
        return sum(document.characters for document in self.documents)

    @cached_property
    def bytes(self) -> int:
        return sum(document.bytes for document in self.documents)

    def training_characters(self, val_fraction: float | None) -> int:
        """The number of characters, from the first on, for training; the others are held out for validation.

        By default int(0.9 × characters), as nanoGPT cuts Shakespeare into 1,003,854 and 111,540, but at most 10 MB of
        text are held out.
        """
        if val_fraction is not None:
            return int((1 - val_fraction) * self.characters)
        max_held_out = MAX_HELD_OUT_BYTES * self.characters // self.bytes
        return max(int(_DEFAULT_TRAIN_SHARE * self.characters), self.characters - max_held_out)

    @cached_property
    def has_many_documents(self) -> bool:
        """Whether sources hold documents, as rows, that may be held out one by one."""
        return any(map(has_documents, self.sources))

    def read(self, source: Source) -> Iterator[Iterator[str]]:
        """Every document of a source, each in non-empty pieces, without the characters to skip."""
        documents = read_documents(in_memory(source), lambda _: None)
        if self.skip_unknown is None:
            return documents
        known_part = self.skip_unknown.known_part
        return (filter(None, map(known_part, pieces)) for pieces in documents)
