"""Training a byte-level BPE: GPT-2's pattern, all 256 bytes, `<|endoftext|>` last."""

from __future__ import annotations

import json
from collections.abc import Iterable

import tokenizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from gptcli.text.bytelevel import ByteLevelTokenizer
from gptcli.text.cuts import recut
from gptcli.text.listening import listening
from gptcli.text.tokenizer_json import library_errors, merges_of, new_document

_MIN_FREQUENCY = 2
"""A pair that occurs once teaches nothing; text too small for the vocabulary so gives fewer entries."""


def train_bpe(pieces: Iterable[str], vocab_size: int) -> ByteLevelTokenizer:
    """Learn a vocabulary of at most `vocab_size` entries (256 bytes, merges, `<|endoftext|>`) from a text in pieces.

    Memory grows with the number of distinct words, not with the length of the text. What the iterator raises comes
    through unchanged.
    """
    library = tokenizers.Tokenizer(BPE())
    library.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=_MIN_FREQUENCY,
        initial_alphabet=sorted(ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    with library_errors("The tokenizer"):
        listening(lambda: library.train_from_iterator(recut(pieces), trainer))
    model = json.loads(library.to_str())["model"]
    return ByteLevelTokenizer(new_document(model["vocab"], merges_of(model), len(model["vocab"])))
