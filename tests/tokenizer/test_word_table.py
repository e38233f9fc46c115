"""The table against a dict, with collisions in every cache."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.tokenizer.corpus import word_table
from gptcli.tokenizer.corpus.word_table import WordTable
from tests.tokenizer.text_samples import some

word = st.sampled_from([1, 2, 6, 7, 8, 9, 14, 15, 16, 17, 30, 31, 32, 33, 70]).flatmap(
    lambda size: st.sampled_from([b"a", b"\0", b"ab", b"\xff"]).map(lambda data: (data * size)[:size])
)
words = st.lists(word | st.binary(min_size=1, max_size=40), min_size=1, max_size=60)


def look_up(table: WordTable, several: list[bytes]) -> list[int]:
    sizes = [len(one) for one in several]
    return table.look_up(b"".join(several), np.cumsum([0, *sizes[:-1]])).tolist()


def as_a_dict_would(table: WordTable, batches: list[list[bytes]]) -> bool:
    """Equal words have equal numbers, different ones different, and `words` gives them back."""
    known: dict[bytes, int] = {}
    for batch in batches:
        before = len(table)
        numbers = look_up(table, batch)
        if any(known.setdefault(one, number) != number for one, number in zip(batch, numbers, strict=True)):
            return False
        if set(table.words(before)) != {one for one in batch if known[one] >= before}:
            return False
    return table.words() == sorted(known, key=known.__getitem__)


@pytest.mark.parametrize("bits", [1, 3, 10])
@some
@given(batches=st.lists(words, max_size=4))
def test_numbers_are_those_of_a_dict(bits: int, batches: list[list[bytes]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_table, "_CACHES", ((1, bits), (2, bits), (4, bits)))
        assert as_a_dict_would(WordTable(), batches)


def test_numbers_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without their lengths, words that differ in trailing zeros only are confused."""
    batches = [[b"a"], [b"a\0"]]
    assert as_a_dict_would(WordTable(), batches)
    monkeypatch.setattr(word_table, "_LENGTH_SHIFT", np.uint64(63))
    assert not as_a_dict_would(WordTable(), [[b"a"], [b"a\0\0"]])


def test_words_are_found_in_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    table = WordTable()
    batch = [b"a", b"bb" * 5, b"c" * 20]
    assert look_up(table, batch) == [0, 1, 2]
    monkeypatch.setattr(table, "_numbers", {})  # the dict is not asked again
    assert look_up(table, [*batch, *batch]) == [0, 1, 2, 0, 1, 2]
