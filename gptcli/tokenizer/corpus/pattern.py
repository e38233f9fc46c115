"""GPT-2's pattern, which splits text into words before any merge, as operations on whole arrays.

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+

Call each character a letter, a number, white space or other. Unicode versions disagree on some characters, so the
`tokenizers` library is asked for the class of each. Reading the pattern from left to right over stretches of one class:

- A word begins where a stretch begins, and a stretch of letters, numbers or others is one word.
- The last character of a stretch of white space is separate from the rest (`\\s+(?!\\S)` gives it back), except at the
  end of the text. If it is a blank, it begins the word that follows.
- An apostrophe that is a word of its own takes the contraction that follows it: "don't" → "don", "'t"; and "'sup" →
  "'s", "up". After a blank, or next to another sign, it takes none: " 's" → " '", "s".

So a text can be cut between two characters of different classes, if the first is neither white space (" a" is one word,
and `\\s+(?!\\S)` looks ahead) nor an apostrophe before a letter: the second one begins a word whatever came before it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

from gptcli.tokenizer.code_points import beyond_ascii

PIECE_CHARACTERS = 1 << 17
"""Length of a piece where the text allows it: small enough for the processor's caches."""
MAX_STRETCH_CHARACTERS = 1 << 20
"""Longest stretch that stays whole. A longer one, such as a genome in one line, is cut anywhere: its ids are then those
of two words instead of one, but memory stays bounded."""

_LETTER, _NUMBER, _OTHER, _SPACE, _NOT_ASKED = range(5)
_EXAMPLES = {_LETTER: "a", _NUMBER: "1", _OTHER: "!"}
_BLANK, _APOSTROPHE = ord(" "), ord("'")
_ONE_LETTER = [ord(letter) for letter in "stmd"]
_TWO_LETTERS = [(ord(pair[0]), ord(pair[1])) for pair in ("re", "ve", "ll")]


@lru_cache(maxsize=1 << 16)
def character_class(character: str) -> int:
    """The class that the library gives a character: one word with a letter makes it a letter, and so on."""
    if "\ud800" <= character <= "\udfff":  # a lone surrogate, which every tokenizer refuses
        return _OTHER
    library = ByteLevel(add_prefix_space=False)
    same = (kind for kind, example in _EXAMPLES.items() if len(library.pre_tokenize_str(example + character)) == 1)
    return next(same, _SPACE)


def is_cut(before: str, after: str) -> bool:
    """Whether text may be cut between two characters: ("d", " ") yes, (" ", "d") no, ("'", "s") no."""
    left, right = character_class(before), character_class(after)
    return left not in (_SPACE, right) and not (before == "'" and right == _LETTER)


def recut(pieces: Iterable[str], size: int | None = None) -> Iterator[str]:
    """The same text in pieces of at most about `size` characters that give the ids of the whole when encoded alone.

    No piece is empty. A stretch without any place to cut stays whole up to `MAX_STRETCH_CHARACTERS`.
    """
    size = size or PIECE_CHARACTERS
    held: list[str] = []  # a stretch without a cut; joined once, so that a long one is copied once
    length = 0  # of the stretch, in characters
    last = ""  # the character after it, whose right neighbor is still to come
    for piece in pieces:
        text, start = last + piece, 0
        while place := _next_cut(text, start, size):
            yield "".join([*held, text[start:place]])
            held, length, start = [], 0, place
        held.append(text[start:-1])
        length += len(held[-1])
        last = text[-1:]
        if length > MAX_STRETCH_CHARACTERS:
            yield "".join(held)
            held, length = [], 0
    if rest := "".join([*held, last]):
        yield rest


