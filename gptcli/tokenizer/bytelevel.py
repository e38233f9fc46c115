"""Byte-level BPE with the `tokenizers` library: ids, their bytes, and the characters that have ids."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Literal

import numpy as np
import tokenizers

from gptcli.errors import TokenizerError
from gptcli.tokenizer import Unknown
from gptcli.tokenizer.corpus import CorpusEncoder, recut
from gptcli.tokenizer.document import (
    END_OF_TEXT,
    Document,
    added_tokens,
    bytes_of_entry,
    checked,
    cuts_like_gpt2,
    fingerprint,
    library_errors,
)
from gptcli.tokenizer.interruptible import run_interruptible

_SHORT_CHARACTERS = 2048
"""Shorter texts are encoded together, and fewer characters by the library: an array operation takes as long on 50
characters as on these."""
_GROUP_TEXTS, _GROUP_CHARACTERS = 1024, 1 << 16
_NEVER_IN_UTF8 = frozenset(b"\xc0\xc1" + bytes(range(0xF5, 0x100)))
_NAMED_CHARACTERS = 10
_FORMS: tuple[Literal["NFC"], Literal["NFD"]] = ("NFC", "NFD")
"""Unicode's two ways to write an accented letter: as one character, or as a letter and a combining mark."""
_NORMALIZE = "Normalize the text to {form}; in Python: `unicodedata.normalize('{form}', text)`."


