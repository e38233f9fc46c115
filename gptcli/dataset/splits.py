"""The two splits of a corpus, for training and validation, as parts of its documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from gptcli.dataset.corpus import MAX_HELD_OUT_BYTES, Corpus
from gptcli.dataset.documents import Document
from gptcli.dataset.sources import Source, changed

_MIN_HELD_OUT = 100
"""Documents for each split from which they are chosen by a hash; of fewer, too many or too few might be held out."""


@dataclass(frozen=True)
class Part:
    """The characters start..stop of a document, all in one split."""

    document: Document
    start: int
    stop: int


@dataclass(frozen=True)
class Parts:
    """The parts of a split, made anew each time: there may be millions."""

    make: Callable[[], Iterator[Part]]

    def __iter__(self) -> Iterator[Part]:
        return self.make()


def split(corpus: Corpus, val_fraction: float | None) -> tuple[Iterable[Part], Iterable[Part], str]:
    """The parts for training and for validation, and a note ("" for none).

    Where sources hold many documents, such as rows, whole documents are held out, chosen by a hash of their text: a
    document stays in its split when others are added, and copies of it are in the same split. Otherwise the last part
    of the text is held out; so too where documents of very different sizes would make a hash unfair.
    """
    count = len(corpus.documents)
    fraction = _quantized(corpus) if val_fraction is None else val_fraction
    if corpus.has_many_documents and count * fraction >= _MIN_HELD_OUT and count * (1 - fraction) >= _MIN_HELD_OUT:
        held_out = [document.characters for document in corpus.documents if _is_held_out(document, fraction)]
        share = sum(held_out) / corpus.characters
        if fraction / 2 <= share <= 2 * fraction:
            train, val = (
                Parts(lambda wanted=wanted: _whole(corpus, fraction, wanted))  # type: ignore[misc]
                for wanted in (False, True)
            )
            note = f"Validation: {len(held_out):,} of {count:,} documents, chosen by a hash of their text."
            return train, val, note
    begin, end = split_parts(corpus, corpus.training_characters(val_fraction))
    return begin, end, _place_of(corpus, end)


def _place_of(corpus: Corpus, held_out: Iterable[Part]) -> str:
    """A note about where the held-out part begins, if there is more than one source."""
    first = next(iter(held_out), None)
    if first is None or len(corpus.sources) < 2:
        return ""
    if first.document.source is corpus.sources[-1]:
        return f"Validation: the end of the text, all of it in {first.document.source.label}."
    return f"Validation: the end of the text, from {first.document.source.label} on."


def _whole(corpus: Corpus, fraction: float, held_out: bool) -> Iterator[Part]:
    for document in corpus.documents:
        if _is_held_out(document, fraction) is held_out:
            yield Part(document, 0, document.characters)


def _is_held_out(document: Document, fraction: float) -> bool:
    return document.digest % 2**64 < fraction * 2**64


def _quantized(corpus: Corpus) -> float:
    """A tenth, or a tenth halved as often as it takes to hold out at most 10 MB: it rarely moves when data is added."""
    fraction = 0.1
    while fraction * corpus.bytes > MAX_HELD_OUT_BYTES:
        fraction /= 2
    return fraction


def split_parts(corpus: Corpus, training_characters: int) -> tuple[Iterable[Part], Iterable[Part]]:
    """The parts for training (the first `training_characters` of the corpus) and for validation (the rest)."""

    def between(start: int, stop: int) -> Iterator[Part]:
        before = 0
        for document in corpus.documents:
            first, last = max(start - before, 0), min(stop - before, document.characters)
            if first < last:
                yield Part(document, first, last)
            before += document.characters

    cut, end = training_characters, corpus.characters
    return Parts(lambda: between(0, cut)), Parts(lambda: between(cut, end))


def utf8_length(text: str) -> int:
    """The size of a text in UTF-8, in bytes."""
    return len(text) if text.isascii() else len(text.encode())


class PartReader:
    """Reads parts of documents in pieces. A source is read once if its parts are asked for in order."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus, self._spool = corpus, corpus.spool
        self._source: Source | None = None
        self._documents: Iterator[Iterator[str]] = iter(())
        self._next = 0
        """Index of the next document of `_documents`."""
        self._document: Document | None = None
        self._pieces: Iterator[str] = iter(())
        self._place, self._rest = 0, ""
        """The number of characters that were read of the document, and the unread end of the last piece."""

    def read(self, part: Part) -> Iterator[str]:
        """The characters of a part. Raises CorpusError if the file changed since it was scanned."""
        document = part.document
        if self._spool and (pieces := self._spool.read(document.number)):
            yield from _between(pieces, part.start, part.stop)
            return
        if document is not self._document or part.start < self._place:
            self._begin(document)
        while self._place < part.stop and (piece := self._rest or next(self._pieces, "")):
            start, self._place = self._place, min(self._place + len(piece), part.stop)
            self._rest = piece[self._place - start :]
            if wanted := piece[max(part.start - start, 0) : self._place - start]:
                yield wanted
        is_last = part.stop == document.characters
        if self._place < part.stop or (is_last and (self._rest or next(self._pieces, ""))):
            raise changed(document.source)

    def _begin(self, document: Document) -> None:
        """Go to the start of a document."""
        if document.source is not self._source or document.index < self._next:
            self._source, self._documents, self._next = document.source, self._corpus.read(document.source), 0
        self._pieces = next(islice(self._documents, document.index - self._next, None), iter(()))
        self._document, self._next = document, document.index + 1
        self._place, self._rest = 0, ""


def _between(pieces: Iterable[str], start: int, stop: int) -> Iterator[str]:
    """The characters start..stop of a text in pieces."""
    before = 0
    for piece in pieces:
        if wanted := piece[max(start - before, 0) : max(stop - before, 0)]:
            yield wanted
        before += len(piece)
