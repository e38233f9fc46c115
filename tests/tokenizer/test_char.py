"""Contract 6 for characters, and that every reader of `tokenizer.json` gives the same ids."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Literal
from unicodedata import normalize

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from gptcli.errors import TokenizerError
from gptcli.tokenizer import char
from gptcli.tokenizer.char import CharTokenizer, char_tokenizer
from gptcli.tokenizer.tokenizer import StreamDecoder, load_tokenizer
from tests.tokenizer.text_samples import LESSON, some, split_at, texts

HARD = LESSON + "\0\r\n\u2028\u2029\u0301\u200d👩\u200d👩\ue000\U0010ffff"


def same_ids_everywhere(tokenizer: CharTokenizer, text: str) -> bool:
    """The table of code points against the slow, obvious way: the library on the saved file."""
    outside = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    outside.encode_special_tokens = True
    pieces = list(chain.from_iterable(ids.tolist() for ids in tokenizer.encode_pieces([text[:7], text[7:]])))
    return tokenizer.encode(text) == pieces == outside.encode(text).ids


@some
@given(text=texts)
def test_same_ids_as_the_library(text: str) -> None:
    assert same_ids_everywhere(char_tokenizer(text + "x"), text)


def test_same_ids_as_the_library_control(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = char_tokenizer(HARD)
    assert same_ids_everywhere(tokenizer, HARD)
    real = char.code_points
    monkeypatch.setattr(char, "code_points", lambda text: real(text) ^ 1 if text.isascii() else real(text))
    assert not same_ids_everywhere(char_tokenizer("abc" + HARD), "abcabcabc")


def test_same_ids_in_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    text = HARD.replace("<|endoftext|>", "")
    tokenizer = char_tokenizer(HARD)
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_json(), encoding="utf-8")
    outside = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    assert outside(text)["input_ids"] == tokenizer.encode(text)
    assert outside.decode(tokenizer.encode(text)) == text
    assert outside("<|endoftext|>")["input_ids"] == [tokenizer.end_of_text]


def comes_back(tokenizer: CharTokenizer, text: str) -> bool:
    return tokenizer.decode(tokenizer.encode(text)) == text


@some
@given(text=texts, more=texts)
def test_any_text_over_the_alphabet_comes_back(text: str, more: str) -> None:
    assert comes_back(char_tokenizer(text + more + "x"), text)


def test_any_text_comes_back_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CharTokenizer, "token_bytes", lambda self, token: self._bytes[token][:1])
    assert comes_back(char_tokenizer("hello"), "hello")
    assert not comes_back(char_tokenizer("né"), "né")


@some
@given(text=texts, places=st.lists(st.integers(0, 200), max_size=5))
def test_pieces_equal_whole(text: str, places: list[int]) -> None:
    tokenizer = char_tokenizer(text + "x")
    pieces = chain.from_iterable(ids.tolist() for ids in tokenizer.encode_pieces(split_at(text, places)))
    assert list(pieces) == tokenizer.encode(text)


@some
@given(ids=st.lists(st.integers(0, 10_000), max_size=60))
def test_streamed_decoding_equals_whole(ids: list[int]) -> None:
    tokenizer = char_tokenizer(HARD)
    ids = [token % tokenizer.vocab_size for token in ids]
    decoder = StreamDecoder(tokenizer)
    assert "".join([*map(decoder.push, ids), decoder.finish()]) == tokenizer.decode(ids)


def test_layout() -> None:
    tokenizer = char_tokenizer("né")
    assert tokenizer.kind == "char"
    assert [tokenizer.token_bytes(token) for token in range(5)] == [b"n", "é".encode(), b"\xc3", b"\xa9", b""]
    assert tokenizer.emittable.tolist() == [True, True, False, False, True]
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (5, 4)
    assert tokenizer.pieces("én") == [(1, "é".encode()), (0, b"n")]


def test_ascii_needs_no_partial_pieces() -> None:
    tokenizer = char_tokenizer("hello")
    assert tokenizer.vocab_size == 5
    assert tokenizer.emittable.all()


def test_ids_are_the_sorted_characters() -> None:
    tokenizer = char_tokenizer(HARD)
    characters = sorted(set(HARD))
    assert tokenizer.encode("".join(characters)) == list(range(len(characters)))
    assert np.flatnonzero(tokenizer.emittable).tolist() == [*range(len(characters)), tokenizer.vocab_size - 1]


def test_unknown_characters_are_named_and_can_be_skipped() -> None:
    tokenizer = char_tokenizer("abc")
    with pytest.raises(TokenizerError, match=r"the characters '\\x1b' \(U\+001B\), 'ß' \(U\+00DF\)\."):
        tokenizer.encode("a\x1bbßß")
    with pytest.raises(TokenizerError, match="and 16 more"):
        tokenizer.encode("defghijklmnopqrstuvwxyz[]{")
    with pytest.raises(TokenizerError, match="'\\\\udc80'"):
        tokenizer.encode("a\udc80")
    with pytest.raises(TokenizerError, match="'ß'"):
        list(tokenizer.encode_pieces(["abc", "aß"]))
    assert tokenizer.encode("a\x1bbß\udc80c", unknown="skip") == [0, 1, 2]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_another_normalization_is_named(form: Literal["NFC", "NFD"]) -> None:
    """An accent as a character of its own, or not: text that looks the same has other characters."""
    tokenizer = char_tokenizer(normalize(form, "café e"))
    text = normalize("NFC" if form == "NFD" else "NFD", "café")
    with pytest.raises(TokenizerError, match=f"normalized to {form}") as caught:
        tokenizer.encode(text)
    assert f"normalize('{form}', text)" in caught.value.hint


def test_a_normalization_that_knows_more_is_named() -> None:
    with pytest.raises(TokenizerError, match=r"normalized to NFC, .* 1 unknown") as caught:
        char_tokenizer("café e").encode("cafe\u0301!")
    assert "`unknown = skip`" in caught.value.hint


def test_no_normalization_is_named_where_none_helps() -> None:
    for text in ("ß", "e\u0301", "\udc80"):
        with pytest.raises(TokenizerError) as caught:
            char_tokenizer("caf").encode(text)
        assert "NF" not in str(caught.value) + caught.value.hint


def test_a_literal_end_of_text_is_ordinary() -> None:
    text = "<|endoftext|>"
    tokenizer = char_tokenizer(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    with pytest.raises(TokenizerError, match="does not know"):
        char_tokenizer("abc").encode(text)


def test_a_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    tokenizer = char_tokenizer(HARD)
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, CharTokenizer)
    assert loaded.fingerprint == tokenizer.fingerprint != char_tokenizer("abc").fingerprint
    assert loaded.encode(HARD) == tokenizer.encode(HARD)
    assert (loaded.emittable == tokenizer.emittable).all()
