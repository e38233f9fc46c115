"""`config.json` with values that no model can have: the error names the key and what it needs, never our internals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gptcli.config import ModelConfig
from gptcli.errors import ModelFolderError
from gptcli.interop.huggingface import config_from_hf, config_to_hf
from tests.model.variants import FAMILIES, STRANGE, variant

BAD: list[Any] = [
    *(None, True, 0, -1, 3, 0.5, -0.5, 1e308, 10**12, 10**99),
    *("", "48", "x" * 10_000, [], [1], ["sliding_attention"] * 7, [[]], {}, {"type": "yarn"}, {"rope_theta": "x"}),
]
INTERNAL = re.compile(
    "unsupported operand|division|modulo|object is not|has no attribute|not iterable|NoneType|Value error|"
    r"\b(n_kv_head|block_size|norm_epsilon|mlp_width|n_expert|rope_base)\b"
)
"""Words of Python and of our own config, which a person who looks into such a file does not find there."""


def crafted() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A family, the key that is wrong, and the whole file."""
    for name in ("gpt2", *FAMILIES):
        good = config_to_hf(variant(name), bos_token_id=0, eos_token_id=None)
        if "num_hidden_layers" in good:
            good |= {"max_window_layers": 0, "mlp_bias": False}
        for key in good:
            yield name, key, {other: value for other, value in good.items() if other != key}
            for bad in BAD:
                yield name, key, good | {key: bad}
        for key in good.get("rope_parameters", {}):
            for bad in BAD:
                yield name, key, good | {"rope_parameters": good["rope_parameters"] | {key: bad}}


def message(values: dict[str, Any]) -> str:
    """The error for a file; "" if it describes a model."""
    try:
        config_from_hf(values, "'config.json'")
    except ModelFolderError as error:
        return error.message
    return ""


def test_every_error_names_the_key_and_what_it_needs() -> None:
    refused = 0
    for family, key, values in crafted():
        if told := message(values):
            case = (family, key, str(values.get(key))[:50], told)
            assert key in told or "rope_theta must" in told, case
            assert re.search("must |is missing", told), case
            assert not INTERNAL.search(told), case
            assert len(told) < 500, case
            refused += 1
    assert refused > 500


def test_gpt2_names_the_older_spelling_of_its_context() -> None:
    good = config_to_hf(
        ModelConfig(vocab_size=9, n_layer=1, n_head=1, n_embd=4, block_size=8), bos_token_id=0, eos_token_id=0
    )
    del good["n_positions"]
    assert config_from_hf(good | {"n_ctx": 8}, "file").block_size == 8
    assert "n_ctx must be a whole number" in message(good | {"n_ctx": "8"})


@pytest.mark.parametrize(
    ("family", "key", "value", "needed"),
    [
        ("llama", "hidden_size", "64", "a whole number"),
        ("llama", "num_attention_heads", 0, "a whole number from 1"),
        ("llama", "num_attention_heads", [4], "a whole number"),
        ("llama", "rope_parameters", [], ""),
        ("llama", "rope_parameters", "x", "an object"),
        ("llama", "head_dim", 7, "even"),
        ("qwen3", "num_hidden_layers", 10**99, "num_hidden_layers"),
        ("qwen3", "layer_types", ["full_attention"], "num_hidden_layers (3) entries"),
        ("qwen3", "layer_types", ["chunked_attention"] * 3, "sliding_attention or full_attention"),
        ("mixtral", "num_local_experts", {}, "a whole number"),
    ],
)
def test_what_is_needed(family: str, key: str, value: object, needed: str) -> None:
    good = config_to_hf(variant(family), bos_token_id=0, eos_token_id=None)
    if not needed:
        assert config_from_hf(good | {key: value}, "file").position == "rope"
        return
    assert key in message(good | {key: value})
    assert needed in message(good | {key: value})


@pytest.mark.parametrize("name", [*FAMILIES, *STRANGE])
def test_a_good_file_is_read_back(name: str) -> None:
    ids = {"bos_token_id": 0, "eos_token_id": 1}
    good = config_to_hf(variant(name), **ids)
    assert config_to_hf(config_from_hf(good, "file"), **ids) == good
