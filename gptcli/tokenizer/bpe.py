"""Training a byte-level BPE: GPT-2's pattern, all 256 bytes, `<|endoftext|>` last."""

from __future__ import annotations

from collections.abc import Iterable

from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.corpus import learn_vocabulary
from gptcli.tokenizer.document import BYTE_OF_CHARACTER, CHARACTER_OF_BYTE, entry_of_bytes, new_document

_MIN_COUNT = 2
"""A pair that occurs once teaches nothing; a text too small for the vocabulary gives fewer entries."""


def train_bpe(pieces: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a vocabulary of at most `vocab_size` entries (256 bytes, merges, `<|endoftext|>`) from a text in pieces.

    The trainer of `tokenizers` learns the same one, but takes longer. Memory grows with the number of distinct words,
    not with the length of the text. Exceptions of the iterator come through unchanged.
    """
    in_order = sorted(BYTE_OF_CHARACTER)  # the ids of bytes are in the order of their characters, as in the library
    byte_symbols = [in_order.index(CHARACTER_OF_BYTE[byte]) for byte in range(256)]
    entries, merges = learn_vocabulary(pieces, byte_symbols, vocab_size - 1, _MIN_COUNT)
    names = [entry_of_bytes(entry) for entry in entries]
    vocab = {name: token for token, name in enumerate(names)}
    return Tokenizer(new_document(vocab, [(names[a], names[b]) for a, b in merges], len(vocab)))
