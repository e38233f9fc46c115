"""Cutting a plain text into documents at a separator."""

from __future__ import annotations

from collections.abc import Iterator


def separated(pieces: Iterator[str], separator: str) -> Iterator[Iterator[str]]:
    """The documents between separators, each in non-empty pieces, wherever the text is cut into pieces.

    >>> ["".join(document) for document in separated(iter(["one--t", "wo-", "-three"]), "--")]
    ['one', 'two', 'three']
    """
    text = _Text(pieces, separator)
    while not text.has_ended:
        document = text.document()
        yield document
        for _ in document:  # the caller may not want it
            pass


class _Text:
    """A text in pieces that is read up to the next separator."""

    def __init__(self, pieces: Iterator[str], separator: str) -> None:
        self.has_ended = False
        self._pieces, self._separator = pieces, separator
        self._held, self._at = "", 0

    def document(self) -> Iterator[str]:
        """The text up to the next separator, which is left out."""
        while (place := self._held.find(self._separator, self._at)) < 0:
            sure = max(self._at, len(self._held) - len(self._separator) + 1)  # a separator may begin after it
            if sure > self._at:
                yield self._held[self._at : sure]
            piece = next(self._pieces, None)
            if piece is None:
                self.has_ended = True
                if sure < len(self._held):
                    yield self._held[sure:]
                return
            self._held, self._at = self._held[sure:] + piece, 0
        start, self._at = self._at, place + len(self._separator)
        if start < place:
            yield self._held[start:place]
