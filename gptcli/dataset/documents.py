"""The documents of a corpus, kept as numbers: there may be millions."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from gptcli.dataset.sources import Source


@dataclass(frozen=True, slots=True)
class Document:
    """A document that is not blank. Its sizes do not count skipped characters."""

    source: Source
    index: int
    """Its place among all documents of the source, from 0."""
    characters: int
    bytes: int
    """UTF-8 bytes, without a byte-order mark."""
    digest: int = 0
    """64 bits of a hash of its text; 0 where nothing needs it."""
    number: int = -1
    """Its place among all documents, by which its text is found in the spool."""


_NUMBERS = 5


class Documents(Sequence[Document]):
    """A growing list of documents, which takes 40 bytes for each."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._numbers = array("q")
        """For each document the place of its source, then the numbers of `Document` in order."""

    def append(self, document: Document) -> None:
        if not self._sources or self._sources[-1] is not document.source:
            self._sources.append(document.source)
        numbers = (document.index, document.characters, document.bytes, document.digest)
        self._numbers.extend((len(self._sources) - 1, *numbers))

    def cut(self, count: int) -> None:
        """Keep the first `count` documents."""
        del self._numbers[count * _NUMBERS :]

    def __len__(self) -> int:
        return len(self._numbers) // _NUMBERS

    @overload
    def __getitem__(self, place: int) -> Document: ...
    @overload
    def __getitem__(self, place: slice) -> list[Document]: ...
    def __getitem__(self, place: int | slice) -> Document | list[Document]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        number = range(len(self))[place]
        source, *numbers = self._numbers[_NUMBERS * number : _NUMBERS * (number + 1)]
        index, characters, size, digest = numbers
        return Document(self._sources[source], index, characters, size, digest, number)

    def __iter__(self) -> Iterator[Document]:
        return (self[place] for place in range(len(self)))
