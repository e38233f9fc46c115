"""Documents that repeat earlier ones, word for word or nearly."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any, Literal

from gptcli.dataset.refusals import MissingExtraError

_SIMILARITY = 0.8
"""Share of common word sequences from which two documents count as near copies."""
_WORDS = 5
"""Length of these sequences."""
_PERMUTATIONS = 128
_COMPARED_CHARACTERS = 1_000_000
"""Beginning of a document by which near copies are found."""
_WORD = re.compile(r"\w+")


class Duplicates:
    """The documents that were seen so far."""

    def __init__(self, mode: Literal["off", "exact", "near"]) -> None:
        """Raises MissingExtraError where `near` needs a package that is not installed."""
        self.compared_characters = _COMPARED_CHARACTERS if mode == "near" else 0
        """Characters of each document that `is_copy` needs."""
        self.exact = self.near = 0
        """Copies that were found."""
        self._seen: dict[int, None] | None = None if mode == "off" else {}
        """Digests in the order of the documents."""
        self._begun = 0, 0, 0
        self._near: Any = None
        if mode == "near":
            if not find_spec("rensa"):
                raise MissingExtraError("`data.dedup = near`", "data")
            import rensa

            self._near = rensa.RMinHashDeduplicator(threshold=_SIMILARITY, num_perm=_PERMUTATIONS, use_lsh=True)

    @property
    def copies(self) -> int:
        """Number of all copies."""
        return self.exact + self.near

    def begin(self) -> None:
        """Begin a source, whose documents `forget` forgets."""
        self._begun = self.exact, self.near, len(self._seen or ())

    def forget(self) -> None:
        """Forget the documents since `begin`: of a source that turns out to be unreadable."""
        self.exact, self.near, kept = self._begun
        while self._seen and len(self._seen) > kept:
            if self._near:
                self._near.remove(str(len(self._seen)))
            self._seen.popitem()

    def is_copy(self, digest: int, beginning: str) -> bool:
        """Whether a document with this digest and beginning repeats an earlier one; if not, it is remembered."""
        if self._seen is None:
            return False
        if digest in self._seen:
            self.exact += 1
            return True
        self._seen[digest] = None
        if self._near and not self._near.add_pairs([(str(len(self._seen)), _shingles(beginning))])[0]:
            self.near += 1
            return True
        return False


def _shingles(text: str) -> list[str]:
    """The sequences of words of a text, regardless of case and punctuation; of a short one, all of it."""
    words = _WORD.findall(text.lower())
    count = max(1, len(words) - _WORDS + 1)
    return [" ".join(words[first : first + _WORDS]) for first in range(count)]