def joined(texts: Sequence[str]) -> tuple[str, np.ndarray]:
    """Texts as one, in which each has the words that it has alone; and where each begins and ends, int64 (texts, 2), in
    bytes of UTF-8. None of the texts may be empty.

    Between two of them are a line feed, which is a word of its own after anything, and a character that does not form a
    word with the next text: a letter, or a digit before a letter.
    """
    parts: list[str] = []
    places, place = [], 0
    for text in texts:
        before = "\n1" if character_class(text[0]) == _LETTER else "\na"
        size = len(text) if text.isascii() else len(text.encode())
        place += len(before)
        places.append((place, place + size))
        place += size
        parts += (before, text)
    return "".join([*parts, "\na"]), np.array(places, dtype=np.int64)


def _next_cut(text: str, start: int, size: int) -> int:
    """The last cut at most `size` characters after `start`, else the first one beyond; 0 if there is none."""
    if text.isascii() and text.isalpha():
        return 0  # one word, found in less time than by looking at each character
    near = range(min(start + size, len(text) - 1), start, -1)
    far = range(start + size + 1, len(text))
    return next((place for place in chain(near, far) if is_cut(text[place - 1], text[place])), 0)


class Splitter:
    """Splits text into words as the `tokenizers` library does, many times faster."""

    def __init__(self) -> None:
        self._classes = np.full(sys.maxunicode + 1, _NOT_ASKED, dtype=np.uint8)
        self._classes[:128] = [character_class(chr(point)) for point in range(128)]
        self._byte_classes = self._classes[:256].tobytes()

    def split(self, text: str) -> tuple[bytes, np.ndarray]:
        """A text in UTF-8, and the place of each word's first byte, int64 (words,). "" has no words."""
        data = text.encode()
        characters = np.frombuffer(data, dtype=np.uint8)
        classes = np.frombuffer(data.translate(self._byte_classes), dtype=np.uint8)
        if len(data) == len(text):
            return data, np.flatnonzero(_begins(characters, classes))
        foreign, points = beyond_ascii(characters)
        widths = 2 + (points >= 0x800).view(np.uint8) + (points >= 0x10000).view(np.uint8)
        classes = classes.copy()
        classes[foreign] = np.repeat(self._classes_of(points), widths)  # each byte has the class of its character
        begins = _begins(characters, classes)
        within = (characters & 0xC0) == 0x80  # bytes that continue a character
        while (last := np.flatnonzero(begins & within)).size:  # white space that is separate: begins at its first byte
            begins[last], begins[last - 1] = False, True
        return data, np.flatnonzero(begins)

    def _classes_of(self, points: np.ndarray) -> np.ndarray:
        classes: np.ndarray = self._classes.take(points)
        new = classes == _NOT_ASKED
        if new.any():
            for point in np.unique(points[new]).tolist():
                self._classes[point] = character_class(chr(point))
            classes = self._classes.take(points)
        return classes


def _begins(characters: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Whether a word begins at each place, bool (n,), from bytes and classes (n,) of a text."""
    begins = np.ones(len(classes), dtype=np.bool_)
    np.not_equal(classes[1:], classes[:-1], out=begins[1:])
    space = classes == _SPACE
    begins[:-1] |= space[:-1] & begins[1:]  # the last white space of a stretch
    begins[1:] &= space[1:] | (characters[:-1] != _BLANK)  # a blank takes what follows it
    _mark_contractions(begins, characters)
    return begins


def _mark_contractions(begins: np.ndarray, characters: np.ndarray) -> None:
    """Move the begin after an apostrophe to the end of the contraction, where there is one."""
    size = len(characters)
    places = np.flatnonzero(characters == _APOSTROPHE)
    places = places[begins[places]]
    first = characters[np.minimum(places + 1, size - 1)]  # at the end of the text: the apostrophe, which fits nothing
    second = characters[np.minimum(places + 2, size - 1)] * (places + 2 < size)
    one = np.isin(first, _ONE_LETTER)
    two = np.zeros_like(one)
    for a, b in _TWO_LETTERS:
        two |= (first == a) & (second == b)
    for found, length in ((places[one], 2), (places[two], 3)):
        begins[found + 1] = False
        after = found + length
        begins[after[after < size]] = True
