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

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

_CODE_POINTS = 0x110000
_LETTER, _NUMBER, _OTHER, _SPACE, _UNSEEN = range(5)
_EXAMPLES = {_LETTER: "a", _NUMBER: "1", _OTHER: "!"}
_BLANK, _APOSTROPHE = ord(" "), ord("'")
_ONE_LETTER = [ord(letter) for letter in "stmd"]
_TWO_LETTERS = [(ord(pair[0]), ord(pair[1])) for pair in ("re", "ve", "ll")]


class Splitter:
    """Cuts text into words as the `tokenizers` library does, many times quicker."""

    def __init__(self) -> None:
        self._library = ByteLevel(add_prefix_space=False)
        self._classes = np.full(_CODE_POINTS, _UNSEEN, dtype=np.uint8)
        for point in range(128):
            self._classes[point] = self._class_of(chr(point))
        self._ascii = self._classes[:256].tobytes()

    def split(self, text: str) -> tuple[bytes, np.ndarray]:
        """A text in UTF-8, and the place of each word's first byte, int64 (words,). "" has no words."""
        data = text.encode()
        if len(data) == len(text):
            characters = np.frombuffer(data, dtype=np.uint8)
            return data, _word_starts(characters, np.frombuffer(data.translate(self._ascii), dtype=np.uint8))
        characters = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        classes = self._classes.take(characters)
        unseen = classes == _UNSEEN
        if unseen.any():
            for point in np.unique(characters[unseen]).tolist():
                self._classes[point] = self._class_of(chr(point))
            classes = self._classes.take(characters)
        starts = _word_starts(characters, classes)
        wide = [(characters >= least).view(np.uint8) for least in (0x80, 0x800, 0x10000)]
        ends = np.cumsum(1 + wide[0] + wide[1] + wide[2], dtype=np.int64)  # of each character, in bytes
        return data, np.concatenate([[0], ends])[starts]

    def _class_of(self, character: str) -> int:
        """One word with a letter makes a letter, and so on; what joins nothing is white space."""
        for kind, example in _EXAMPLES.items():
            if len(self._library.pre_tokenize_str(example + character)) == 1:
                return kind
        return _SPACE


def _word_starts(characters: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The places where words begin, int64, from code points and classes (n,) of a text."""
    begins = np.ones(len(classes), dtype=np.bool_)
    np.not_equal(classes[1:], classes[:-1], out=begins[1:])
    space = classes == _SPACE
    begins[:-1] |= space[:-1] & begins[1:]  # the last white space of a stretch
    begins[1:] &= space[1:] | (characters[:-1] != _BLANK)  # a blank takes what follows it
    _mark_contractions(begins, characters)
    return np.flatnonzero(begins)


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
