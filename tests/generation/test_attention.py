"""Attention computed the plain way is that of the fast path: from it follows the output of every block."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gptcli.errors import UsageError
from gptcli.generation import residual
from gptcli.generation.attention import AttentionMaps, attention_maps
from gptcli.generation.loaded_model import LoadedModel
from gptcli.generation.placement import bind_submodules
from gptcli.generation.residual import MOST_TOKENS, residual_stream
from gptcli.model.gpt import GPT, Block
from gptcli.tokenizer.char import char_tokenizer
from tests.model.reference import assert_close, random_model
from tests.model.variants import VARIANTS, variant

TEXT = "abcabdacbbda"
TOKENIZER = char_tokenizer("abcd")


def maps_of(model: GPT, text: str = TEXT) -> AttentionMaps:
    return LoadedModel(Path("x"), model, TOKENIZER, start_id=0).attention(text)


def check_blocks(model: GPT, maps: AttentionMaps) -> None:
    """The output of each block's attention, and of the block, follows from the probabilities; fused kernels give it."""
    config = model.config
    states, rotation = residual_stream(model, TOKENIZER.encode(TEXT))
    for number, block in enumerate(model.h):
        assert isinstance(block, Block)
        x, p = states[number], torch.from_numpy(maps.probabilities[number])  # (1, T, C), (H, T, T)
        normed = block.ln_1(x) if block.pre else x
        v = block.attn.heads(normed, rotation)[2][0].repeat_interleave(config.n_head // config.n_kv_head, dim=0)
        y = block.attn.c_proj((p @ v).transpose(0, 1).flatten(1)[None])  # (1, T, C)
        assert_close(y, block.attn(normed, rotation, None))
        assert_close(through_block(block, x, y), states[number + 1])
    assert_close(model.ln_f(states[-1]) if config.norm_placement == "pre" else states[-1], hidden(model))


def through_block(block: Block, x: Tensor, y: Tensor) -> Tensor:
    """The output of a block whose attention gives y."""
    if block.pre:
        x = x + y
        return x + block.mlp(block.ln_2(x), None)
    x = block.ln_1(x + y)
    return block.ln_2(x + block.mlp(x, None))


def hidden(model: GPT) -> Tensor:
    return model.hidden(torch.tensor([TOKENIZER.encode(TEXT)]))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_probabilities_give_the_output_of_each_block(name: str) -> None:
    model = random_model(variant(name))
    maps = maps_of(model)
    check_blocks(model, maps)
    np.testing.assert_allclose(maps.probabilities.sum(-1), 1, atol=1e-12)
    assert (maps.probabilities[~np.broadcast_to(maps.visible[:, None], maps.scores.shape)] == 0).all()


@pytest.mark.parametrize("name", ["gpt2", "window", "alternate windows"])
def test_control_another_mask_gives_another_output(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(variant(name))
    for block in model.h:
        block.attn.window = (block.attn.window or len(TEXT)) - 1  # the plain path has a smaller one
    maps = maps_of(model)
    for number, block in enumerate(model.h):
        block.attn.window = model.config.window_of(number)
    with pytest.raises(AssertionError):
        check_blocks(model, maps)


def test_a_model_that_is_placed_for_inference() -> None:
    model = random_model(variant("qwen3 windows"))
    expected = maps_of(model)
    found = maps_of(bind_submodules(model))
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)


def test_16_bit_weights_give_probabilities_that_sum_to_1() -> None:
    maps = maps_of(random_model(variant("llama"), torch.bfloat16))
    np.testing.assert_allclose(maps.probabilities.sum(-1), 1, atol=1e-6)


def hand_made(p: list[list[float]]) -> AttentionMaps:
    """Maps of a single head with these probabilities."""
    T = len(p)
    visible = np.tril(np.ones((1, T, T), bool))
    model = random_model(variant("gpt2"))
    tokens = maps_of(model).tokens[:T]
    return AttentionMaps(tokens, np.zeros((1, 1, T, T)), visible, np.array([[p]]))


@pytest.mark.parametrize(
    ("rows", "name", "entropy", "distance"),
    [
        ([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], "previous", 0, 1),
        ([[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], "first", 0, 2.5),
        ([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], "itself", 0, 0),
        ([[1, 0, 0, 0], [0.5] * 2 + [0, 0], [1 / 3] * 3 + [0], [0.25] * 4], "everything", (math.log2(3) + 2) / 2, 1.25),
        ([[1, 0, 0, 0], [1, 0, 0, 0], [0.4, 0.6, 0, 0], [0, 0.9, 0.1, 0]], "mixed", None, None),
    ],
)
def test_figures_of_a_head(rows: list[list[float]], name: str, entropy: float | None, distance: float | None) -> None:
    figures = hand_made(rows).figures(0, 0)
    assert figures.looks_at == name
    if entropy is not None:
        assert figures.entropy == pytest.approx(entropy)
        assert figures.distance == pytest.approx(distance)


def test_a_long_text_is_cut_at_the_context_window() -> None:
    maps = maps_of(random_model(variant("gpt2")), TEXT * 2)
    assert len(maps.tokens) == 12
    assert "first 12 of 24 tokens" in maps.notes[0]


def test_a_long_text_is_cut_where_the_context_window_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual, "MOST_TOKENS", 5)
    maps = maps_of(random_model(variant("gpt2")))
    assert (len(maps.tokens), MOST_TOKENS) == (5, 256)


def test_one_token_has_nothing_to_look_at() -> None:
    with pytest.raises(UsageError, match="two tokens"):
        attention_maps(random_model(variant("gpt2")), TOKENIZER, [1])
