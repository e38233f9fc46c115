"""Contract 6 for BPE: nothing is lost, pieces equal the whole, and text never gives a special id."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.errors import TokenizerError
from gptcli.tokenizer import bytelevel
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.corpus import CorpusEncoder, encoder, pattern
from gptcli.tokenizer.document import bytes_of_entry
from gptcli.tokenizer.tokenizer import StreamDecoder
from tests.tokenizer.text_samples import LESSON, some, split_at, texts

SEVERAL_CUTS = st.lists(st.integers(0, 200), max_size=5)


def comes_back(tokenizer: Tokenizer, text: str) -> bool:
    return tokenizer.decode(tokenizer.encode(text)) == text


def pieces_equal_whole(tokenizer: Tokenizer, text: str, places: list[int]) -> bool:
    pieces = [ids.tolist() for ids in tokenizer.encode_pieces(split_at(text, places))]
    return list(chain.from_iterable(pieces)) == tokenizer.encode(text)


@some
@given(text=texts)
def test_any_text_comes_back(bpe: Tokenizer, text: str) -> None:
    assert comes_back(bpe, text)


def test_any_text_comes_back_control(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytelevel, "bytes_of_entry", lambda entry: (bytes_of_entry(entry) or b"")[::-1])
    assert not comes_back(train_bpe([LESSON], 300), "the cat")


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
@some
@given(text=texts, places=SEVERAL_CUTS)
def test_pieces_equal_whole(bpe: Tokenizer, size: int, text: str, places: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pattern, "PIECE_CHARACTERS", size)
        assert pieces_equal_whole(bpe, text, places)


def test_pieces_equal_whole_control_cuts(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "PIECE_CHARACTERS", 1)
    text = "the cat\u2028\u2028sat"
    assert pieces_equal_whole(bpe, text, [])
    monkeypatch.setattr(pattern, "is_cut", lambda before, after: True)
    assert not pieces_equal_whole(bpe, text, [])


def test_pieces_equal_whole_control_words(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the cat sat on the mat"
    assert pieces_equal_whole(bpe, text, [])
    monkeypatch.setattr(pattern, "_BLANK", 0)
    assert not pieces_equal_whole(bpe, text, [])


@some
@given(found=st.lists(texts, max_size=12), short=st.integers(1, 30), group=st.integers(1, 40))
def test_short_and_long_texts_in_groups(bpe: Tokenizer, found: list[str], short: int, group: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bytelevel, "_SHORT_CHARACTERS", short)
        patch.setattr(bytelevel, "_GROUP_CHARACTERS", group)
        assert [ids.tolist() for ids in bpe.encode_texts(found)] == [bpe.encode(text) for text in found]


def test_word_memory_that_overflows_changes_nothing(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "_MAX_WORDS", 3)
    monkeypatch.setattr(pattern, "PIECE_CHARACTERS", 20)
    assert pieces_equal_whole(bpe, "a rose is a rose is a rose " * 20, [])


def test_word_memory_survives_an_interruption() -> None:
    def encode_batch(batch: list[str]) -> list[list[int]]:
        if interrupted:
            raise KeyboardInterrupt
        return [[len(word)] for word in batch]

    words, interrupted = CorpusEncoder(encode_batch), True
    with pytest.raises(KeyboardInterrupt):
        list(words.encode(["a b"]))
    interrupted = False
    assert [ids.tolist() for ids in words.encode(["a bc", "bc a"])] == [[1, 3], [2, 2]]


def test_stopping_half_way_changes_nothing() -> None:
    words = CorpusEncoder(lambda batch: [[len(word)] for word in batch])
    stopped = words.encode(["a", "b ccc"])
    next(stopped)
    stopped.close()
    assert [ids.tolist() for ids in words.encode(["b ccc"])] == [[1, 4]]


def never_special(tokenizer: Tokenizer) -> bool:
    text = "a<|endoftext|>b"
    ids = [*tokenizer.encode(text), *np.concatenate(list(tokenizer.encode_pieces([text]))).tolist()]
    return tokenizer.end_of_text not in ids and tokenizer.decode(ids) == text * 2


def test_a_literal_end_of_text_is_ordinary(bpe: Tokenizer) -> None:
    assert never_special(bpe)


def test_a_literal_end_of_text_is_ordinary_control(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe._library, "encode_special_tokens", False)
    assert not never_special(bpe)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    decoder = StreamDecoder(tokenizer)
    return "".join([*map(decoder.push, ids), decoder.finish()])


@some
@given(ids=st.lists(st.integers(0, 419), max_size=60))
def test_streamed_decoding_equals_whole(bpe: Tokenizer, ids: list[int]) -> None:
    ids = [token % bpe.vocab_size for token in ids]
    assert streamed(bpe, ids) == bpe.decode(ids)


def test_streamed_decoding_equals_whole_control(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = bpe.encode("🦊")  # not in the training text: several ids
    assert streamed(bpe, ids) == "🦊"
    monkeypatch.setattr(StreamDecoder, "push", lambda self, token: bpe.decode([token]))
    assert streamed(bpe, ids) != "🦊"


def test_a_stream_never_shows_half_a_character(bpe: Tokenizer) -> None:
    decoder = StreamDecoder(bpe)
    ids = bpe.encode("🦊")
    assert [decoder.push(token) for token in ids] == [*[""] * (len(ids) - 1), "🦊"]
    assert [decoder.push(token) for token in ids[:2]] == ["", ""]
    assert decoder.finish() == "\ufffd"


def test_layout(bpe: Tokenizer) -> None:
    assert bpe.kind == "bpe"
    assert bpe.end_of_text == bpe.vocab_size - 1
    assert {bpe.token_bytes(token) for token in range(256)} == {bytes([byte]) for byte in range(256)}
    assert bpe.decode([bpe.end_of_text]) == ""
    assert bpe.emittable[bpe.end_of_text]
    never = {bpe.token_bytes(token)[0] for token in np.flatnonzero(~bpe.emittable)}
    assert never == {0xC0, 0xC1, *range(0xF5, 0x100)}


def test_text_too_small_gives_fewer_entries() -> None:
    assert 257 < train_bpe(["the the the"], 8192).vocab_size < 265
    assert train_bpe(["the cat sat " * 9], 257).vocab_size == 257


def test_training_does_not_depend_on_the_pieces() -> None:
    text = LESSON * 20
    assert train_bpe([text], 400).fingerprint == train_bpe(split_at(text, [5, 1000, 1001]), 400).fingerprint


def test_errors_of_the_text_come_through_training() -> None:
    def broken() -> Iterator[str]:
        yield "some text"
        raise TokenizerError("mine")

    with pytest.raises(TokenizerError, match="mine"):
        train_bpe(broken(), 300)


def test_lone_surrogates_are_unknown(bpe: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match=r"'\\udc80' \(U\+DC80\)"):
        bpe.encode("a\udc80")
    assert bpe.decode(bpe.encode("a\udc80b", unknown="skip")) == "ab"


def test_an_id_out_of_range(bpe: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="has no id -1"):
        bpe.decode([-1])


def test_pieces(bpe: Tokenizer) -> None:
    pieces = bpe.pieces("the café")
    assert b"".join(data for _, data in pieces).decode() == "the café"
    assert [token for token, _ in pieces] == bpe.encode("the café")


def test_an_unused_tokenizer_is_freed_at_once() -> None:
    """Its tables take tens of megabytes, which should not wait for the garbage collector."""
    tokenizer = train_bpe([LESSON], 300)
    list(tokenizer.encode_pieces([LESSON]))
    gone = weakref.ref(tokenizer)
    gc.disable()
    try:
        del tokenizer
        assert gone() is None
    finally:
        gc.enable()
