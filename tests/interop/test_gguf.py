"""The content of a GGUF file, read back with the gguf package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, dequantize
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.errors import ExportError
from gptcli.interop.gguf import gguf_file
from gptcli.interop.gguf_tensors import gguf_tensors
from gptcli.interop.gguf_vocabulary import NO_MERGES, TokenType, gguf_vocabulary
from gptcli.model.gpt import GPT
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.char import char_tokenizer
from tests.model.reference import random_model
from tests.model.variants import variant

TOKENIZER = char_tokenizer("abcé\n")
"""Ids: 0-4 the characters, 5 and 6 the two bytes of é, 7 the end of a text."""
CONFIG = ModelConfig(vocab_size=10, n_layer=2, n_head=2, n_embd=32, block_size=16)


def model() -> GPT:
    return random_model(CONFIG).float()


def parts() -> dict[str, Tensor]:
    """The model's tensors by their names in the file."""
    return {stored.name: stored.parts[0] for stored in gguf_tensors(model())}


def test_names() -> None:
    known = {
        "h.1.attn.c_attn.bias": "blk.1.attn_qkv.bias",
        "h.0.ln_2.weight": "blk.0.ffn_norm.weight",
        "wpe.weight": "position_embd.weight",
    }
    state = model().state_dict()
    assert {ours: torch.equal(parts()[theirs], state[ours]) for ours, theirs in known.items()} == dict.fromkeys(
        known, True
    )
    assert len(parts()) == len(state)


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


def test_metadata_of_the_modern_family(tmp_path: Path) -> None:
    config = variant("mixtral", rope_scaling=2.0, rope_base=500.0, mlp_width=24, vocab_size=10)
    file = gguf_file(random_model(config).float(), gguf_vocabulary(TOKENIZER, 10, 0, None), "book", "f32")
    (tmp_path / "model.gguf").write_bytes(b"".join(file.pieces()))
    expected = {
        "general.architecture": "llama",
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 4,
        "llama.attention.layer_norm_rms_epsilon": pytest.approx(1e-5),
        "llama.rope.dimension_count": 4,
        "llama.rope.freq_base": 500.0,
        "llama.rope.scaling.type": "linear",
        "llama.rope.scaling.factor": 2.0,
        "llama.expert_count": 4,
        "llama.expert_used_count": 2,
        "llama.feed_forward_length": 24,
    }
    reader = GGUFReader(tmp_path / "model.gguf")
    assert {key: value(reader, key) for key in expected} == expected
    shapes = {tensor.name: tuple(tensor.data.shape) for tensor in reader.tensors}
    assert shapes["blk.2.ffn_gate_exps.weight"] == (4, 24, 16)
    assert shapes["blk.2.attn_k.weight"] == (8, 16)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_gets_more_bits(tied: bool, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"tied": tied})
    file = gguf_file(random_model(config).float(), gguf_vocabulary(TOKENIZER, 10, 0, None), "book", "q4_0")
    types = {tensor.name: type.name for tensor, type in file.tensors}
    assert types["token_embd.weight"] == ("Q8_0" if tied else "Q4_0")
    assert types.get("output.weight") == (None if tied else "Q8_0")


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
    expected = parts()
    assert stored.keys() == expected.keys()
    assert {"token_embd.weight", "position_embd.weight", "output_norm.bias", "blk.1.ffn_down.bias"} <= stored.keys()
    for name, tensor in expected.items():
        assert np.array_equal(stored[name].data, tensor.numpy())


@pytest.mark.parametrize(
    ("type", "matrices", "embedding"),
    [("f16", "F16", "F16"), ("bf16", "BF16", "BF16"), ("q8_0", "Q8_0", "Q8_0"), ("q4_0", "Q4_0", "Q8_0")],
)
def test_types(type: str, matrices: str, embedding: str, tmp_path: Path) -> None:
    expected = parts()
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


def test_a_vocabulary_without_merges_gets_one_that_never_applies() -> None:
    assert gguf_vocabulary(char_tokenizer("ab"), 3, 0, None).merges == [NO_MERGES]


def test_end_of_text_of_the_model() -> None:
    assert gguf_vocabulary(TOKENIZER, 10, 0, end_id=3).end_id == 3


@pytest.mark.parametrize(
    "change",
    [
        {"pre_tokenizer": {"type": "ByteLevel", "trim_offsets": True, "add_prefix_space": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "trim_offsets": True, "add_prefix_space": False, "use_regex": False}},
        {"normalizer": {"type": "NFC"}},
    ],
)
def test_tokenizers_that_cut_words_differently_are_refused(change: dict[str, Any]) -> None:
    document = json.loads(train_bpe(["some text, some more text"], 280).to_json())
    gguf_vocabulary(Tokenizer(document), 300, 0, None)
    with pytest.raises(ExportError, match="GGUF cannot hold this tokenizer"):
        gguf_vocabulary(Tokenizer(document | change), 300, 0, None)


def test_added_tokens() -> None:
    document = json.loads(train_bpe(["some text, some more text"], 280).to_json())
    last = max(document["model"]["vocab"].values())
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    document["added_tokens"] += [{"id": last + 1, "content": "@user", "special": False, **plain}]
    vocabulary = gguf_vocabulary(Tokenizer(document), last + 3, 0, None)
    assert vocabulary.tokens[last:] == ["<|endoftext|>", "@user", f"[PAD{last + 2}]"]
    assert vocabulary.types[last:] == [TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNUSED]
