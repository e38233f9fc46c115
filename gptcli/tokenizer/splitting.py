"""GPT-2's pattern as operations on whole arrays: where the words of a text begin.

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+

Call each character a letter, a number, a space or other. Reading the pattern from left to right over stretches of one
class comes to this:

- A word begins where a stretch begins, and a stretch of letters, numbers or others is one word.
- The last character of a stretch of white space stands apart from the rest of it (`\\s+(?!\\S)` gives it back), save at
  the end of the text. Where it is a blank, it begins the word that follows.
- An apostrophe that is a word of its own takes the contraction that follows it: "don't" → "don", "'t"; and "'sup" →
  "'s", "up". After a blank, or beside another sign, it takes none: " 's" → " '", "s".

Unicode versions disagree on some characters, so the library itself is asked for the class of each.
"""

from __future__ import annotations

import sys

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

from gptcli.tokenizer.code_points import beyond_ascii

_LETTER, _NUMBER, _OTHER, _SPACE, _UNSEEN = range(5)
_EXAMPLES = {_LETTER: "a", _NUMBER: "1", _OTHER: "!"}
_BLANK, _APOSTROPHE = ord(" "), ord("'")
_ONE_LETTER = [ord(letter) for letter in "stmd"]
_TWO_LETTERS = [(ord(pair[0]), ord(pair[1])) for pair in ("re", "ve", "ll")]


class Splitter:
    """Cuts text into words as the `tokenizers` library does, many times quicker."""

    def __init__(self) -> None:
        self._library = ByteLevel(add_prefix_space=False)
        self._classes = np.full(sys.maxunicode + 1, _UNSEEN, dtype=np.uint8)
        for point in range(128):
            self._classes[point] = self._class_of(chr(point))
        self._byte_classes = self._classes[:256].tobytes()  # of a byte that is no character by itself: unseen

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
        within = (characters & 0xC0) == 0x80  # bytes that go on with a character
        while (last := np.flatnonzero(begins & within)).size:  # the last byte of white space, where it stands apart
            begins[last], begins[last - 1] = False, True
        return data, np.flatnonzero(begins)

    def _classes_of(self, points: np.ndarray) -> np.ndarray:
        classes: np.ndarray = self._classes.take(points)
        unseen = classes == _UNSEEN
        if unseen.any():
            for point in np.unique(points[unseen]).tolist():
                self._classes[point] = self._class_of(chr(point))
            classes = self._classes.take(points)
        return classes

    def _class_of(self, character: str) -> int:
        """One word with a letter makes a letter, and so on; what joins nothing is white space."""
        for kind, example in _EXAMPLES.items():
            if len(self._library.pre_tokenize_str(example + character)) == 1:
                return kind
        return _SPACE


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