class Tokenizer:
    """Text to ids and back: a byte-level BPE from a `tokenizer.json`. Its error messages begin with `name`.

    Raises TokenizerError if `document` is not a byte-level BPE or contradicts itself.
    """

    kind = "bpe"
    """`char` or `bpe`."""
    vocab_size: int
    """Rows that a model needs: the largest id + 1."""
    end_of_text: int | None
    """The id of `<|endoftext|>`; None where a foreign tokenizer has none."""
    fingerprint: str
    """Hexadecimal sha256 of the tokenizer's canonical form."""
    emittable: np.ndarray
    """bool (vocab_size,): the ids that encoded text can contain, and `end_of_text`."""
    cuttable: bool
    """Whether a long text can be encoded in pieces: only GPT-2's pattern splits it into words."""

    def __init__(self, document: Document, name: str = "The tokenizer") -> None:
        self._document = checked(document, name)
        self.fingerprint = fingerprint(self._document)
        self._name = name
        added_words = [token for token in added_tokens(self._document) if not token.get("special")]
        self.cuttable = cuts_like_gpt2(self._document) and not added_words
        with library_errors(name, foreign=True):
            self._library = tokenizers.Tokenizer.from_str(json.dumps(self._document))
        self._library.encode_special_tokens = True  # a literal <|endoftext|> in a text is ordinary text

        vocab: dict[str, int] = self._document["model"]["vocab"]
        added = {token["content"]: token["id"] for token in added_tokens(self._document)}
        if any(self._library.token_to_id(content) != token for content, token in added.items()):
            raise TokenizerError(f"{name} cannot be used: the ids of its added tokens leave gaps.")
        special = {token["content"] for token in added_tokens(self._document) if token.get("special")}
        special.add(self._document["model"].get("unk_token") or END_OF_TEXT)
        self.vocab_size = max(chain(vocab.values(), added.values())) + 1
        self.end_of_text = added.get(END_OF_TEXT)

        self._bytes = [b""] * self.vocab_size
        self.emittable = np.zeros(self.vocab_size, dtype=np.bool_)
        for entry, token in (vocab | added).items():
            plain = entry.encode() if entry in added else bytes_of_entry(entry)
            if plain is not None and entry not in special:
                self._bytes[token] = plain
                self.emittable[token] = _NEVER_IN_UTF8.isdisjoint(plain)
        if self.end_of_text is not None:
            self.emittable[self.end_of_text] = True
        single = {data[0] for data in self._bytes if len(data) == 1}
        self._missing_bytes = frozenset(range(256)) - _NEVER_IN_UTF8 - single

    def encode(self, text: str, *, unknown: Unknown = "error") -> list[int]:
        """Ids of a text. Text never gives a special id: a literal `<|endoftext|>` is encoded as its characters.

        A character that the tokenizer has no ids for is skipped, or raises a TokenizerError that names it.
        """
        if unknown == "error":
            self.refuse_unknown(text)
        return self._encode_known(self.known_part(text))

    def known_part(self, text: str) -> str:
        """A text without the characters that the tokenizer has no ids for."""
        missing = self.unknown_characters(text)
        return text.translate(dict.fromkeys(map(ord, missing))) if missing else text

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[np.ndarray]:
        """Ids of one text that comes in pieces, cut anywhere: the same ids as those of the whole text.

        Memory is bounded where `cut` bounds it. Raises TokenizerError for unknown characters.
        """
        return self.encode_texts(self.cut(pieces))

    def cut(self, pieces: Iterable[str]) -> Iterator[str]:
        """The same text in pieces that give its ids when encoded one by one.

        A tokenizer that does not split words like GPT-2 gets the text in one piece: no cut is known to be safe.
        """
        if self.cuttable:
            remaining = iter(pieces)
            first, second = next(remaining, ""), next(remaining, "")
            if not second and len(first) < _SHORT_CHARACTERS:  # such as one of many small documents
                yield from filter(None, [first])
            else:
                yield from recut(chain([first, second], remaining))
        elif text := "".join(pieces):
            yield text

    def encode_texts(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """The ids of each text by itself. Raises TokenizerError for unknown characters."""
        if self.cuttable:
            for group in _in_groups(self._known(texts)):
                if len(group[0]) >= _SHORT_CHARACTERS:
                    yield from self._corpus_encoder.encode(group)
                elif sum(map(len, group)) >= _SHORT_CHARACTERS and all(group):
                    yield from self._corpus_encoder.encode_together(group)
                else:
                    encoded = _encode_batch(self._library, self._name, group, foreign=False)
                    yield from (np.array(ids, dtype=np.uint32) for ids in encoded)
        else:
            for text in self._known(texts):
                (ids,) = _encode_batch(self._library, self._name, [text], foreign=True)
                yield np.array(ids, dtype=np.uint32)

    def _known(self, texts: Iterable[str]) -> Iterator[str]:
        """The same texts; raises TokenizerError for unknown characters."""
        for text in texts:
            self.refuse_unknown(text)
            yield text

    def refuse_unknown(self, text: str) -> None:
        """Raise a TokenizerError that names the characters of `text` that the tokenizer has no ids for, if any."""
        if missing := self.unknown_characters(text):
            normalized = [(form, self.unknown_characters(unicodedata.normalize(form, text))) for form in _FORMS]
            raise _unknown_error(missing, normalized)

    def unknown_characters(self, text: str) -> list[str]:
        """The distinct characters of `text` that the tokenizer has no ids for, sorted."""
        if not self._missing_bytes and _is_unicode(text):
            return []
        return sorted(character for character in set(text) if not self._knows(character))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids: their bytes joined, invalid UTF-8 as U+FFFD; special ids and unused ids give nothing."""
        return b"".join(self.token_bytes(token) for token in ids).decode("utf-8", errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one id: b"" for special and unused ids."""
        if not 0 <= token < self.vocab_size:
            raise TokenizerError(f"The tokenizer has no id {token}; its ids are 0 to {self.vocab_size - 1}.")
        return self._bytes[token]

    def pieces(self, text: str) -> list[tuple[int, bytes]]:
        """The ids of a text, each with its bytes."""
        return [(token, self.token_bytes(token)) for token in self.encode(text)]

    def to_json(self) -> str:
        """The content of `tokenizer.json`."""
        return json.dumps(self._document, indent=2, ensure_ascii=False) + "\n"

    @cached_property
    def _corpus_encoder(self) -> CorpusEncoder:
        # No reference to self: a cycle would keep its tables of some 50 MB until the garbage collector runs.
        return CorpusEncoder(partial(_encode_batch, self._library, self._name, foreign=False))

    def _encode_known(self, text: str) -> list[int]:
        with library_errors(self._name, foreign=not self.cuttable):
            ids: list[int] = self._library.encode(text, add_special_tokens=False).ids
        return ids

    def _knows(self, character: str) -> bool:
        return _is_unicode(character) and self._missing_bytes.isdisjoint(character.encode())


def _in_groups(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in order, in groups of short ones; a longer text is a group by itself."""
    group: list[str] = []
    size = 0
    for text in texts:
        is_short = len(text) < _SHORT_CHARACTERS
        if group and (not is_short or size >= _GROUP_CHARACTERS or len(group) >= _GROUP_TEXTS):
            yield group
            group, size = [], 0
        if is_short:
            group.append(text)
            size += len(text)
        else:
            yield [text]
    if group:
        yield group


def _is_unicode(text: str) -> bool:
    """False for text with lone surrogates, which UTF-8 cannot encode (a command line's bytes that are not UTF-8)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encode_batch(library: tokenizers.Tokenizer, name: str, texts: list[str], *, foreign: bool) -> list[list[int]]:
    with library_errors(name, foreign=foreign):
        encodings = run_interruptible(lambda: library.encode_batch_fast(texts, add_special_tokens=False))
        return [encoding.ids for encoding in encodings]


def _unknown_error(missing: list[str], normalized: Sequence[tuple[str, list[str]]]) -> TokenizerError:
    """An error that names the characters `missing`, and a normalization of the text that has fewer of them.

    `normalized` lists each normalization with the characters that are still unknown after it.
    """
    named = ", ".join(map(_named, missing[:_NAMED_CHARACTERS]))
    more = len(missing) - _NAMED_CHARACTERS
    message = f"The tokenizer does not know the character{'s' * (len(missing) > 1)} {named}"
    message += f" and {more:,} more" if more > 0 else ""
    form, left = min(normalized, key=lambda item: len(item[1]))
    if not left:
        message += f", but it knows all characters of the same text normalized to {form}"
        return TokenizerError(f"{message}.", _NORMALIZE.format(form=form))
    hint = "Skip them with `unknown = skip`."
    if set(left) < set(missing):
        message += f"; normalized to {form}, the same text has only {len(left):,} unknown"
        hint = f"{_NORMALIZE.format(form=form)} {hint}"
    return TokenizerError(f"{message}.", hint)


def _named(character: str) -> str:
    """A character as people see it, and its code point: 'é' (U+00E9), '◌́' (U+0301)."""
    return f"{'◌' * (unicodedata.combining(character) > 0) + character!r} (U+{ord(character):04X})"
