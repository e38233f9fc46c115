"""The character tokenizer: one id for each character of a text.

It is a byte-level BPE whose merges only assemble single characters, so that every program that reads `tokenizer.json`
gives the same ids. For the text "né":

    id   entry   bytes
    0    n       6E
    1    Ã©      C3 A9   assembled by the only merge (Ã, ©)
    2    Ã       C3      partial pieces that the merge needs: never in encoded text, never sampled
    3    ©       A9
    4    <|endoftext|>

No merge can cross two characters: its left side begins with a character's first byte, which determines the length.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.code_points import code_points
from gptcli.tokenizer.document import (
    END_OF_TEXT,
    Document,
    Merge,
    bytes_of_entry,
    entry_of_bytes,
    merges_of,
    new_document,
)

_UNKNOWN = -1
_UNKNOWN_BYTE = 255
_PART_CHARACTERS = 1 << 16
"""Length of a piece: text with a few accents then has mostly pieces without any, which are faster to look up."""


class CharTokenizer(Tokenizer):
    """Ids 0..C-1 are the C sorted characters; encoding is one look-up in a table of code points."""

    kind = "char"

    def __init__(self, document: Document, characters: Sequence[str], name: str = "The tokenizer") -> None:
        """`characters`: the alphabet of `document`, sorted."""
        super().__init__(document, name)
        self.emittable[len(characters) : -1] = False
        self._ids = np.full(sys.maxunicode + 1, _UNKNOWN, dtype=np.int32)
        self._ids[[ord(character) for character in characters]] = np.arange(len(characters))
        # ASCII comes first in the alphabet: ids below 128, or 255.
        self._ascii_ids = self._ids[:256].astype(np.uint8).tobytes()

    def cut(self, pieces: Iterable[str]) -> Iterator[str]:
        """The same text in pieces: any place is safe to cut."""
        for piece in pieces:
            for start in range(0, len(piece), _PART_CHARACTERS):
                yield piece[start : start + _PART_CHARACTERS]

    def encode_texts(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """The ids of each text. Raises TokenizerError for unknown characters."""
        return map(self._ids_of, texts)

    def _ids_of(self, text: str) -> np.ndarray:
        if text.isascii():
            data = text.encode().translate(self._ascii_ids)
            ids: np.ndarray = np.frombuffer(data, dtype=np.uint8)
            unknown = _UNKNOWN_BYTE in data
        else:
            ids = self._ids.take(code_points(text))
            unknown = ids.min() == _UNKNOWN
        if unknown:
            self.refuse_unknown(text)
        return ids

    def unknown_characters(self, text: str) -> list[str]:
        """The distinct characters of `text` that are not in the alphabet, sorted."""
        return sorted(character for character in set(text) if self._ids[ord(character)] == _UNKNOWN)

    def _encode_known(self, text: str) -> list[int]:
        ids: list[int] = self._ids[code_points(text)].tolist()
        return ids


def char_tokenizer(characters: Iterable[str]) -> CharTokenizer:
    """The character tokenizer of an alphabet: `char_tokenizer("hello").encode("hole")` is [1, 3, 2, 0]."""
    alphabet = sorted(set(characters))
    return CharTokenizer(_document(alphabet), alphabet)


def _document(characters: list[str]) -> Document:
    """The `tokenizer.json` of the sorted alphabet `characters`."""
    vocab = {entry_of_bytes(character.encode()): token for token, character in enumerate(characters)}
    merges: dict[Merge, None] = {}  # an ordered set
    for character in characters:
        data = character.encode()
        for length in range(1, len(data)):
            left, right = entry_of_bytes(data[:length]), entry_of_bytes(data[length : length + 1])
            vocab.setdefault(left, len(vocab))
            vocab.setdefault(right, len(vocab))
            merges.setdefault((left, right))
    return new_document(vocab, list(merges), len(vocab))


def alphabet_of(document: Document) -> list[str]:
    """The alphabet of a checked `tokenizer.json` that is exactly a character tokenizer; else []."""
    model = document["model"]
    characters: list[str] = []
    for entry, _ in sorted(model["vocab"].items(), key=lambda item: item[1]):
        try:
            character = (bytes_of_entry(entry) or b"").decode()
        except UnicodeDecodeError:
            break
        if len(character) != 1 or entry == END_OF_TEXT or (characters and character <= characters[-1]):
            break
        characters.append(character)
    expected = _document(characters)
    plain = {key: model.get(key) or None for key in ("unk_token", "fuse_unk", "byte_fallback", "ignore_merges")}
    same = (
        model["vocab"] == expected["model"]["vocab"]
        and merges_of(model) == merges_of(expected["model"])
        and not any(plain.values())
        and document.get("normalizer") is None
        and document.get("pre_tokenizer") == expected["pre_tokenizer"]
        and [token["content"] for token in document.get("added_tokens") or []] == [END_OF_TEXT]
    )
    return characters if same else []
