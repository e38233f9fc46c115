"""Loading tokenizers from files: which are accepted, and the errors for all others."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from gptcli.errors import TokenizerError
from gptcli.tokenizer import bytelevel
from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.document import CHARACTER_OF_BYTE
from gptcli.tokenizer.tokenizer import load_tokenizer


def small_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """All 256 bytes, "he", "hel", " w", and `<|endoftext|>`: 260 entries."""
    merges = [("h", "e"), ("he", "l"), ("Ġ", "w")]
    entries = [*CHARACTER_OF_BYTE.values(), *(left + right for left, right in merges), "<|endoftext|>"]
    return {entry: token for token, entry in enumerate(entries)}, merges


@pytest.fixture
def gpt2_pair(tmp_path: Path) -> Path:
    vocab, merges = small_vocabulary()
    (tmp_path / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(merge) for merge in merges), ""]
    (tmp_path / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def document(bpe: Tokenizer) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(bpe.to_json())
    return values


def load(folder: Path, document: object) -> Tokenizer:
    path = folder / "tokenizer.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    loaded = load_tokenizer(path)
    assert isinstance(loaded, Tokenizer)
    return loaded


@pytest.mark.parametrize("name", ["", "vocab.json", "merges.txt"])
def test_gpt2_pair(gpt2_pair: Path, name: str) -> None:
    tokenizer = load_tokenizer(gpt2_pair / name)
    assert [data for _, data in tokenizer.pieces("hello world")] == [b"hel", b"l", b"o", b" w", b"o", b"r", b"l", b"d"]
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.end_of_text) == ("bpe", 260, 259)
    assert 259 not in tokenizer.encode("<|endoftext|>")


def test_gpt2_pair_with_a_missing_or_broken_half(gpt2_pair: Path) -> None:
    (gpt2_pair / "merges.txt").write_text("h e l\n", encoding="utf-8")
    with pytest.raises(TokenizerError, match="not a list of pairs"):
        load_tokenizer(gpt2_pair)
    (gpt2_pair / "merges.txt").unlink()
    with pytest.raises(TokenizerError, match=r"no tokenizer '.*merges.txt'"):
        load_tokenizer(gpt2_pair)


def test_a_saved_tokenizer_is_the_same(tmp_path: Path, bpe: Tokenizer) -> None:
    assert load(tmp_path, bpe.to_json()).fingerprint == bpe.fingerprint
    assert load(tmp_path, json.dumps(json.loads(bpe.to_json()))).fingerprint == bpe.fingerprint


def test_the_library_writes_what_we_read(tmp_path: Path, bpe: Tokenizer) -> None:
    library = tokenizers.Tokenizer.from_str(bpe.to_json())
    library.enable_truncation(3)
    library.enable_padding(length=50)
    loaded = load(tmp_path, library.to_str())
    assert loaded.encode("the cat sat on the mat") == bpe.encode("the cat sat on the mat")
    assert loaded.fingerprint == bpe.fingerprint


def test_other_patterns_are_encoded_whole(tmp_path: Path, document: dict[str, Any]) -> None:
    split = {"type": "Split", "pattern": {"Regex": r"\p{L}+\s\p{L}+"}, "behavior": "Isolated", "invert": False}
    byte_level = document["pre_tokenizer"] | {"use_regex": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    tokenizer = load(tmp_path, document)
    text = "the cat sat on the mat"
    pieces = [ids.tolist() for ids in tokenizer.encode_pieces(["the", " cat sat", " on the mat"])]
    assert pieces == [tokenizer.encode(text)]


@pytest.mark.parametrize("change", ["normalizer", "added", "prefix"])
def test_tokenizers_without_safe_cuts_encode_texts_whole(tmp_path: Path, document: dict[str, Any], change: str) -> None:
    size = len(document["model"]["vocab"])
    if change == "normalizer":
        document["normalizer"] = {"type": "NFC"}
    elif change == "added":
        token = document["added_tokens"][0] | {"id": size, "content": "the cat", "special": False}
        document["added_tokens"].append(token)
    else:
        document["pre_tokenizer"]["add_prefix_space"] = True
    tokenizer = load(tmp_path, document)
    text = "the cat e\u0301 sat"
    assert [ids.tolist() for ids in tokenizer.encode_pieces([*text])] == [tokenizer.encode(text)]
    assert tokenizer.emittable[size:].all()


def test_other_special_tokens_are_never_emitted(tmp_path: Path, document: dict[str, Any]) -> None:
    size = len(document["model"]["vocab"])
    document["added_tokens"].append(document["added_tokens"][0] | {"id": size, "content": "<pad>"})
    tokenizer = load(tmp_path, document)
    assert tokenizer.vocab_size == size + 1
    assert not tokenizer.emittable[size]
    assert size not in tokenizer.encode("<pad>")
    assert tokenizer.decode([size]) == ""


def test_an_end_of_text_that_is_not_marked_special_is(tmp_path: Path, document: dict[str, Any]) -> None:
    document["added_tokens"][0]["special"] = False
    tokenizer = load(tmp_path, document)
    assert tokenizer.end_of_text not in tokenizer.encode("<|endoftext|>")


def test_without_end_of_text(tmp_path: Path) -> None:
    vocab, merges = small_vocabulary()
    del vocab["<|endoftext|>"]
    library = tokenizers.Tokenizer(models.BPE(vocab, merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert load(tmp_path, library.to_str()).end_of_text is None


def test_missing_bytes_are_unknown_characters(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = load(tmp_path, library.to_str())
    assert tokenizer.encode("abé", unknown="skip") == [0, 1]
    with pytest.raises(TokenizerError, match="'é'"):
        tokenizer.encode("abé")


BROKEN: dict[str, Any] = {
    "empty": "",
    "not JSON": '{"version": "1.0", "model"',
    "a list": "[]",
    "too deep": "[" * 100_000,
    "empty object": "{}",
    "a pickle": "\x80\x02}q\x00.",
    "config.json": '{"model_type": "gpt2", "n_layer": 12}',
    "a negative id": '{"a": -1}',
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_files_that_are_not_tokenizers(tmp_path: Path, content: str) -> None:
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(TokenizerError) as caught:
        load(tmp_path, content)
    assert "vocab.json with merges.txt beside it" in caught.value.hint


def test_neither_a_kind_nor_a_file(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="There is no tokenizer") as caught:
        load_tokenizer(tmp_path / "chars")
    assert caught.value.hint.startswith("Use auto, char, bpe or a path.")


CONTRADICTIONS: dict[str, tuple[str, Any]] = {
    "duplicate ids": ("vocab", {"a": 0, "b": 0}),
    "no vocabulary": ("vocab", None),
    "a huge id": ("vocab", {"a": 2**31}),
    "an id that is text": ("vocab", {"a": "0"}),
    "unknown merge": ("merges", [["a", "🦊"]]),
    "merge without result": ("merges", [["z", "q"]]),
    "merge of three": ("merges", [["a", "b", "c"]]),
    "merge of numbers": ("merges", [1, 2]),
    "another model": ("type", "WordPiece"),
    "marked words": ("end_of_word_suffix", "</w>"),
}


@pytest.mark.parametrize(("key", "value"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_contradictions(tmp_path: Path, document: dict[str, Any], key: str, value: object) -> None:
    document["model"][key] = value
    with pytest.raises(TokenizerError):
        load(tmp_path, document)


def test_added_tokens_that_contradict_the_vocabulary(tmp_path: Path, document: dict[str, Any]) -> None:
    document["added_tokens"][0]["id"] = 3
    with pytest.raises(TokenizerError, match="contradicts"):
        load(tmp_path, document)


@pytest.mark.parametrize(
    "step", [None, {"type": "Whitespace"}, {"type": "Metaspace", "replacement": "▁"}, {"type": {}}]
)
def test_not_byte_level(tmp_path: Path, document: dict[str, Any], step: object) -> None:
    document["pre_tokenizer"] = step
    with pytest.raises(TokenizerError, match="not a byte-level BPE"):
        load(tmp_path, document)


def test_errors_of_the_library(tmp_path: Path, document: dict[str, Any]) -> None:
    document["decoder"] = {"type": "NoSuchDecoder"}
    with pytest.raises(TokenizerError, match="cannot be used"):
        load(tmp_path, document)


def test_paths_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="There is no tokenizer"):
        load_tokenizer(tmp_path / "nowhere.json")
    with pytest.raises(TokenizerError, match="contains no"):
        load_tokenizer(tmp_path)
    with pytest.raises(TokenizerError, match="is not a file"):
        load_tokenizer(Path("/dev/null"))
    (tmp_path / "x.json").write_bytes(b"\x80\x02\xff")
    with pytest.raises(TokenizerError, match="not a text file"):
        load_tokenizer(tmp_path / "x.json")


def check_panic(tmp_path: Path, document: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    """A regular expression that backtracks forever makes the library panic: we raise our error and print nothing."""
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$|(a|aa)+c"}, "behavior": "Isolated", "invert": False}
    words = document["pre_tokenizer"] | {"use_regex": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, words]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    loaded = load_tokenizer(tmp_path)
    text = "a" * 40 + "b"
    for encode in (loaded.encode, lambda text: list(loaded.encode_pieces([text]))):
        with pytest.raises(TokenizerError, match="retry-limit-in-match over"):
            encode(text)
    assert capfd.readouterr().err == ""
    assert loaded.decode(loaded.encode("b b")) == "b b", "it works on"


def test_a_panic_is_an_error_of_ours(
    tmp_path: Path, document: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    check_panic(tmp_path, document, capfd)


def test_control_without_the_guard(
    tmp_path: Path, document: dict[str, Any], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytelevel, "library_errors", lambda name, foreign=False: nullcontext())
    with pytest.raises(BaseException, match="retry-limit") as caught:
        check_panic(tmp_path, document, capfd)
    assert not isinstance(caught.value, Exception)
