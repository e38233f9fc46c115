"""Encoding word by word. The library encodes new words only: most words of a text have occurred before.

Merges never reach across words (see `pattern`), so the ids of a text are the ids of its words in a row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain

import numpy as np

from gptcli.tokenizer.corpus.pattern import Splitter, joined
from gptcli.tokenizer.corpus.word_table import WordTable

_MAX_WORDS = 1 << 19
_MAX_IDS = 1 << 22
_MAX_BYTES = 1 << 23
"""Of all words together: in a script without spaces, words are phrases."""


class CorpusEncoder:
    """Encodes texts word by word, and remembers the ids of each word; forgets all words when there are too many.

    `encode_batch` encodes the new words.
    """

    def __init__(self, encode_batch: Callable[[list[str]], list[list[int]]]) -> None:
        self._encode_batch, self._splitter = encode_batch, Splitter()
        self._forget()

    def encode(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """The ids of each text, uint32, as if nothing came before or after it."""
        for text in texts:
            yield self._gathered(*self._splitter.split(text))[0]

    def encode_together(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The same for short texts that are not empty, all at once: an array operation takes as long on one of them."""
        text, places = joined(texts)  # int64 (texts, 2): where each begins and ends
        data, begins = self._splitter.split(text)
        ids, ends = self._gathered(data, begins)
        words = np.searchsorted(begins, places)
        bounds = np.concatenate([[0], ends])[words].tolist()
        return [ids[first:last] for first, last in bounds]

    def _gathered(self, data: bytes, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of words in a row, and for each word where its ids end."""
        if len(self._table) > _MAX_WORDS or len(self._ids) > _MAX_IDS or self._bytes > _MAX_BYTES:
            self._forget()
        try:
            numbers = self._numbers(data, begins)
        except BaseException:  # an interruption, too, may leave the tables inconsistent
            self._forget()
            raise
        return _gathered(np.frombuffer(self._ids, np.uint32), np.frombuffer(self._starts, np.int64), numbers)

    def _numbers(self, data: bytes, begins: np.ndarray) -> np.ndarray:
        """The number of each word. The ids of new ones are added."""
        known = len(self._table)
        numbers = self._table.look_up(data, begins)
        if new := self._table.words(known):
            encoded = self._encode_batch([word.decode() for word in new])
            self._bytes += sum(map(len, new))
            self._starts.extend([*accumulate(map(len, encoded), initial=len(self._ids))][1:])
            self._ids.extend(chain.from_iterable(encoded))
        return numbers

    def _forget(self) -> None:
        self._table, self._bytes = WordTable(), 0
        self._ids, self._starts = array("I"), array("q", [0])  # word i has the ids starts[i] … starts[i + 1] - 1


def _gathered(ids: np.ndarray, starts: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ids of words in a row, a gather of ragged rows; and for each word where its ids end."""
    first = starts.take(numbers)
    lengths = starts.take(numbers + 1) - first
    ends = np.cumsum(lengths)
    places = np.repeat(first - (ends - lengths), lengths)
    places += np.arange(len(places))
    return ids.take(places), ends
