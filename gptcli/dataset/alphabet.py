"""The characters of a text, collected while it is read."""

from __future__ import annotations

import sys

import numpy as np

from gptcli.dataset.sources import Source
from gptcli.errors import CorpusError
from gptcli.tokenizer.code_points import beyond_ascii


class Characters:
    """The distinct characters of the sources, counted piece by piece."""

    def __init__(self) -> None:
        self._seen = np.zeros(sys.maxunicode + 1, dtype=np.bool_)
        """For each code point whether it occurs: in the sources that are kept, and beyond ASCII in the current one."""
        self._points: list[np.ndarray] = []
        """Code points beyond ASCII that the current source has first."""
        self._known = bytes(range(0x80, 0x100))
        """Bytes to ignore: the ASCII characters that were seen before, and all bytes beyond ASCII."""
        self._new = b""
        """ASCII characters that the current source has first."""

    def add(self, piece: str, source: Source) -> bytes:
        """Mark the characters of a piece as seen. Returns it in UTF-8."""
        try:
            data = piece.encode()
        except UnicodeEncodeError:  # some of Python's encodings have them
            message = f"{source.label} has half a character (a lone surrogate)."
            raise CorpusError(message, "Choose another `data.encoding`.") from None
        if new := data.translate(None, delete=self._known):
            self._known += bytes(set(new))
            self._new += bytes(set(new))
        if len(data) > len(piece):
            _, points = beyond_ascii(np.frombuffer(data, dtype=np.uint8))
            if (first := points[~self._seen.take(points)]).size:
                self._seen[first] = True
                self._points.append(first)
        return data

    def end_source(self, *, keep: bool) -> None:
        """Keep or forget the characters that the current source has first."""
        if keep:
            self._seen[list(self._new)] = True
        else:
            self._known = self._known.translate(None, delete=self._new)
            for points in self._points:
                self._seen[points] = False
        self._new, self._points = b"", []

    def alphabet(self) -> tuple[str, ...]:
        """The distinct characters of the sources that were kept, sorted."""
        return tuple(chr(point) for point in np.flatnonzero(self._seen))
