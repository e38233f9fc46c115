"""Encoding word by word: only new words go to the library, since most of a text is the same words over and over.

What a word is, the pattern says (see `splitting`); merges never reach across words. So the ids of a text are the ids of
its words in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import numpy as np

from gptcli.tokenizer.interruptible import begin
from gptcli.tokenizer.splitting import Splitter
from gptcli.tokenizer.word_table import WordTable

EncodeBatch = Callable[[list[str]], list[list[int]]]

_TOGETHER = 4
"""Texts whose new words the library gets at once: each time costs a thread."""
_MAX_WORDS = 1 << 19
_MAX_IDS = 1 << 22


class WordEncoder:
    """Encodes text word by word; `encode_batch` gives the ids of words that are new. Forgets all when it is full."""

    def __init__(self, encode_batch: EncodeBatch) -> None:
        self._encode_batch = encode_batch
        self._splitter, self._table = Splitter(), WordTable()
        self._ids, self._starts = _Growing(np.uint32), _Growing(np.int64)  # word i's ids begin at starts[i]
        self._forget()

    def encode(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """The ids of each text, uint32, as if nothing stood before or after it.

        The library encodes the new words of some texts while the next ones are read and looked up.
        """
        waiting: Callable[[], list[np.ndarray]] | None = None
        remaining = iter(texts)
        try:
            while some := [self._splitter.split(text) for text in islice(remaining, _TOGETHER)]:
                if len(self._table) > _MAX_WORDS or len(self._ids.values) > _MAX_IDS:
                    if waiting:
                        yield from waiting()
                        waiting = None
                    self._forget()
                following = self._begin(some)
                if waiting:
                    yield from waiting()
                waiting = following
            if waiting:
                yield from waiting()
                waiting = None
        finally:
            if waiting:
                self._forget()  # it has words whose ids were not learned

    def _begin(self, texts: list[tuple[bytes, np.ndarray]]) -> Callable[[], list[np.ndarray]]:
        """Look up the words of some texts, and begin to learn the new ones; what is returned waits for their ids."""
        known = len(self._table)
        numbers = [self._table.look_up(data, starts) for data, starts in texts]
        new = self._table.words(known)
        learned = begin(lambda: self._encoded(new))

        def ids() -> list[np.ndarray]:
            lengths, ids = learned()
            self._starts.extend(len(self._ids.values) + np.cumsum(lengths))
            self._ids.extend(ids)
            return [self._ids_of(words) for words in numbers]

        return ids

    def _encoded(self, words: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """How many ids each word has, int64, and the ids, uint32."""
        encoded = self._encode_batch([word.decode() for word in words])
        lengths = np.fromiter(map(len, encoded), np.int64, count=len(encoded))
        return lengths, np.fromiter(chain.from_iterable(encoded), np.uint32, count=int(lengths.sum()))

    def _ids_of(self, numbers: np.ndarray) -> np.ndarray:
        """The ids of words in a row: a ragged gather, since word i has the ids starts[i] … starts[i + 1] - 1."""
        starts = self._starts.values.take(numbers)
        lengths = self._starts.values.take(numbers + 1) - starts
        ends = np.cumsum(lengths)
        places = np.repeat(starts - (ends - lengths), lengths)
        places += np.arange(len(places))
        ids: np.ndarray = self._ids.values.take(places)
        return ids

    def _forget(self) -> None:
        self._table.clear()
        self._ids.clear()
        self._starts.clear()
        self._starts.extend(np.zeros(1, dtype=np.int64))


class _Growing:
    """An array that grows at its end without being copied each time. `values` is what it holds now."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._room = np.empty(0, dtype=dtype)
        self.values = self._room

    def extend(self, more: np.ndarray) -> None:
        size = len(self.values) + len(more)
        if size > len(self._room):
            room = np.empty(2 * size, dtype=self._room.dtype)
            room[: len(self.values)] = self.values
            self._room = room
        self._room[len(self.values) : size] = more
        self.values = self._room[:size]

    def clear(self) -> None:
        self.values = self._room[:0]
