"""A table that numbers words, many at a time.

The words of a text repeat: 100 MB have a few hundred thousand distinct ones. A Python dict numbers them all; but most
look-ups never reach it. Words of up to 7 and of up to 31 bytes are read as one or four 64-bit integers, straight from
the text, and looked up in caches made of numpy arrays: a few array operations for all words of a text, instead of a few
for each word.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice

import numpy as np

_LANE = 8
"""Bytes of an integer."""
_CACHES = ((1, 20), (4, 19))
"""Integers of a word, and bits of a place in the cache."""
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_LANE + 1)], dtype=np.uint64)
_LENGTH_SHIFT = np.uint64(8 * (_LANE - 1))
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
"""Odd numbers with well-mixed bits: 2^64 divided by the golden ratio, and a prime of xxHash."""
_HALF = np.uint64(32)


class WordTable:
    """Numbers words in the order in which they are first seen; `words` come first."""

    def __init__(self, words: Sequence[bytes] = ()) -> None:
        self._numbers = _Numbers(zip(words, count()))
        self._caches = [_Cache(lanes, bits) for lanes, bits in _CACHES]

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
        padded = data + bytes(_LANE * _CACHES[-1][0])
        eight = np.ndarray((len(padded) - _LANE + 1,), "<u8", padded, strides=(1,))  # the 8 bytes from each place on
        numbers = np.empty(len(starts), dtype=np.int32)
        shortest = 0
        for cache in self._caches:
            mine = np.flatnonzero((lengths >= shortest) & (lengths <= cache.longest))
            keys = cache.keys(eight, starts[mine], lengths[mine])
            places = cache.places(keys)
            found = cache.numbers.take(places)
            missing = np.flatnonzero(~cache.holds(keys, places))
            if missing.size:
                found[missing] = self._from_dict(data, starts[mine[missing]], lengths[mine[missing]])
                cache.put(keys[:, missing], places[missing], found[missing])
            numbers[mine] = found
            shortest = cache.longest + 1
        long = np.flatnonzero(lengths >= shortest)
        numbers[long] = self._from_dict(data, starts[long], lengths[long])
        return numbers

    def _from_dict(self, data: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        return np.fromiter((self._numbers[data[start:stop]] for start, stop in places), np.int32, count=len(starts))


class _Numbers(dict[bytes, int]):
    """Numbers keys in the order in which they are first asked for."""

    def __missing__(self, key: bytes) -> int:
        number = self[key] = len(self)
        return number


class _Cache:
    """The numbers of words of up to `longest` bytes. Each word has one place, and replaces the word that is there."""

    def __init__(self, lanes: int, bits: int) -> None:
        self.longest = _LANE * lanes - 1
        self.numbers = np.zeros(1 << bits, dtype=np.int32)
        self._keys = np.zeros((lanes, 1 << bits), dtype=np.uint64)  # 0 where free: a key is never 0
        self._shift = np.uint64(64 - bits)

    def keys(self, eight: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """uint64 (lanes, words): the bytes of each word, zeros, and in the last byte the word's length."""
        keys = np.empty((len(self._keys), len(starts)), dtype=np.uint64)
        for lane, key in enumerate(keys):
            rest = np.clip(lengths - _LANE * lane, 0, _LANE)
            np.bitwise_and(eight[starts + _LANE * lane], _MASKS[rest], out=key)
        keys[-1] |= lengths.astype(np.uint64) << _LENGTH_SHIFT
        return keys

    def places(self, keys: np.ndarray) -> np.ndarray:
        """The place of each word, int64 (words,)."""
        mixed = keys[0] * _MIX[0]
        for lane in keys[1:]:
            mixed = (mixed ^ (mixed >> _HALF)) * _MIX[1] + lane * _MIX[0]
        mixed ^= mixed >> _HALF
        mixed *= _MIX[1]
        places: np.ndarray = (mixed >> self._shift).astype(np.int64)
        return places

    def holds(self, keys: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Whether each place holds that word, bool (words,)."""
        same: np.ndarray = self._keys[0].take(places) == keys[0]
        for cached, key in zip(self._keys[1:], keys[1:], strict=True):
            same &= cached.take(places) == key
        return same

    def put(self, keys: np.ndarray, places: np.ndarray, numbers: np.ndarray) -> None:
        """Keep words at their places. Of several for one place the last remains, in each array."""
        self.numbers[places] = numbers
        for cached, key in zip(self._keys, keys, strict=True):
            cached[places] = key
