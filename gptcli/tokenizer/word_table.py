"""A table of words, looked up many at a time.

The words of a text repeat: 100 MB have some hundred thousand different ones. Each gets a number when it is first seen.
A Python dict knows them all; but most look-ups never reach it. Words of up to 31 bytes are read as one, two or four
64-bit integers, straight from the text, and found in hash tables that are numpy arrays: a few array operations for all
words of a text, instead of a few for each.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

_LANE = 8
"""Bytes of an integer."""
_SHELVES = ((1, 20), (2, 20), (4, 18))
"""Integers of a key, and bits of a place on the shelf."""
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_LANE + 1)], dtype=np.uint64)
_LENGTH_SHIFT = np.uint64(8 * (_LANE - 1))
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
"""Odd numbers with well-mixed bits: 2^64 divided by the golden ratio, and a prime of xxHash."""
_HALF = np.uint64(32)


class WordTable:
    """Numbers words in the order in which they are first seen."""

    def __init__(self) -> None:
        self._numbers = _Numbers()
        self._shelves = [_Shelf(lanes, bits) for lanes, bits in _SHELVES]

    def __len__(self) -> int:
        return len(self._numbers)

    def words(self, start: int = 0) -> list[bytes]:
        """The words with the numbers `start` and above, in order."""
        return [*islice(reversed(self._numbers), len(self._numbers) - start)][::-1]

    def look_up(self, data: bytes, starts: np.ndarray) -> np.ndarray:
        """The number of each word, int32 (words,): word i is `data[starts[i] : starts[i + 1]]`, the last one the rest.

        New words are added.
        """
        lengths = np.diff(starts, append=len(data))
        padded = data + bytes(_LANE * _SHELVES[-1][0])
        eight = np.ndarray((len(padded) - _LANE + 1,), "<u8", padded, strides=(1,))  # the 8 bytes from each place on
        numbers = np.empty(len(starts), dtype=np.int32)
        shortest = 0
        for shelf in self._shelves:
            mine = np.flatnonzero((lengths >= shortest) & (lengths <= shelf.longest))
            keys = shelf.keys(eight, starts[mine], lengths[mine])
            found, missing = shelf.find(keys)
            if missing.size:
                found[missing] = self._from_dict(data, starts[mine[missing]], lengths[mine[missing]])
                shelf.add(keys[:, missing], found[missing])
            numbers[mine] = found
            shortest = shelf.longest + 1
        long = np.flatnonzero(lengths >= shortest)
        numbers[long] = self._from_dict(data, starts[long], lengths[long])
        return numbers

    def clear(self) -> None:
        """Forget all words."""
        self._numbers.clear()
        for shelf in self._shelves:
            shelf.clear()

    def _from_dict(self, data: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        return np.fromiter((self._numbers[data[start:stop]] for start, stop in places), np.int32, count=len(starts))


class _Shelf:
    """A hash table of words of up to `longest` bytes. Each has two places; a word that finds both taken stays out."""

    def __init__(self, lanes: int, bits: int) -> None:
        self.longest = _LANE * lanes - 1
        self._lanes, self._shift = lanes, np.uint64(64 - bits)
        self._keys = np.zeros((lanes, 1 << bits), dtype=np.uint64)  # 0 where free: a key is never 0
        self._numbers = np.zeros(1 << bits, dtype=np.int32)

    def clear(self) -> None:
        self._keys[:] = 0

    def keys(self, eight: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """uint64 (lanes, words): the bytes of each word, zeros, and in the last byte the word's length."""
        keys = np.empty((self._lanes, len(starts)), dtype=np.uint64)
        for lane, key in enumerate(keys):
            rest = lengths if self._lanes == 1 else np.clip(lengths - _LANE * lane, 0, _LANE)
            np.bitwise_and(eight[starts + _LANE * lane if lane else starts], _MASKS[rest], out=key)
        keys[-1] |= lengths.astype(np.uint64) << _LENGTH_SHIFT
        return keys

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of words, int32, arbitrary where they are not here; and the indices of those that are not."""
        places = self._places(keys)
        numbers = self._numbers.take(places)
        missing = np.flatnonzero(~self._holds(keys, places))
        if missing.size:
            keys, places = keys[:, missing], places[missing] ^ 1
            numbers[missing] = self._numbers.take(places)
            missing = missing[~self._holds(keys, places)]
        return numbers, missing

    def add(self, keys: np.ndarray, numbers: np.ndarray) -> None:
        """Put words where there is room; the same word may come several times, and may be here already."""
        _, first = np.unique(numbers, return_index=True)
        keys, numbers = keys[:, first], numbers[first]
        places = self._places(keys)
        for _ in range(2):
            free = np.flatnonzero(self._keys[-1, places] == 0)
            self._numbers[places[free]] = numbers[free]  # of several for one place, the last stays
            won = free[self._numbers[places[free]] == numbers[free]]
            self._keys[:, places[won]] = keys[:, won]
            rest = np.delete(np.arange(len(places)), won)
            keys, numbers, places = keys[:, rest], numbers[rest], places[rest] ^ 1

    def _places(self, keys: np.ndarray) -> np.ndarray:
        """The first place of each key, int64; its second one differs in the last bit."""
        mixed = keys[0] * _MIX[0]
        for lane in keys[1:]:
            mixed = (mixed ^ (mixed >> _HALF)) * _MIX[1] + lane * _MIX[0]
        mixed ^= mixed >> _HALF
        mixed *= _MIX[1]
        places: np.ndarray = (mixed >> self._shift).astype(np.int64)
        return places

    def _holds(self, keys: np.ndarray, places: np.ndarray) -> np.ndarray:
        """bool (words,): whether each place holds that key."""
        same: np.ndarray = self._keys[0].take(places) == keys[0]
        for lane in range(1, self._lanes):
            same &= self._keys[lane].take(places) == keys[lane]
        return same


class _Numbers(dict[bytes, int]):
    """Numbers keys in the order in which they are first asked for."""

    def __missing__(self, key: bytes) -> int:
        number = self[key] = len(self)
        return number
