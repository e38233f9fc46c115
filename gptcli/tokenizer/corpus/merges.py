"""Learning the merges of a BPE (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909).

The words of the text are counted. Then the most frequent pair of neighbors becomes a new symbol, repeatedly; of
equally frequent pairs the one with the smaller symbols. All words lie in the same arrays, one after another, each a
chain of symbols, so that a merge is a few array operations at all places of its pair at once.

Memory is bounded: where distinct words take more than `MAX_WORD_BYTES`, the rarest are dropped and counted anew should
they occur again. In a script without spaces a "word" is a phrase, and almost every one is new.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gptcli.tokenizer.corpus.pattern import Splitter, recut
from gptcli.tokenizer.corpus.word_table import WordTable

MAX_WORD_BYTES = 5 << 20
"""Largest size of all distinct words. 1 GB of English has about 30 MB of them, of which most occur once."""
_KEPT_SHARE = 0.5
"""Share of `MAX_WORD_BYTES` that the most frequent words keep when the others are dropped."""
_SCANS = 16
"""Scans over all words to find the first pairs: with more of them each needs less memory."""
_JOINED_CHARACTERS = 1 << 14
"""Size to which small pieces are joined."""
_TOGETHER_BYTES = 1 << 16
"""Size of pieces that are counted together where no word can be dropped."""
_END = -1
"""The symbol after each word."""
_GONE = -2
"""Marks a place whose symbol was merged into the one before it."""
_LEFT = 1 << 32
"""A pair as one number: left · 2^32 + right. So pairs are ordered by left, then by right."""
_PAIR_BITS = 64

Merge = tuple[int, int]
_Change = tuple[int, int, np.ndarray]
"""A pair, the change of its count, and the places of its left symbols."""


def learn_vocabulary(
    pieces: Iterable[str], byte_symbols: Sequence[int], size: int, min_count: int
) -> tuple[list[bytes], list[Merge]]:
    """The entries and merges of a text in pieces: `learn_merges` of its words."""
    return learn_merges(*_counted_words(pieces), byte_symbols, size, min_count)


def learn_merges(
    words: Sequence[bytes], counts: np.ndarray, byte_symbols: Sequence[int], size: int, min_count: int
) -> tuple[list[bytes], list[Merge]]:
    """The symbols as bytes, at most `size`, and the merges in the order in which they were learned.

    `counts`, int64 (words,), has the count of each word, and `byte_symbols` (256,) the symbol of each byte. Pairs that
    occur less than `min_count` times are not merged.
    """
    entries = [bytes([byte]) for byte in np.argsort(byte_symbols).tolist()]
    symbols = {entry: symbol for symbol, entry in enumerate(entries)}
    chains, pairs = _Chains(words, counts, byte_symbols), _Pairs(min_count)
    pairs.change(chains.pairs())
    merges: list[Merge] = []
    while len(entries) < size and (pair := pairs.most_frequent()) is not None:
        left, right = divmod(pair, _LEFT)
        new = symbols.setdefault(entries[left] + entries[right], len(entries))
        if new == len(entries):
            entries.append(entries[left] + entries[right])
        merges.append((left, right))
        if grown := pairs.change(chains.merge(left, right, new, pairs.remove(pair))):
            pairs.put(chains.places_of(grown))
    return entries, merges


def _joined(pieces: Iterable[str]) -> Iterator[str]:
    """The same text in larger pieces. Each takes half a millisecond, however small, and there may be millions."""
    held: list[str] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _JOINED_CHARACTERS:
            yield "".join(held)
            held, size = [], 0
    if held:
        yield "".join(held)


def _counted_words(pieces: Iterable[str]) -> tuple[list[bytes], np.ndarray]:
    """The distinct words of a text, and how often each occurs, int64 (words,).

    Pieces are counted together where all their words have room: which words are dropped depends on when that happens.
    """
    counting = _WordCounts()
    held: list[str] = []
    held_bytes = 0
    for text in recut(_joined(pieces)):
        size = len(text) if text.isascii() else len(text.encode())
        if held and (held_bytes >= _TOGETHER_BYTES or counting.bytes + held_bytes + size > MAX_WORD_BYTES):
            counting.add("".join(held))
            held, held_bytes = [], 0
        held.append(text)
        held_bytes += size
    counting.add("".join(held))
    return counting.table.words(), counting.counts[: len(counting.table)]


class _WordCounts:
    """Distinct words and how often each occurs, in the text so far."""

    def __init__(self) -> None:
        self.table, self.counts = WordTable(), np.zeros(0, dtype=np.int64)
        self.bytes = 0
        """Of all words."""
        self._splitter = Splitter()

    def add(self, text: str) -> None:
        """Count the words of a text, then drop the rarest if they are too many."""
        if not text:
            return
        known = len(self.table)
        numbers = self.table.look_up(*self._splitter.split(text))
        if len(self.table) > len(self.counts):
            more = np.zeros(len(self.table), dtype=np.int64)
            self.counts = np.concatenate([self.counts, more])  # doubles, so this is rare
        np.add.at(self.counts, numbers, 1)
        self.bytes += sum(map(len, self.table.words(known)))
        if self.bytes > MAX_WORD_BYTES:
            words, self.counts = _most_frequent(self.table.words(), self.counts, int(_KEPT_SHARE * MAX_WORD_BYTES))
            self.table, self.bytes = WordTable(words), sum(map(len, words))


def _most_frequent(words: list[bytes], counts: np.ndarray, size: int) -> tuple[list[bytes], np.ndarray]:
    """The most frequent words that take `size` bytes together, and their counts; of equals the first ones."""
    order = np.argsort(-counts[: len(words)], kind="stable")
    lengths = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
    kept = np.sort(order[np.cumsum(lengths[order]) <= size])
    return [words[number] for number in kept.tolist()], counts[kept]


class _Chains:
    """The words as chains of symbols, an end after each; a symbol's place is that of its first byte."""

    def __init__(self, words: Sequence[bytes], counts: np.ndarray, byte_symbols: Sequence[int]) -> None:
        lengths = np.fromiter(map(len, words), dtype=np.int64, count=len(words)) + 1
        data = np.frombuffer(b"\0".join([*words, b""]), dtype=np.uint8)
        self._symbol = np.array(byte_symbols, dtype=np.int32)[data]
        self._symbol[np.cumsum(lengths) - 1] = _END
        self._count = np.repeat(counts, lengths)
        places = np.arange(len(data), dtype=np.int32)
        self._next, self._before = places + 1, places - 1  # -1 is the last place, an end

    def pairs(self) -> Iterator[_Change]:
        """All pairs of bytes, their counts and places."""
        left, right = self._symbol[:-1], self._symbol[1:]
        for scan in range(_SCANS):
            places = np.flatnonzero((left % _SCANS == scan) & (left != _END) & (right != _END)).astype(np.int32)
            yield from _grouped(left[places] * np.int64(_LEFT) + right[places], self._count[places], places)

    def merge(self, left: int, right: int, new: int, places: np.ndarray) -> Iterator[_Change]:
        """Merge a pair at those of `places` where it still is; the changes of the pairs around it."""
        symbol = self._symbol
        places = places[symbol[places] == left]
        places = places[symbol[self._next[places]] == right]
        if left == right:
            places = self._every_other(np.sort(places))
        second, before = self._next[places], self._before[places]
        after = self._next[second]
        symbol_before, symbol_after = symbol[before], symbol[after]
        symbol[second] = _GONE
        symbol[places] = new
        self._next[places], self._before[after] = after, places

        # A pair between two merged ones belongs to the first of them.
        at_left = ((symbol_before != _END) & (symbol[before] != _GONE)).nonzero()[0]
        at_right = (symbol_after != _END).nonzero()[0]
        outer_left = symbol_before[at_left] * np.int64(_LEFT)
        outer_right, now_right = (symbols[at_right].astype(np.int64) for symbols in (symbol_after, symbol[after]))
        around = [outer_left + left, right * _LEFT + outer_right, outer_left + new, new * _LEFT + now_right]
        counts = self._count[places]
        counts = np.concatenate([counts[at_left], counts[at_right]])
        places = np.concatenate([before[at_left], places[at_right]])
        return _grouped(np.concatenate(around), np.concatenate([-counts, counts]), np.concatenate([places, places]))

    def places_of(self, pairs: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        """The places of each pair, found by reading all words."""
        for pair in pairs:
            left, right = divmod(pair, _LEFT)
            places = np.flatnonzero(self._symbol == left).astype(np.int32)
            yield pair, places[self._symbol[self._next[places]] == right]

    def _every_other(self, places: np.ndarray) -> np.ndarray:
        """Of places in order, those of pairs that do not overlap: in "aaaaa" the pairs at 0 and 2."""
        alone = np.ones(len(places), dtype=np.bool_)
        alone[1:] = places[1:] != self._next[places[:-1]]  # the first of a stretch
        index = np.arange(len(places))
        start = np.maximum.accumulate(np.where(alone, index, 0))
        kept: np.ndarray = places[(index - start) % 2 == 0]
        return kept


class _Pairs:
    """The count of each pair, and the places of those that occur often enough to be merged.

    Places may be out of date, counts are not. Most pairs are rare, so that their places would take most of the memory.
    """

    def __init__(self, min_count: int) -> None:
        self._min_count = min_count
        self._counts: dict[int, int] = {}
        self._places: dict[int, bytes] = {}
        """int32 each. Hundreds of thousands of pairs have a few places: an array of them would take 200 bytes."""
        self._heap: list[int] = []
        """-count · 2^64 + pair, old counts included. A number takes a third of the memory of a tuple."""

    def change(self, changes: Iterator[_Change]) -> list[int]:
        """Apply changes. Returns the pairs that have become frequent while some of their places are not known.

        Those are rare: a pair gets all its places when the later one of its symbols is made, and a symbol is made
        twice only if two merges give the same bytes.
        """
        grown = []
        for pair, count, places in changes:
            if count > 0:
                before = self._counts.get(pair, 0)
                total = self._counts[pair] = before + count
                if total < self._min_count:
                    continue
                if 0 < before < self._min_count:
                    grown.append(pair)
                self._places[pair] = self._places.get(pair, b"") + places.tobytes()
                heapq.heappush(self._heap, (-total << _PAIR_BITS) + pair)
            elif pair in self._counts:  # all but the pair that was just removed
                self._counts[pair] += count
        return grown

    def put(self, places: Iterator[tuple[int, np.ndarray]]) -> None:
        """Replace the places of pairs."""
        self._places.update((pair, found.tobytes()) for pair, found in places)

    def most_frequent(self) -> int | None:
        """The most frequent pair; None if none occurs often enough."""
        while self._heap:
            count, pair = divmod(self._heap[0], 1 << _PAIR_BITS)
            now = self._counts.get(pair, 0)
            if now == -count:
                return pair if now >= self._min_count else None
            if now >= self._min_count:
                heapq.heapreplace(self._heap, (-now << _PAIR_BITS) + pair)
            else:
                heapq.heappop(self._heap)
        return None

    def remove(self, pair: int) -> np.ndarray:
        """Forget a pair. Returns its places, int32 (n,)."""
        del self._counts[pair]
        return np.frombuffer(self._places.pop(pair), np.int32)


def _grouped(pairs: np.ndarray, counts: np.ndarray, places: np.ndarray) -> Iterator[_Change]:
    """Each pair once, with its counts added up and its places, from int64 (n,), int64 (n,) and int32 (n,)."""
    if not pairs.size:
        return
    order = pairs.argsort()
    pairs, places = pairs[order], places[order]
    starts = np.concatenate([[0], (pairs[1:] != pairs[:-1]).nonzero()[0] + 1])
    totals = np.add.reduceat(counts[order], starts).tolist()
    bounds = [*starts.tolist(), len(pairs)]
    for pair, total, start, stop in zip(pairs[starts].tolist(), totals, bounds, bounds[1:], strict=False):
        yield pair, total, places[start:stop]
