"""How predictable a text is: the loss of an n-gram model of its characters, which takes a fraction of a second.

Losses of GPT models on a text are close to a multiple of this one that depends on model and training alone; the law of
`expected.py` predicts that multiple.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np

from gptcli.dataset.folder import Dataset, Split
from gptcli.dataset.mixture import Mixture

ORDER = 5
"""Characters that an n-gram model looks back."""
TRAIN_CHARACTERS, HELD_OUT_CHARACTERS = 100_000, 20_000
SAMPLED_TOKENS = 20_000
"""Tokens whose characters are counted."""
PIECES = 8
"""Pieces of a split, spread evenly, if it has more text than that."""


def characters_per_token(dataset: Dataset) -> float:
    """Characters of a token in the mean; about 1 for a tokenizer of characters."""
    if isinstance(dataset, Mixture):
        return sum(part.weight * characters_per_token(part.dataset) for part in dataset.parts)
    ids = _sample(dataset.train, SAMPLED_TOKENS)
    return max(1, len(dataset.tokenizer.decode(ids.tolist()))) / max(1, ids.size)


def text_bits_per_byte(dataset: Dataset) -> float:
    """The loss of an n-gram model of a dataset's characters on its held-out text, in bits per byte."""
    if isinstance(dataset, Mixture):
        return sum(part.weight * text_bits_per_byte(part.dataset) for part in dataset.parts)
    per_token = characters_per_token(dataset)
    train, held_out = (
        dataset.tokenizer.decode(_sample(split, round(characters / per_token)).tolist())
        for split, characters in ((dataset.train, TRAIN_CHARACTERS), (dataset.val, HELD_OUT_CHARACTERS))
    )
    return ngram_bits_per_byte(train, held_out)


def ngram_bits_per_byte(train: str, held_out: str) -> float:
    """The loss on `held_out` of an n-gram model that has counted the characters of `train`, in bits per byte.

    Estimates of all lengths are mixed as in Witten & Bell 1991 ("The zero-frequency problem"): a context that was seen
    n times, before k different characters, gets the weight n / (n + k) over the next shorter one.
    """
    counts: list[defaultdict[str, Counter[str]]] = [defaultdict(Counter) for _ in range(ORDER + 1)]
    for length, contexts in enumerate(counts):
        for end in range(length, len(train)):
            contexts[train[end - length : end]][train[end]] += 1
    uniform = 1 / (len(counts[0][""]) + 1)
    begin = train[-ORDER:]
    text, bits = begin + held_out, 0.0
    for end in range(len(begin), len(text)):
        probability = uniform
        for length, contexts in enumerate(counts):
            seen = contexts.get(text[max(0, end - length) : end])
            if seen is None:
                break
            total, kinds = seen.total(), len(seen)
            probability = (seen[text[end]] + kinds * probability) / (total + kinds)
        bits -= math.log2(probability)
    return bits / max(1, len(held_out.encode(errors="surrogatepass")))


def _sample(split: Split, tokens: int) -> np.ndarray:
    """Up to `tokens` ids of a split, int64 (n,), in pieces that are spread evenly."""
    length, pieces = (split.tokens, 1) if split.tokens <= tokens else (tokens // PIECES, PIECES)
    starts = np.linspace(0, split.tokens - length, pieces).astype(np.int64)
    ids: np.ndarray = split.stream.windows(starts, length)
    return ids.reshape(-1)
