"""The cached window against uncached passes: inside the context at every position, and past it by the same rule.

Letters: B sequences, T tokens, P of them prefilled, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.errors import ModelFolderError, OutOfMemoryError
from gptcli.generation import window
from gptcli.generation.window import Window, window_start
from gptcli.model.cache import KVCache
from gptcli.model.gpt import GPT
from tests.model.reference import assert_close, random_model

T = 12
CONFIG = ModelConfig(vocab_size=19, n_layer=2, n_head=2, n_embd=16, block_size=T)


def cached_logits(model: GPT, ids: Tensor, prefilled: int) -> Tensor:
    """Logits (B, T, V): the first tokens prefilled, the others one at a time."""
    cache = KVCache(model.config, ids.shape[0], device=ids.device, dtype=model.wte.weight.dtype)
    parts = [model(ids[:, :prefilled], cache)]  # (B, P, V)
    parts += [model(ids[:, t : t + 1], cache) for t in range(prefilled, ids.shape[1])]  # of (B, 1, V)
    return torch.cat(parts, dim=1)


def check_cache(batch: int, prefilled: int, dtype: torch.dtype) -> None:
    model = random_model(CONFIG, dtype)
    ids = torch.randint(19, (batch, T), generator=torch.Generator().manual_seed(batch * 100 + prefilled))
    assert_close(cached_logits(model, ids, prefilled), model(ids))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("prefilled", [1, 2, T - 1, T])
@pytest.mark.parametrize("batch", [1, 3])
def test_cached_is_uncached_at_every_position(batch: int, prefilled: int, dtype: torch.dtype) -> None:
    check_cache(batch, prefilled, dtype)


@pytest.mark.parametrize("prefilled", [1, 2, T - 1])
def test_cache_check_notices_a_cache_that_stands_still(prefilled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVCache, "advance", lambda self, tokens: None)
    with pytest.raises(AssertionError):
        check_cache(3, prefilled, torch.float64)


def test_new_tokens_may_come_several_at_a_time() -> None:
    model = random_model(CONFIG)
    ids = torch.randint(19, (2, T))
    cache = KVCache(CONFIG, 2, device=ids.device, dtype=torch.float64)
    parts = [model(ids[:, start : start + 5], cache) for start in range(0, T, 5)]
    assert_close(torch.cat(parts, dim=1), model(ids))


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
    product = Window(model, ids.shape[0])
    logits = [product.prefill(ids[:1, :prefilled])]
    logits += [product.append(ids[:, t : t + 1]) for t in range(prefilled, ids.shape[1])]
    return torch.stack(logits, dim=1), product.slides


def check_slides(context: int, prefilled: int, dtype: torch.dtype = torch.float64) -> int:
    model = random_model(CONFIG.model_copy(update={"block_size": context}), dtype)
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


@pytest.mark.parametrize("context", [1, 2, 3])
def test_tiny_contexts(context: int) -> None:
    check_slides(context, 1)


def test_slide_check_notices_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "window_start", lambda tokens, context: max(0, tokens - context))
    with pytest.raises(AssertionError):
        check_slides(8, 1)


def test_slide_check_notices_a_forgotten_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(self: KVCache) -> None:
        self.length = self.keys.shape[3] // 2 - 1

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


def test_broken_weights_are_told() -> None:
    model = random_model(CONFIG)
    model.ln_f.weight[3] = math.nan
    with pytest.raises(ModelFolderError, match="NaN"):
        Window(model, 2).prefill(torch.tensor([[1, 2]]))


def test_too_many_samples_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(window, "KVCache", refuse)
    with pytest.raises(OutOfMemoryError, match="1,000 samples"):
        Window(random_model(CONFIG), 1000)


def test_the_number_of_samples_that_fits_is_told() -> None:
    model = random_model(CONFIG)
    each = 2 * 2 * T * 16 * 8 + 4 * 8 * 19  # keys and values in float64, and logits
    window.require_memory(model, 5, 5 * each)
    with pytest.raises(OutOfMemoryError) as caught:
        window.require_memory(model, 6, 5 * each)
    assert caught.value.hint == "Use --num-samples 5."


def test_a_model_in_training_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="dropout"):
        Window(random_model(CONFIG).train(), 1)
