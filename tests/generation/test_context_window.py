"""The cached window against uncached passes: inside the context at every position, and past it by the same rule.

Letters: B sequences, T tokens, P of them prefilled, V vocabulary.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.errors import ModelFolderError, OutOfMemoryError
from gptcli.generation import context_window
from gptcli.generation.context_window import ContextWindow, new_cache, window_start
from gptcli.model import cache
from gptcli.model.cache import KVCache
from gptcli.model.cost import cache_bytes
from gptcli.model.gpt import GPT
from tests.model.reference import assert_close, random_model
from tests.model.variants import FAMILIES, SHAPE, VARIANTS, variant

T = SHAPE["block_size"]
CONFIG = ModelConfig(vocab_size=19, n_layer=2, n_head=2, n_embd=16, block_size=T)


def cached_logits(model: GPT, ids: Tensor, prefilled: int) -> Tensor:
    """Logits (B, T, V): the first tokens prefilled, the others one at a time."""
    kept = new_cache(model, ids.shape[0])
    parts = [model(ids[:, :prefilled], kept)]  # (B, P, V)
    parts += [model(ids[:, t : t + 1], kept) for t in range(prefilled, ids.shape[1])]  # of (B, 1, V)
    return torch.cat(parts, dim=1)


def check_cache(batch: int, prefilled: int, dtype: torch.dtype, name: str = "gpt2") -> None:
    model = random_model(variant(name), dtype)
    ids = torch.randint(19, (batch, T), generator=torch.Generator().manual_seed(batch * 100 + prefilled))
    assert_close(cached_logits(model, ids, prefilled), model(ids))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", VARIANTS)
def test_cached_is_uncached_at_every_position(name: str, dtype: torch.dtype) -> None:
    for batch, prefilled in product([1, 3], [1, 2, T - 1, T]):
        check_cache(batch, prefilled, dtype, name)


@pytest.mark.parametrize("prefilled", [1, 2, T - 1])
def test_cache_check_notices_a_cache_that_stands_still(prefilled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVCache, "advance", lambda self, tokens: None)
    with pytest.raises(AssertionError):
        check_cache(3, prefilled, torch.float64)


def check_pieces(name: str) -> None:
    """New tokens may come several at a time, in pieces of any length."""
    model = random_model(variant(name))
    ids = torch.randint(19, (2, T), generator=torch.Generator().manual_seed(1))
    whole = model(ids)
    for lengths in ([5, 5, 2], [10, 2], [1, 7, 1, 1, 2], [3, 3, 3, 3], [2, 6, 4]):
        kept = new_cache(model, 2)
        assert_close(torch.cat([model(piece, kept) for piece in ids.split(lengths, dim=1)], dim=1), whole)


@pytest.mark.parametrize("name", VARIANTS)
def test_new_tokens_may_come_several_at_a_time(name: str) -> None:
    check_pieces(name)


@pytest.mark.parametrize("check", [check_pieces, lambda name: check_cache(3, 7, torch.float64, name)])
def test_control_a_window_that_forgets_a_token(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cache.cached_tokens
    monkeypatch.setattr(cache, "cached_tokens", lambda config: [tokens - 1 for tokens in kept(config)])
    with pytest.raises(AssertionError):
        check("window")


def test_a_cache_is_no_longer_than_it_must_be() -> None:
    """Grouped heads share keys and values, and a layer with a window keeps no more tokens than that."""
    per_token = 2 * 4 * 8  # a key and a value for a head of 4 numbers in float64
    tokens = {"gpt2": 3 * T * 4, "grouped": 3 * T * 2, "window": 3 * 5 * 4, "alternate windows": (3 + T + 3) * 4}
    for name, kept in tokens.items():
        made = new_cache(random_model(variant(name)), 2)
        assert sum(part.nbytes for part in made.keys + made.values) == 2 * kept * per_token
        assert cache_bytes(variant(name), 8) == kept * per_token


def uncached_logits(model: GPT, ids: Tensor, prefilled: int) -> Tensor:
    """Logits from token number `prefilled` on, (B, T - P + 1, V): every step computes its whole window anew.

    A window that has grown past the context loses its oldest half, half by half.
    """
    context = model.config.block_size
    half = (context + 1) // 2
    seen, logits = ids[:, :0], []
    for t in range(ids.shape[1]):
        seen = torch.cat((seen, ids[:, t : t + 1]), dim=1)
        if seen.shape[1] > context:
            seen = seen[:, half:]
        if t + 1 >= prefilled:
            logits.append(model(seen)[:, -1])
    return torch.stack(logits, dim=1)


def windowed_logits(model: GPT, ids: Tensor, prefilled: int) -> tuple[Tensor, int]:
    """The same from the product, and how often the window slid."""
    cached = ContextWindow(model, ids.shape[0])
    logits = [cached.prefill(ids[:1, :prefilled])]
    logits += [cached.append(ids[:, t : t + 1]).clone() for t in range(prefilled, ids.shape[1])]
    return torch.stack(logits, dim=1), cached.slides


def check_slides(context: int, prefilled: int, dtype: torch.dtype = torch.float64, name: str = "gpt2") -> int:
    model = random_model(variant(name, block_size=context), dtype)
    tokens = 3 * context + 2
    ids = torch.randint(19, (3, tokens), generator=torch.Generator().manual_seed(context))
    ids[:, :prefilled] = ids[:1, :prefilled]  # one prompt, three continuations
    actual, slides = windowed_logits(model, ids, prefilled)
    assert_close(actual, uncached_logits(model, ids, prefilled))
    return slides


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("context", [8, 9])
@pytest.mark.parametrize("prompt", ["one token", "the context", "one more", "two contexts"])
def test_past_the_context(context: int, prompt: str, dtype: torch.dtype) -> None:
    lengths = {"one token": 1, "the context": context, "one more": context + 1, "two contexts": 2 * context}
    assert check_slides(context, lengths[prompt], dtype) >= (2 if lengths[prompt] <= context else 1)


@pytest.mark.parametrize("name", [*FAMILIES, "sinusoidal", "one kv head", "alternate windows", "strange"])
def test_past_the_context_with_every_way_to_attend(name: str) -> None:
    for prefilled in (1, 8, 9):
        assert check_slides(8, prefilled, name=name)


@pytest.mark.parametrize("context", [1, 2, 3])
def test_tiny_contexts(context: int) -> None:
    check_slides(context, 1)


def test_slide_check_notices_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_window, "window_start", lambda tokens, context: max(0, tokens - context))
    with pytest.raises(AssertionError):
        check_slides(8, 1)


def test_slide_check_notices_a_forgotten_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(self: KVCache) -> None:
        self.length = self.block_size // 2 - 1

    monkeypatch.setattr(KVCache, "clear", stale)
    with pytest.raises((AssertionError, RuntimeError)):
        check_slides(8, 1)


@pytest.mark.parametrize("context", [1, 2, 7, 8])
def test_window_start_is_the_rule_applied_token_by_token(context: int) -> None:
    start = 0
    for tokens in range(1, 5 * context):
        if tokens - start > context:
            start += (context + 1) // 2
        assert window_start(tokens, context) == start


def test_broken_weights_are_an_error() -> None:
    model = random_model(CONFIG)
    model.ln_f.weight[3] = math.nan
    with pytest.raises(ModelFolderError, match="NaN"):
        ContextWindow(model, 2).prefill(torch.tensor([[1, 2]]))


def test_too_many_samples_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(context_window, "KVCache", refuse)
    with pytest.raises(OutOfMemoryError, match="1,000 samples"):
        ContextWindow(random_model(CONFIG), 1000)


def test_the_error_names_the_number_of_samples_that_fits() -> None:
    model = random_model(CONFIG)
    each = 2 * 2 * T * 16 * 8 + 4 * 8 * 19  # keys and values in float64, and logits
    context_window.require_memory(model, 5, 5 * each)
    with pytest.raises(OutOfMemoryError) as caught:
        context_window.require_memory(model, 6, 5 * each)
    assert "`num_samples = 5`" in caught.value.hint


def test_a_model_in_training_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="dropout"):
        ContextWindow(random_model(CONFIG).train(), 1)
