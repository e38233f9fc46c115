"""The merges against those of the library's trainer, and of the slow way of the textbook."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.corpus import merges
from gptcli.tokenizer.corpus.merges import Merge, learn_merges
from tests.tokenizer.text_samples import LESSON, some, texts

BYTES = range(256)
counted = st.dictionaries(st.text("ab", min_size=1, max_size=9).map(str.encode), st.integers(1, 9), min_size=1)


def learned_by_the_library(text: str, vocab_size: int) -> object:
    library = tokenizers.Tokenizer(BPE())
    library.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = sorted(ByteLevel.alphabet())
    trainer = BpeTrainer(
        vocab_size=vocab_size - 1, min_frequency=2, initial_alphabet=alphabet, special_tokens=[], show_progress=False
    )
    library.train_from_iterator([text], trainer)
    model = json.loads(library.to_str())["model"]
    return model["vocab"] | {"<|endoftext|>": len(model["vocab"])}, model["merges"]


def learned(text: str, vocab_size: int) -> object:
    model = json.loads(train_bpe([text], vocab_size).to_json())["model"]
    return model["vocab"], model["merges"]


@some
@given(text=texts, vocab_size=st.integers(257, 400))
def test_same_as_the_library(text: str, vocab_size: int) -> None:
    text = (text + LESSON) * 3
    assert learned(text, vocab_size) == learned_by_the_library(text, vocab_size)


def slowly(words: dict[bytes, int], size: int) -> list[Merge]:
    """Count all pairs, merge the most frequent one from the left in each word, and begin again."""
    chains = [(list(word), count) for word, count in words.items()]
    entries = [bytes([byte]) for byte in BYTES]
    found: list[Merge] = []
    while len(entries) < size:
        counts: Counter[Merge] = Counter()
        for chain, count in chains:
            for pair in pairwise(chain):
                counts[pair] += count
        if not counts or max(counts.values()) < 2:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        entry = entries[best[0]] + entries[best[1]]
        new = entries.index(entry) if entry in entries else len(entries)
        entries += [entry] * (new == len(entries))
        found.append(best)
        for chain, _ in chains:
            place = 0
            while place + 1 < len(chain):
                if (chain[place], chain[place + 1]) == best:
                    chain[place : place + 2] = [new]
                place += 1
    return found


def fast(words: dict[bytes, int], size: int) -> list[Merge]:
    return learn_merges(list(words), np.array(list(words.values()), dtype=np.int64), BYTES, size, 2)[1]


@some
@given(words=counted, more=st.integers(0, 40))
def test_same_as_the_slow_way(words: dict[bytes, int], more: int) -> None:
    """With two letters pairs overlap ("aaa"), follow each other ("abab") and make one entry in two ways."""
    assert fast(words, 256 + more) == slowly(words, 256 + more)


def test_same_as_the_slow_way_control(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {b"abababab": 3, b"aaaaaba": 5, b"bbab": 2}
    assert fast(words, 270) == slowly(words, 270)
    grouped = merges._grouped
    monkeypatch.setattr(merges, "_grouped", lambda pairs, counts, places: grouped(pairs, np.abs(counts), places))
    assert fast(words, 270) != slowly(words, 270)


def test_the_textbook_example() -> None:
    """Sennrich et al., figure 1: low, lower, newest, widest give es, est, (est with its end,) lo, low, …"""
    words = {b"low": 5, b"lower": 2, b"newest": 6, b"widest": 3}
    entries, found = learn_merges(list(words), np.array([5, 2, 6, 3]), BYTES, 260, 2)
    assert entries[256:] == [b"es", b"est", b"lo", b"low"]
    assert found == [(101, 115), (256, 116), (108, 111), (258, 119)]


def test_a_pair_that_becomes_frequent_late_gets_all_its_places() -> None:
    chains, pairs = merges._Chains([b"xy", b"xyxy"], np.array([1, 1]), BYTES), merges._Pairs(2)
    pair = BYTES[ord("x")] * merges._LEFT + BYTES[ord("y")]
    assert pairs.change(iter([(pair, 1, np.array([0], dtype=np.int32))])) == []
    assert pairs.most_frequent() is None
    grown = pairs.change(iter([(pair, 2, np.array([3, 5], dtype=np.int32))]))
    pairs.put(chains.places_of(grown))
    assert pairs.most_frequent() == pair
    assert pairs.remove(pair).tolist() == [0, 3, 5]


def test_rare_words_are_dropped_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand words that occur once, and two that occur often: one from the start on, one only at the end."""
    monkeypatch.setattr(merges, "MAX_WORD_BYTES", 1000)
    rare = [" " + "".join(chr(ord("a") + int(digit)) for digit in f"{number:04}") for number in range(1000)]
    text = "".join(" early" + word for word in rare) + " late" * 50
    words, counts = merges._counted_words([text[start : start + 500] for start in range(0, len(text), 500)])
    found = dict(zip(words, counts.tolist(), strict=True))
    assert found[b" early"] == 1000
    assert found[b" late"] == 50
    assert sum(map(len, words)) <= 1000 + 500, "one piece at most is added before words are dropped"


def test_no_word_is_dropped_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f" {word}" for word in range(300))
    whole = merges._counted_words([text])
    monkeypatch.setattr(merges, "MAX_WORD_BYTES", sum(map(len, whole[0])))
    assert merges._counted_words([text])[0] == whole[0]


@pytest.mark.parametrize("room", [300, 1000, 5000, 1 << 20])
def test_counting_pieces_together_changes_nothing(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words are dropped after the same pieces as if each were counted alone."""
    monkeypatch.setattr(merges, "MAX_WORD_BYTES", room)
    monkeypatch.setattr(merges, "_JOINED_CHARACTERS", 40)
    chance = random.Random(0)
    pieces = ["".join(f" {chance.randrange(1 + 3 * number)}é" for _ in range(9)) for number in range(400)]
    together = merges._counted_words(pieces)
    calls: list[str] = []
    real = merges._WordCounts.add
    monkeypatch.setattr(merges._WordCounts, "add", lambda self, text: (calls.append(text), real(self, text))[1])
    monkeypatch.setattr(merges, "_TOGETHER_BYTES", 0)
    alone = merges._counted_words(pieces)
    assert len(calls) > 100
    assert together[0] == alone[0]
    assert together[1].tolist() == alone[1].tolist()
