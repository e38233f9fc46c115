"""The n-gram model that says how predictable a text is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gptcli.dataset.mixture import mixture
from gptcli.dataset.preparing import tokenize
from gptcli.runs import ngrams
from gptcli.runs.ngrams import characters_per_token, ngram_bits_per_byte, text_bits_per_byte
from tests.runs.small_runs import small_dataset

VERSE = "so long lives this, and this gives life to thee\n"


def test_a_worked_example() -> None:
    """Among the 2 characters of "ab", of 2 kinds, `a` was seen once, and a third of any other count is its share of the
    3 characters that there could be. The context "b" was never continued."""
    assert ngram_bits_per_byte("ab", "a") == pytest.approx(-math.log2((1 + 2 / 3) / 4))


def test_unknown_characters_cost_much_but_not_infinitely() -> None:
    assert 1 < ngram_bits_per_byte("aaaa", "b") < 20
    assert ngram_bits_per_byte("aaaa", "a") < 1


def test_repetition_is_predictable() -> None:
    repeated = ngram_bits_per_byte(VERSE * 20, VERSE)
    assert repeated < 0.2 < 2 < ngram_bits_per_byte(VERSE, VERSE[::-1])


def test_bits_are_per_byte_not_per_character() -> None:
    latin, cyrillic = "abcd" * 10 + "dcba" * 10, "абвг" * 10 + "гвба" * 10
    assert ngram_bits_per_byte(cyrillic, cyrillic) == pytest.approx(ngram_bits_per_byte(latin, latin) / 2)


def test_nothing_to_predict() -> None:
    assert ngram_bits_per_byte("", "") == 0


def test_a_dataset_is_judged_by_its_splits(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path, VERSE * 100)
    text = (tmp_path / "book.txt").read_text(encoding="utf-8")
    held_out = dataset.val.tokens
    assert text_bits_per_byte(dataset) == ngram_bits_per_byte(text[:-held_out], text[-held_out:])


def test_a_large_split_is_judged_by_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = small_dataset(tmp_path, VERSE * 100 + VERSE[::-1] * 100)
    whole = text_bits_per_byte(dataset)
    monkeypatch.setattr(ngrams, "TRAIN_CHARACTERS", 2000)
    pieces = text_bits_per_byte(dataset)
    assert pieces != whole
    monkeypatch.setattr(ngrams, "PIECES", 1)
    assert text_bits_per_byte(dataset) > 2 * pieces, "one piece sees nothing like the held-out text"


def test_a_mixture_is_judged_by_its_weights(tmp_path: Path) -> None:
    easy, hard = small_dataset(tmp_path / "easy", VERSE * 50), small_dataset(tmp_path / "hard", VERSE[::-1] + VERSE * 9)
    whole = text_bits_per_byte(mixture([easy, hard], [3, 1]))
    assert whole == pytest.approx(0.75 * text_bits_per_byte(easy) + 0.25 * text_bits_per_byte(hard))


def test_a_text_is_as_predictable_in_tokens_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "TRAIN_CHARACTERS", 20_000)
    monkeypatch.setattr(ngrams, "HELD_OUT_CHARACTERS", 4_000)
    words = "".join(f"{number * number % 997} is what {number * 7 % 91} says.\n" for number in range(2_000))
    characters = small_dataset(tmp_path, words)
    bpe = tokenize(tmp_path / "book.txt", tmp_path / "bpe", tokenizer="bpe", vocab_size=400).dataset
    assert characters_per_token(characters) == 1
    assert characters_per_token(bpe) == pytest.approx(len(words) * 0.9 / bpe.train.tokens, rel=0.05)
    assert characters_per_token(bpe) > 2
    assert text_bits_per_byte(bpe) == pytest.approx(text_bits_per_byte(characters), rel=0.15)
