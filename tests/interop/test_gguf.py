"""What stands in a GGUF file, read back by the gguf package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, dequantize

from gptcli.config import ModelConfig
from gptcli.errors import ExportError
from gptcli.interop.gguf import gguf_file, gguf_name
from gptcli.interop.gguf_vocabulary import NO_MERGES, TokenType, gguf_vocabulary
from gptcli.model.gpt import GPT
from gptcli.text.bpe import train_bpe
from gptcli.text.bytelevel import ByteLevelTokenizer
from gptcli.text.char import char_tokenizer
from tests.model.reference import random_model

TOKENIZER = char_tokenizer("abcé\n")
"""Ids: 0-4 the characters, 5 and 6 the two bytes of é, 7 the end of a text."""
CONFIG = ModelConfig(vocab_size=10, n_layer=2, n_head=2, n_embd=32, block_size=16)


def model() -> GPT:
    return random_model(CONFIG).float()


def written(path: Path, type: Any = "f32") -> GGUFReader:
    file = gguf_file(model(), gguf_vocabulary(TOKENIZER, CONFIG.vocab_size, 0, None), "book", type)
    (path / "model.gguf").write_bytes(b"".join(file.pieces()))
    return GGUFReader(path / "model.gguf")


def value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    assert field is not None, key
    return field.contents()


def test_metadata(tmp_path: Path) -> None:
    reader = written(tmp_path)
    expected = {
        "general.architecture": "gpt2",
        "general.name": "book",
        "general.file_type": 0,
        "gpt2.context_length": 16,
        "gpt2.embedding_length": 32,
        "gpt2.block_count": 2,
        "gpt2.feed_forward_length": 128,
        "gpt2.attention.head_count": 2,
        "gpt2.attention.layer_norm_epsilon": pytest.approx(1e-5),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.bos_token_id": 0,
        # llama.cpp takes id 11 where none is named, whatever letter that is.
        "tokenizer.ggml.eos_token_id": 7,
    }
    assert {key: value(reader, key) for key in expected} == expected


def test_vocabulary(tmp_path: Path) -> None:
    reader = written(tmp_path)
    tokens = ["Ċ", "a", "b", "c", "Ã©", "Ã", "©", "<|endoftext|>", "[PAD8]", "[PAD9]"]
    assert value(reader, "tokenizer.ggml.tokens") == tokens
    unused, control = TokenType.UNUSED, TokenType.CONTROL
    assert (
        value(reader, "tokenizer.ggml.token_type") == [TokenType.NORMAL] * 5 + [unused] * 2 + [control] + [unused] * 2
    )
    assert value(reader, "tokenizer.ggml.merges") == ["Ã ©"]


def test_every_tensor(tmp_path: Path) -> None:
    stored = {tensor.name: tensor for tensor in written(tmp_path).tensors}
    expected = {gguf_name(name): tensor for name, tensor in model().state_dict().items()}
    assert stored.keys() == expected.keys()
    assert {"token_embd.weight", "position_embd.weight", "output_norm.bias", "blk.1.ffn_down.bias"} <= stored.keys()
    for name, tensor in expected.items():
        assert np.array_equal(stored[name].data, tensor.numpy())


@pytest.mark.parametrize(
    ("type", "matrices", "embedding"),
    [("f16", "F16", "F16"), ("bf16", "BF16", "BF16"), ("q8_0", "Q8_0", "Q8_0"), ("q4_0", "Q4_0", "Q8_0")],
)
def test_types(type: str, matrices: str, embedding: str, tmp_path: Path) -> None:
    expected = {gguf_name(name): tensor for name, tensor in model().state_dict().items()}
    steps = {"F32": 0.0, "F16": 2**-11, "BF16": 2**-8, "Q8_0": 1 / 200, "Q4_0": 1 / 7}
    for tensor in written(tmp_path, type).tensors:
        name = tensor.tensor_type.name
        if tensor.name == "position_embd.weight" or len(tensor.shape) == 1:
            assert name == "F32"
        else:
            assert name == (embedding if tensor.name == "token_embd.weight" else matrices)
        values = dequantize(tensor.data, GGMLQuantizationType[name]).reshape(expected[tensor.name].shape)
        original = expected[tensor.name].numpy()
        assert np.abs(values - original).max() <= steps[name] * np.abs(original).max()


def test_without_merges_there_is_one_that_never_acts() -> None:
    assert gguf_vocabulary(char_tokenizer("ab"), 3, 0, None).merges == [NO_MERGES]


def test_an_end_that_the_model_was_trained_with() -> None:
    assert gguf_vocabulary(TOKENIZER, 10, 0, end_id=3).end_id == 3


@pytest.mark.parametrize(
    "change",
    [
        {"pre_tokenizer": {"type": "ByteLevel", "trim_offsets": True, "add_prefix_space": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "trim_offsets": True, "add_prefix_space": False, "use_regex": False}},
        {"normalizer": {"type": "NFC"}},
    ],
)
def test_what_llama_cpp_would_cut_otherwise_is_refused(change: dict[str, Any]) -> None:
    document = json.loads(train_bpe(["some text, some more text"], 280).to_json())
    gguf_vocabulary(ByteLevelTokenizer(document), 300, 0, None)
    with pytest.raises(ExportError, match="GGUF cannot hold this tokenizer"):
        gguf_vocabulary(ByteLevelTokenizer(document | change), 300, 0, None)


def test_added_tokens() -> None:
    document = json.loads(train_bpe(["some text, some more text"], 280).to_json())
    last = max(document["model"]["vocab"].values())
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    document["added_tokens"] += [{"id": last + 1, "content": "@user", "special": False, **plain}]
    vocabulary = gguf_vocabulary(ByteLevelTokenizer(document), last + 3, 0, None)
    assert vocabulary.tokens[last:] == ["<|endoftext|>", "@user", f"[PAD{last + 2}]"]
    assert vocabulary.types[last:] == [TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNUSED]
