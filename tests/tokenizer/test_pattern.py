"""Words as the library splits them, for every character and for awkward mixtures, and where a text can be cut."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from gptcli.tokenizer.corpus import pattern
from gptcli.tokenizer.corpus.pattern import Splitter, is_cut, joined, recut
from tests.tokenizer.text_samples import LESSON, some, split_at, texts

LIBRARY = ByteLevel(add_prefix_space=False)
SPLITTER = Splitter()
contractions = st.text(alphabet="'stmdrevlaSTLL1!\" \n\xa0é", max_size=30)


def words_of(text: str) -> list[str]:
    data, starts = SPLITTER.split(text)
    return [data[start:end].decode() for start, end in pairwise([*starts.tolist(), len(data)])]


def words_of_the_library(text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in LIBRARY.pre_tokenize_str(text)]


@some
@given(text=texts | contractions)
def test_words_are_those_of_the_library(text: str) -> None:
    assert words_of(text) == words_of_the_library(text)


def test_every_kind_of_character() -> None:
    """All of the first planes' first 12,288, and of the rest every 61st, between letters, numbers, signs and blanks."""
    points = [*range(1, 0x3000), *range(0x3000, 0xD800, 61), *range(0xE000, 0x110000, 61)]
    for first in range(0, len(points), 4000):
        text = "".join(f"a{c}b 1{c}2 !{c}! {c}{c}  {c}'s{c}" for c in map(chr, points[first : first + 4000]))
        assert words_of(text) == words_of_the_library(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("don't 'sup  's", ["don", "'t", " '", "sup", " ", " '", "s"]),
        ("x'sup\n'll'", ["x", "'s", "up", "\n", "'ll", "'"]),
        ("a  b\n\n c \n", ["a", " ", " b", "\n\n", " c", " \n"]),
        ("", []),
        ("'", ["'"]),
        ("a'r", ["a", "'", "r"]),
        ("a\u3000\u3000é 12½", ["a", "\u3000", "\u3000", "é", " 12½"]),
    ],
)
def test_examples(text: str, words: list[str]) -> None:
    assert words_of(text) == words == words_of_the_library(text)


@pytest.mark.parametrize(
    ("name", "value"), [("_BLANK", 0), ("_APOSTROPHE", 0), ("_SPACE", 9), ("_TWO_LETTERS", []), ("_ONE_LETTER", [0])]
)
def test_words_control(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    assert words_of(LESSON) == words_of_the_library(LESSON)
    monkeypatch.setattr(pattern, name, value)
    assert words_of(LESSON) != words_of_the_library(LESSON)


def test_places_are_bytes() -> None:
    data, starts = SPLITTER.split("é ß")
    assert data == "é ß".encode()
    assert np.array_equal(starts, [0, 2])


CUTS = ["a ", "s'", "a1", "1a", "。你", "é\n", "\u180ea"]
NO_CUTS = [" a", "'s", "ab", "\xa0 ", "\r\n", "\x85a", "!\x1c", "\ud800!"]


@pytest.mark.parametrize("pair", CUTS + NO_CUTS)
def test_is_cut(pair: str) -> None:
    assert is_cut(pair[0], pair[1]) is (pair in CUTS)


@some
@given(text=texts | contractions)
def test_words_do_not_cross_cuts(text: str) -> None:
    """Every cut that is allowed, in every context, and not only those that `recut` takes."""
    places = [place for place in range(1, len(text)) if is_cut(text[place - 1], text[place])]
    assert [*chain.from_iterable(map(words_of_the_library, split_at(text, places)))] == words_of_the_library(text)


def test_text_without_spaces_is_cut_too() -> None:
    line = "你好，世界。今天天气很好。" * 5000
    pieces = list(recut([line], 1000))
    assert "".join(pieces) == line
    assert max(map(len, pieces)) <= 1000


def test_a_stretch_without_cut_stays_whole() -> None:
    assert list(recut(["a" * 50, "b" * 50, " c"], 10)) == ["a" * 50 + "b" * 50, " c"]


@pytest.mark.parametrize("letters", ["a", "語", "aé"])
def test_a_stretch_of_any_length_takes_bounded_memory(letters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "MAX_STRETCH_CHARACTERS", 100)
    pieces = [letters * 20] * 50
    cut = list(recut(pieces, 10))
    assert "".join(cut) == "".join(pieces)
    assert max(map(len, cut)) <= 100 + len(pieces[0])


def test_a_stretch_of_any_length_takes_bounded_memory_control() -> None:
    assert list(recut(["a" * 20] * 50, 10)) == ["a" * 1000]


@some
@given(parts=st.lists((texts | contractions).filter(bool), min_size=1, max_size=8))
def test_joined_texts_keep_their_words(parts: list[str]) -> None:
    text, places = joined(parts)
    data, starts = SPLITTER.split(text)
    for part, (first, last) in zip(parts, places.tolist(), strict=True):
        begins = [start - first for start in starts.tolist() if first <= start < last]
        assert last in starts
        assert data[first:last].decode() == part
        assert begins == SPLITTER.split(part)[1].tolist()


def test_joined_texts_keep_their_words_control(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["a word", "another word"]
    (_, start), (stop, _) = joined(parts)[1].tolist()
    assert stop - start == len("\n1")
    monkeypatch.setattr(pattern, "_LETTER", None)  # a letter before the second one, which then is no word of its own
    text, places = joined(parts)
    assert places[1][0] not in SPLITTER.split(text)[1]
