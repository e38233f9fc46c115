"""Where a text may be cut so that its pieces, encoded one by one, give the same tokens as the whole.

GPT-2's pattern splits text into words before any merge:

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+

Call each character a letter (L), a number (N), a space (S) or other (O). Read the pattern with a pair of neighbours
(a, b) of different classes in mind, where a is no space: no alternative matches across them, save for an apostrophe
before a letter; no alternative that ends with a looks ahead; and none looks behind, so that b begins a word whatever
stood before it. There a cut changes nothing. After a space it would: " a" is one word, and `\\s+(?!\\S)` looks ahead.

The classes must be those of the library's regular expressions, whose Unicode version we do not know: a character whose
category changed between Unicode 3.2 and today counts as unsure, and no cut is made beside it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

PIECE_CHARACTERS = 1 << 17
"""Length of a piece where the text allows it: small enough for the processor's caches."""

_UNSURE = "\x1c\x1d\x1e\x1f\x85\u180e"
"""White space to some and not to others; U+180E was a space only between Unicode 4.0 and 6.2."""
_SPACE_CONTROLS = "\t\n\v\f\r"


@lru_cache(maxsize=1 << 16)
def character_class(character: str) -> str:
    """`L`, `N`, `S` or `O`; "" where Unicode versions disagree."""
    category = unicodedata.category(character)
    if character in _UNSURE or category in ("Cn", "Cs", "Co"):
        return ""
    if character in _SPACE_CONTROLS:
        return "S"
    if unicodedata.ucd_3_2_0.category(character) != category:
        return ""
    return {"L": "L", "N": "N", "Z": "S"}.get(category[0], "O")


def is_cut(before: str, after: str) -> bool:
    """Whether text may be cut between these two characters: ("d", " ") yes, (" ", "d") no, ("'", "s") no."""
    left, right = character_class(before), character_class(after)
    if not left or not right or left == "S" or left == right:
        return False
    return not (before == "'" and right == "L")


def recut(pieces: Iterable[str], size: int | None = None) -> Iterator[str]:
    """The same text in pieces of at most about `size` characters, parted only at safe cuts; "" never comes.

    A stretch without any safe cut stays whole, however long it is.
    """
    size = size or PIECE_CHARACTERS
    held: list[str] = []  # a stretch without a cut; joined once, so that a long one is not copied again and again
    last = ""  # the character after it, whose right neighbour is still to come
    for piece in pieces:
        text, start = last + piece, 0
        while place := _next_cut(text, start, size):
            yield "".join([*held, text[start:place]])
            held, start = [], place
        held.append(text[start:-1])
        last = text[-1:]
    if rest := "".join([*held, last]):
        yield rest


def _next_cut(text: str, start: int, size: int) -> int:
    """The last cut at most `size` characters after `start`, else the first one beyond; 0 if there is none."""
    near = range(min(start + size, len(text) - 1), start, -1)
    far = range(start + size + 1, len(text))
    return next((place for place in chain(near, far) if is_cut(text[place - 1], text[place])), 0)
