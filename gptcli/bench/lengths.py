"""The time of one more token at several lengths, with the key-value cache and without one.

Only forward passes are measured, so that the two are comparable: choosing a token takes the same time in both.

Letters: T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import torch

from gptcli.bench.limits import seconds_per_call
from gptcli.model.cache import KVCache
from gptcli.model.cost import cache_bytes
from gptcli.model.gpt import GPT

LENGTH_SECONDS = 0.3
"""Seconds spent on measuring each way at each length; more if `MIN_CALLS` passes take longer."""
MIN_CALLS = 5
SHORTEST = 16
"""Tokens below which both ways take the time of a single pass."""


@dataclass(frozen=True)
class LengthSpeed:
    """One token of one sequence. Times are medians."""

    tokens: int
    """Tokens that the new one attends to, itself included."""
    cached_seconds: float
    """With the keys and values of the earlier tokens in the cache."""
    uncached_seconds: float
    """Without a cache: a forward pass over all tokens."""
    cache_bytes: int

    @property
    def gain(self) -> float:
        """Ratio of the two times: the speedup by the cache."""
        return self.uncached_seconds / self.cached_seconds


@torch.inference_mode()
def measure_lengths(model: GPT) -> tuple[LengthSpeed, ...]:
    """The speed at an eighth, a quarter, a half and the whole of the context window."""
    context = model.config.block_size
    lengths = sorted({context // share for share in (8, 4, 2, 1)})
    return tuple(_measured(model, length) for length in lengths if length >= SHORTEST)


def _measured(model: GPT, length: int) -> LengthSpeed:
    weight = model.wte.weight
    ids = torch.randint(model.config.vocab_size, (1, length), device=weight.device)  # (1, T)
    cache = KVCache(model.config, 1, device=weight.device, dtype=weight.dtype)
    model.hidden(ids[:, :-1], cache)

    def with_cache() -> None:
        model.head(model.hidden(ids[:, -1:], cache))
        cache.length = length - 1  # the next call writes the same token again

    def without_cache() -> None:
        model.head(model.hidden(ids)[:, -1])

    cached, uncached = (
        median(seconds_per_call(call, weight.device, LENGTH_SECONDS, MIN_CALLS)) for call in (with_cache, without_cache)
    )
    return LengthSpeed(length, cached, uncached, cache_bytes(model.config, weight.element_size(), length))
