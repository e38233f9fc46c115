"""A memory of words that were encoded before: most of a text is a few thousand words, over and over.

A word here is a stretch of white space and what follows it, up to the next white space. Each begins at a safe cut
(see `cuts`): a character that is surely no space, then a space, tab or line end. So the ids of a text are the ids of
its words in a row, and only new words go to the library. On English text this is several times quicker.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

EncodeBatch = Callable[[list[str]], list[list[int]]]

_WORD = re.compile(r"[ \n\t\r]*[^ \n\t\r]+|[ \n\t\r]+")
_UNSURE_SPACE = re.compile("[\v\f\x1c-\x1f\x85\xa0\u1680\u180e\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]")
_MOST_WORDS = 1 << 19
_MOST_IDS = 1 << 22


def has_sure_spaces(text: str) -> bool:
    """Whether all white space of `text` is space, tab or line end, so that its words can be encoded one by one."""
    return not _UNSURE_SPACE.search(text)


class WordEncoder:
    """Encodes text word by word; `encode_batch` gives the ids of words that are new. Forgets all when it is full."""

    def __init__(self, encode_batch: EncodeBatch) -> None:
        self._encode_batch = encode_batch
        self._numbers = _Numbers()
        self._ids: np.ndarray = np.zeros(0, dtype=np.uint32)
        self._starts: np.ndarray = np.zeros(1, dtype=np.int64)

    def __call__(self, text: str) -> np.ndarray:
        """Ids of `text`, which must start at a safe cut and have sure spaces."""
        if len(self._numbers) > _MOST_WORDS or self._ids.size > _MOST_IDS:
            self._forget()
        known, words = len(self._numbers), _WORD.findall(text)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        if len(self._numbers) > known:
            try:
                self._learn(list(self._numbers)[known:])
            except BaseException:
                self._forget()  # numbered but not learned: such words must not be found again
                raise
        # A ragged gather: word i's ids lie at starts[i] : starts[i] + lengths[i] of one long array.
        starts, lengths = self._starts[numbers], self._starts[numbers + 1] - self._starts[numbers]
        ends = np.cumsum(lengths)
        places = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if ends.size else 0)
        ids: np.ndarray = self._ids[places]
        return ids

    def _learn(self, words: list[str]) -> None:
        encoded = self._encode_batch(words)
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        new = np.fromiter((token for ids in encoded for token in ids), dtype=np.uint32, count=int(lengths.sum()))
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(lengths)])
        self._ids = np.concatenate([self._ids, new])

    def _forget(self) -> None:
        self._numbers.clear()
        self._ids, self._starts = self._ids[:0], self._starts[:1]


class _Numbers(dict[str, int]):
    """Numbers keys in the order in which they are first asked for."""

    def __missing__(self, key: str) -> int:
        number = self[key] = len(self)
        return number
