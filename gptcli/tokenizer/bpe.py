"""Training a byte-level BPE: GPT-2's pattern, all 256 bytes, `<|endoftext|>` last."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gptcli.tokenizer.bytelevel import ByteLevelTokenizer
from gptcli.tokenizer.cuts import recut
from gptcli.tokenizer.document import BYTE_OF_CHARACTER, CHARACTER_OF_BYTE, entry_of_bytes, new_document
from gptcli.tokenizer.merges import learn_merges
from gptcli.tokenizer.splitting import Splitter
from gptcli.tokenizer.word_table import WordTable

_MIN_COUNT = 2
"""A pair that occurs once teaches nothing; text too small for the vocabulary so gives fewer entries."""


def train_bpe(pieces: Iterable[str], vocab_size: int) -> ByteLevelTokenizer:
    """Learn a vocabulary of at most `vocab_size` entries (256 bytes, merges, `<|endoftext|>`) from a text in pieces.

    The same that the trainer of `tokenizers` learns, in less time. Memory grows with the number of distinct words, not
    with the length of the text. What the iterator raises comes through unchanged.
    """
    words, counts = _counted_words(pieces)
    in_order = sorted(BYTE_OF_CHARACTER)  # the ids of bytes are in the order of their characters, as the library has it
    byte_symbols = [in_order.index(CHARACTER_OF_BYTE[byte]) for byte in range(256)]
    entries, merges = learn_merges(words, counts, byte_symbols, vocab_size - 1, _MIN_COUNT)
    names = [entry_of_bytes(entry) for entry in entries]
    vocab = {name: token for token, name in enumerate(names)}
    return ByteLevelTokenizer(new_document(vocab, [(names[a], names[b]) for a, b in merges], len(vocab)))


def _counted_words(pieces: Iterable[str]) -> tuple[list[bytes], np.ndarray]:
    """The distinct words of a text, and how often each occurs, int64 (words,)."""
    splitter, table = Splitter(), WordTable()
    counts = np.zeros(0, dtype=np.int64)
    for text in recut(pieces):
        numbers = table.look_up(*splitter.split(text))
        if len(table) > len(counts):
            counts = np.concatenate([counts, np.zeros(len(table), dtype=np.int64)])  # twice as long, so seldom
        np.add.at(counts, numbers, 1)
    return table.words(), counts[: len(table)]
